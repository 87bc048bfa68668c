"""A benchmark's problems dealt to processes: they plan at once, and measure one at a time."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from benchmarks import gpu, records

Item = TypeVar("Item")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--processes", type=int, default=1, help="that plan at once")
    parser.add_argument("--part", nargs=3, metavar=("I", "N", "LOCK"), help=argparse.SUPPRESS)


def dealt(command: Sequence[str], name: str, count: int) -> list[dict[str, Any]]:
    """The records of a command of the benchmarks that runs in so many processes, each with its part of the problems."""
    folder = Path(tempfile.mkdtemp())
    whole = [sys.executable, "-m", "benchmarks", *command]
    children = [
        subprocess.Popen([*whole, f"--results={folder / str(i)}", "--part", str(i), str(count), str(folder / "lock")])
        for i in range(count)
    ]
    for child in children:
        child.wait()
    found = [record for i in range(count) if (record := records.load(name, folder / str(i)))]
    if not found:
        raise SystemExit("nothing works: see above")
    return found


def mine(problems: Sequence[Item], part: Sequence[str] | None) -> Sequence[Item]:
    """The problems of this process, which measures when no other one does; all of them where there is none."""
    if part is None:
        return problems
    number, count, gpu.LOCK = int(part[0]), int(part[1]), part[2]
    gpu.time_plans_alone()
    return problems[number::count]
