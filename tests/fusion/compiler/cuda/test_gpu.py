"""On a GPU: what a compiled callback computes, alone and inside cuFFT, against NumPy in float64."""

from __future__ import annotations

import cmath
import math

import numpy as np
import pytest

import mathfuse as mf
from mathfuse.epilogs.reference import evaluate
from mathfuse.fusion.compiler.cuda import raw
from mathfuse.fusion.compiler.cuda.interface import make_unit
from mathfuse.runtime.cuda.cufft import Hook

from . import device

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy", reason="GPU tests hold their arrays with CuPy")

RNG = np.random.default_rng(5)
REAL_FUNCTIONS = {
    np.exp: 20, np.log: 20, np.log2: 20, np.log10: 20, np.exp2: 20, np.expm1: 8, np.log1p: 8, np.sqrt: 20, np.cbrt: 20,
    np.sinh: 5, np.cosh: 5, np.tanh: 3, np.arcsin: 1, np.arccos: 1, np.arctan: 9, np.arcsinh: 9, np.arccosh: 9,
    np.arctanh: 0.9, np.floor: 9, np.ceil: 9, np.trunc: 9, np.rint: 9, np.abs: 9, np.sign: 9, np.square: 9,
    np.reciprocal: 9, np.sin: 4, np.cos: 4, np.tan: 1,
}  # fmt: skip
POSITIVE = {np.log, np.log2, np.log10, np.log1p, np.sqrt, np.arccosh}
COMPLEX_FUNCTIONS = [
    np.exp,
    np.log,
    np.log10,
    np.sqrt,
    np.sin,
    np.cos,
    np.tan,
    np.sinh,
    np.cosh,
    np.tanh,
    np.square,
    np.reciprocal,
    np.sign,
    np.arcsin,
    np.arccos,
    np.arctan,
    np.arcsinh,
    np.arccosh,
    np.arctanh,
]
APPROXIMATE = {np.log, np.log2, np.log10}  # lg2.approx: absolute error 2^-22 near 1 (PTX ISA)
BOUND = {np.float32: 2e-6, np.float64: 1e-14, np.complex64: 4e-6, np.complex128: 1e-13}


def sample(dtype: type, span: float, positive: bool = False, shape: tuple[int, ...] = (31, 67)) -> np.ndarray:
    x = RNG.uniform(1 + 1e-3 if positive else -span, 1 + span if positive else span, shape)
    return (x + 1j * RNG.uniform(-span, span, shape)).astype(dtype) if np.dtype(dtype).kind == "c" else x.astype(dtype)


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def close(result: np.ndarray, expected: np.ndarray, bound: float) -> None:
    error = np.abs(result - expected) / np.maximum(np.abs(expected), 1e-2)
    assert error.max() <= bound, f"relative error {error.max():.2e} at {np.unravel_index(error.argmax(), error.shape)}"


def unary(function):
    return mf.epilog(lambda value: function(value))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("function", REAL_FUNCTIONS, ids=lambda f: f.__name__)
def test_real_function(function, dtype):
    x = sample(dtype, REAL_FUNCTIONS[function], function in POSITIVE)
    bound = 3e-5 if dtype == np.float32 and function in APPROXIMATE else BOUND[dtype]
    close(device.elementwise(unary(function), x), function(wide(x)), bound)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("function", COMPLEX_FUNCTIONS, ids=lambda f: f.__name__)
def test_complex_function(function, dtype):
    x = sample(dtype, 1.2)
    close(device.elementwise(unary(function), x), function(wide(x)), BOUND[dtype])


@pytest.mark.parametrize("name", ["erf", "erfc", "gamma", "lgamma"])
def test_special_function(name):
    import scipy.special

    x = sample(np.float32, 2, positive=True)
    reference = {"lgamma": scipy.special.gammaln}.get(name) or getattr(scipy.special, name)
    close(device.elementwise(unary(getattr(math, name)), x), reference(wide(x)), 5e-6)


@pytest.mark.parametrize("function", [np.sin, np.cos], ids=["sin", "cos"])
@pytest.mark.parametrize("span", [1e1, 1e3, 3e4, 1e5, 1e7, 1e12, 3e38])
def test_sine_keeps_range_reduction(function, span):
    """float32 by Cody–Waite and Payne–Hanek in integers: an absolute error of an ulp of 1 for any argument."""
    x = sample(np.float32, span)
    result = device.elementwise(unary(function), x)
    assert np.abs(result - function(wide(x))).max() < 2e-7


@pytest.mark.parametrize("x", [math.inf, -math.inf, math.nan])
def test_special_values(x):
    data = np.full(64, x, np.float32)
    for function in (np.sin, np.exp, np.tanh, np.sqrt, np.abs, np.log):
        with np.errstate(all="ignore"):
            expected = function(data)
        np.testing.assert_array_equal(device.elementwise(unary(function), data), expected)


def second_argument(value):
    return (
        math.atan2(value, value * 0.5 - 1)
        + value % 0.7
        + value // 0.3
        + math.hypot(value, 2)
        + math.copysign(value, -1)
    )


def test_two_arguments():
    x = sample(np.float32, 5)
    v = wide(x)
    expected = np.arctan2(v, v * 0.5 - 1) + v % np.float32(0.7) + v // np.float32(0.3) + np.hypot(v, 2) - np.abs(v)
    result = device.elementwise(mf.epilog(second_argument), x)
    wrapped = (
        np.abs(result - expected) > 0.1
    )  # on the border of // and %, where float32 and float64 may differ by one step
    assert wrapped.mean() < 2e-3
    close(np.where(wrapped, 1, result), np.where(wrapped, 1, expected), 1e-5)


def complex_mix(value):
    return (value + 1) / (value - 2j) + value**2 - 1j * value + abs(value) + cmath.phase(value) * value**-3 + value**0.3


def test_complex_arithmetic():
    x = sample(np.complex64, 3)
    v = wide(x)
    expected = (v + 1) / (v - 2j) + v**2 - 1j * v + np.abs(v) + np.angle(v) * v**-3 + v**0.3
    close(device.elementwise(mf.epilog(complex_mix), x), expected, 2e-5)


TABLE = np.linspace(0, 1, 100_000, dtype=np.float32)


def indices(value, index, shape, w, row):
    i, j = index
    shifted = w[(i + 1) % shape[0], j - 1]
    return (
        value * w[index]
        + row
        + row[index[-1]] * (i * 3 // 2)
        + shifted
        + TABLE[i * shape[1] + j]
        + (j * 1000 - i) // (i + 1)
    )


def test_index_operands_and_captured_arrays():
    x, w = sample(np.float32, 2), sample(np.float32, 1)
    row = sample(np.float32, 1, shape=(67,))
    i, j = np.indices(x.shape)
    v, wide_w = wide(x), wide(w)
    shifted = wide_w[(i + 1) % 31, j - 1]
    expected = v * wide_w + row + row * (i * 3 // 2) + shifted + TABLE[i * 67 + j] + (j * 1000 - i) // (i + 1)
    close(device.elementwise(mf.epilog(indices), x, w=w, row=row), expected, 1e-5)


def far(value, index):
    return value + (index[0] * 3_000_000_017 - 7) // 5_000_000_029 + (index[0] * 7_000_000_001 + 3) % 5_000_000_029


def test_integer_division_beyond_32_bits():
    x = np.zeros(300)
    i = np.arange(300, dtype=object)
    expected = (i * 3_000_000_017 - 7) // 5_000_000_029 + (i * 7_000_000_001 + 3) % 5_000_000_029
    np.testing.assert_array_equal(device.elementwise(mf.epilog(far), x), expected.astype(np.float64))


def test_conversions_to_integers_saturate():
    x = np.array([0.5, -0.5, 2.5, -3.7, 1e30, -1e30, math.inf, -math.inf, math.nan], np.float32)
    largest, smallest = 2**63 - 1, -(2**63)
    for function, small in ((int, [0, 0, 2, -3]), (round, [0, 0, 2, -4]), (math.floor, [0, -1, 2, -4])):
        expected = [*small, largest, smallest, largest, smallest, 0]
        result = device.elementwise(unary(function), x)
        assert result.dtype == np.int64
        assert result.tolist() == expected


def test_a_computed_index_outside_reads_nan_and_writes_nothing():
    x, table = np.zeros(8, np.float32), np.arange(8, dtype=np.float32)
    read = device.elementwise(mf.epilog(lambda value, index, table: table[index[0] + 2]), x, table=table)
    np.testing.assert_array_equal(read, [2, 3, 4, 5, 6, 7, np.nan, np.nan])
    count = np.arange(5)
    read = device.elementwise(mf.epilog(lambda value, index, count: count[3 * index[0] - 4]), x, count=count)
    np.testing.assert_array_equal(read, [1, 4, 2, 0, 0, 0, 0, 0])


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int32, np.int64, np.float16, np.bool_])
def test_narrow_elements(dtype):
    x = (np.arange(100) % 7).astype(dtype)
    result = device.elementwise(mf.epilog(lambda value: value / 3 + 1), x)
    assert result.dtype == (np.float64 if dtype in (np.int32, np.int64) else np.float32)
    np.testing.assert_allclose(result, x.astype(float) / 3 + 1, rtol=1e-6)
    back = device.elementwise(mf.epilog(lambda value: np.uint8(2 * value + 1)), x)
    assert back.dtype == np.uint8
    np.testing.assert_array_equal(back, 2 * x.astype(int) + 1)


READY_MADE = {
    "real": [mf.scale(factor=1.5), mf.add(term=-2), mf.clamp(low=-1, high=1), mf.relu, mf.leaky_relu, mf.gelu,
             mf.gelu_tanh, mf.silu, mf.sigmoid, mf.tanh, mf.normalise(mean=0.5, deviation=2.0), mf.hann, mf.hamming,
             mf.gaussian(sigma=1.5), mf.band_pass(low=0.1, high=0.3),
             mf.scale(factor=2.0) | mf.relu | mf.add(term=1.0)],
    "complex": [mf.scale(factor=1.5 - 1j), mf.power_spectrum, mf.gaussian(sigma=1.5),
                mf.band_pass(low=0.1, high=0.3)],
}  # fmt: skip


@pytest.mark.parametrize(
    ("callback", "dtype"),
    [(c, np.float32) for c in READY_MADE["real"]] + [(c, np.complex64) for c in READY_MADE["complex"]],
    ids=repr,
)
def test_ready_made(callback, dtype):
    x = sample(dtype, 4, shape=(13, 17))
    result = device.elementwise(callback, x)
    expected = [evaluate(callback, wide(x)[i], index=i, shape=x.shape, axes=(0, 1)) for i in np.ndindex(*x.shape)]
    np.testing.assert_allclose(result, np.reshape(expected, x.shape), rtol=5e-6, atol=2e-6)


@pytest.mark.parametrize("factor", [np.float32(3), 3, 3.0, True, 2 - 1j])
def test_bound_scalars_are_run_time_data(factor):
    x = sample(np.complex64, 1)
    close(device.elementwise(mf.scale(factor=factor), x), wide(x) * factor, 1e-6)


# --- cuFFT -----------------------------------------------------------------------------------------------------------

N, BATCH = 256, 37


def raw_load(data_in, offset, user_info, reserved):
    return data_in[offset] * user_info[offset]


def raw_store(data_out, offset, data, user_info, reserved):
    data_out[offset] = data * user_info[offset]


def rows(kind: str, precision: str) -> np.ndarray:
    real = np.dtype(precision)
    dtype = real if kind == "R2C" else np.dtype(f"c{2 * real.itemsize}")
    x = sample(dtype.type, 1, shape=(BATCH, N // 2 + 1 if kind == "C2R" else N))
    if kind == "C2R":
        x[:, [0, -1]] = x[:, [0, -1]].real
    return x


def reference(kind: str, x: np.ndarray) -> np.ndarray:
    """cuFFT does not scale."""
    return {"C2C": np.fft.fft, "R2C": np.fft.rfft, "C2R": lambda v: np.fft.irfft(v, N) * N}[kind](wide(x))


CASES = [(k, p, s) for k in ("C2C", "R2C", "C2R") for p in ("float32", "float64") for s in ("prolog", "epilog")]


def element_dtype(kind: str, precision: str, side: str) -> np.dtype:
    real = np.dtype(precision)
    is_real = (kind, side) in (("R2C", "prolog"), ("C2R", "epilog"))
    return real if is_real else np.dtype(f"c{2 * real.itemsize}")


@pytest.mark.parametrize(("kind", "precision", "side"), CASES)
def test_raw_callback_in_cufft(kind, precision, side):
    x = rows(kind, precision)
    out_shape = reference(kind, x).shape
    weights = RNG.uniform(0.5, 1.5, x.shape if side == "prolog" else out_shape).astype(precision)
    compile_raw = raw.compile_prolog if side == "prolog" else raw.compile_epilog
    ltoir = compile_raw(raw_load if side == "prolog" else raw_store, element_dtype(kind, precision, side), precision)
    info = cupy.asarray(weights)
    result = device.rows(kind, x, N, Hook(side, element_dtype(kind, precision, side), ltoir, info.data.ptr))
    expected = reference(kind, wide(x) * weights) if side == "prolog" else reference(kind, x) * weights
    bound = 1e-5 if precision == "float32" else 1e-13
    assert np.abs(result - expected).max() <= bound * np.abs(expected).max()


def indexed(value, index, shape, axes, w, sigma):
    f = mf.signed_frequency(index[axes[0]], shape[1])
    return value * w[index] * math.exp(-sigma * f * f) + index[0]


@pytest.mark.parametrize(("kind", "precision", "side"), CASES)
def test_callback_with_index_in_cufft(kind, precision, side):
    x = rows(kind, precision)
    shape = x.shape if side == "prolog" else reference(kind, x).shape
    w = RNG.uniform(0.5, 1.5, shape).astype(precision)
    callback = mf.epilog(indexed) if side == "epilog" else mf.prolog(indexed)
    operands = {"w": w, "sigma": 3.0}
    unit = make_unit(
        callback, "fft", element_dtype(kind, precision, side), operands, device.architecture(), side, axes=[1]
    )
    placed = device.Placed(unit, (BATCH, N), operands, extents=shape)
    result = device.rows(kind, x, N, placed.hook)

    def apply(v: np.ndarray) -> np.ndarray:
        i, j = np.indices(shape)
        f = np.where(2 * j < N, j, j - N) / N
        return v * w * np.exp(-3.0 * f * f) + i

    expected = reference(kind, apply(wide(x))) if side == "prolog" else apply(reference(kind, x))
    bound = 1e-5 if precision == "float32" else 1e-13
    assert np.abs(result - expected).max() <= bound * np.abs(expected).max()
