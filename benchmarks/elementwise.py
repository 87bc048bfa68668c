"""Bandwidth of generated elementwise kernels as a share of a copy's, beside `mf.elementwise` and CuPy."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

import mathfuse as mf
from benchmarks import gpu, records
from benchmarks.gpu import Variant
from benchmarks.records import Bound, Row

NAME = "elementwise"
BYTES = 1 << 29  # of the larger of input and result
ROWS = 1 << 18
DTYPES = (
    *((name, name) for name in ("uint8", "float16", "float32", "complex64", "complex128")),
    ("uint8", "float32"),
)
FLAT, INDEX, STRIDED = "flat", "with the index", "strided"
LEAST = {FLAT: 0.95, INDEX: 0.8, STRIDED: 0.8}
OURS, PUBLIC, CUPY = "generated kernel", "mf.elementwise", "CuPy ElementwiseKernel"
CPP = {FLAT: "y = (D)x", INDEX: "y = (D)x + (D)(i % columns)", STRIDED: "y = (D)x"}


@mf.epilog
def same(value):
    return value


@mf.epilog
def ramp(value, index):
    return value + index[1]


@mf.epilog
def same_byte(value):
    return np.uint8(value)


@mf.epilog
def byte_ramp(value, index):
    return np.uint8(value + index[1])


@mf.epilog
def as_float(value):
    return np.float32(value)


@mf.epilog
def float_ramp(value, index):
    return np.float32(value) + index[1]


# Without the index and with it; a byte that meets nothing else would become an int64.
CALLBACKS = {("uint8", "uint8"): (same_byte, byte_ramp), ("uint8", "float32"): (as_float, float_ramp)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    gpu.add_arguments(parser)
    parser.add_argument("--bytes", type=int, default=BYTES, help="of the larger of input and result")


def main(arguments: argparse.Namespace) -> None:
    rows: list[Row] = []
    for source, result in DTYPES:
        for access in LEAST:
            rows += raced(np.dtype(source), np.dtype(result), access, arguments.bytes, arguments.samples)
    found = bounds(rows)
    print(records.pivot(rows, "share", show="{:.3f}".format))
    print("\n".join(map(str, found)))
    machine = gpu.machine(bytes=arguments.bytes, samples=arguments.samples)
    print(records.save(NAME, machine, rows, found, arguments.results))


def raced(source: np.dtype, result: np.dtype, access: str, nbytes: int, samples: int) -> list[Row]:
    """A row a variant, with the share of the copy's bandwidth that it reaches."""
    cp = gpu.cupy()
    shape = (ROWS, nbytes // ROWS // max(source.itemsize, result.itemsize))
    x, y = gpu.uniform(shape, source), cp.empty(shape, result)
    if access == STRIDED:  # rows of a wider array
        x = cp.concatenate([x, x[:, :64]], axis=1)[:, : shape[1]]
    exact = x.astype(result) + (cp.arange(shape[1]).astype(result) if access == INDEX else 0)
    callback = CALLBACKS.get((str(source), str(result)), (same, ramp))[access == INDEX]
    fused = cp.ElementwiseKernel("S x, int64 columns", "D y", CPP[access], "fused")
    variants = [
        Variant(OURS, launcher(callback, x, y, access)),
        Variant(CUPY, lambda: fused(x, shape[1], y)),
    ]
    if result != "float16":  # float16 is computed, and returned, as float32
        variants.append(Variant(PUBLIC, lambda: mf.elementwise(callback, x, out=y)))
    rough = 1e-2 if result == "float16" else 1e-6
    for variant in variants:
        y.fill(0)
        gpu.check(variant, exact, rough)
    del exact
    copy = Variant("copy", gpu.copier(cp.empty(nbytes, "uint8"), cp.empty(nbytes, "uint8")))
    gpu.race([*variants, copy], samples)
    moved = y.size * (source.itemsize + result.itemsize)
    limit = copy.ms * moved / (2 * nbytes)
    case = f"{source} → {result}" if source != result else str(source)
    notes = {"case": f"{case}, {access}", "access": access, "copy_GBs": 2 * nbytes / copy.ms / 1e6}
    return [{**notes, "name": v.name, "ms": v.ms, "share": limit / v.ms, "error": v.error} for v in variants]


def launcher(callback: Any, x: Any, y: Any, access: str) -> Callable[[], Any]:
    """The kernel as strategy `sequence` has it, launched by one prepared call."""
    from mathfuse.fusion.compiler.cuda.interface import make_unit
    from mathfuse.fusion.compiler.cuda.kernels import ElementwiseKernel
    from mathfuse.fusion.compiler.cuda.tiling import vector_width
    from mathfuse.runtime.cuda import driver

    device = x.device.id
    unit = make_unit(callback, "elementwise", x.dtype, {}, driver.architecture(device), ndim=x.ndim)
    options = {"dtype": y.dtype, "order": (0, 1)}
    if access != STRIDED:
        options |= {"flat": True, "vector": vector_width(x.dtype.itemsize, y.dtype.itemsize), "whole_rows": True}
    kernel = ElementwiseKernel(replace(unit, **options))
    writer = kernel.writer(x.shape)
    writer.integers("shape", *x.shape)
    for side, array in (("source", x), ("destination", y)):
        writer.integers(f"{side}_block", array.data.ptr)
        writer.integers(f"{side}_strides", *array.strides)
    loaded = driver.load_kernel(kernel.cubin, kernel.name, device)
    launch = driver.Launch(loaded, *kernel.grid(x.size, driver.multiprocessors(device)), writer.block)

    def run() -> Any:
        launch(0)
        return y

    return run


def bounds(rows: list[Row]) -> list[Bound]:
    """Times as multiples of a copy's for the same bytes."""
    return [
        Bound(f"{row['case']}: of a copy's time", 1 / row["share"], round(1 / LEAST[row["access"]], 3))
        for row in rows
        if row["name"] in (OURS, PUBLIC)
    ]
