"""The `mathfuse` command. A subcommand is a module with `add_to(subparsers)`; what it needs it imports when it runs."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence

import mathfuse
from mathfuse.cli import cache, compile, demo, doctor, tune
from mathfuse.runtime.errors import MathFuseError

SUBCOMMANDS = (demo, doctor, compile, tune, cache)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's own) and return its exit code.

    0 is success, 1 a check that failed, 2 a wrong use or an error that mathfuse explains in one line.
    """
    args = parser().parse_args(argv)
    if args.verbose:
        logging.basicConfig(format="%(name)s: %(message)s")
        logging.getLogger("mathfuse").setLevel(logging.INFO if args.verbose == 1 else logging.DEBUG)
    try:
        return int(args.run(args))
    except MemoryError as error:
        print("mathfuse: not enough memory:", error, file=sys.stderr)
        return 2
    except (MathFuseError, OSError) as error:
        print("mathfuse:", one_line(error), file=sys.stderr)
        return 2


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    top = argparse.ArgumentParser(prog="mathfuse", description="Python callbacks fused into FFTs and matrix products.")
    top.add_argument("--version", action="version", version=f"mathfuse {mathfuse.__version__}")
    top.add_argument("-v", "--verbose", action="count", default=0, help="log what runs and how long; twice: audits too")
    subparsers = top.add_subparsers(required=True, metavar="COMMAND")
    for module in SUBCOMMANDS:
        module.add_to(subparsers)
    return top


def one_line(error: Exception) -> str:
    """An error's message on one line; a failed file operation by its file's name."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split())
