"""Convolution with a kernel and an epilog: fused, and by SciPy's or CuPy's FFT convolution and a separate expression.

On the CPU peers have as many threads; ``scipy.signal.oaconvolve`` convolves piece after piece. On a GPU the first peer
transforms padded copies by cuFFT, as CuPy's function does, but knows the kernel's spectrum, as a plan of ours does.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.fft
import scipy.signal

import mathfuse as mf
from benchmarks import gpu, harness, records
from benchmarks.records import Bound, Row
from mathfuse.runtime import settings

OURS, SEPARATE = "mathfuse", "cuFFT, CuPy kernels"
LEVEL, TOLERANCE, MOST = 0.25, 2e-5, 1.03
# Shapes of the input and of the kernel, which is for the last axes.
CPU = (((4096, 4096), (31, 31)), ((64, 512, 512), (15, 15)), ((256, 65536), (1001,)))
GPU = (((4, 2048, 2048), (31, 31)), ((64, 512, 512), (15, 15)), ((2048, 8000), (193,)), ((65536, 240), (17,)))


@mf.epilog
def above(value, level):
    """What is above a level, less it."""
    return value - level if value > level else 0.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    gpu.add_arguments(parser)
    parser.add_argument("--execution", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--rounds", type=int, default=9, help="CPU: samples of each variant")
    parser.add_argument(
        "--patience", type=float, default=20.0, help="CPU: seconds to wait for a quiet machine, a sample"
    )
    parser.add_argument("--workers", type=int, default=settings.workers(), help="CPU: threads of all peers")


def main(arguments: argparse.Namespace) -> None:
    (on_gpu if arguments.execution == "cuda" else on_cpu)(arguments)


def title(shape: tuple[int, ...], small: tuple[int, ...]) -> str:
    return f"{'×'.join(map(str, shape))} with {'×'.join(map(str, small))}"


# --- on the CPU ------------------------------------------------------------------------------------------------------


def on_cpu(arguments: argparse.Namespace) -> None:
    made, workers = [], arguments.workers
    expected: dict[str, np.ndarray] = {}
    for shape, small in CPU:
        made += cpu_variants(shape, small, workers, expected)
    with scipy.fft.set_workers(workers):
        harness.check(made, expected, TOLERANCE)
        expected.clear()
        harness.race(made, arguments.rounds, arguments.patience)
    bandwidth = harness.copy_bandwidth(workers)
    print(harness.table(made, bandwidth))
    chosen = {"rounds": arguments.rounds, "workers": workers, "bandwidth": bandwidth}
    print(harness.save("convolve-cpu", made, chosen))


def cpu_variants(
    shape: tuple[int, ...], small: tuple[int, ...], workers: int, expected: dict[str, np.ndarray]
) -> list[harness.Variant]:
    random = np.random.default_rng(0)
    x, kernel, case = random.random(shape, np.float32), random.random(small, np.float32), title(shape, small)
    kernel /= kernel.sum()
    axes, wide = tuple(range(-len(small), 0)), kernel.reshape((1,) * (len(shape) - len(small)) + small)
    wide_axes = tuple(range(len(shape) - len(small), len(shape)))
    expected[case] = np.maximum(scipy.signal.fftconvolve(x.astype(float), wide, "same", wide_axes) - LEVEL, 0)
    plan = mf.fft.Convolution(x, kernel, "same", axes).plan(epilog=above(level=LEVEL), workers=workers)
    variants = [harness.Variant(case, OURS, plan.execute, 2 * x.nbytes)]
    for name in ("fftconvolve", "oaconvolve"):
        function = getattr(scipy.signal, name)

        def run(function=function):
            y = function(x, wide, "same", axes=wide_axes)
            y -= np.float32(LEVEL)
            return np.maximum(y, 0, out=y)

        variants.append(harness.Variant(case, f"scipy.signal.{name}", run, 2 * x.nbytes))
    return variants


# --- on a GPU --------------------------------------------------------------------------------------------------------


def on_gpu(arguments: argparse.Namespace) -> None:
    rows: list[Row] = []
    for shape, small in GPU:
        rows += gpu_rows(shape, small, arguments.samples)
    found = bounds(rows)
    print(records.pivot(rows), *map(str, found), sep="\n")
    machine = gpu.machine(samples=arguments.samples)
    print(records.save("convolve-cuda", machine, rows, found, arguments.results))


def gpu_rows(shape: tuple[int, ...], small: tuple[int, ...], samples: int) -> list[Row]:
    cp = gpu.cupy()
    x, kernel = gpu.uniform(shape, "float32", 0, 1), gpu.uniform(small, "float32", 0, 1)
    kernel /= kernel.sum()
    exact = cp.maximum(cupy_convolution(x.astype("f8"), kernel.astype("f8"))() - LEVEL, 0)
    y = cp.empty_like(x)
    plan = mf.fft.Convolution(x, kernel, "same").plan(epilog=above(level=LEVEL))
    variants = [gpu.Variant(OURS, lambda: plan.execute(out=y)), gpu.Variant(SEPARATE, gpu_peer(x, kernel, y))]
    for variant in variants:
        y.fill(float("nan"))
        gpu.check(variant, exact, TOLERANCE)
    copy = gpu.Variant("copy", gpu.copier(y, x))
    gpu.race([*variants, copy], samples)
    head = {"case": title(shape, small), "strategy": plan.explain().strategy}
    rows: list[Row] = [{**head, "name": "limit", "ms": copy.ms}]
    return rows + [{**head, "name": v.name, "ms": v.ms, "of_limit": v.ms / copy.ms, "error": v.error} for v in variants]


def cupy_convolution(x: Any, kernel: Any) -> Callable[[], Any]:
    """The middle of the convolution by transforms of padded copies; the kernel's spectrum is known."""
    cp, rank = gpu.cupy(), kernel.ndim
    axes = tuple(range(x.ndim - rank, x.ndim))
    lengths = [scipy.fft.next_fast_len(x.shape[a] + m - 1, True) for a, m in zip(axes, kernel.shape)]
    spectrum = cp.fft.rfftn(kernel, lengths, axes=tuple(range(rank)))
    middle = tuple(slice((m - 1) // 2, (m - 1) // 2 + x.shape[a]) for a, m in zip(axes, kernel.shape))

    def run() -> Any:
        found = cp.fft.rfftn(x, lengths, axes=axes)
        found *= spectrum
        return cp.fft.irfftn(found, lengths, axes=axes)[(..., *middle)]

    return run


def gpu_peer(x: Any, kernel: Any, y: Any) -> Callable[[], Any]:
    cp = gpu.cupy()
    run = cupy_convolution(x, kernel)
    after = cp.ElementwiseKernel(
        "float32 found, float32 level", "float32 y", "y = found > level ? found - level : 0", "above"
    )
    return lambda: after(run(), np.float32(LEVEL), y)


def bounds(rows: list[Row]) -> list[Bound]:
    ratios = {case: records.ratio(rows, case, OURS, SEPARATE) for case in dict.fromkeys(row["case"] for row in rows)}
    return [Bound(f"{case}: of {SEPARATE}", ratio, MOST) for case, ratio in ratios.items() if ratio]
