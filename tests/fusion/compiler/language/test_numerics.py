"""Functions and operators of compiled callbacks against NumPy and SciPy in float64, with special values."""

from __future__ import annotations

import cmath
import math

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.special

import mathfuse as mf
from mathfuse.fusion.compiler.language.functions import CALLABLES, OPERATOR_CALLS
from mathfuse.fusion.compiler.language.operations import SPECIAL

from .harness import COMPLEXES, REALS, assert_close, expression, run, table

SPECIALS = [0.0, -0.0, math.inf, -math.inf, math.nan, 1, -1, 0.5, -0.5, 1e-20, -1e-20, 1e20, -1e20, 88.7, -103, 709.7]
RANGE = np.geomspace(1e-6, 1e6, 60)
VALUES = np.concatenate([SPECIALS, np.linspace(-8, 8, 101), RANGE, -RANGE])
PAIRS = [(a, b) for a in [*SPECIALS, 2.5, -7, 1e3] for b in [*SPECIALS, 3, -0.7, 1e-3]]

_RNG = np.random.default_rng(1)
_GRID = np.array([0, 1, -1, 0.5, -2, 10, 1e-3, -1e-3])
COMPLEX_VALUES = np.concatenate(
    [
        (_GRID[:, None] + 1j * _GRID).ravel(),
        _RNG.normal(size=200) + 1j * _RNG.normal(size=200),
        1 + 1e-3 * (_RNG.normal(size=40) + 1j * _RNG.normal(size=40)),
        [1e30 + 1e30j, 1e-30 + 1e-30j, 1e30j, 1e-30j],
    ]
)
INFINITE = [complex(a, b) for a in (0, -0.0, 2, math.inf, -math.inf, math.nan) for b in (0, -1, math.inf, math.nan)]


def of_numpy(function, *arrays):
    """NumPy's result in 64 bits."""
    with np.errstate(all="ignore"):
        return function(*(a.astype(np.complex128 if a.dtype.kind == "c" else np.float64) for a in arrays))


# --- reals ------------------------------------------------------------------------------------------------------------

UNARY = """exp exp2 expm1 log log2 log10 log1p sqrt cbrt sin cos tan sinh cosh tanh arcsin arccos arctan arcsinh arccosh
arctanh floor ceil trunc rint abs fabs absolute sign square reciprocal deg2rad rad2deg degrees radians isnan isinf
isfinite signbit negative positive real imag conj conjugate angle fix round""".split()
BINARY = """add subtract multiply divide true_divide floor_divide mod remainder fmod arctan2 copysign hypot logaddexp
logaddexp2 heaviside maximum minimum fmax fmin equal not_equal less less_equal greater greater_equal
logical_and logical_or logical_xor""".split()


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("name", UNARY)
def test_real_functions(name, dtype):
    x = VALUES.astype(dtype)
    function = expression(f"np.{name}(value)")
    assert_close(run(function, x), of_numpy(getattr(np, name), x), units=3)


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("name", BINARY)
def test_real_functions_of_two(name, dtype):
    a, b = np.array(PAIRS, dtype).T.copy()
    found = run(expression(f"np.{name}(value, other[index])", "value, index, other"), a, other=b)
    expected = of_numpy(getattr(np, name), a, b)
    if name in ("floor_divide", "mod", "remainder"):  # of inputs that float32 has rounded, in its own steps
        with np.errstate(all="ignore"):
            expected = getattr(np, name)(a, b)
    assert_close(found, expected, units=3)


@pytest.mark.parametrize("dtype", REALS)
def test_powers(dtype):
    a, b = np.array(PAIRS, dtype).T.copy()
    assert_close(run(expression("value ** other[index]", "value, index, other"), a, other=b), of_numpy(np.power, a, b))
    x = VALUES.astype(dtype)
    for exponent in (0, 1, 2, 3, 7, -1, -2, 0.5, -0.5, 1.5, 2.0, 64):
        with np.errstate(all="ignore"):
            expected = x.astype(np.float64) ** exponent
        if exponent in (0.5, -0.5):  # by the square root, as NumPy's arrays
            expected = of_numpy(lambda v: np.sqrt(v) ** math.copysign(1, exponent), x)  # noqa: B023
        ordinary = (abs(expected) > np.finfo(dtype).tiny) & (abs(expected) < np.finfo(dtype).max)
        found = run(expression(f"value ** {exponent}"), x)
        assert_close(found[ordinary], expected[ordinary], units=2 + abs(exponent) / 3)
        assert_close(found[~ordinary], expected[~ordinary], units=2 + abs(exponent) / 3)
    assert_close(run(expression("2 ** value"), x), of_numpy(np.exp2, x))


@pytest.mark.parametrize("dtype", REALS)
def test_functions_of_math(dtype):
    x = np.linspace(0.01, 5, 80).astype(dtype)
    wide = x.astype(np.float64)
    expected = {
        "math.erf(value)": scipy.special.erf(wide),
        "math.erfc(value)": scipy.special.erfc(wide),
        "math.gamma(value)": scipy.special.gamma(wide),
        "math.lgamma(value)": scipy.special.gammaln(wide),
        "math.log(value, 3)": np.log(wide) / math.log(3),
        "math.log(value)": np.log(wide),
        "math.fmod(value, 0.7)": np.fmod(x, x.dtype.type(0.7)),
        "math.remainder(value, 2)": [math.remainder(v, 2) for v in wide],
        "math.hypot(value, 3)": np.hypot(wide, 3),
        "math.atan2(value, -2)": np.arctan2(wide, -2),
        "math.pow(value, 1.7)": wide**1.7,
        "math.copysign(value, -0.0)": -wide,
        "math.degrees(value) + math.radians(value)": np.degrees(wide) + np.radians(wide),
        "math.floor(value) + 10 * math.ceil(value) + 100 * math.trunc(value)": np.floor(wide)
        + 10 * np.ceil(wide)
        + 100 * np.trunc(wide),
        "math.isclose(value, 2, rel_tol=0.1)": [math.isclose(v, 2, rel_tol=0.1) for v in wide],
        "np.isclose(value, 2, 0.1)": np.isclose(wide, 2, 0.1),
        "np.clip(value, 1, 2.5)": np.clip(wide, 1, 2.5),
        "np.modf(value)[0] + 10 * np.modf(value)[1]": np.modf(wide)[0] + 10 * np.modf(wide)[1],
        "math.prod((value, 2, value))": 2 * wide * wide,
        "np.sinc(value)": np.sinc(wide),
        "np.float_power(value, 2)": wide**2,
        "math.sqrt(value) * math.factorial(4)": 24 * np.sqrt(wide),
    }
    for text, found in table(expected, x, dtype).items():
        assert_close(found, np.asarray(expected[text], np.float64), units=8, absolute=2 * np.finfo(dtype).eps)


def test_every_function_of_the_table_has_a_test():
    texts = " ".join([*UNARY, *BINARY, *COMPLEX_UNARY])
    tested = set(texts.split()) | set("sinc clip modf power bitwise_and bitwise_or bitwise_xor left_shift".split())
    tested |= {"right_shift", "where", "invert", "logical_not", "divmod", "float_power", "isclose", "around"}
    ufuncs = {f.__name__ for f in [*CALLABLES, *OPERATOR_CALLS, *SPECIAL] if isinstance(f, np.ufunc)}
    assert not ufuncs - tested


@pytest.mark.parametrize("dtype", REALS)
def test_sine_and_cosine_of_huge_arguments(dtype):
    x = np.concatenate([np.geomspace(1e4, 3e38, 200), [2.0**k for k in range(10, 120, 7)]]).astype(dtype)
    wide = x.astype(np.float64)
    for text, expected in (("math.sin(value)", np.sin(wide)), ("np.cos(value)", np.cos(wide))):
        assert_close(run(expression(text), x), expected, units=3)


def test_subnormal_numbers_survive_without_fastmath():
    for dtype in REALS:
        tiny = np.finfo(dtype).smallest_subnormal
        x = np.array([tiny, -3 * tiny, np.finfo(dtype).tiny], dtype)
        exact = mf.epilog(expression("value * 1.5 + value"), fastmath=False)
        np.testing.assert_array_equal(run(exact, x), (x * x.dtype.type(1.5) + x).astype(dtype))
        flushed = run(expression("value * 1.5"), x)
        assert all(a in (0, b) for a, b in zip(flushed, x * x.dtype.type(1.5)))


def test_exact_arithmetic_without_fastmath():
    x = VALUES.astype(np.float32)
    exact = mf.epilog(expression("(value / 3 - value * 0.1) / (value + 7)"), fastmath=False)
    with np.errstate(all="ignore"):
        expected = (x / np.float32(3) - x * np.float32(0.1)) / (x + np.float32(7))
    np.testing.assert_array_equal(run(exact, x), expected)


@pytest.mark.parametrize("dtype", REALS)
def test_python_order_of_min_and_max_with_nan(dtype):
    a, b = np.array([(1, math.nan), (math.nan, 1), (2, 1), (1, 2), (-0.0, 0.0)], dtype).T.copy()
    for name, function in (("min", min), ("max", max)):
        found = run(expression(f"{name}(value, other[index])", "value, index, other"), a, other=b)
        np.testing.assert_array_equal(found, [function(x, y) for x, y in zip(a, b)])
        found = run(expression(f"{name}((1, value, 0.25, other))", "value, other"), a, other=b)
        np.testing.assert_array_equal(found, [function(1, x, 0.25, y) for x, y in zip(a, b)])


@pytest.mark.parametrize("dtype", REALS)
def test_rounding_to_integers_saturates_and_maps_nan_to_zero(dtype):
    x = np.array([0.5, 1.5, 2.5, -2.5, 1e30, -1e30, math.inf, -math.inf, math.nan, 2.0**40], dtype)
    low, high = -(2**63), 2**63 - 1
    rounded = [0, 2, 2, -2, high, low, high, low, 0, 2**40]
    truncated = [0, 1, 2, -2, *rounded[4:]]
    for text, expected in (("round(value)", rounded), ("int(value)", truncated), ("math.trunc(value)", truncated)):
        assert run(expression(text), x, result=np.int64).tolist() == expected
    assert run(expression("math.floor(value)"), x, result=np.int64).tolist()[:4] == [0, 1, 2, -3]
    assert run(expression("math.ceil(value)"), x, result=np.int64).tolist()[:4] == [1, 2, 3, -2]
    assert run(expression("np.uint8(value)"), x, result=np.int64).tolist()[4:9] == [255, 0, 255, 0, 0]
    digits = np.array([1.25, -1.2345, 1234.5], dtype)
    assert_close(run(expression("round(value, 1)"), digits), [1.2, -1.2, 1234.5])
    assert_close(run(expression("np.round(value, -2)"), digits), [0, -0.0, 1200])


# --- complex values ---------------------------------------------------------------------------------------------------

COMPLEX_UNARY = """exp expm1 log log2 log10 sqrt sin cos tan sinh cosh tanh arcsin arccos arctan arcsinh arccosh arctanh
absolute abs sign square reciprocal isnan isinf isfinite negative positive real imag conj angle""".split()
OF_CMATH = (
    "acos acosh asin asinh atan atanh cos cosh exp log log10 sin sinh sqrt tan tanh phase isnan isinf isfinite".split()
)


@pytest.mark.parametrize("dtype", COMPLEXES)
@pytest.mark.parametrize("name", COMPLEX_UNARY)
def test_complex_functions(name, dtype):
    z = COMPLEX_VALUES.astype(dtype)
    assert_close(run(expression(f"np.{name}(value)"), z), of_numpy(getattr(np, name), z))


def test_complex_functions_of_small_range():
    z = COMPLEX_VALUES[(abs(COMPLEX_VALUES) < 50) & (abs(COMPLEX_VALUES) > 1e-9) & (COMPLEX_VALUES != -1)]
    expected = {"exp2": np.exp2(z), "sinc": np.sinc(z), "log1p": np.log(1 + z.astype(np.clongdouble))}
    for name, result in expected.items():
        assert_close(run(expression(f"np.{name}(value)"), z), result, units=40)


def test_functions_of_cmath_on_both_kinds():
    z = COMPLEX_VALUES[(abs(COMPLEX_VALUES) < 100) & (abs(COMPLEX_VALUES) > 0)]
    z = z[~np.isin(z, [1, -1, 1j, -1j])]
    texts = [f"cmath.{name}(value)" for name in OF_CMATH]
    for values in (z, np.linspace(-3, 3, 30)):
        for text, found in table(texts, values, np.complex128).items():
            function = getattr(cmath, text[len("cmath.") : text.index("(")])
            assert_close(found, [function(v) for v in values], units=8)


@pytest.mark.parametrize("name", ["exp", "log", "sqrt", "abs", "arctanh", "isnan", "isinf", "isfinite"])
def test_infinite_complex_values(name):
    z = np.array(INFINITE)
    z = z[np.isfinite(z.real) | np.isfinite(z.imag)]
    found, expected = run(expression(f"np.{name}(value)"), z), of_numpy(getattr(np, name), z)
    with np.errstate(all="ignore"):
        same = (found == expected) | (np.isnan(found) & np.isnan(expected)) | (abs(found - 1.0 * expected) < 1e-12)
    assert same.all(), list(zip(z[~same], found[~same], expected[~same]))


@pytest.mark.parametrize("dtype", COMPLEXES)
def test_complex_arithmetic(dtype):
    z, w = (COMPLEX_VALUES[:200].astype(dtype), np.roll(COMPLEX_VALUES[:200], 7).astype(dtype))
    w[w == 0] = 3 - 2j
    big, small = z.astype(np.complex128), w.astype(np.complex128)
    expected = {
        "value + w - (2 - 1j)": big + small - (2 - 1j),
        "value * w": big * small,
        "value / w": big / small,
        "value * 2.5 + 1": big * 2.5 + 1,
        "3 - value": 3 - big,
        "value / 4": big / 4,
        "2 / w": 2 / small,
        "value ** 2": big**2,
        "value ** 5": big**5,
        "w ** -3": small**-3,
        "value ** 0.5": np.sqrt(big),
        "w ** 0.3": small**0.3,
        "w ** (0.3 + 1j)": small ** (0.3 + 1j),
        "2 ** w": np.exp(math.log(2) * small),
        "abs(value) * 1j": abs(big) * 1j,
        "value == w": big == small,
        "value != value.conjugate()": big != big.conj(),
        "complex(value.imag, value.real)": big.imag + 1j * big.real,
        "-value + +value.conj()": -big + big.conj(),
        "cmath.rect(value.real, value.imag)": big.real * np.exp(1j * big.imag),
        "cmath.polar(value)[0] + cmath.polar(value)[1]": abs(big) + np.angle(big),
        "np.where(value.real > 0, value, w)": np.where(big.real > 0, big, small),
        "1 if value else 0": big != 0,
    }
    for text, found in table(expected, z, dtype, w=w).items():
        assert_close(found, expected[text], units=24, absolute=4 * np.finfo(dtype).eps)


def test_quotients_of_large_and_small_complex_values_do_not_overflow():
    z = np.array([1e30 + 1e30j, 1e-30 - 1e-30j, 1e38 + 1j, 1e-35j], np.complex64)
    w = np.array([1e30 - 1e30j, 1e-30 + 2e-30j, 1e38 + 1e38j, 1e-35], np.complex64)
    exact = mf.epilog(expression("value / w[index]", "value, index, w"), fastmath=False)
    assert_close(run(exact, z, w=w), z.astype(complex) / w)
    assert_close(run(expression("abs(value)"), z), abs(z.astype(complex)))
    assert not np.isfinite(run(expression("value / w", "value, w"), z, w=0j)).any()


# --- integers and booleans --------------------------------------------------------------------------------------------

INTEGERS = [0, 1, 2, 3, 7, 8, 100, 127, 128, 200, 255]
SIGNED = [*INTEGERS, *(-n for n in INTEGERS), 2**31 - 1, -(2**31)]
WIDE = [*SIGNED, 2**40 + 3, -(2**40), 2**63 - 1, -(2**63)]
OF_INTEGERS = """
value + w;value - w;value * w;value // w;value % w;value & w;value | w;value ^ w;~value;-value;+value
abs(value);value < w;value <= w;value == w;value != w;value > w;value >= w;value ** 2;value ** 0;min(value, w)
max(value, w);value // 8;value % 8;value // -8;value % -8;value // 7;value % 7;divmod(value, 3)[0]
divmod(value, 3)[1];value >> 2;value << 3;round(value);int(value);value if value > 3 else w;not value
(value > 1) + (w > 1);(value > 1) & (w > 1);(value > 1) | (w > 1);(value > 1) ^ (w > 1)
"""


def wrapped(n):
    return (int(n) + 2**63) % 2**64 - 2**63


@pytest.mark.parametrize(("dtype", "numbers"), [("uint8", INTEGERS), ("int32", SIGNED), ("int64", WIDE)])
def test_integers(dtype, numbers):
    pairs = [(a, b) for a in numbers for b in numbers]
    a, b = np.array(pairs, dtype).T.copy()
    texts = OF_INTEGERS.strip().replace("\n", ";").split(";")
    for text, found in table(texts, a, np.int64, w=b).items():
        function = expression(text, "value, w")
        expected = [0 if y == 0 and ("// w" in text or "% w" in text) else wrapped(function(x, y)) for x, y in pairs]
        assert found.tolist() == expected, text


def test_unsigned_64_bit_integers():
    numbers = [0, 1, 3, 2**32, 2**63, 2**64 - 1, 10**19]
    pairs = [(a, b) for a in numbers for b in numbers]
    a, b = np.array(pairs, np.uint64).T.copy()
    with np.errstate(all="ignore"):
        expected = {
            "value + w": a + b,
            "value * w": a * b,
            "value // w": a // b,
            "value % w": a % b,
            "value >> 3": a >> np.uint64(3),
            "value > 5": a > 5,
            "value > -1": a > -1,
            "value < 2**63": a < 2**63,
            "value > 2**64": a > 2**64,
        }
    for text, found in table(expected, a, np.uint64, w=b).items():
        np.testing.assert_array_equal(found, expected[text].astype(np.uint64), text)
    found = run(expression("value > index[0] - 3", "value, index"), a, result="int64")
    assert found.tolist() == [int(x) > i - 3 for i, (x, _) in enumerate(pairs)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("value * one", lambda x: x),
        ("value // two", lambda x: x // np.uint64(2)),
        ("value + minus", lambda x: x - np.uint64(1)),
        ("value + index[0]", lambda x: x + np.arange(3, dtype=np.uint64)),
        ("value + (value > 3)", lambda x: x + np.uint64(1)),
        ("max(value, zero)", lambda x: x),
        ("value if value > 3 else 0", lambda x: x),
    ],
)
def test_unsigned_64_bit_integers_stay_unsigned_beside_signed_ones(text, expected):
    x = np.array([2**63 + 5, 2**64 - 2, 7], np.uint64)
    numbers = {"one": 1, "two": np.int8(2), "minus": -1, "zero": 0}
    named = {name: number for name, number in numbers.items() if name in text}
    found = run(expression(text, ", ".join(["value, index", *named])), x, **named)
    assert found.dtype == np.uint64
    np.testing.assert_array_equal(found, expected(x))


def test_shifts_by_the_width_or_more_shift_every_bit_out():
    x = np.array([5, -5, 2**62], np.int64)
    shifts = np.array([64, 63, -1])
    expected = {
        "value << 64": [0, 0, 0],
        "value >> 64": [0, -1, 0],
        "value << by": [0, -(2**63), 0],
        "value >> by": [0, -1, 0],
        "1 << i + 61": [2**61, 2**62, -(2**63)],
    }
    for text, found in table(expected, x, np.int64, by=shifts).items():
        assert found.tolist() == expected[text], text


def test_powers_of_integers():
    x = np.array([0, 1, -1, 2, -3, 10], np.int64)
    for exponents in ([0, 1, 2, 3, 4, 18], [5, 63, 63, 62, 39, 0]):
        found = run(
            expression("value ** np.uint64(w[index])", "value, index, w"), x, result="int64", w=np.array(exponents)
        )
        assert found.tolist() == [int(a) ** b for a, b in zip(x, exponents)]
    found = run(expression("2.0 ** (1 - index[0])", "value, index"), x)
    np.testing.assert_allclose(found, 2.0 ** (1 - np.arange(6)))
    found = run(expression("2 ** np.uint8(index[0]) + 3 ** -1", "value, index"), x)
    np.testing.assert_allclose(found, 2.0 ** np.arange(6) + 1 / 3)


def test_narrow_integers_wrap():
    x = np.array([0, 100, 127, 200, 255], np.uint8)
    expected = {
        "np.uint8(value) + np.uint8(100)": [100, 200, 227, 44, 99],
        "np.int8(value) + 1": [1, 101, -128, -55, 0],
        "np.int8(value) // np.int8(-1)": [0, -100, -127, 56, 1],
        "np.int16(value) * np.int16(value)": [0, 10000, 16129, 40000 - 65536, 65025 - 65536],
        "np.uint32(value) - np.uint32(1)": [2**32 - 1, 99, 126, 199, 254],
        "np.uint8(value) - np.int8(value)": [0, 0, 0, 256, 256],
        "np.uint32(value) // np.uint32(0)": [0] * 5,
        "np.uint32(value) % np.uint32(7)": [0, 2, 1, 4, 3],
    }
    for text, found in table(expected, x, np.int64).items():
        assert found.tolist() == expected[text], text


def test_booleans():
    x = np.array([False, True])
    y = np.array([True, True])
    expected = {
        "value & w": [0, 1],
        "value | w": [1, 1],
        "value ^ w": [1, 0],
        "~value": [1, 0],
        "not value": [1, 0],
        "value + w": [1, 2],
        "value * 3 - w": [-1, 2],
        "-value": [0, -1],
        "np.logical_not(value)": [1, 0],
        "np.invert(value)": [1, 0],
        "value == True": [0, 1],
        "bool(value) << 2": [0, 4],
        "~(1 > 2)": [1, 1],
    }
    for text, found in table(expected, x, np.int64, w=y).items():
        assert found.tolist() == expected[text], text
    assert run(expression("value / 2"), x).tolist() == [0, 0.5]


def test_bit_operations_of_numpy():
    x = np.array([0, 5, -3, 1000])
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift", "power"):
        found = run(expression(f"np.{name}(value, 3)"), x, result="int64")
        np.testing.assert_array_equal(found, getattr(np, name)(x, 3))
    found = run(expression("np.divmod(value, 7)[0] * 10 + np.invert(value)"), x, result="int64")
    np.testing.assert_array_equal(found, x // 7 * 10 + ~x)


# --- expressions at random --------------------------------------------------------------------------------------------

_LEAVES = st.sampled_from(["value", "(index[0] + 1)", "shape[0]", "2", "0.5", "3.0", "k", "w[index]"])


def _grow(inner):
    pairs = st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "//", "%"]), inner).map(
        lambda t: f"({t[0]} {t[1]} {t[2]})"
    )
    calls = st.tuples(st.sampled_from(["np.sin", "np.exp", "abs", "np.floor", "np.sqrt", "-", "round"]), inner)
    choices = st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} if {t[1]} < {t[2]} else {t[2]})")
    extremes = st.tuples(st.sampled_from(["min", "max"]), inner, inner).map(lambda t: f"{t[0]}({t[1]}, {t[2]})")
    return pairs | calls.map(lambda t: f"{t[0]}({t[1]})") | choices | extremes


@hypothesis.settings(max_examples=60, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(st.recursive(_LEAVES, _grow, max_leaves=10))
def test_any_expression_equals_python(text):
    x, w = np.array([0.75, -1.5, 2.25, -0.1, 3.7]), np.array([1.5, -2.5, 0.3, 4, -1])
    function = expression(text, "value, index, shape, w, k=1.25")
    expected, usable = [], []
    for i, v in enumerate(x):
        try:
            with np.errstate(all="ignore"):
                result = function(np.float64(v), (np.int64(i),), (np.int64(5),), w, np.float64(1.25))
            usable.append(np.isrealobj(result) and abs(result) < 1e12)
            expected.append(result)
        except (OverflowError, ValueError, ZeroDivisionError):
            usable.append(False)
            expected.append(0)
    try:
        found = run(mf.epilog(function, fastmath=False), x, w=w, result="complex128")
    except mf.CallbackError as error:
        hypothesis.assume("division by the constant zero" not in str(error))
        raise
    np.testing.assert_allclose(found[usable], np.array(expected)[usable], rtol=1e-9, atol=1e-9)
