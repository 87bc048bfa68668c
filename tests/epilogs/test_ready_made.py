"""The ready-made callbacks against NumPy and SciPy, in float64."""

from __future__ import annotations

import doctest
import inspect
import math

import numpy as np
import pytest
import scipy.ndimage
import scipy.signal
import scipy.special

import mathfuse.epilogs as mf
from mathfuse.epilogs import decorators, ready_made

VALUES = np.concatenate([np.linspace(-40, 40, 161), [0.0, -0.0, 1e-300, -1e3, 1e3]])
SHAPES_AND_AXES = [
    ((8,), (0,)),
    ((7,), (0,)),
    ((1,), (0,)),
    ((5, 6), (0, 1)),
    ((3, 4, 5), (2,)),
    ((3, 4, 5), (0, 1, 2)),
]
COMPLEX = np.array([1 + 2j, -3.5 + 0j, 0.25j, 1e200 - 1e-200j])


def pointwise(callback, values=VALUES):
    return np.array([mf.evaluate(callback, value) for value in values])


def over(callback, values, axes, shape=None):
    """The callback on every element of an array; `shape` is that of the full transform."""
    results = [mf.evaluate(callback, values[i], i, shape or values.shape, axes) for i in np.ndindex(values.shape)]
    return np.reshape(results, values.shape)


POINTWISE = {
    "relu": (mf.relu, np.maximum(VALUES, 0)),
    "leaky_relu": (mf.leaky_relu, np.where(VALUES > 0, VALUES, 0.01 * VALUES)),
    "leaky_relu(slope)": (mf.leaky_relu(slope=0.2), np.where(VALUES > 0, VALUES, 0.2 * VALUES)),
    "gelu": (mf.gelu, VALUES * scipy.special.ndtr(VALUES)),
    "gelu_tanh": (
        mf.gelu_tanh,
        VALUES * scipy.special.expit(2 * math.sqrt(2 / math.pi) * (VALUES + 0.044715 * VALUES**3)),
    ),
    "silu": (mf.silu, VALUES * scipy.special.expit(VALUES)),
    "sigmoid": (mf.sigmoid, scipy.special.expit(VALUES)),
    "tanh": (mf.tanh, np.tanh(VALUES)),
    "scale": (mf.scale(factor=1.5), VALUES * 1.5),
    "add": (mf.add(term=1.5), VALUES + 1.5),
    "multiply": (mf.multiply(factor=-2), VALUES * -2),
    "bias": (mf.bias(bias=0.5), VALUES + 0.5),
    "clamp": (mf.clamp(low=-1.5, high=2), np.clip(VALUES, -1.5, 2)),
    "normalise": (mf.normalise(mean=3.0, deviation=0.5), (VALUES - 3) / 0.5),
    "power_spectrum": (mf.power_spectrum, VALUES**2),
    "half": (mf.half, VALUES.astype(np.float16)),
}


@pytest.mark.parametrize("name", POINTWISE)
def test_pointwise(name):
    callback, expected = POINTWISE[name]
    np.testing.assert_allclose(pointwise(callback), expected, rtol=1e-13, atol=1e-300)


def test_the_two_forms_of_gelu():
    erf_form = 0.5 * VALUES * (1 + scipy.special.erf(VALUES / math.sqrt(2)))
    np.testing.assert_allclose(pointwise(mf.gelu), erf_form, atol=1e-14)
    assert mf.evaluate(mf.gelu, -3.0) == pytest.approx(-0.0040497, abs=5e-8)
    assert mf.evaluate(mf.gelu_tanh, -3.0) == pytest.approx(-0.0036374, abs=5e-8)


@pytest.mark.parametrize("callback", [mf.relu, mf.leaky_relu, mf.gelu, mf.gelu_tanh, mf.silu, mf.sigmoid, mf.tanh])
def test_nan_stays_nan(callback):
    assert math.isnan(mf.evaluate(callback, math.nan))
    assert math.isnan(mf.evaluate(mf.clamp(low=0, high=1), math.nan))


def test_clamp_as_numpy_where_the_limits_cross():
    assert mf.evaluate(mf.clamp(low=3, high=1), 2.0) == np.clip(2.0, 3, 1) == 1


@pytest.mark.parametrize(
    ("callback", "expected"),
    [
        (mf.scale(factor=2j), COMPLEX * 2j),
        (mf.add(term=1 - 1j), COMPLEX + (1 - 1j)),
        (mf.multiply(factor=0.1), COMPLEX * 0.1),
        (mf.bias(bias=3), COMPLEX + 3),
        (mf.normalise(mean=1j, deviation=2), (COMPLEX - 1j) / 2),
        (mf.conjugate_multiply(spectrum=2 + 1j), COMPLEX * (2 - 1j)),
    ],
)
def test_complex_values(callback, expected):
    np.testing.assert_allclose(pointwise(callback, COMPLEX), expected, rtol=1e-15)


def test_power_spectrum_is_real():
    result = pointwise(mf.power_spectrum, COMPLEX[:3])
    assert result.dtype == np.float64
    np.testing.assert_allclose(result, np.abs(COMPLEX[:3]) ** 2, rtol=1e-15)


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4), (4,), (3, 1)])
def test_array_operands_broadcast_over_a_batch(shape):
    rng = np.random.default_rng(1)
    values, operand = rng.standard_normal((2, 3, 4)), rng.standard_normal(shape)
    for callback, expected in [
        (mf.bias(bias=operand), values + operand),
        (mf.normalise(mean=operand, deviation=operand), (values - operand) / operand),
        (mf.clamp(low=operand, high=1), np.clip(values, operand, 1)),
        (mf.leaky_relu(slope=operand), np.where(values > 0, values, values * operand)),
        (mf.conjugate_multiply(spectrum=1j * operand), values * -1j * operand),
    ]:
        np.testing.assert_allclose(over(callback, values, (1, 2)), expected, rtol=1e-15)


def test_conjugate_multiply_correlates():
    rng = np.random.default_rng(2)
    signal, template = rng.standard_normal((2, 9))
    products = over(mf.conjugate_multiply(spectrum=np.fft.fft(template)), np.fft.fft(signal), (0,))
    expected = [signal @ np.roll(template, lag) for lag in range(9)]
    np.testing.assert_allclose(np.fft.ifft(products).real, expected, atol=1e-12)


@pytest.mark.parametrize(("shape", "axes"), SHAPES_AND_AXES)
@pytest.mark.parametrize("sigma", [0.0, 0.7, 3, 50.0])
def test_gaussian_as_scipy(shape, axes, sigma):
    rng = np.random.default_rng(3)
    spectrum = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    sigmas = [sigma if axis in axes else 0.0 for axis in range(len(shape))]
    expected = scipy.ndimage.fourier_gaussian(spectrum, sigmas)
    np.testing.assert_allclose(over(mf.gaussian(sigma=sigma), spectrum, axes), expected, rtol=1e-12, atol=1e-300)


def test_gaussian_blurs_a_real_image_through_its_half_spectrum():
    image = np.random.default_rng(4).standard_normal((24, 33))
    filtered = over(mf.gaussian(sigma=1.5), np.fft.rfft2(image), (0, 1), shape=image.shape)
    expected = scipy.ndimage.gaussian_filter(image, 1.5, mode="wrap", truncate=8)
    np.testing.assert_allclose(np.fft.irfft2(filtered, s=image.shape), expected, atol=1e-4)


@pytest.mark.parametrize(("shape", "axes"), SHAPES_AND_AXES)
def test_band_pass(shape, axes):
    grid = np.meshgrid(*(np.fft.fftfreq(n) * (axis in axes) for axis, n in enumerate(shape)), indexing="ij")
    f = np.sqrt(sum(g**2 for g in grid))
    spectrum = np.random.default_rng(5).standard_normal(shape) + 1j
    expected = np.where((f >= 0.125) & (f < 0.375), spectrum, 0)
    np.testing.assert_array_equal(over(mf.band_pass(low=0.125, high=0.375), spectrum, axes), expected)


def test_adjacent_bands_share_no_bin():
    values = np.ones(8)
    bands = [over(mf.band_pass(low=low, high=high), values, (0,)) for low, high in [(0, 0.25), (0.25, math.inf)]]
    np.testing.assert_array_equal(bands[0], np.abs(np.fft.fftfreq(8)) < 0.25)
    np.testing.assert_array_equal(bands[0] + bands[1], values)


@pytest.mark.parametrize("name", ["hann", "hamming"])
@pytest.mark.parametrize(("shape", "axes"), SHAPES_AND_AXES)
def test_windows_are_scipys_periodic_ones(name, shape, axes):
    expected = np.ones(shape)
    for axis in axes:
        window = scipy.signal.get_window(name, shape[axis], fftbins=True) if shape[axis] > 1 else [WINDOW_AT_ZERO[name]]
        expected = expected * np.reshape(window, [-1 if each == axis else 1 for each in range(len(shape))])
    np.testing.assert_allclose(over(getattr(mf, name), np.ones(shape), axes), expected, atol=1e-15)


WINDOW_AT_ZERO = {"hann": 0.0, "hamming": 0.08}  # scipy gives 1 for a window of one sample, periodic or not


def test_windows_are_prologs_and_everything_else_is_an_epilog():
    kinds = {name: value.kind for name, value in vars(ready_made).items() if isinstance(value, mf.Callback)}
    assert {name for name, kind in kinds.items() if kind == "prolog"} == {"hann", "hamming"}
    assert all(getattr(ready_made, name).as_kind(kind) for name in kinds for kind in ("prolog", "epilog"))


def test_every_one_is_public_and_says_what_its_operands_are():
    for name, value in vars(ready_made).items():
        if isinstance(value, mf.Callback):
            assert name in mf.__all__
            assert value.__name__ == name
            documentation = inspect.getdoc(value.function) or ""
            assert all(operand in documentation for operand in value.operands)


def test_the_examples_in_the_docstrings():
    found = doctest.testmod(decorators)
    assert found.attempted
    assert not found.failed
