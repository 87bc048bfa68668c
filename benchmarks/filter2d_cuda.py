"""A Gaussian filter of float32 images on a GPU: `SpectralFilter`, cuFFT with one CuPy kernel between, and PyTorch."""

from __future__ import annotations

import argparse
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

import mathfuse as mf
from benchmarks import gpu, peers, records
from benchmarks.gpu import Variant
from benchmarks.records import Bound, Row

NAME = "filter2d-cuda"
SIGMA = 8.0
IMAGES = ((1, 8192), (1, 4096), (4, 2048), (64, 512))
COMPUTED, ARRAY, CONSTANT = "Gaussian computed", "filter array", "constant filter array"
OURS, SEPARATE = "mathfuse", "cuFFT + CuPy kernel"
# Times as shares of cuFFT's with a kernel between: what is asked for by case and size, else that fusing does not lose.
MOST, TOLERANCE = 1.03, 1e-5
MOST_OF = {
    COMPUTED: {512: 1 / 1.9, 2048: 1 / 2.0, 4096: 1 / 2.1, 8192: 1 / 1.7},
    CONSTANT: {512: 1 / 1.8, 2048: 1 / 1.8, 4096: 1 / 1.8, 8192: 1 / 1.5},
}

GAUSSIAN = """
unsigned int at = i, column = at % half, row = at / half % rows;
float fx = column / (float)columns, fy = (row < (rows + 1) / 2 ? (int)row : (int)row - (int)rows) / (float)rows;
y = y * (scale * expf(rate * (fx * fx + fy * fy)))
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    gpu.add_arguments(parser)
    parser.add_argument("--images", type=int, nargs=2, action="append", metavar=("COUNT", "SIZE"), help="GPU only")


def main(arguments: argparse.Namespace) -> None:
    rows: list[Row] = []
    for count, size in arguments.images or IMAGES:
        rows += filtered(count, size, arguments.samples)
    found = bounds(rows)
    print(records.pivot(rows), "\nTimes the limit:", records.pivot(rows, "of_limit", show="{:.2f}".format), sep="\n")
    print("\n".join(map(str, found)))
    machine = gpu.machine(sigma=SIGMA, samples=arguments.samples)
    print(records.save(NAME, machine, rows, found, arguments.results))


def filtered(count: int, size: int, samples: int) -> list[Row]:
    """The filters of `count` images of `size` rows and columns."""
    cp = gpu.cupy()
    image = gpu.uniform((count, size, size), "float32")
    result, exact_weight = cp.empty_like(image), gaussian(size)
    weight = exact_weight.astype("float32")
    exact = cp.fft.irfft2(cp.fft.rfft2(image.astype("float64")) * exact_weight, (size, size))
    rows = []
    for case in (COMPUTED, ARRAY, CONSTANT):
        transfer = {COMPUTED: mf.gaussian(sigma=SIGMA), ARRAY: weight, CONSTANT: mf.constant(weight)}[case]
        array = None if case == COMPUTED else weight
        planned = mf.fft.SpectralFilter(image, transfer, axes=(1, 2)).plan()
        variants = [Variant(OURS, lambda planned=planned: planned.execute(out=result))]
        variants.append(Variant(SEPARATE, cufft_peer(image, array, result)))
        if torch := torch_peer(image, array):
            variants.append(Variant("torch", torch))
        for variant in variants:
            result.fill(float("nan"))
            gpu.check(variant, exact, TOLERANCE)
        copy = Variant("copy", gpu.copier(cp.empty_like(image), image))
        gpu.race([*variants, copy], samples)
        least = 2 * image.nbytes + (array.nbytes if array is not None else 0)
        head = {
            "case": f"{count} × {size}², {case}",
            "filter": case,
            "size": size,
            "strategy": planned.explain().strategy,
        }
        limit = copy.ms * least / (2 * image.nbytes)
        rows.append({**head, "name": "limit", "ms": limit})
        rows += [{**head, "name": v.name, "ms": v.ms, "of_limit": v.ms / limit, "error": v.error} for v in variants]
    return rows


def gaussian(size: int) -> Any:
    """The transfer function of a half spectrum in float64."""
    cp = gpu.cupy()
    fy, fx = cp.fft.fftfreq(size)[:, None], cp.fft.rfftfreq(size)
    return cp.exp(-2 * math.pi**2 * SIGMA**2 * (fy * fy + fx * fx))


def cufft_peer(image: Any, weight: Any, result: Any) -> Callable[[], Any]:
    """cuFFT, one kernel that multiplies by the array or computes the Gaussian and scales, cuFFT."""
    cp = gpu.cupy()
    count, size, _ = image.shape
    half, scale = size // 2 + 1, 1 / size**2
    spectrum = cp.empty((count, size, half), "complex64")
    forward = peers.cufft("r2c", (size, size), image, spectrum)
    inverse = peers.cufft("c2r", (size, size), spectrum, result)
    if weight is None:
        sizes = "uint32 half, uint32 rows, uint32 columns, float32 rate, float32 scale"
        kernel = cp.ElementwiseKernel(sizes, "complex64 y", GAUSSIAN, "gaussian")
        values = np.uint32(half), np.uint32(size), np.uint32(size), np.float32(-2 * math.pi**2 * SIGMA**2)
        between = functools.partial(kernel, *values, np.float32(scale), spectrum)
    else:
        scaled, multiply = weight * np.float32(scale), cp.ElementwiseKernel("float32 w", "complex64 y", "y = y * w")
        between = functools.partial(multiply, scaled, spectrum)

    def run() -> Any:
        forward()
        between()
        inverse()
        return result

    return run


def torch_peer(image: Any, weight: Any) -> Callable[[], Any] | None:
    torch = gpu.optional("torch")
    if torch is None:
        return None
    x, size = torch.from_dlpack(image), image.shape[-1]
    w = None if weight is None else torch.from_dlpack(weight)
    fy, fx = torch.fft.fftfreq(size, device=x.device)[:, None], torch.fft.rfftfreq(size, device=x.device)
    rate = -2 * math.pi**2 * SIGMA**2

    def run() -> Any:
        spectrum = torch.fft.rfft2(x)
        spectrum *= torch.exp(rate * (fy * fy + fx * fx)) if w is None else w
        return torch.fft.irfft2(spectrum, (size, size))

    return run


def bounds(rows: list[Row]) -> list[Bound]:
    found = []
    for case, row in {row["case"]: row for row in rows}.items():
        if ratio := records.ratio(rows, case, OURS, SEPARATE):
            most = MOST_OF.get(row["filter"], {}).get(row["size"], MOST)
            found.append(Bound(f"{case}: of cuFFT + CuPy kernel", ratio, round(most, 3)))
    return found
