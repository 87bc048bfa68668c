"""A race on one GPU, timed by events; nothing here is imported before a benchmark runs.

The GPU is held busy while the calls of a sample are queued, so that a sample is their time on the GPU and not the
host's, however short they are.
"""

from __future__ import annotations

import argparse
import fcntl
import functools
import importlib
import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import harness

SAMPLES, MOST_CALLS, SAMPLE_MS = 25, 20, 0.2
PACKAGES = ["mathfuse", "numpy", "cupy-cuda13x", "cupy-cuda12x", "torch", "nvmath-python", "numba", "numba-cuda"]
LOCK: str | None = None  # a file that processes share which measure one at a time
SPIN = r"""
extern "C" __global__ void hold(long long nanoseconds) {
    long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)); while (now - start < nanoseconds);
}
"""


@dataclass
class Variant:
    """One way to compute something; `run` queues it and gives the result."""

    name: str
    run: Callable[[], Any]
    samples: list[float] = field(default_factory=list)  # milliseconds a call
    error: float | None = None  # largest, over the largest expected value

    @property
    def ms(self) -> float:
        return statistics.median(self.samples)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--samples", type=int, default=SAMPLES, help="of each variant; the median counts")
    parser.add_argument("--results", type=Path, help="folder to write to, by default benchmarks/results")


@functools.cache
def cupy() -> Any:
    """CuPy, on a machine that has a GPU."""
    from mathfuse.runtime.cuda import driver

    if reason := driver.why_unavailable():
        raise SystemExit(f"this benchmark needs a GPU: {reason}")
    import cupy

    return cupy


def optional(name: str) -> Any:
    """A peer's package; None, with a line that says so, where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        print(f"without {name}: {error}")
        return None


def machine(**settings: Any) -> dict[str, Any]:
    """What a results file says about where and how it was made."""
    from mathfuse.runtime.cuda import cufft

    cp = cupy()
    properties = cp.cuda.runtime.getDeviceProperties(cp.cuda.Device().id)
    versions = {package: found for package in PACKAGES if (found := harness.version(package))}
    return {
        "device": properties["name"].decode(),
        "versions": {
            **versions,
            "CUDA driver": cp.cuda.runtime.driverGetVersion(),
            "cuFFT": ".".join(map(str, cufft.version())),
        },
        "settings": settings,
    }


def uniform(shape: Sequence[int], dtype: Any, low: float = -0.5, high: float = 0.5) -> Any:
    """Random numbers of any dtype on the GPU; both parts of complex ones."""
    cp, dtype = cupy(), np.dtype(dtype)
    if dtype.kind in "ui":
        return cp.random.randint(0, 100, shape).astype(dtype)
    real = np.dtype(np.float64 if dtype in (np.float64, np.complex128) else np.float32)
    numbers = cp.random.random(math.prod(shape) * (2 if dtype.kind == "c" else 1), dtype=real)
    numbers *= real.type(high - low)
    numbers += real.type(low)
    return numbers.view(dtype).reshape(shape) if dtype.kind == "c" else numbers.astype(dtype).reshape(shape)


def check(variant: Variant, expected: Any, tolerance: float, pick: Callable[[Any], Any] = lambda y: y) -> None:
    """Run a variant once and compare what `pick` takes of its result with the expected values."""
    cp = cupy()
    result = cp.asarray(pick(variant.run()))
    variant.error = float(cp.abs(result - expected).max() / cp.abs(expected).max())
    if not variant.error <= tolerance:
        raise ArithmeticError(f"{variant.name} is wrong by {variant.error:.2e}, more than {tolerance:.0e}")


def copier(target: Any, source: Any) -> Callable[[], Any]:
    """A copy by the driver of `source` into `target`, both contiguous and of the same size."""
    copy = cupy().cuda.runtime.memcpyAsync
    arguments = target.data.ptr, source.data.ptr, source.nbytes, 3, 0

    def run() -> Any:
        copy(*arguments)
        return target

    return run


def captured(run: Callable[[], Any], calls: int) -> Callable[[], Any]:
    """What launches a CUDA graph of so many calls of `run`, which queues on the current stream."""
    cp = cupy()
    stream = cp.cuda.Stream(non_blocking=True)
    cp.cuda.runtime.deviceSynchronize()
    with stream:
        run()  # workspaces and modules
        stream.synchronize()
        stream.begin_capture()
        try:
            for _ in range(calls):
                result = run()
        finally:
            graph = stream.end_capture()

    def launch() -> Any:
        graph.launch(cp.cuda.get_current_stream())
        return result

    launch.alive = run  # as long as it may be called
    return launch


def copy_speed(nbytes: int = 1 << 29) -> float:
    """Bytes a second that a copy larger than the cache reads and writes."""
    cp = cupy()
    copy = Variant("copy", copier(cp.empty(nbytes, "uint8"), cp.empty(nbytes, "uint8")))
    race([copy])
    return 2 * nbytes / copy.ms * 1e3


@contextmanager
def alone() -> Iterator[None]:
    """While no other process that has the same `LOCK` measures."""
    if LOCK is None:
        yield
        return
    with open(LOCK, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # until the file is closed
        yield


def time_plans_alone() -> None:
    """Have plans that are tuned measure alone, too."""
    from mathfuse.fusion.transforms.cuda import prepared

    time = prepared.milliseconds

    def timed(*given: Any) -> float:
        with alone():
            return time(*given)

    prepared.milliseconds = timed


def race(variants: Sequence[Variant], samples: int = SAMPLES) -> None:
    """Time all variants anew, in another order each round."""
    with alone():
        _race(variants, samples)


def _race(variants: Sequence[Variant], samples: int) -> None:
    cp = cupy()
    hold, stamps = _hold(), []
    plans = {id(variant): _calls(variant, hold) for variant in variants}
    for variant in variants:
        variant.samples.clear()
    for _ in range(samples):
        for variant in random.sample(list(variants), len(variants)):
            calls, nanoseconds = plans[id(variant)]
            begin, end = cp.cuda.Event(), cp.cuda.Event()
            hold((1,), (1,), (np.int64(nanoseconds),))
            begin.record()
            for _ in range(calls):
                variant.run()
            end.record()
            stamps.append((variant, calls, begin, end))
    cp.cuda.runtime.deviceSynchronize()
    for variant, calls, begin, end in stamps:
        variant.samples.append(cp.cuda.get_elapsed_time(begin, end) / calls)


@functools.cache
def _hold() -> Any:
    return cupy().RawKernel(SPIN, "hold")


def _calls(variant: Variant, hold: Any) -> tuple[int, int]:
    """How many calls make a sample, and the nanoseconds that queueing them takes at most."""
    cp = cupy()
    variant.run()  # workspaces and modules
    cp.cuda.runtime.deviceSynchronize()
    begin, end = cp.cuda.Event(), cp.cuda.Event()
    hold((1,), (1,), (np.int64(300_000),))
    begin.record()
    start = time.perf_counter()
    for _ in range(3):
        variant.run()
    host = (time.perf_counter() - start) / 3
    end.record()
    end.synchronize()
    calls = max(1, min(MOST_CALLS, math.ceil(3 * SAMPLE_MS / max(cp.cuda.get_elapsed_time(begin, end), 1e-3))))
    return calls, int(1e9 * min(2 * calls * host + 20e-6, 5e-3))
