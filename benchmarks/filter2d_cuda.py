"""A Gaussian filter of float32 images on a GPU: `SpectralFilter`, cuFFT with one CuPy kernel between, and others.

These are PyTorch and nvmath-python with an epilog callback, once as its interface has it, which copies what an inverse
real transform reads, and once with the inverse transform called through its bindings, which does not. Single small
images are filtered in CUDA graphs, so that no launch counts.
"""

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
IN_GRAPHS, CAPTURED = (256, 512), 50  # sizes of single images, and how many filters of one there are in a graph
COMPUTED, ARRAY, CONSTANT = "Gaussian computed", "filter array", "constant filter array"
OURS, SEPARATE, TORCH = "mathfuse", "cuFFT + CuPy kernel", "torch"
NVMATH, NVMATH_BARE = "nvmath-python callback", "nvmath-python callback, no copy"
# Times as shares of cuFFT's with a kernel between: what is asked for by case and size, else that fusing does not lose.
MOST, MOST_IN_GRAPHS, MOST_OF_NVMATH, TOLERANCE = 1.03, 1 / 1.6, 1 / 2.5, 1e-5
MOST_OF = {
    COMPUTED: {512: 1 / 1.9, 2048: 1 / 2.0, 4096: 1 / 2.1, 8192: 1 / 1.7},
    CONSTANT: {512: 1 / 1.8, 2048: 1 / 1.8, 4096: 1 / 1.8, 8192: 1 / 1.5},
}

GAUSSIAN = """
unsigned int at = i, column = at % half, row = at / half % rows;
float fx = column / (float)columns, fy = (row < (rows + 1) / 2 ? (int)row : (int)row - (int)rows) / (float)rows;
y = y * (scale * expf(rate * (fx * fx + fy * fy)))
"""

Ways = dict[str, Callable[[], Callable[[], Any] | None]]  # each makes a call, or none where its package is missing


def add_arguments(parser: argparse.ArgumentParser) -> None:
    gpu.add_arguments(parser)
    parser.add_argument("--images", type=int, nargs=2, action="append", metavar=("COUNT", "SIZE"), help="GPU only")
    parser.add_argument("--in-graphs", type=int, nargs="*", default=IN_GRAPHS, metavar="SIZE", help="GPU only")


def main(arguments: argparse.Namespace) -> None:
    rows: list[Row] = []
    for count, size in arguments.images or IMAGES:
        rows += filtered(count, size, arguments.samples)
    for size in arguments.in_graphs:
        rows += in_graphs(size, arguments.samples)
    found = bounds(rows)
    print(records.pivot(rows), "\nTimes the limit:", records.pivot(rows, "of_limit", show="{:.2f}".format), sep="\n")
    print("\n".join(map(str, found)))
    machine = gpu.machine(sigma=SIGMA, samples=arguments.samples)
    print(records.save(NAME, machine, rows, found, arguments.results))


def filtered(count: int, size: int, samples: int) -> list[Row]:
    """The filters of `count` images of `size` rows and columns."""
    cp = gpu.cupy()
    image, weight, result, exact = problem(count, size)
    rows = []
    for case in (COMPUTED, ARRAY, CONSTANT):
        strategy, ways = ways_of(case, image, weight, result)
        variants, failed = checked(ways, exact, result)
        copy = Variant("copy", gpu.copier(cp.empty_like(image), image))
        gpu.race([*variants, copy], samples)
        least = 2 * image.nbytes + (weight.nbytes if case != COMPUTED else 0)
        limit = copy.ms * least / (2 * image.nbytes)
        head = {"case": f"{count} × {size}², {case}", "filter": case, "size": size, "strategy": strategy}
        rows.append({**head, "name": "limit", "ms": limit})
        rows += [{**head, "name": v.name, "ms": v.ms, "of_limit": v.ms / limit, "error": v.error} for v in variants]
        rows += [{**head, "name": name, "failed": why} for name, why in failed.items()]
    return rows


def in_graphs(size: int, samples: int) -> list[Row]:
    """The filters of one image, ours and cuFFT with a kernel between, each many times in a graph."""
    image, weight, result, exact = problem(1, size)
    rows = []
    for case in (COMPUTED, ARRAY, CONSTANT):
        strategy, ways = ways_of(case, image, weight, result)
        graphs = {name: lambda make=ways[name]: gpu.captured(make(), CAPTURED) for name in (OURS, SEPARATE)}
        variants, failed = checked(graphs, exact, result)
        gpu.race(variants, samples)
        head = {"case": f"{size}², {case}, in a CUDA graph", "filter": case, "size": size, "strategy": strategy}
        head["in_graph"] = True
        rows += [{**head, "name": v.name, "ms": v.ms / CAPTURED, "error": v.error} for v in variants]
        rows += [{**head, "name": name, "failed": why} for name, why in failed.items()]
    return rows


def problem(count: int, size: int) -> tuple[Any, Any, Any, Any]:
    """Images, the filter array, memory for the result, and the right one in float64."""
    cp = gpu.cupy()
    image, weight = gpu.uniform((count, size, size), "float32"), gaussian(size)
    exact = cp.fft.irfft2(cp.fft.rfft2(image.astype("float64")) * weight, (size, size))
    return image, weight.astype("float32"), cp.empty_like(image), exact


def ways_of(case: str, image: Any, weight: Any, result: Any) -> tuple[str, Ways]:
    """Our strategy, and what makes each way to filter."""
    transfer = {COMPUTED: mf.gaussian(sigma=SIGMA), ARRAY: weight, CONSTANT: mf.constant(weight)}[case]
    array = None if case == COMPUTED else weight
    planned = mf.fft.SpectralFilter(image, transfer, axes=(1, 2)).plan()
    return planned.explain().strategy, {
        OURS: lambda: lambda: planned.execute(out=result),
        SEPARATE: lambda: cufft_peer(image, array, result),
        TORCH: lambda: torch_peer(image, array),
        NVMATH: lambda: nvmath_peer(image, array),
        NVMATH_BARE: lambda: nvmath_peer(image, array, result),
    }


def checked(ways: Ways, exact: Any, result: Any) -> tuple[list[Variant], dict[str, str]]:
    """The ways that give the right result, and why others fail; one that is not installed is neither."""
    found, failed = [], {}
    for name, make in ways.items():
        result.fill(float("nan"))
        try:
            if run := make():
                variant = Variant(name, run)
                gpu.check(variant, exact, TOLERANCE)
                found.append(variant)
        except Exception as error:  # the others are timed; this one counts as a bound that is not met
            failed[name] = f"{type(error).__name__}: {error}"[:300]
            print(f"{name} FAILED: {failed[name]}", flush=True)
    return found, failed


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


def nvmath_peer(image: Any, weight: Any, result: Any = None) -> Callable[[], Any] | None:
    """nvmath-python's transforms, the first with the filter as its epilog.

    Its inverse transform copies the spectrum before each execution, since cuFFT writes over it. With `result`, where
    that goes, its bindings are called instead, which copy nothing.
    """
    nvmath, bindings = gpu.optional("nvmath.fft"), gpu.optional("nvmath.bindings.cufft")
    if nvmath is None or bindings is None:
        return None
    size = image.shape[-1]
    epilog = nvmath_gaussian(size) if weight is None else nvmath_multiply(size)
    scaled = None if weight is None else weight * np.float32(1 / size**2)
    capability = gpu.cupy().cuda.Device().compute_capability
    code = nvmath.compile_epilog(epilog, "complex64", "float32", compute_capability=capability)
    forward = nvmath.FFT(image, axes=[1, 2])
    forward.plan(epilog={"ltoir": code, "data": None if scaled is None else scaled.data.ptr})
    parity = "odd" if size % 2 else "even"
    inverse = nvmath.FFT(forward.execute(), axes=[1, 2], options={"fft_type": "C2R", "last_axis_parity": parity})
    inverse.plan()
    inverse.execute()  # it has a work area from now on

    def run() -> Any:
        spectrum = forward.execute()
        if result is None:
            inverse.reset_operand_unchecked(spectrum)
            return inverse.execute()
        bindings.xt_exec(inverse.handle, spectrum.data.ptr, result.data.ptr, nvmath.FFTDirection.INVERSE)
        return result

    run.alive = scaled  # as long as it may be called
    return run


def nvmath_gaussian(size: int) -> Callable[..., None]:
    """An epilog that computes the Gaussian from the offset of an element, and scales."""
    half, rows, length = np.uint32(size // 2 + 1), np.uint32(size), np.float32(size)
    rate, scale = np.float32(-2 * math.pi**2 * SIGMA**2 / size**2), np.float32(1 / size**2)

    def epilog(data_out, offset, data, user_info, reserved):
        at = np.uint32(offset)
        column, row = np.float32(at % half), np.float32(at // half % rows)
        if row + row >= length:
            row -= length
        data_out[offset] = data * (scale * math.exp(rate * (column * column + row * row)))

    return epilog


def nvmath_multiply(size: int) -> Callable[..., None]:
    """An epilog that multiplies by an array, the same for each image."""
    count = np.uint64(size * (size // 2 + 1))

    def epilog(data_out, offset, data, user_info, reserved):
        data_out[offset] = data * user_info[offset % count]

    return epilog


def bounds(rows: list[Row]) -> list[Bound]:
    found = []
    for case, row in {row["case"]: row for row in rows}.items():
        if ratio := records.ratio(rows, case, OURS, SEPARATE):
            asked = MOST_OF.get(row["filter"], {}).get(row["size"], MOST)
            most = MOST_IN_GRAPHS if "in_graph" in row else asked
            found.append(Bound(f"{case}: of cuFFT + CuPy kernel", ratio, round(most, 3)))
        if ratio := records.ratio(rows, case, OURS, NVMATH):
            found.append(Bound(f"{case}: of nvmath-python's callback", ratio, MOST_OF_NVMATH))
    failed = [f"{row['case']} by {row['name']}" for row in rows if "failed" in row]
    return [*found, Bound("; ".join(["ways that failed", *failed]), len(failed), 0)]
