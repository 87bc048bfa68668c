"""Host time of a call on a 64×64 complex64 problem on a GPU: mathfuse, PyTorch, CuPy and nvmath-python.

The best of several interleaved rounds of 2,000 calls, synchronised before and after.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from typing import Any

import mathfuse as mf
from benchmarks import gpu, peers, records
from benchmarks.fft_callbacks import weighted
from benchmarks.records import Bound, Row

NAME = "overhead"
CALLS, ROUNDS = 2000, 7
BASE, BASE_OUT = "torch.fft.fft(x)", "torch.fft.fft(x, out=)"
EXECUTE, EXECUTE_OUT, KNOWN = "FFT.execute()", "FFT.execute(out=)", "mf.fft.fft(x)"
EPILOG = ", epilog"
MOST = {EXECUTE: (BASE, 1.0), EXECUTE_OUT: (BASE_OUT, 0.6), KNOWN: (BASE, 1.5)}  # like against like

Calls = dict[tuple[str, str], Callable[[], Any]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--calls", type=int, default=CALLS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--results", type=gpu.Path, help="folder to write to, by default benchmarks/results")


def main(arguments: argparse.Namespace) -> None:
    cp = gpu.cupy()
    x, w = gpu.uniform((64, 64), "complex64"), gpu.uniform((64, 64), "float32")
    torch = gpu.optional("torch")
    calls = {**ours("CuPy", x, w, cp.empty_like), ("CuPy", "cupy.fft.fft(x)"): lambda: cp.fft.fft(x), **nvmath(x, w)}
    if torch is not None:
        tx, tw = torch.from_dlpack(x), torch.from_dlpack(w)
        there = torch.empty_like(tx)
        calls |= {**ours("torch", tx, tw, torch.empty_like), ("torch", BASE): lambda: torch.fft.fft(tx)}
        calls["torch", BASE_OUT] = lambda: torch.fft.fft(tx, out=there)
    rows = timed(calls, arguments.calls, arguments.rounds)
    found = bounds(rows)
    print(records.pivot(rows, "us", "name", "arrays", "{:.2f}".format))
    print("\n".join(map(str, found)))
    machine = gpu.machine(calls=arguments.calls, rounds=arguments.rounds)
    print(records.save(NAME, machine, rows, found, arguments.results))


def ours(arrays: str, x: Any, w: Any, empty_like: Callable[[Any], Any]) -> Calls:
    """mathfuse's ways to transform, without a callback and with one."""
    calls: Calls = {}
    for suffix, callback in (("", {}), (EPILOG, {"epilog": weighted(w=w)})):
        plan, out = mf.fft.FFT(x, kind="fft").plan(**callback), empty_like(x)
        calls[arrays, EXECUTE + suffix] = plan.execute
        calls[arrays, EXECUTE_OUT + suffix] = lambda plan=plan, out=out: plan.execute(out)
        calls[arrays, KNOWN + suffix] = lambda callback=callback: mf.fft.fft(x, **callback)
    multiply, out = weighted(w=w), empty_like(x)
    calls[arrays, "mf.elementwise(epilog, x)"] = lambda: mf.elementwise(multiply, x)
    calls[arrays, "mf.elementwise(epilog, x, out=)"] = lambda: mf.elementwise(multiply, x, out=out)
    return calls


def nvmath(x: Any, w: Any) -> Calls:
    library = gpu.optional("nvmath.fft")
    if library is None:
        return {}
    return {
        ("CuPy", "nvmath FFT.execute()"): peers.nvmath_plan(x).execute,
        ("CuPy", "nvmath FFT.execute(), epilog"): peers.nvmath_plan(x, after=w).execute,
        ("CuPy", "nvmath.fft.fft(x)"): lambda: library.fft(x, axes=[1]),
    }


def timed(calls: Calls, count: int, rounds: int) -> list[Row]:
    """Microseconds a call: the best of the rounds."""
    synchronise = gpu.cupy().cuda.runtime.deviceSynchronize
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for key in random.sample(list(calls), len(calls)):
            call = calls[key]
            # A call of half a millisecond is known well enough after fewer.
            repeat = range(max(1, count // 20 if best[key] > 200 and best[key] != float("inf") else count))
            call()
            synchronise()
            start = time.perf_counter()
            for _ in repeat:
                call()
            synchronise()
            best[key] = min(best[key], 1e6 * (time.perf_counter() - start) / len(repeat))
    return [{"arrays": arrays, "name": name, "us": us} for (arrays, name), us in best.items()]


def bounds(rows: list[Row]) -> list[Bound]:
    """Of torch.fft.fft's time, for both frameworks, without a callback and with one."""
    found = {(row["arrays"], row["name"]): row["us"] for row in rows}
    made = []
    for (arrays, name), us in found.items():
        base, most = MOST.get(name.removesuffix(EPILOG), ("", 0.0))
        if ("torch", base) in found:
            made.append(Bound(f"{arrays} {name}: of {base}", us / found["torch", base], most))
    return made
