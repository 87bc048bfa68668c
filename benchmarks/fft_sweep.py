"""Many problems with a prolog, an epilog or both, each against cuFFT and one elementwise kernel a side.

Fusing may lose by 3 % at most, and the choice as much against callbacks in cuFFT. Each is planned by the rule and,
after that, with ``tune=True``; the strategies taken are in the results file, which is written after each problem. A run
with ``--resume`` goes on where the last one ended; with ``--processes`` several plan at once, one at a time measures.
"""

from __future__ import annotations

import argparse
import functools
import os
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import numpy as np

import mathfuse as mf
from benchmarks import gpu, parts, peers, records
from benchmarks.fft_callbacks import weighted, weighting
from benchmarks.gpu import Variant
from benchmarks.records import Bound, Row
from benchmarks.sweep_problems import SECTIONS, Problem

NAME = "fft-sweep"
MOST, CALLBACK = 1.03, "callback"
WAYS = {
    "rule": "planned by the rule, of cuFFT + kernels",
    "tuned": "tuned, of cuFFT + kernels",
    "rule_best": "planned by the rule, of the better of that and callbacks",
    "tuned_best": "tuned, of the better of that and callbacks",
}
SIDES = {"prolog": (True, False), "epilog": (False, True), "both": (True, True)}
KINDS = {"c2c": "fftn", "r2c": "rfftn", "c2r": "irfftn"}
CHECKED = 16  # batches


def add_arguments(parser: argparse.ArgumentParser) -> None:
    gpu.add_arguments(parser)
    parser.add_argument("--sections", nargs="+", default=list(SECTIONS), choices=list(SECTIONS))
    parser.add_argument("--limit", type=float, default=float("inf"), metavar="SECONDS", help="begin no problem later")
    parser.add_argument("--resume", action="store_true", help="keep the rows that are in the results file")
    parts.add_arguments(parser)


def main(arguments: argparse.Namespace) -> None:
    (side_by_side if arguments.processes > 1 else run)(arguments)


def side_by_side(arguments: argparse.Namespace) -> None:
    """The problems dealt to processes; what is over a bound then is measured again, alone."""
    command = ["fft", "sweep", f"--samples={arguments.samples}", f"--limit={arguments.limit}"]
    dealt = parts.dealt([*command, "--sections", *arguments.sections], NAME, arguments.processes)
    found = [row for record in dealt for row in record["rows"]]
    rows, again = [], {row["problem"] for row in over(found)}
    for problem in (problem for section in arguments.sections for problem in SECTIONS[section]):
        mine = [row for row in found if row["problem"] == str(problem)]
        if str(problem) in again:
            mine = [{"section": row["section"], **new} for row, new in zip(mine, measured(problem, gpu.SAMPLES))]
        rows += mine
    machine = {key: dealt[0][key] for key in ("device", "versions", "settings")}
    print("\n".join([*map(line, over(rows)), *map(str, bounds(rows))]))
    print(records.save(NAME, machine, rows, bounds(rows), arguments.results))


def run(arguments: argparse.Namespace) -> None:
    start = time.perf_counter()
    os.environ["MATHFUSE_CACHE_DIR"] = tempfile.mkdtemp()  # no timings of earlier runs in plans by the rule
    before = (records.load(NAME, arguments.results) or records.load(NAME)) if arguments.resume else None
    rows: list[Row] = without_failed(before["rows"]) if before else []
    known = {row["problem"] for row in rows}
    todo = [(s, p) for s in arguments.sections for p in SECTIONS[s] if str(p) not in known]
    todo = parts.mine(todo, arguments.part)
    machine = gpu.machine(samples=arguments.samples, copy_GBs=copy_speed() / 1e9)
    for done, (section, problem) in enumerate(todo):
        if time.perf_counter() - start > arguments.limit:
            print(f"the time is up: {len(todo) - done} problems are left for --resume")
            break
        for row in measured(problem, arguments.samples):
            rows.append({"section": section, **row})
            print(f"[{time.perf_counter() - start:6.1f}] {line(row)}", flush=True)
        if not without_failed(rows):
            raise SystemExit("nothing works: see above")
        gpu.cupy().get_default_memory_pool().free_all_blocks()
        records.save(NAME, machine, rows, bounds(rows), arguments.results)
    print("\n".join([*map(line, over(rows)), *map(str, bounds(rows))]))


@functools.cache
def copy_speed() -> float:
    return gpu.copy_speed()


def measured(problem: Problem, samples: int) -> list[Row]:
    """A row a side; what fails is a row that says why."""
    cp = gpu.cupy()
    x, before, after = operands(problem)
    y = cp.empty(after.shape, result_dtype(problem))
    pick = np.unique(np.linspace(0, problem.batch - 1, min(problem.batch, CHECKED)).astype(int))
    rows = []
    for side, (with_prolog, with_epilog) in SIDES.items():
        row: Row = {"problem": str(problem), **asdict(problem), "side": side}
        sides = before if with_prolog else None, after if with_epilog else None
        try:
            expected = exact(problem, x[pick], *(None if w is None else w[pick] for w in sides))
            row |= one_side(problem, x, *sides, y, pick, expected, samples)
            nbytes = sum(array.nbytes for array in (x, *sides, y) if array is not None)
            rows.append(row | {"of_limit": round(1e-3 * row["ms"]["rule"] * copy_speed() / nbytes, 3)})
        except Exception as error:  # the sweep goes on; the row counts as a bound that is not met
            rows.append(row | {"failed": f"{type(error).__name__}: {error}"[:300]})
    return rows


def one_side(
    problem: Problem, x: Any, before: Any, after: Any, y: Any, pick: Any, expected: Any, samples: int
) -> dict[str, Any]:
    cp = gpu.cupy()
    callbacks = {
        **({"prolog": weighting(w=before)} if before is not None else {}),
        **({"epilog": weighted(w=after)} if after is not None else {}),
    }
    plans, found = {}, {}
    for name, tune in (("rule", False), ("tuned", True)):
        start = time.perf_counter()
        plans[name] = plan = fft(problem, x).plan(**callbacks, tune=tune)
        cp.cuda.runtime.deviceSynchronize()
        if not tune:
            ways = strategies(problem, x, callbacks)  # compiled and planned before they are timed
        found[f"{name}_plan_s"] = round(time.perf_counter() - start, 4)
        explained = plan.explain()
        found |= {f"{name}_strategy": explained.strategy, f"{name}_reason": explained.reason}
        found[f"{name}_rejected"] = [": ".join(each) for each in explained.rejected]
    variants = {name: Variant(name, lambda plan=plan: plan.execute(out=y)) for name, plan in plans.items()}
    separate = peers.separate(problem.family, problem.lengths, x, before, after, y)
    variants |= {name: Variant(name, run) for name, run in separate.items()}
    if CALLBACK in ways:
        variants[CALLBACK] = Variant(CALLBACK, lambda: ways[CALLBACK].execute(out=y))
    for variant in variants.values():
        y.fill(float("nan"))
        gpu.check(variant, expected, 1e-12 if problem.double else 2e-5, lambda result: result[pick])
    gpu.race(list(variants.values()), samples)
    if max(ratios(variants, separate).values()) > MOST:  # noise? three times the samples decide
        gpu.race(list(variants.values()), 3 * samples)
        found["timed_again"] = True
    times = {name: round(variant.ms, 6) for name, variant in variants.items()}
    return {**ratios(variants, separate), "ms": times, "error": variants["rule"].error, **found}


def strategies(problem: Problem, x: Any, callbacks: dict[str, Any]) -> dict[str, Any]:
    """A plan of each strategy that serves."""
    found = {}
    for strategy in ("kernel", CALLBACK, "sequence"):
        with suppress(mf.UnsupportedError):
            found[strategy] = fft(problem, x).plan(**callbacks, strategy=strategy)
    return found


def ratios(variants: dict[str, Variant], separate: Any) -> dict[str, float]:
    """Times by the rule and tuned as multiples of the fastest separate way's, and of callbacks' if these are faster."""
    base = min(variants[name].ms for name in separate)
    best = min(base, variants[CALLBACK].ms) if CALLBACK in variants else base
    ways = {"rule": base, "tuned": base, "rule_best": best, "tuned_best": best}
    return {name: round(variants[name.partition("_")[0]].ms / least, 4) for name, least in ways.items()}


# --- data ------------------------------------------------------------------------------------------------------------


def axes(problem: Problem) -> tuple[int, ...]:
    return tuple(range(1, 1 + len(problem.lengths)))


def fft(problem: Problem, x: Any) -> Any:
    """Unscaled, as cuFFT is; an inverse of odd length must be told the length."""
    real = problem.family == "c2r"
    lengths = problem.lengths if real else None
    return mf.fft.FFT(x, axes(problem), lengths, KINDS[problem.family], "forward" if real else None)


def exact(problem: Problem, x: Any, before: Any, after: Any) -> Any:
    """The result in float64."""
    cp = gpu.cupy()
    x = x.astype("complex128" if x.dtype.kind == "c" else "float64")
    x = x if before is None else x * before
    if problem.family == "c2r":
        y = cp.fft.irfftn(x, problem.lengths, axes(problem), norm="forward")
    else:
        y = getattr(cp.fft, KINDS[problem.family])(x, axes=axes(problem))
    return y if after is None else y * after


def result_dtype(problem: Problem) -> str:
    bits = 64 if problem.double else 32
    return f"float{bits}" if problem.family == "c2r" else f"complex{2 * bits}"


def operands(problem: Problem) -> tuple[Any, Any, Any]:
    """Input and the weights of both sides, an element each.

    The input of c2r is a real array's spectrum, and weights that differ along the last axis only keep it one.
    """
    cp = gpu.cupy()
    full = (problem.batch, *problem.lengths)
    half = (*full[:-1], full[-1] // 2 + 1)
    real, compound = ("float64", "complex128") if problem.double else ("float32", "complex64")
    x = gpu.uniform(full, compound if problem.family == "c2c" else real)
    if problem.family == "c2r":
        x = cp.fft.rfftn(x, axes=axes(problem), norm="ortho").astype(compound)
        row = gpu.uniform(half[-1:], real, 0.5, 1.5)
        return x, cp.ascontiguousarray(cp.broadcast_to(row, half)), gpu.uniform(full, real, 0.5, 1.5)
    after = full if problem.family == "c2c" else half
    return x, gpu.uniform(full, real, 0.5, 1.5), gpu.uniform(after, real, 0.5, 1.5)


# --- what it says ----------------------------------------------------------------------------------------------------


def without_failed(rows: list[Row]) -> list[Row]:
    """The rows of problems of which none failed."""
    failed = {row["problem"] for row in rows if "failed" in row}
    return [row for row in rows if row["problem"] not in failed]


def over(rows: list[Row]) -> list[Row]:
    """Rows that do not keep the bound."""
    return [row for row in rows if "failed" in row or max(row[way] for way in WAYS if way in row) > MOST]


def bounds(rows: list[Row]) -> list[Bound]:
    timed = [row for row in rows if "failed" not in row]
    failed = Bound("problems that failed", len(rows) - len(timed), 0)
    slowest = [(way, max(timed, key=lambda row: row[way])) for way in WAYS if timed and way in timed[0]]
    return [
        *(
            Bound(f"slowest of {len(timed)}, {WAYS[way]}: {row['problem']}, {row['side']}", row[way], MOST)
            for way, row in slowest
        ),
        failed,
    ]


def line(row: Row) -> str:
    head = f"{row['problem']}, {row['side']}"
    if "failed" in row:
        return f"{head}: FAILED {row['failed']}"
    times = ", ".join(f"{name} {1e3 * ms:.2f}" for name, ms in row["ms"].items())
    taken = f"{row['rule_strategy']} {row['rule_plan_s']:.2f} s, {row['tuned_strategy']} {row['tuned_plan_s']:.2f} s"
    return (
        f"{head}: rule {row['rule']:.3f}, tuned {row['tuned']:.3f}, limit × {row['of_limit']:.2f} ({times} µs; {taken})"
    )
