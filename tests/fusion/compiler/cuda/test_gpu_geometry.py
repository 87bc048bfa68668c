"""On a GPU: callbacks in a constant geometry inside cuFFT, against NumPy in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest

import mathfuse as mf
from mathfuse.fusion.compiler.cuda.geometry import Geometry, Shape
from mathfuse.runtime.cuda.cufft import Call, View

from . import device
from .shapes import dense, with_extents

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy", reason="GPU tests hold their arrays with CuPy")

RNG = np.random.default_rng(11)
LENGTHS = (8, 60, 97, 256, 4096, 65536)
FAMILIES = ("c2c", "r2c", "c2r")
BOUND = {"float32": 1e-5, "float64": 1e-13}


def ramp(value, index, shape):
    return value * (1 + index[-1] / shape[-1]) + index[0] * 0.25


def ramped(x: np.ndarray, shape: Shape) -> np.ndarray:
    places = np.indices(x.shape)
    return x * (1 + places[-1] / shape[-1]) + places[0] * 0.25


def complex_of(precision: str) -> np.dtype:
    return np.dtype(f"c{2 * np.dtype(precision).itemsize}")


def element(family: str, side: str, precision: str) -> np.dtype:
    is_real = (family, side) in (("r2c", "prolog"), ("c2r", "epilog"))
    return np.dtype(precision) if is_real else complex_of(precision)


def sample(dtype: np.dtype, shape: Shape) -> np.ndarray:
    x = RNG.uniform(-1, 1, shape)
    return (x + 1j * RNG.uniform(-1, 1, shape)).astype(dtype) if dtype.kind == "c" else x.astype(dtype)


def given(family: str, precision: str, shape: Shape) -> np.ndarray:
    """An input whose logical extents are ``shape``; for c2r the half spectrum of something real."""
    if family == "c2r":
        axes = tuple(range(1, len(shape)))
        return np.fft.rfftn(RNG.uniform(-1, 1, shape), axes=axes).astype(complex_of(precision))
    return sample(element(family, "prolog", precision), shape)


def reference(family: str, x: np.ndarray, lengths: Shape) -> np.ndarray:
    """Over all axes but the first; forward but for c2r, and cuFFT does not scale."""
    axes = tuple(range(1, x.ndim))
    if family == "c2r":
        return np.fft.irfftn(x, lengths, axes) * math.prod(lengths)
    return np.fft.fftn(x, axes=axes) if family == "c2c" else np.fft.rfftn(x, axes=axes)


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def close(result: np.ndarray, expected: np.ndarray, precision: str) -> None:
    assert result.shape == expected.shape
    assert np.abs(result - expected).max() <= BOUND[precision] * np.abs(expected).max()


def transform(call: Call, x: np.ndarray, out_shape: Shape, precision: str, *placed: device.Placed) -> np.ndarray:
    out = cupy.full(out_shape, 7, element(call.family, "epilog", precision))
    source = cupy.asarray(x)
    hooks = [p.hook for p in placed]
    device.run_cufft(call, source.data.ptr, out.data.ptr, hooks, call.family != "c2r")
    return cupy.asnumpy(out)


def place(callback, side: str, family: str, precision: str, geometry: Geometry, shape: Shape, **options):
    """``options`` of the unit, and ``origin``, ``scale``, ``operands`` (of ``constant_extents``) of its block."""
    block = {name: options.pop(name) for name in ("origin", "scale", "operands") if name in options}
    constant_extents = options.pop("constant_extents", False)
    made = callback and (mf.prolog(callback) if side == "prolog" else mf.epilog(callback))
    unit = device.callback_unit(
        made, side, element(family, side, precision), geometry, block.get("operands"), **options
    )
    return device.Placed(with_extents(unit, block["operands"]) if constant_extents else unit, shape, **block)


# --- the index -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("precision", BOUND)
@pytest.mark.parametrize("side", ["prolog", "epilog"])
@pytest.mark.parametrize("family", FAMILIES)
def test_rows(family, side, precision, n):
    shape = (3, n)
    x = given(family, precision, shape)
    plain = reference(family, wide(x), (n,))
    extents = x.shape if side == "prolog" else plain.shape
    placed = place(ramp, side, family, precision, dense(extents), shape)
    result = transform(device.dense_call(family, precision, (n,), 3), x, plain.shape, precision, placed)
    if side == "prolog":
        if family == "c2r":
            x[:, 0].imag = 0  # what cuFFT leaves out of account
        expected = reference(family, ramped(wide(x), shape), (n,))
    else:
        expected = ramped(plain, shape)
    close(result, expected, precision)


@pytest.mark.parametrize("n", [60, 97, 4096])
def test_both_sides_of_a_batch_of_rank_3(n):
    shape = (2, 3, n)
    x = sample(np.dtype(np.complex64), shape)
    both = [place(ramp, side, "c2c", "float32", dense(shape), shape) for side in ("prolog", "epilog")]
    result = transform(device.dense_call("c2c", "float32", (n,), 6), x, shape, "float32", *both)
    close(result, ramped(np.fft.fft(ramped(wide(x), shape)), shape), "float32")


@pytest.mark.parametrize("n", [60, 256])
def test_columns(n):
    """The transform runs along the first axis, the batch along the second; axes as the array has them."""
    shape = (n, 37)
    x = sample(np.dtype(np.complex64), shape)
    view = View((n,), 37, 1)
    both = [place(ramp, side, "c2c", "float32", dense(shape), shape) for side in ("prolog", "epilog")]
    result = transform(Call("c2c", False, (n,), 37, view, view), x, shape, "float32", *both)
    close(result, ramped(np.fft.fft(ramped(wide(x), shape), axis=0), shape), "float32")


@pytest.mark.parametrize("n", [97, 256, 65536])
def test_in_place(n):
    shape = (3, n)
    x = sample(np.dtype(np.complex64), shape)
    both = [place(ramp, side, "c2c", "float32", dense(shape), shape) for side in ("prolog", "epilog")]
    data = cupy.asarray(x)
    call = device.dense_call("c2c", "float32", (n,), 3)
    device.run_cufft(call, data.data.ptr, data.data.ptr, [p.hook for p in both], True)
    close(cupy.asnumpy(data), ramped(np.fft.fft(ramped(wide(x), shape)), shape), "float32")


# --- addresses of our own --------------------------------------------------------------------------------------------

VIEWS = {
    "every other row": lambda a: a[::2],
    "backwards": lambda a: a[::-1, ::-1],
    "a column of pairs": lambda a: a[:, ::2],
    "transposed": lambda a: cupy.ascontiguousarray(a.T).T,
    "broadcast": lambda a: cupy.broadcast_to(a[:1], a.shape),
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "complex64", "complex128"])
@pytest.mark.parametrize("invariant", [False, True])
def test_a_load_reads_any_layout_and_dtype(view, dtype, invariant):
    """Into a complex64 transform; what cuFFT is given as its source is never read."""
    base = cupy.asarray((RNG.uniform(0, 100, (8, 512))).astype(dtype))
    source = VIEWS[view](base)
    shape = source.shape
    geometry = dense(shape, address=tuple(source.strides), invariant=invariant)
    options = {"origin": source.data.ptr, "value_dtype": dtype}
    placed = place(ramp, "prolog", "c2c", "float32", geometry, shape, **options)
    empty = np.full(shape, np.nan, np.complex64)
    call = device.dense_call("c2c", "float32", shape[1:], shape[0])
    result = transform(call, empty, shape, "float32", placed)
    close(result, np.fft.fft(ramped(wide(cupy.asnumpy(source)), shape)), "float32")


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_load_without_a_callback_converts(family, n):
    """uint8, or a complex128 spectrum, backwards in memory."""
    x = given(family, "float64", (3, n))
    if family != "c2r":
        x = RNG.integers(0, 255, (3, n)).astype(np.uint8)
    source = cupy.asarray(np.ascontiguousarray(x[::-1, ::-1]))[::-1, ::-1]
    geometry = dense(x.shape, address=source.strides)
    options = {"origin": source.data.ptr, "value_dtype": x.dtype}
    placed = place(None, "prolog", family, "float32", geometry, (3, n), **options)
    expected = reference(family, wide(x), (n,))
    scratch = np.zeros(x.shape, element(family, "prolog", "float32"))
    result = transform(device.dense_call(family, "float32", (n,), 3), scratch, expected.shape, "float32", placed)
    close(result, expected, "float32")


@pytest.mark.parametrize("view", [name for name in VIEWS if name != "broadcast"])
@pytest.mark.parametrize("n", [60, 4096])
def test_a_store_writes_any_layout(view, n):
    base = cupy.zeros((8, n), np.complex64)
    target = VIEWS[view](base)
    shape = target.shape
    x = sample(np.dtype(np.complex64), shape)
    geometry = dense(shape, address=target.strides)
    placed = place(ramp, "epilog", "c2c", "float32", geometry, shape, origin=target.data.ptr)
    call = device.dense_call("c2c", "float32", shape[1:], shape[0])
    transform(call, x, shape, "float32", placed)
    close(cupy.asnumpy(target), ramped(np.fft.fft(wide(x)), shape), "float32")
    if view == "a column of pairs":
        assert not base[:, 1::2].any()


def power(value):
    return value.real * value.real + value.imag * value.imag


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("stored", ["float32", "float64", "float16"])
@pytest.mark.parametrize("family", ["c2c", "r2c"])
def test_a_store_writes_real_results(family, stored, n):
    x = given(family, "float32", (3, n)) / np.float32(math.sqrt(n))
    expected = np.abs(reference(family, wide(x), (n,))) ** 2
    target = cupy.zeros(expected.shape, stored)
    geometry = dense(expected.shape, address=target.strides)
    options = {"origin": target.data.ptr, "stored_dtype": np.dtype(stored)}
    placed = place(power, "epilog", family, "float32", geometry, (3, n), **options)
    assert placed.result_dtype == stored
    transform(device.dense_call(family, "float32", (n,), 3), x, expected.shape, "float32", placed)
    bound = 2e-3 if stored == "float16" else 2e-5
    assert np.abs(cupy.asnumpy(target) - expected).max() <= bound * expected.max()


# --- limits and scales -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("family", FAMILIES)
def test_padding_never_sees_the_prolog(family, n):
    """Data of fewer rows and columns than the transform has; NaN lies behind them."""
    half = n // 2 + 1 if family == "c2r" else n
    held = (2, max(1, half - 3))
    x = sample(element(family, "prolog", "float32"), held)
    x[:, 0] = x[:, 0].real
    memory = cupy.full((4, half), np.nan, x.dtype)
    memory[:2, : held[1]] = cupy.asarray(x)
    geometry = dense((3, half), address=memory.strides, limits=held)
    placed = place(lambda value: value + 1, "prolog", family, "float32", geometry, (3, n), origin=memory.data.ptr)
    padded = np.zeros((3, half), np.complex128 if x.dtype.kind == "c" else np.float64)
    padded[:2, : held[1]] = wide(x) + 1
    expected = reference(family, padded, (n,))
    scratch = np.zeros(padded.shape, x.dtype)
    result = transform(device.dense_call(family, "float32", (n,), 3), scratch, expected.shape, "float32", placed)
    close(result, expected, "float32")


def test_padding_at_cufft_s_own_address():
    x = sample(np.dtype(np.float32), (3, 128))
    placed = place(ramp, "prolog", "r2c", "float32", dense(x.shape, limits=(3, 100)), x.shape)
    padded = ramped(wide(x), x.shape)
    padded[:, 100:] = 0
    result = transform(device.dense_call("r2c", "float32", (128,), 3), x, (3, 65), "float32", placed)
    close(result, np.fft.rfft(padded), "float32")


def test_nothing_is_stored_outside_the_limits():
    x = sample(np.dtype(np.complex64), (3, 128))
    target = cupy.full((3, 128), 7, np.complex64)
    geometry = dense(x.shape, address=target.strides, limits=(2, 100))
    placed = place(ramp, "epilog", "c2c", "float32", geometry, x.shape, origin=target.data.ptr)
    transform(device.dense_call("c2c", "float32", (128,), 3), x, x.shape, "float32", placed)
    expected = np.full(x.shape, 7, np.complex128)
    expected[:2, :100] = ramped(np.fft.fft(wide(x)), x.shape)[:2, :100]
    close(cupy.asnumpy(target), expected, "float32")


@pytest.mark.parametrize("scale", ["before", "after"])
@pytest.mark.parametrize("precision", BOUND)
@pytest.mark.parametrize("side", ["prolog", "epilog"])
@pytest.mark.parametrize("family", FAMILIES)
def test_scales(family, side, precision, scale):
    shape = (3, 60)
    x = given(family, precision, shape)
    plain = reference(family, wide(x), (60,))
    extents = x.shape if side == "prolog" else plain.shape
    placed = place(ramp, side, family, precision, dense(extents, scale=scale), shape, scale=0.1)

    def apply(v: np.ndarray) -> np.ndarray:
        return ramped(v * 0.1, shape) if scale == "before" else ramped(v, shape) * 0.1

    expected = reference(family, apply(wide(x)), (60,)) if side == "prolog" else apply(plain)
    close(
        transform(device.dense_call(family, precision, (60,), 3), x, plain.shape, precision, placed),
        expected,
        precision,
    )


def test_operands_in_a_callback():
    shape = (3, 4096)
    x = sample(np.dtype(np.complex64), shape)
    w, log = RNG.uniform(0.5, 1.5, shape).astype(np.float32), np.zeros(shape, np.complex64)

    def recorded(value, index, w, log, gain):
        log[index] = value
        return value * w[index] * gain

    operands = {"w": w, "log": log, "gain": 3.0}
    placed = place(recorded, "epilog", "c2c", "float32", dense(shape), shape, operands=operands)
    result = transform(device.dense_call("c2c", "float32", (4096,), 3), x, shape, "float32", placed)
    plain = np.fft.fft(wide(x))
    close(result, plain * w * 3, "float32")
    held, _ = placed.alive
    logged = next(a for a in held if a.dtype == np.complex64)
    close(cupy.asnumpy(logged), plain, "float32")


OPERANDS = {
    "full": lambda s: {"w": RNG.uniform(1, 2, s)},
    "a batch": lambda s: {"w": RNG.uniform(1, 2, (1, *s[1:]))},
    "of lower rank": lambda s: {"w": RNG.uniform(1, 2, s[1:])},
    "a row": lambda s: {"w": RNG.uniform(1, 2, s[-1:])},
    "a column": lambda s: {"w": RNG.uniform(1, 2, (*s[:-1], 1))},
    "the ends": lambda s: {"w": RNG.uniform(1, 2, (s[0], *[1] * (len(s) - 2), s[-1]))},
    "Fortran": lambda s: {"w": np.asfortranarray(RNG.uniform(1, 2, s))},
}


@pytest.mark.parametrize("shape", [(3, 60), (5, 97), (64, 256), (8, 8192), (3, 5, 1024), (2, 7, 1000), (2, 3, 65536)])
@pytest.mark.parametrize("side", ["prolog", "epilog"])
@pytest.mark.parametrize("name", OPERANDS)
def test_operands_of_constant_extents(name, side, shape):
    operands = {key: w.astype(np.float32) for key, w in OPERANDS[name](shape).items()}
    x = sample(np.dtype(np.complex64), shape)
    options = {"operands": operands, "constant_extents": True}
    placed = place(lambda value, w: value * w, side, "c2c", "float32", dense(shape), shape, **options)
    call = device.dense_call("c2c", "float32", shape[-1:], math.prod(shape[:-1]))
    result = transform(call, x, shape, "float32", placed)
    w = wide(operands["w"])
    close(result, np.fft.fft(wide(x) * w) if side == "prolog" else np.fft.fft(wide(x)) * w, "float32")


@pytest.mark.parametrize("shape", [(3, 60), (8, 8192), (2, 7, 1000)])
def test_computed_indices_into_constant_extents(shape):
    """Rolled rows of one operand; another ends too soon, where NaN is read and never foreign memory."""
    n = shape[-1]
    operands = {"w": RNG.uniform(1, 2, n).astype(np.float32), "short": np.ones(n - 2, np.float32)}

    def function(value, index, shape, w, short):
        return value * w[(index[-1] + 5) % shape[-1]] * short[index[-1] + 0]

    x = sample(np.dtype(np.complex64), shape)
    options = {"operands": operands, "constant_extents": True}
    placed = place(function, "epilog", "c2c", "float32", dense(shape), shape, **options)
    call = device.dense_call("c2c", "float32", (n,), math.prod(shape[:-1]))
    result = transform(call, x, shape, "float32", placed)
    assert np.isnan(result[..., -2:]).all()
    close(result[..., :-2], (np.fft.fft(wide(x)) * np.roll(operands["w"], -5))[..., :-2], "float32")


# --- more axes -------------------------------------------------------------------------------------------------------

BOXES = [(16, 60), (64, 64), (97, 30), (512, 512), (2048, 1024), (8, 12, 20), (64, 64, 64), (31, 16, 27)]
SIDES = [
    ("c2c", "prolog"),
    ("c2c", "epilog"),
    ("r2c", "prolog"),
    ("r2c", "epilog"),
    ("c2r", "prolog"),
    ("c2r", "epilog"),
]


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("lengths", BOXES, ids=str)
@pytest.mark.parametrize(("family", "side"), SIDES)
def test_more_axes(family, side, lengths, batch):
    """Callbacks in 2-D and 3-D transforms, on real sides too; a spectrum of c2r is only scaled, for its symmetry."""
    shape = (batch, *lengths)
    x = given(family, "float32", shape)
    plain = reference(family, wide(x), lengths)
    extents = x.shape if side == "prolog" else plain.shape
    symmetric = (family, side) == ("c2r", "prolog")
    function, on_host = (tripled, lambda v: 3 * v) if symmetric else (ramp, lambda v: ramped(v, shape))
    placed = place(function, side, family, "float32", dense(extents), shape)
    result = transform(device.dense_call(family, "float32", lengths, batch), x, plain.shape, "float32", placed)
    expected = reference(family, on_host(wide(x)), lengths) if side == "prolog" else on_host(plain)
    close(result, expected, "float32")


def tripled(value):
    return value * 3


@pytest.mark.parametrize("lengths", [(64, 64), (60, 97), (16, 24, 32)], ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_both_sides_of_more_axes_at_addresses_of_our_own(family, lengths):
    """A load of float64 or complex128 backwards, a store of what has twice the width, transposed."""
    shape = (2, *lengths)
    x = given(family, "float64", shape)
    source = cupy.asarray(np.ascontiguousarray(x[::-1]))[::-1]
    plain = reference(family, x, lengths)
    stored = np.dtype(np.complex128 if plain.dtype.kind == "c" else np.float64)
    target = cupy.zeros(plain.shape[::-1], stored).T
    load = place(
        tripled, "prolog", family, "float32", dense(x.shape, address=source.strides), shape,
        origin=source.data.ptr, value_dtype=x.dtype,
    )  # fmt: skip
    store = place(
        ramp, "epilog", family, "float32", dense(plain.shape, address=target.strides), shape,
        origin=target.data.ptr, stored_dtype=stored,
    )  # fmt: skip
    scratch = np.zeros(x.shape, element(family, "prolog", "float32"))
    transform(device.dense_call(family, "float32", lengths, 2), scratch, plain.shape, "float32", load, store)
    close(cupy.asnumpy(target), ramped(3 * plain, shape), "float32")
