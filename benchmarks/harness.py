"""What every benchmark shares: an interleaved race, physical limits, peak memory, a table and a JSON file."""

from __future__ import annotations

import gc
import importlib.metadata
import json
import os
import platform
import random
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results"
BUSY = 0.1  # of the machine; the kernel counts in hundredths of a second


@dataclass
class Variant:
    """One way to compute one case; the first variant of a case is the one the others are compared with."""

    case: str
    name: str
    run: Callable[[], np.ndarray]
    least_bytes: int  # that must move: each input read once, the result written once
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    disturbed: list[float] = field(default_factory=list)  # share of the machine that other processes took
    extra_bytes: int | None = None  # peak memory beside inputs and result
    error: float | None = None  # largest, over the largest expected value

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def check(variants: Sequence[Variant], expected: dict[str, np.ndarray], tolerance: float) -> None:
    """Run each variant once and compare it with the value expected of its case."""
    for variant in variants:
        right = expected[variant.case]
        variant.error = float(np.abs(variant.run() - right).max() / np.abs(right).max())
        if not variant.error <= tolerance:
            raise SystemExit(f"{variant.case}, {variant.name}: wrong by {variant.error:.2e}, more than {tolerance:.0e}")


def race(variants: Sequence[Variant], rounds: int, patience_s: float = 60.0) -> None:
    """Time all variants `rounds` times, in another order each round; the caches are filled with other data between.

    A sample during which other processes were busy is taken again, for `patience_s` seconds at most; after that the
    least disturbed one counts.
    """
    other = np.ones(flush_bytes(), np.uint8)
    for _ in range(rounds):
        for variant in random.sample(variants, len(variants)):
            samples, deadline = [], time.perf_counter() + patience_s
            while not samples or (samples[-1][0] > BUSY and time.perf_counter() < deadline):
                if samples:
                    time.sleep(0.5)
                other.max()  # reads only: dirty lines would be written back at the expense of the sample
                samples.append(_sample(variant.run))
            disturbed, seconds, cpu_seconds = min(samples)
            variant.seconds.append(seconds)
            variant.cpu_seconds.append(cpu_seconds)
            variant.disturbed.append(disturbed)


def _sample(run: Callable[[], np.ndarray]) -> tuple[float, float, float]:
    """Share of the machine that other processes took during a run, the run's seconds and its CPU seconds."""
    machine, cpu, start = _busy_seconds(), time.process_time(), time.perf_counter()
    result = run()
    seconds, mine = time.perf_counter() - start, time.process_time() - cpu
    others = _busy_seconds() - machine - mine
    del result
    return max(0.0, others) / seconds / (os.cpu_count() or 1), seconds, mine


def _busy_seconds() -> float:
    """CPU seconds that all processes have taken since the machine started; 0 where there is no /proc."""
    try:
        user, nice, system, _, _, *interrupts = map(int, Path("/proc/stat").read_text().splitlines()[0].split()[1:9])
    except OSError:
        return 0.0
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")


def flush_bytes() -> int:
    """Bytes that push everything else out of the last-level cache, as far as the memory allows."""
    sizes = [
        int(path.read_text().rstrip("K\n")) << 10 for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("*/size")
    ]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(max(sizes, default=1 << 26), memory // 8)


def copy_bandwidth(workers: int) -> float:
    """Bytes a second that `workers` threads read and write when they copy arrays larger than the cache."""
    source = np.ones(flush_bytes() // 8)
    target = np.zeros_like(source)
    pairs = list(zip(np.array_split(source, workers), np.array_split(target, workers)))
    best = float("inf")
    with ThreadPoolExecutor(workers) as pool:
        for _ in range(5):
            start = time.perf_counter()
            list(pool.map(lambda pair: np.copyto(pair[1], pair[0]), pairs))
            best = min(best, time.perf_counter() - start)
    return 2 * source.nbytes / best


def extra_bytes(run: Callable[[], np.ndarray]) -> int | None:
    """Peak resident memory of the first run in a process, beside what was there before and the result; Linux only."""
    gc.collect()
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
        before = _status("VmRSS")
    except OSError:
        return None
    result = run()
    return max(0, _status("VmHWM") - before - result.nbytes)


def _status(name: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) << 10


def table(variants: Sequence[Variant], bandwidth: float) -> str:
    """A line a variant: times, how much faster the case's first variant is, times the physical limit, memory."""
    lines = [f"{'':34} {'median':>9} {'best':>9} {'CPU':>9} {'speed-up':>9} {'limit ×':>8} {'memory':>9} {'error':>8}"]
    for case in dict.fromkeys(v.case for v in variants):
        lines.append(case)
        ours = next(v for v in variants if v.case == case)
        for v in (v for v in variants if v.case == case):
            ratio = "" if v is ours else f"{v.median / ours.median:.2f}×"
            memory = "" if v.extra_bytes is None else f"{v.extra_bytes / 2**20:.1f} MiB"
            lines.append(
                f"  {v.name:32} {1e3 * v.median:6.1f} ms {1e3 * min(v.seconds):6.1f} ms"
                f" {1e3 * statistics.median(v.cpu_seconds):6.1f} ms {ratio:>9}"
                f" {v.median * bandwidth / v.least_bytes:8.1f} {memory:>9} {v.error:8.0e}"
            )
    return "\n".join(lines)


def save(name: str, variants: Sequence[Variant], settings: dict[str, Any]) -> Path:
    """Write everything measured, with the machine and the versions, to the results folder."""
    packages = ["mathfuse", "numpy", "scipy", "numba", "mkl_fft"]
    record = {
        "benchmark": name,
        "machine": {
            "processor": _processor(),
            "system": platform.platform(),
            "python": platform.python_version(),
            "load": os.getloadavg(),
        },
        "versions": {package: found for package in packages if (found := version(package))},
        "settings": settings,
        "variants": [{k: v for k, v in vars(variant).items() if k != "run"} for variant in variants],
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    return path


def _processor() -> str:
    try:
        names = [
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ]
    except OSError:
        names = []
    return f"{len(names)} × {names[0]}" if names else platform.processor()


def version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
