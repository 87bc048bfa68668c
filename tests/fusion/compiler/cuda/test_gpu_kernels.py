"""On a GPU: elementwise kernels in all options against NumPy, and the table kernel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import mathfuse as mf
from mathfuse.fusion.compiler.cuda.interface import make_unit
from mathfuse.fusion.compiler.cuda.kernels import ElementwiseKernel
from mathfuse.fusion.compiler.cuda.tiling import vector_width
from mathfuse.runtime.cuda import driver

from . import device

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy", reason="GPU tests hold their arrays with CuPy")

RNG = np.random.default_rng(13)


def kernel(callback, dtype, operands=None, ndim: int = 1, result=None, **options) -> ElementwiseKernel:
    made = make_unit(callback or mf.relu, "elementwise", dtype, operands or {}, device.architecture(), ndim=ndim)
    if callback is None:
        made = replace(made, signature=replace(made.signature, callback=None, operands=()))
    return ElementwiseKernel(replace(made, dtype=result and np.dtype(result), **options))


def sample(dtype, shape) -> np.ndarray:
    x = RNG.uniform(0, 100, shape)
    return (x + 1j * RNG.uniform(0, 100, shape)).astype(dtype) if np.dtype(dtype).kind == "c" else x.astype(dtype)


# --- flat ------------------------------------------------------------------------------------------------------------

DTYPES = "bool uint8 int16 float16 int32 float32 uint64 float64 complex64 complex128".split()
COUNTS = [1, 7, 255, 2047, 2048, 2049, 8191, 100_003]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("wide", [False, True])
def test_flat_copies(dtype, wide):
    lanes = vector_width(np.dtype(dtype).itemsize)
    for vector in {1, lanes}:
        copy = kernel(None, dtype, flat=True, vector=vector, wide=wide)
        assert copy.result_dtype == dtype
        for count in COUNTS:
            x = sample(dtype, count)
            source, result = cupy.asarray(x), cupy.zeros(count + 8, dtype)
            device.run_kernel(copy, source, result[:count], {})
            np.testing.assert_array_equal(cupy.asnumpy(result[:count]), x)
            assert not result[count:].any()


@pytest.mark.parametrize(
    ("dtype", "result"),
    [
        ("uint8", "float32"), ("float32", "uint8"), ("float16", "float32"), ("float32", "float16"),
        ("int16", "complex64"), ("float32", "complex64"), ("float64", "complex64"), ("complex128", "complex64"),
        ("complex64", "complex128"), ("int64", "float64"), ("bool", "float32"),
    ],
)  # fmt: skip
def test_flat_conversions(dtype, result):
    lanes = vector_width(np.dtype(dtype).itemsize, np.dtype(result).itemsize)
    convert = kernel(None, dtype, result=result, flat=True, vector=lanes)
    for count in (5, 10_007):
        x = sample(dtype, count)
        target = cupy.zeros(count, result)
        device.run_kernel(convert, cupy.asarray(x), target, {})
        np.testing.assert_array_equal(cupy.asnumpy(target), x.astype(result))


def weighted(value, index, shape, w, row):
    return value * w + row[index[1]] + index[0] / shape[0]


@pytest.mark.parametrize("shape", [(37, 129), (64, 128), (3, 5000)])
@pytest.mark.parametrize("in_place", [False, True])
def test_flat_with_an_index_and_operands(shape, in_place):
    x = sample(np.float32, shape)
    operands = {"w": sample(np.float32, shape), "row": sample(np.float32, shape[1])}
    whole_rows = shape[1] % 4 == 0
    options = {"flat": True, "vector": 4, "order": (0, 1), "whole_rows": whole_rows, "in_place": in_place}
    made = kernel(mf.epilog(weighted), "float32", operands, ndim=2, **options)
    source = cupy.asarray(x)
    result = source if in_place else cupy.zeros_like(source)
    device.run_kernel(made, source, result, operands)
    expected = x.astype(float) * operands["w"] + operands["row"] + np.indices(shape)[0] / shape[0]
    np.testing.assert_allclose(cupy.asnumpy(result), expected, rtol=1e-6)


def test_flat_in_another_order_of_the_axes():
    """Both arrays transposed: numbers run along axis 0."""
    x = sample(np.float32, (40, 36))
    source, result = cupy.asarray(x, order="F"), cupy.zeros(x.shape, np.float32, order="F")
    ramp = mf.epilog(lambda value, index: value + 100 * index[0] + index[1])
    options = {"flat": True, "vector": 4, "order": (1, 0), "whole_rows": True}
    device.run_kernel(kernel(ramp, "float32", ndim=2, **options), source, result, {})
    i, j = np.indices(x.shape)
    np.testing.assert_allclose(cupy.asnumpy(result), x + 100 * i + j, rtol=1e-6)


# --- strided ---------------------------------------------------------------------------------------------------------

VIEWS = {
    "dense": lambda a: a,
    "every other": lambda a: a[::2, :, ::3],
    "backwards": lambda a: a[::-1, :, ::-1],
    "transposed": lambda a: a.transpose(2, 0, 1),
    "broadcast": lambda a: cupy.broadcast_to(a[:, :1], a.shape),
}


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("wide", [False, True])
def test_strided(view, order, wide):
    source = VIEWS[view](cupy.asarray(sample(np.complex64, (14, 9, 33))))
    ramp = mf.epilog(lambda value, index: value * index[2] + index[0] - index[1])
    made = kernel(ramp, "complex64", ndim=3, order=order, wide=wide)
    memory = cupy.zeros(tuple(source.shape[axis] for axis in order), np.complex64)
    result = memory.transpose(tuple(np.argsort(order)))
    device.run_kernel(made, source, result, {})
    i, j, k = np.indices(source.shape)
    np.testing.assert_allclose(cupy.asnumpy(result), cupy.asnumpy(source) * k + i - j, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("scale", [None, "before", "after"])
def test_padded(scale):
    x = sample(np.uint8, (5, 50))
    memory = cupy.full((8, 64), 255, np.uint8)
    memory[:5, :50] = cupy.asarray(x)
    result = cupy.full((7, 80), np.nan, np.float32)
    made = kernel(mf.prolog(lambda value: value + 1), "uint8", None, 2, "float32", padded=True, scale=scale)
    device.run_kernel(made, memory[:5, :50], result, {}, scale and 0.25)
    expected = np.zeros((7, 80))
    before, after = {None: (1, 1), "before": (0.25, 1), "after": (1, 0.25)}[scale]
    expected[:5, :50] = (x * before + 1) * after
    np.testing.assert_array_equal(cupy.asnumpy(result), expected)


def test_of_nothing():
    made = kernel(mf.relu, "float32", ndim=2)
    device.run_kernel(made, cupy.zeros((0, 4), np.float32), cupy.zeros((0, 4), np.float32), {})


@pytest.mark.parametrize("size", [1, 480, 481, 2000])
def test_the_table(size):
    block = RNG.integers(-(1 << 62), 1 << 62, size)
    np.testing.assert_array_equal(cupy.asnumpy(device.in_device_memory(block)), block)


@pytest.mark.parametrize("options", [{"flat": True, "vector": 2, "whole_rows": True}, {}, {"padded": True}], ids=str)
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "complex64"])
def test_no_thread_has_local_memory(dtype, options):
    ramp = mf.epilog(lambda value, index: value + index[1])
    made = kernel(ramp, dtype, ndim=2, result=dtype, order=(0, 1), **options)
    assert driver.load_kernel(made.cubin, made.name, device.DEVICE).local_bytes == 0
