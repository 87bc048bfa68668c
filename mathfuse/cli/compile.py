"""`mathfuse compile FILE.py:NAME`: a callback's machine code or audit, for any architecture, with no GPU."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import importlib.util
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mathfuse.runtime.errors import CallbackError, MathFuseError, UnsupportedError

if TYPE_CHECKING:
    from mathfuse.epilogs import Callback

EMIT = ("audit", "ltoir", "ptx", "sass")
BINARY = frozenset({"ltoir"})


def add_to(subparsers: Any) -> None:
    command = subparsers.add_parser("compile", help="compile a callback for a GPU architecture, and audit the result")
    command.add_argument("callback", metavar="FILE.py:NAME", help="a Python file and the name of a callback in it")
    command.add_argument("--pipeline", choices=("fft", "matmul", "elementwise"), default="fft")
    command.add_argument("--dtype", default="complex64", help="dtype of the elements (default: complex64)")
    command.add_argument("--arch", default="sm_90a", help="architecture (default: sm_90a)")
    command.add_argument("--emit", choices=EMIT, default="audit", help="what to print (default: audit, as JSON)")
    command.add_argument("--output", metavar="FILE", help="where it goes (default: standard output)")
    command.add_argument(
        "--operand",
        action="append",
        default=[],
        metavar="NAME=SPEC",
        help="an operand: an array by dtype and rank, as in bias=float32[1], or a number, as in sigma=8.0; repeatable",
    )
    command.add_argument("--side", choices=("prolog", "epilog"), help="side of a transform (default: the callback's)")
    command.add_argument("--ndim", type=int, help="rank of the index space (default: the largest rank of an operand)")
    command.add_argument(
        "--axes", type=integers, help="transform axes, as in 0,1 (default: all, or a product's last two)"
    )
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    import mathfuse as mf

    compiled = mf.compile(
        load(args.callback),
        args.pipeline,
        dtype=args.dtype,
        operands=dict(map(operand, args.operand)),
        arch=args.arch,
        side=args.side,
        ndim=args.ndim,
        axes=args.axes,
    )
    content = emit(compiled, args.emit)
    if args.output:
        Path(args.output).write_bytes(content)
    elif args.emit in BINARY and sys.stdout.isatty():
        raise UnsupportedError(f"{args.emit} is binary: give --output FILE, or send standard output to a file")
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
    return 0


def emit(compiled: Any, what: str) -> bytes:
    """One of `EMIT` as bytes; text ends with a newline."""
    if what == "audit":
        return (json.dumps(dataclasses.asdict(compiled.audit), indent=2) + "\n").encode()
    content = getattr(compiled, what)
    return content if what in BINARY else (content.rstrip("\n") + "\n").encode()


def load(reference: str) -> Callback:
    """The callback that `FILE.py:NAME` names; the file runs, as an import would run it.

    Raises
    ------
    MathFuseError
        If the reference is malformed, the file does not run, or the name is no callback; the message says which.
    OSError
        If the file cannot be read.
    """
    path, _, name = reference.rpartition(":")
    if not path or not name.isidentifier():
        raise UnsupportedError(f"{reference!r} does not name a callback; write FILE.py:NAME, as in filters.py:gaussian")
    names = vars(execute(Path(path)))
    if is_callback(names.get(name)):
        return names[name]
    have = ", ".join(sorted(key for key, value in names.items() if is_callback(value))) or "none"
    if name in names:
        raise CallbackError(
            f"{name} in {path} is not a callback; decorate it with @mathfuse.epilog (callbacks: {have})"
        )
    raise CallbackError(f"{path} has no name {name} (callbacks: {have})")


def is_callback(value: object) -> bool:
    from mathfuse.epilogs import Callback

    return isinstance(value, Callback)


def execute(path: Path) -> Any:
    """The module that the Python file `path` makes; its own folder comes first among the imports, as for a script."""
    path.open("rb").close()  # a missing file is an OSError by its name
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UnsupportedError(f"{path} is not a Python file (.py)")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    except MathFuseError:
        raise
    except (Exception, SystemExit) as error:
        line = getattr(error, "lineno", None) or last_line(error, path)
        raise CallbackError(f"{path}:{line}: {type(error).__name__}: {error}") from error
    finally:
        sys.path.pop(0)
    return module


def last_line(error: BaseException, path: Path) -> int | str:
    """The last line of the file `path` that the error's traceback passes through."""
    found: int | str = "?"
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            found = trace.tb_lineno
        trace = trace.tb_next
    return found


def operand(text: str) -> tuple[str, object]:
    """`NAME=NUMBER` as that number, `NAME=TYPE` as the text that `mathfuse.compile` takes ("float32[2]", "float")."""
    name, _, spec = (part.strip() for part in text.partition("="))
    if not (name.isidentifier() and spec):
        raise UnsupportedError(f"--operand {text}: write NAME=DTYPE[RANK], as in bias=float32[1], or NAME=NUMBER")
    try:
        return name, ast.literal_eval(spec)
    except (ValueError, SyntaxError):
        return name, spec


def integers(text: str) -> tuple[int, ...]:
    """Comma-separated integers."""
    try:
        return tuple(map(int, text.split(",")))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is no list of integers, such as 0,1") from None
