"""Runs compiled callbacks on a GPU for the tests: in kernels of their own, and in cuFFT."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from mathfuse.fusion.compiler.cuda import division, table
from mathfuse.fusion.compiler.cuda.artifacts import Compiled
from mathfuse.fusion.compiler.cuda.geometry import Geometry, Shape
from mathfuse.fusion.compiler.cuda.interface import make_unit
from mathfuse.fusion.compiler.cuda.kernels import ElementwiseKernel
from mathfuse.fusion.compiler.cuda.units import Unit
from mathfuse.fusion.compiler.fingerprint import captured_arrays
from mathfuse.fusion.compiler.parameters import Writer
from mathfuse.runtime.cuda import driver
from mathfuse.runtime.cuda.cufft import Call, Hook, Transform, View

DEVICE = 0


def architecture() -> str:
    return driver.architecture(DEVICE)


def launch(cubin: bytes, name: str, grid: tuple[int, int], parameters: np.ndarray) -> None:
    """One launch on the legacy stream, which waits for CuPy's work."""
    with driver.device_guard(DEVICE):
        driver.Launch(driver.load_kernel(cubin, name, DEVICE), *grid, parameters)(0)
        driver.synchronize(0)


def fill(writer: Writer, unit: Unit, operands: Mapping[str, Any], shape: Shape) -> list:
    """The callback's part of the block; gives what must stay alive."""
    import cupy

    writer.integers("shape", *shape)
    callback = unit.signature.callback
    values = {**operands, **(captured_arrays(callback) if callback else {})}
    alive = []
    for name, kind in unit.signature.operands:
        if kind.is_scalar:
            writer.operand(name, values[name])
        else:
            alive.append(cupy.asarray(values[name], order="K"))
            writer.operand(name, values[name], alive[-1].data.ptr)
    return alive


def in_device_memory(block: np.ndarray) -> Any:
    """The block as the table kernel writes it."""
    import cupy

    memory, cubin = cupy.empty(block.size, np.int64), table.table_kernel(architecture())
    for parameters in table.table_parameters(memory.data.ptr, block):
        launch(cubin, table.NAME, (1, table.THREADS), parameters)
    return memory


# --- kernels ---------------------------------------------------------------------------------------------------------


def elementwise(callback: Any, x: np.ndarray, **operands: Any) -> np.ndarray:
    """``callback`` on every element of ``x``, on the GPU."""
    import cupy

    values = {**callback.bound, **operands}
    unit = make_unit(callback, "elementwise", x.dtype, values, architecture(), "epilog", ndim=x.ndim)
    kernel = ElementwiseKernel(unit)
    result = cupy.empty(x.shape, kernel.result_dtype)
    run_kernel(kernel, cupy.asarray(x), result, values)
    return cupy.asnumpy(result)


def run_kernel(
    kernel: ElementwiseKernel, source: Any, result: Any, operands: Mapping[str, Any], scale: float | None = None
) -> None:
    """Over the index space of ``result``; both are CuPy arrays of any strides."""
    unit = kernel.unit
    writer = kernel.writer(result.shape)
    alive = fill(writer, unit, operands, result.shape)
    for side, array in (("source", source), ("destination", result)):
        writer.integers(f"{side}_block", array.data.ptr)
        writer.integers(f"{side}_strides", *array.strides)
    if unit.padded:
        writer.integers("limits", *source.shape)
    if scale is not None:
        writer.real("scale", scale, unit.scale_bits)
    launch(kernel.cubin, kernel.name, kernel.grid(result.size, driver.multiprocessors(DEVICE)), writer.block)
    del alive


# --- cuFFT -----------------------------------------------------------------------------------------------------------


class Placed:
    """A callback of cuFFT with its parameters on the device; keeps alive what they point to.

    ``shape`` is what the callback sees; without a constant geometry ``extents`` are those of cuFFT's dense view.
    """

    def __init__(
        self,
        unit: Unit,
        shape: Shape,
        operands: Mapping[str, Any] | None = None,
        origin: int | None = None,
        scale: float | None = None,
        extents: Shape | None = None,
    ) -> None:
        compiled = Compiled(unit)
        writer = Writer(unit.layout, compiled.weak_bits)
        alive = fill(writer, unit, operands or {}, shape)
        if unit.geometry is None:
            assert extents
            division.fill(writer, [math.prod(extents[k + 1 :]) for k in range(len(extents))], unit.wide)
        if origin is not None:
            writer.integers("origin", origin)
        if scale is not None:
            writer.real("scale", scale, unit.scale_bits)
        memory = in_device_memory(writer.block)
        self.alive, self.result_dtype = (alive, memory), compiled.result_dtype
        assert unit.dtype is not None
        self.hook = Hook(unit.side, unit.dtype, compiled.ltoir, memory.data.ptr)


def callback_unit(
    callback: Any,
    side: str,
    dtype: Any,
    geometry: Geometry | None,
    operands: Mapping[str, Any] | None = None,
    value_dtype: Any = None,
    ndim: int = 1,
    **options: Any,
) -> Unit:
    """A unit for cuFFT; ``callback`` None leaves elements as they are, ``value_dtype`` is what a load finds."""
    import mathfuse as mf

    rank = len(geometry.extents) if geometry else ndim
    unit = make_unit(callback or mf.relu, "fft", dtype, operands or {}, architecture(), side, ndim=rank)
    signature = unit.signature if callback else replace(unit.signature, callback=None, operands=())
    if value_dtype is not None:
        signature = replace(signature, value_dtype=np.dtype(value_dtype))
    return replace(unit, signature=signature, geometry=geometry, **options)


def run_cufft(call: Call, source: int, target: int, hooks: list[Hook], forward: bool) -> None:
    import cupy

    transform = Transform(call, hooks, DEVICE)
    work = cupy.empty(max(1, transform.work_bytes), np.uint8)
    with driver.device_guard(DEVICE):
        transform.set_stream(0)
        transform.set_work_area(work.data.ptr)
        transform.run(source, target, forward)
        driver.synchronize(0)
    transform.destroy()


def dense_call(family: str, precision: Any, lengths: Shape, batch: int) -> Call:
    """Out of place, both sides C-contiguous; ``precision`` is the real dtype."""
    half = (*lengths[:-1], lengths[-1] // 2 + 1)
    sides = {"c2c": (lengths, lengths), "r2c": (lengths, half), "c2r": (half, lengths)}[family]
    views = [View(extents, 1, math.prod(extents)) for extents in sides]
    return Call(family, np.dtype(precision) == np.float64, lengths, batch, *views)


def rows(kind: str, x: np.ndarray, n: int, hook: Hook) -> np.ndarray:
    """A batched 1-D transform (``kind`` C2C, R2C or C2R) of the rows of ``x`` by cuFFT with one callback."""
    import cupy

    real = np.empty(0, x.dtype).real.dtype
    complex_ = np.dtype(f"c{2 * real.itemsize}")
    width = {"C2C": n, "R2C": n // 2 + 1, "C2R": n}[kind]
    result = cupy.full((x.shape[0], width), 7, real if kind == "C2R" else complex_)
    source = cupy.asarray(x)
    run_cufft(dense_call(kind.lower(), real, (n,), x.shape[0]), source.data.ptr, result.data.ptr, [hook], kind != "C2R")
    return cupy.asnumpy(result)
