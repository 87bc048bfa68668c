"""Seconds to a first result on a GPU: a new callback on a known size; a known plan in a new process.

That is compiling, planning, one execution and the wait for it. A size is known where the process has planned another
callback on it. A new process has a CUDA context and the input ready, and the plan in a file or its code in the cache.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import mathfuse as mf
from benchmarks import gpu, records
from benchmarks.first_result import Case, checked, operands, planned, timed
from benchmarks.records import Bound, Row

NAME = "plans"
ELEMENTS = 1 << 24
LENGTHS, STRATEGIES = (256, 1024, 4096, 8192), ("kernel", "callback")
FILTERED = Case((4, 2048, 2048))
ROUNDS = 3
NEW = "new callback, known size"
FROM_FILE, FROM_CACHE = "new process, from a file", "new process, with a cache"
MOST = {NEW: 0.5, FROM_FILE: 0.3, FROM_CACHE: 0.3}  # seconds, of every round

Timing = dict[str, float]  # seconds and error


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of each; the slowest counts")
    parser.add_argument("--lengths", type=int, nargs="*", default=LENGTHS, metavar="N")
    parser.add_argument("--elements", type=int, default=ELEMENTS, help="complex64, in all transforms together")
    parser.add_argument("--results", type=Path, help="folder to write to, by default benchmarks/results")


def main(arguments: argparse.Namespace) -> None:
    machine = gpu.machine(elements=arguments.elements, rounds=arguments.rounds)
    cases = [Case((max(1, arguments.elements // n), n), s) for n in arguments.lengths for s in STRATEGIES]
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name, cache_in(Path(name) / "cache"):
        for case in (*cases, FILTERED):
            rows += measured(case, arguments.rounds, Path(name))
            print(*map(line, rows[-len(MOST) :]), sep="\n", flush=True)
            gpu.cupy().get_default_memory_pool().free_all_blocks()
    found = bounds(rows)
    print(records.pivot(rows, "s", show="{:.3f}".format), *map(str, found), sep="\n")
    print(records.save(NAME, machine, rows, found, arguments.results))


@contextmanager
def cache_in(folder: Path) -> Iterator[None]:
    """The cache of this process and of those that it starts."""
    before = os.environ.get("MATHFUSE_CACHE_DIR")
    os.environ["MATHFUSE_CACHE_DIR"] = str(folder)
    try:
        yield
    finally:
        os.environ.pop("MATHFUSE_CACHE_DIR")
        if before is not None:
            os.environ["MATHFUSE_CACHE_DIR"] = before


def measured(case: Case, rounds: int, folder: Path) -> list[Row]:
    """A row for each claim: the slowest of the rounds, or why it failed."""
    ways: dict[str, Callable[[Case, int, Path], list[Timing]]] = {
        NEW: new_callbacks,
        FROM_FILE: from_file,
        FROM_CACHE: from_cache,
    }
    rows = []
    for name, run in ways.items():
        row: Row = {"case": str(case), "name": name}
        try:
            found = run(case, rounds, folder)
            seconds = [round(each["s"], 4) for each in found]
            rows.append({**row, "s": max(seconds), "all_s": seconds, "error": max(each["error"] for each in found)})
        except Exception as error:  # the others go on; this one counts as a bound that is not met
            rows.append({**row, "failed": f"{type(error).__name__}: {error}"[:600]})
    return rows


# --- in this process -------------------------------------------------------------------------------------------------


def new_callbacks(case: Case, rounds: int, folder: Path) -> list[Timing]:
    """Each of several callbacks that nobody has seen, after another one on the same input."""
    cp = gpu.cupy()
    x, w = operands(case, cp)
    planned(case, x, w).execute()
    found = []
    for k in range(1, rounds + 1):
        number = case.known + k / 8
        make = functools.partial(plus, number, w) if case.strategy else functools.partial(decayed, number)
        seconds, y = timed(lambda make=make: planned(case, x, w, make()), synchronize)
        found.append({"s": seconds, "error": checked(case, x, w, y, number, cp)})
    return found


def synchronize() -> None:
    gpu.cupy().cuda.runtime.deviceSynchronize()


def plus(number: float, w: Any) -> mf.Callback:
    @mf.epilog
    def weighted_plus(value, index, w):
        return value * w[index] + number

    return weighted_plus(w=w)


def decayed(rate: float) -> mf.Callback:
    @mf.epilog
    def transfer(value, index, shape, axes):
        squares = 0.0
        for a in axes:
            f = mf.signed_frequency(index[a], shape[a])
            squares += f * f
        return value * math.exp(-rate * squares)

    return transfer


# --- in a new one ----------------------------------------------------------------------------------------------------


def from_file(case: Case, rounds: int, folder: Path) -> list[Timing]:
    """The known plan from a file, each time with an empty cache."""
    path = folder / f"{case}.plan"
    planned(case, *operands(case, gpu.cupy())).save(path)
    return [in_new_process(case, folder / f"{case}, cache {k}", path) for k in range(rounds)]


def from_cache(case: Case, rounds: int, folder: Path) -> list[Timing]:
    """The known plan by planning, with its code in the cache."""
    planned(case, *operands(case, gpu.cupy()))
    return [in_new_process(case, folder / "cache") for _ in range(rounds)]


def in_new_process(case: Case, cache: Path, path: Path | None = None) -> Timing:
    command = [sys.executable, "-m", "benchmarks.first_result", json.dumps(asdict(case))]
    command += [str(path)] if path else []
    environment = {**os.environ, "MATHFUSE_CACHE_DIR": str(cache)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-500:])
    return dict(json.loads(done.stdout.splitlines()[-1]))


# --- what it says ----------------------------------------------------------------------------------------------------


def bounds(rows: list[Row]) -> list[Bound]:
    found = [Bound(f"{r['case']}: {r['name']}, seconds", r["s"], MOST[r["name"]]) for r in rows if "s" in r]
    failed = [f"{row['case']}, {row['name']}" for row in rows if "failed" in row]
    return [*found, Bound("; ".join(["what failed", *failed]), len(failed), 0)]


def line(row: Row) -> str:
    return f"{row['case']}, {row['name']}: " + (f"{row['s']:.3f} s" if "s" in row else f"FAILED {row['failed']}")
