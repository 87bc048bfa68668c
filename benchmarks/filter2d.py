"""A Gaussian filter of float32 images: fused, and as transforms with the separate expression; on the CPU or a GPU.

On the CPU in three cases: one transform and a filter array, one transform and a filter computed from the frequency, and
the whole filter, forward and back; all peers get the same workers, but for numpy.fft, which has one. On a GPU as
`filter2d_cuda` says.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

import numpy as np
import scipy.fft

import mathfuse as mf
from benchmarks import filter2d_cuda, harness
from benchmarks.harness import Variant
from mathfuse.runtime import settings

SIGMA = 8.0
ARRAY, COMPUTED, FILTER, BLUR = (
    "rfft2 · filter array",
    "rfft2 · Gaussian computed",
    "spectral_filter, filter array",
    "spectral_filter, Gaussian computed",
)


@mf.epilog
def weighted(value, index, weight):
    return value * weight[index]


def gaussian(shape: tuple[int, int], dtype: type = np.float32) -> np.ndarray:
    """The transfer function as a NumPy expression."""
    fy, fx = np.fft.fftfreq(shape[0]).astype(dtype)[:, None], np.fft.rfftfreq(shape[1]).astype(dtype)
    return np.exp(dtype(-2 * np.pi**2 * SIGMA**2) * (fy * fy + fx * fx))


def variants(size: int, workers: int) -> tuple[list[Variant], dict[str, np.ndarray]]:
    """All variants, and the right results in float64."""
    image = np.random.default_rng(0).random((size, size), np.float32)
    weight = gaussian(image.shape)
    plans = {
        ARRAY: mf.fft.FFT(image, kind="rfft2").plan(epilog=weighted(weight=weight), workers=workers),
        COMPUTED: mf.fft.FFT(image, kind="rfft2").plan(epilog=mf.gaussian(sigma=SIGMA), workers=workers),
        FILTER: mf.fft.SpectralFilter(image, weight).plan(workers=workers),
        BLUR: mf.fft.SpectralFilter(image, mf.gaussian(sigma=SIGMA)).plan(workers=workers),
    }
    peers = {
        "scipy.fft": (lambda: scipy.fft.rfft2(image, workers=workers),
                      lambda y: scipy.fft.irfft2(y, image.shape, workers=workers, overwrite_x=True)),
        "numpy.fft": (lambda: np.fft.rfft2(image), lambda y: np.fft.irfft2(y, image.shape)),
    }  # fmt: skip
    made, half = [], 2 * image.nbytes + 8 * size
    for case, plan in plans.items():
        operand = weight.nbytes if case in (ARRAY, FILTER) else 0
        least = image.nbytes + operand + (image.nbytes if case in (FILTER, BLUR) else half - image.nbytes)
        made.append(Variant(case, "mathfuse", plan.execute, least))
        for name, (forward, inverse) in peers.items():

            def run(case=case, forward=forward, inverse=inverse):
                y = forward()
                y *= weight if case in (ARRAY, FILTER) else gaussian(image.shape)
                return inverse(y) if case in (FILTER, BLUR) else y

            made.append(Variant(case, name, run, least))
    exact = scipy.fft.rfft2(image.astype(float), workers=workers) * gaussian(image.shape, np.float64)
    back = scipy.fft.irfft2(exact, image.shape, workers=workers)
    return made, {ARRAY: exact, COMPUTED: exact, FILTER: back, BLUR: back}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--execution", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--size", type=int, default=4096, help="CPU: rows and columns of the image")
    parser.add_argument("--rounds", type=int, default=15, help="CPU: samples of each variant")
    parser.add_argument("--patience", type=float, default=20.0, help="seconds to wait for a quiet machine, a sample")
    parser.add_argument("--workers", type=int, default=settings.workers(), help="threads of every peer that has them")
    parser.add_argument("--memory-of", type=int, metavar="I", help=argparse.SUPPRESS)
    filter2d_cuda.add_arguments(parser)


def main(arguments: argparse.Namespace) -> None:
    if arguments.execution == "cuda":
        filter2d_cuda.main(arguments)
        return
    made, expected = variants(arguments.size, arguments.workers)
    if arguments.memory_of is not None:
        expected.clear()
        print(harness.extra_bytes(made[arguments.memory_of].run))
        return
    harness.check(made, expected, 1e-5)
    expected.clear()
    harness.race(made, arguments.rounds, arguments.patience)
    for i, variant in enumerate(made):  # each in a process of its own
        command = [
            "filter2d",
            "--size",
            str(arguments.size),
            "--workers",
            str(arguments.workers),
            "--memory-of",
            str(i),
        ]
        report = subprocess.run(
            [sys.executable, "-m", "benchmarks", *command], check=True, capture_output=True, text=True
        )
        variant.extra_bytes = int(report.stdout) if report.stdout.strip().isdigit() else None
    bandwidth = harness.copy_bandwidth(arguments.workers)
    print(f"{arguments.size}² float32, {arguments.workers} workers, copies move {bandwidth / 1e9:.1f} GB/s")
    print(harness.table(made, bandwidth))
    chosen = {"size": arguments.size, "rounds": arguments.rounds, "workers": arguments.workers, "bandwidth": bandwidth}
    print(harness.save("filter2d-cpu", made, chosen))
