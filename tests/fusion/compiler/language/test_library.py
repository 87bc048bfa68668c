"""The functions that the evaluator inlines, as the plain Python that they are, against NumPy."""

from __future__ import annotations

import cmath
import math
import warnings

import numpy as np
import pytest

from mathfuse.fusion.compiler.language import approximations, complexes, library
from mathfuse.fusion.compiler.language.functions import CALLABLES, FUNCTIONS, TWO_OPERANDS

VALUES = [0.0, -0.0, 0.5, -1.5, 2.0, -3.25, 1e-7, 1e5, -1e5]
ANY = [*VALUES, math.inf, -math.inf, math.nan]
POINTS = [complex(a, b) for a in (0.5, -1.5, 3e-3, 20) for b in (0.25, -2, 1e-3)]


@pytest.fixture(autouse=True)
def _quiet():
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def same(found, expected, units=4):
    eps = np.finfo(np.result_type(np.asarray(expected).dtype, np.float32)).eps
    np.testing.assert_allclose(found, expected, rtol=units * eps, atol=1e-300)


# --- reals ------------------------------------------------------------------------------------------------------------

OF_ONE = {
    "sign": np.sign,
    "square": np.square,
    "reciprocal": np.reciprocal,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
    "signbit": np.signbit,
    "degrees": np.degrees,
    "radians": np.radians,
    "square_root": np.sqrt,
    "modf": np.modf,
}
OF_TWO = {
    "maximum": np.maximum,
    "minimum": np.minimum,
    "fmax": np.fmax,
    "fmin": np.fmin,
    "hypot": np.hypot,
    "heaviside": np.heaviside,
    "logaddexp": np.logaddexp,
    "logaddexp2": np.logaddexp2,
}


@pytest.mark.parametrize("name", OF_ONE)
def test_functions_of_one(name):
    for x in map(np.float64, ANY):
        same(getattr(library, name)(x), OF_ONE[name](x))


@pytest.mark.parametrize("name", OF_TWO)
def test_functions_of_two(name):
    for a in map(np.float64, ANY):
        for b in map(np.float64, ANY):
            same(getattr(library, name)(a, b), OF_TWO[name](a, b))


def test_other_functions_of_reals():
    for x in map(np.float64, VALUES):
        same(library.sinc(x), np.sinc(x))
        same(library.clip(x, -1, 2), np.clip(x, -1, 2))
        if abs(x) < 10:
            same(library.tan(x), np.tan(x))
        for b in (1.0, 0.7, -2.0, 1e3):
            same(library.divide_floor(x, b), x // b)
            same(library.remainder_floor(x, b), x % b)
            for relative in (1e-9, 0.5):
                assert library.isclose(x, b, relative, 0.0) == math.isclose(x, b, rel_tol=relative)
                assert library.isclose_to(x, b, relative, 1e-8) == np.isclose(x, b, relative)


# --- complex values ---------------------------------------------------------------------------------------------------


def test_every_complex_function():
    names = {name: f for name, (_, f) in FUNCTIONS.items() if f is not None and name not in ("phase", "polar", "sinc")}
    of_numpy = {name: f for f, (module, name) in CALLABLES.items() if module == "numpy" and f is not np.fabs}
    del names["log1p"]  # NumPy's own loses its digits near 0
    same(complexes.complex_log1p(1e-9 + 1e-9j), 1e-9 + 1e-9j - 1e-18j)
    for name, function in names.items():
        for z in map(np.complex128, POINTS):
            same(function(z), of_numpy[name](z), units=64)
    for z in POINTS:
        same(complexes.phase(z), cmath.phase(z))
        same(complexes.polar(z), cmath.polar(z))
        for w in POINTS:
            same(complexes.complex_divide(z, w), z / w, units=16)
            same(complexes.complex_power(z, w), z**w, units=300)
    same(complexes.complex_power(0j, 2 + 0j), 0)
    same(complexes.complex_power(0j, 0j), 1)
    same(complexes.rect(2.0, 0.5), cmath.rect(2, 0.5))


# --- integers ---------------------------------------------------------------------------------------------------------

UNSIGNED = [0, 1, 2, 3, 7, 1000, 2**31, 2**32 - 1, 2**32, 2**40 + 12345, 2**63, 2**64 - 1]
SIGNED = [0, 1, -1, 2, -3, 7, 1000, -(2**31), 2**40 + 1, -(2**40), 2**63 - 1, -(2**63) + 1]


def test_unsigned_division():
    for n in UNSIGNED:
        for d in UNSIGNED:
            quotient, rest = divmod(n, d) if d else (0, 0)
            a, b = np.uint64(n), np.uint64(d)
            assert int(library.divide_unsigned(a, b)) == quotient
            assert int(library.remainder_unsigned(a, b)) == rest


def test_signed_division():
    for n in SIGNED:
        for d in SIGNED:
            quotient, rest = divmod(n, d) if d else (0, 0)
            a, b = np.int64(n), np.int64(d)
            assert int(library.divide_floor_integer(a, b)) == quotient
            assert int(library.remainder_floor_integer(a, b)) == rest


def test_powers_of_integers():
    for base in (0, 1, -1, 2, -3, 10):
        for exponent in range(12):
            assert int(library.integer_power(np.int64(base), np.uint64(exponent))) == base**exponent
    assert int(library.absolute_integer(np.int64(-5))) == 5


# --- approximations in float32 ----------------------------------------------------------------------------------------


def exact(function, xs):
    return np.array([function(float(x)) for x in xs])


def errors(found, expected):
    """In units of the last place of a float32 near the expected value, at least of 1/16."""
    found, expected = np.asarray(found, np.float64), np.asarray(expected)
    return abs(found - expected) / (np.finfo(np.float32).eps * np.maximum(abs(expected), 1 / 16))


SMALL = np.concatenate([np.linspace(-30000, 30000, 2001), np.linspace(-8, 8, 401)]).astype(np.float32)
LARGE = np.concatenate([np.geomspace(2**15, 3.4e38, 600), 2.0 ** np.arange(15, 128), [16367173 * 2.0**72]])
LARGE = LARGE.astype(np.float32)


@pytest.mark.parametrize("xs", [SMALL, LARGE, -LARGE[::7]], ids=["small", "large", "negative"])
def test_sine_and_cosine(xs):
    sines = [approximations.sin_single(x) for x in xs]
    cosines = [approximations.cos_single(x) for x in xs]
    assert errors(sines, exact(math.sin, xs)).max() < 4
    assert errors(cosines, exact(math.cos, xs)).max() < 4


def test_sine_and_cosine_of_what_is_not_finite():
    for x in (math.inf, -math.inf, math.nan):
        assert np.isnan(approximations.sin_single(np.float32(x))) if math.isnan(x) else True
    assert approximations.sin_single(np.float32(0)) == 0
    assert approximations.cos_single(np.float32(0)) == 1


def test_reduction_of_large_arguments():
    for x in LARGE[::5]:
        quadrant, rest = approximations.reduce_large(x)
        whole = float(x)
        turn = math.atan2(math.sin(whole), math.cos(whole))  # Python reduces exactly
        found = math.remainder(float(quadrant) % 4 * (math.pi / 2) + float(rest), 2 * math.pi)
        assert abs(math.remainder(found - turn, 2 * math.pi)) < 2e-7
        assert abs(rest) <= math.pi / 4 * 1.000001


def test_atan2():
    values = [0.0, -0.0, 1, -1, 0.3, -2.5, 1e-3, 1e6, math.inf, -math.inf]
    for y in map(np.float32, values):
        for x in map(np.float32, values):
            expected = math.atan2(y, x)
            found = float(approximations.atan2_single(y, x))
            assert found == pytest.approx(expected, rel=4e-7, abs=1e-30)
            assert math.copysign(1, found) == math.copysign(1, expected)
    assert np.isnan(approximations.atan2_single(np.float32(math.nan), np.float32(1)))


def test_exponentials():
    xs = np.concatenate([np.linspace(-87, 88.5, 800), [0, -0.0, 1e-10]]).astype(np.float32)
    singles = np.array([approximations.exp_single(x) for x in xs], np.float64)
    np.testing.assert_allclose(singles, exact(math.exp, xs), rtol=1.5 * np.finfo(np.float32).eps)
    wide = np.linspace(-708, 709, 800)
    np.testing.assert_allclose([approximations.exp_double(x) for x in wide], exact(math.exp, wide), rtol=4e-16)
    for function, kind in ((approximations.exp_single, np.float32), (approximations.exp_double, np.float64)):
        assert np.isnan(function(kind(math.nan)))
    assert approximations.exp_double(np.float64(-math.inf)) == 0


def test_tanh():
    xs = np.concatenate([np.linspace(-12, 12, 600), [0, 1e-6, -1e-6, 0.625, 0.6249]]).astype(np.float32)
    found = np.array([approximations.tanh_single(x) for x in xs], np.float64)
    np.testing.assert_allclose(found, exact(math.tanh, xs), rtol=3 * np.finfo(np.float32).eps, atol=1e-30)


def test_powers_of_two_and_bits():
    assert approximations.scale_by_power(1.5, -10.0) == 1.5 * 2**-10
    assert approximations.power_of_two(-3.0) == 0.125
    assert approximations.bit_pattern(1.0) == 0x3F800000
    assert [approximations.word_of_two_over_pi(k) for k in (1, 2, 8, 9)] == [0, 0xA2F9836E, 0xFE5163AB, 0]


# --- the tables -------------------------------------------------------------------------------------------------------


def test_tables_agree():
    assert set(FUNCTIONS) >= TWO_OPERANDS
    assert {name for _, name in CALLABLES.values()} == set(FUNCTIONS) - {"modf"} | {"modf"}
    for name, (real, of_complex) in FUNCTIONS.items():
        assert isinstance(real, str) or callable(real), name
        assert of_complex is None or callable(of_complex), name
