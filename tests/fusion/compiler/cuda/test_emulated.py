"""GPU code run on this processor, against NumPy: kernels in all options, callbacks in a constant geometry."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import mathfuse as mf
from mathfuse.fusion.compiler.cuda import division
from mathfuse.fusion.compiler.cuda.geometry import Geometry
from mathfuse.fusion.compiler.cuda.interface import make_unit
from mathfuse.fusion.compiler.cuda.tiling import vector_width
from mathfuse.fusion.compiler.cuda.units import Unit, analyse
from mathfuse.fusion.compiler.parameters import Writer

from . import emulator

RNG = np.random.default_rng(17)


def sample(dtype, shape) -> np.ndarray:
    x = RNG.uniform(0, 100, shape)
    return (x + 1j * RNG.uniform(0, 100, shape)).astype(dtype) if np.dtype(dtype).kind == "c" else x.astype(dtype)


def made(callback, pipeline, element, side="epilog", ndim=1, operands=None, value_dtype=None, **options) -> Unit:
    unit = make_unit(callback or mf.relu, pipeline, element, operands or {}, "sm_90a", side, ndim=ndim)
    signature = unit.signature if callback else replace(unit.signature, callback=None, operands=())
    if value_dtype:
        signature = replace(signature, value_dtype=np.dtype(value_dtype))
    return replace(unit, signature=signature, **options)


def aligned(shape, dtype) -> np.ndarray:
    """Zeros at a multiple of 64 bytes."""
    memory = np.zeros(math.prod(shape) * np.dtype(dtype).itemsize + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + memory.size - 64].view(dtype).reshape(shape)


# --- kernels ---------------------------------------------------------------------------------------------------------


def run(unit: Unit, source: np.ndarray, target: np.ndarray, blocks: int, operands=None, scale=None, limits=None):
    writer = Writer(unit.layout, analyse(unit).weak_bits)
    order = unit.order or tuple(range(target.ndim))
    ordered = [target.shape[axis] for axis in order]
    writer.integers("count", target.size)
    division.fill(writer, [math.prod(ordered[k + 1 :]) for k in range(len(ordered))], unit.wide)
    writer.integers("shape", *target.shape)
    for side, array in (("source", source), ("destination", target)):
        writer.integers(f"{side}_block", array.ctypes.data)
        writer.integers(f"{side}_strides", *array.strides)
    for name, value in (operands or {}).items():
        writer.operand(name, value)
    if limits:
        writer.integers("limits", *limits)
    if scale is not None:
        writer.real("scale", scale, unit.scale_bits)
    emulator.kernel(unit)(writer.block, blocks)


@pytest.mark.parametrize("dtype", "bool uint8 int16 float16 int32 float32 uint64 float64 complex64 complex128".split())
@pytest.mark.parametrize("wide", [False, True])
def test_flat_copies(dtype, wide):
    for vector in {1, vector_width(np.dtype(dtype).itemsize)}:
        copy = made(None, "elementwise", dtype, dtype=np.dtype(dtype), flat=True, vector=vector, wide=wide)
        for count, blocks in ((1, 1), (2047, 8), (2048, 1), (8193, 2), (9001, 40)):
            x, target = aligned((count,), dtype), aligned((count + 8,), dtype)
            x[:] = sample(dtype, count)
            run(copy, x, target[:count], blocks)
            np.testing.assert_array_equal(target[:count], x)
            assert not target[count:].any()


def weighted(value, index, shape, w, row):
    return value * w + row[index[1]] + index[0] * 100


@pytest.mark.parametrize("shape", [(37, 129), (64, 128)])
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("wide", [False, True])
def test_flat_with_an_index_and_operands(shape, in_place, wide):
    x, target = aligned(shape, np.float32), aligned(shape, np.float32)
    x[:] = sample(np.float32, shape)
    operands = {"w": sample(np.float32, shape), "row": sample(np.float32, shape[1])}
    options = {"flat": True, "vector": 4, "whole_rows": shape[1] % 4 == 0, "in_place": in_place, "wide": wide}
    unit = made(mf.epilog(weighted), "elementwise", "float32", ndim=2, operands=operands, order=(0, 1), **options)
    expected = x.astype(float) * operands["w"] + operands["row"] + np.indices(shape)[0] * 100
    result = x if in_place else target
    run(unit, x, result, 3, operands)
    np.testing.assert_allclose(result, expected, rtol=1e-6)


VIEWS = {
    "dense": lambda a: a,
    "every other": lambda a: a[::2, :, ::3],
    "backwards": lambda a: a[::-1, :, ::-1],
    "transposed": lambda a: a.transpose(2, 0, 1),
    "broadcast": lambda a: np.broadcast_to(a[:, :1], a.shape),
}


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("wide", [False, True])
def test_strided(view, order, wide):
    source = VIEWS[view](sample(np.complex64, (14, 9, 33)))
    ramp = mf.epilog(lambda value, index: value * index[2] + index[0] - index[1])
    unit = made(ramp, "elementwise", "complex64", ndim=3, order=order, wide=wide)
    memory = np.zeros(tuple(source.shape[axis] for axis in order), np.complex64)
    target = memory.transpose(tuple(np.argsort(order)))
    run(unit, source, target, 3)
    i, j, k = np.indices(source.shape)
    np.testing.assert_allclose(target, source * k + i - j, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("scale", [None, "before", "after"])
def test_padded(scale):
    x = np.full((8, 64), 255, np.uint8)
    x[:5, :50] = sample(np.uint8, (5, 50))
    target = np.full((7, 80), np.nan, np.float32)
    plus = mf.epilog(lambda value: value + 1)
    unit = made(plus, "elementwise", "uint8", ndim=2, dtype=np.dtype("float32"), padded=True, scale=scale)
    run(unit, x, target, 1, scale=scale and 0.25, limits=(5, 50))
    before, after = {None: (1, 1), "before": (0.25, 1), "after": (1, 0.25)}[scale]
    expected = np.zeros((7, 80))
    expected[:5, :50] = (x[:5, :50] * before + 1) * after
    np.testing.assert_array_equal(target, expected)


# --- callbacks -------------------------------------------------------------------------------------------------------


def ramp(value, index, shape):
    return value * (index[-1] + 1) + index[0] - shape[0]


def offsets(geometry: Geometry) -> np.ndarray:
    places = np.indices(geometry.extents)
    return sum(place * stride for place, stride in zip(places, geometry.strides))


def block_of(unit: Unit, shape, origin=None, scale=None) -> np.ndarray:
    writer = Writer(unit.layout, analyse(unit).weak_bits)
    writer.integers("shape", *shape)
    if origin is not None:
        writer.integers("origin", origin)
    if scale is not None:
        writer.real("scale", scale, unit.scale_bits)
    return writer.block


def ramped(x: np.ndarray) -> np.ndarray:
    places = np.indices(x.shape)
    return x * (places[-1] + 1.0) + places[0] - x.shape[0]


EXTENTS = (3, 5, 14)
STRIDES = {"dense": (70, 14, 1), "another order": (14, 42, 1), "gaps": (200, 30, 2)}


@pytest.mark.parametrize("strides", STRIDES)
@pytest.mark.parametrize("source", ["own", "uint8", "float32", "complex128"])
@pytest.mark.parametrize("scale", [None, "before", "after"])
def test_loads(strides, source, scale):
    """From cuFFT's pointer, or backwards from an array of ours; a part of it is padding."""
    value_dtype = np.dtype("complex64" if source == "own" else source)
    x = sample(value_dtype, EXTENTS)
    limits = (3, 4, 9)
    if source == "own":
        geometry = Geometry(EXTENTS, STRIDES[strides], limits=limits, scale=scale)
        memory = np.zeros(1000, np.complex64)
        memory[offsets(geometry)] = x
        data, origin = memory.ctypes.data, None
    else:
        stored = np.ascontiguousarray(x[::-1, :, ::-1])[::-1, :, ::-1]
        geometry = Geometry(EXTENTS, STRIDES[strides], stored.strides, limits, scale)
        data, origin = 0, stored.ctypes.data
    unit = made(
        mf.prolog(ramp), "fft", "complex64", "prolog", 3, geometry=geometry, symbol="f", value_dtype=value_dtype
    )
    load, value = emulator.callback(unit), np.zeros(1, np.complex64)
    block = block_of(unit, EXTENTS, origin, scale and 0.25)
    found = np.empty(EXTENTS, np.complex64)
    for place, offset in np.ndenumerate(offsets(geometry)):
        load(data, int(offset), value, block)
        found[place] = value[0]
    before, after = {None: (1, 1), "before": (0.25, 1), "after": (1, 0.25)}[scale]
    expected = ramped(x.astype(np.complex128) * before) * after
    expected[:, 4:] = expected[:, :, 9:] = 0
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-4)


@pytest.mark.parametrize("strides", STRIDES)
@pytest.mark.parametrize("stored", ["own", "uint8", "float16", "float32", "float64"])
@pytest.mark.parametrize("scale", [None, "before", "after"])
def test_stores(strides, stored, scale):
    """At cuFFT's pointer, or transposed into an array of ours; outside the limits nothing is written."""
    x = RNG.uniform(1, 2, EXTENTS).astype(np.float32)
    limits, own = (3, 4, 9), stored == "own"
    if own:
        geometry = Geometry(EXTENTS, STRIDES[strides], limits=limits, scale=scale)
        memory = np.full(1000, 77, np.float32)
        data, origin, dtype = memory.ctypes.data, None, None
    else:
        memory = np.full(EXTENTS[::-1], 77, stored).T
        geometry = Geometry(EXTENTS, STRIDES[strides], memory.strides, limits, scale)
        data, origin, dtype = 0, memory.ctypes.data, np.dtype(stored)
    scaled = mf.epilog(lambda value, index: value * (index[2] + index[0]))
    unit = made(scaled, "fft", "float32", "epilog", 3, geometry=geometry, symbol="f", stored_dtype=dtype)
    store, block = emulator.callback(unit), block_of(unit, EXTENTS, origin, scale and 0.25)
    for place, offset in np.ndenumerate(offsets(geometry)):
        store(data, int(offset), x[place].reshape(1), block)
    i, _, k = np.indices(EXTENTS)
    expected = x * (i + k) * (0.25 if scale else 1)
    expected[:, 4:] = expected[:, :, 9:] = 77
    found = memory[offsets(geometry)] if own else memory
    np.testing.assert_allclose(found, np.trunc(expected) if stored == "uint8" else expected, rtol=1e-3)
