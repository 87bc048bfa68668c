"""Callbacks to audit: every ready-made one, and what the language promises of operators, functions and operands."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import mathfuse as mf

THIRD = 1 / 3
WEIGHT = np.float64(0.1)
TABLE = np.linspace(0, 1, 100_000, dtype=np.float32)


@dataclass(frozen=True, eq=False)
class Case:
    """A callback to audit, and where: ``kinds`` of dtypes that it takes ("f" real, "c" complex)."""

    name: str
    callback: mf.Callback
    kinds: str = "fc"
    operands: Mapping[str, Any] = field(default_factory=dict)
    ndim: int | None = None
    axes: tuple[int, ...] | None = None
    pipelines: tuple[str, ...] = ("fft prolog", "fft epilog", "matmul", "elementwise")


def case(kinds: str, function: Callable | mf.Callback, name: str = "", **options: Any) -> Case:
    callback = function if isinstance(function, mf.Callback) else mf.epilog(function)
    return Case(name or callback.__name__, callback, kinds, **options)


# --- ready-made callbacks: bound, and with typed free operands ("real" and "same" follow the element's dtype) ---------

READY_MADE = [
    case("fc", mf.scale(factor=0.1)),
    case("fc", mf.scale, "scale by an array", operands={"factor": "real[1]"}),
    case("fc", mf.scale, "scale by an int", operands={"factor": "int"}),
    case("c", mf.scale, "scale by a complex", operands={"factor": "complex"}),
    case("fc", mf.add(term=math.pi)),
    case("fc", mf.add, "add an array", operands={"term": "same[2]"}),
    case("fc", mf.multiply(factor=2)),
    case("fc", mf.multiply, "multiply by an array", operands={"factor": "same[3]"}),
    case("fc", mf.bias(bias=1.5)),
    case("fc", mf.bias, "bias of columns", operands={"bias": "real[1]"}, ndim=2),
    case("fc", mf.bias, "bias of rows", operands={"bias": "real[2]"}),
    case("fc", mf.normalise(mean=0.1, deviation=3)),
    case("fc", mf.normalise, "normalise channels", operands={"mean": "real[3]", "deviation": "real[3]"}),
    case("f", mf.clamp(low=-1, high=0.7)),
    case("f", mf.clamp, "clamp to arrays", operands={"low": "real[1]", "high": "float"}),
    case("f", mf.relu),
    case("f", mf.leaky_relu),
    case("f", mf.leaky_relu, "leaky_relu by channels", operands={"slope": "real[1]"}),
    case("f", mf.gelu),
    case("f", mf.gelu_tanh),
    case("f", mf.silu),
    case("f", mf.sigmoid),
    case("f", mf.tanh),
    case("fc", mf.power_spectrum),
    case("fc", mf.half),
    case("fc", mf.conjugate_multiply(spectrum=2.5)),
    case("fc", mf.conjugate_multiply, "conjugate_multiply by an array", operands={"spectrum": "same[2]"}),
    case("fc", mf.gaussian(sigma=8.0)),
    case("fc", mf.gaussian(sigma=8), "gaussian of rank 3, int sigma", ndim=3, axes=(1, 2)),
    case("fc", mf.band_pass(low=0.1, high=0.3)),
    case("fc", mf.band_pass(low=0, high=math.inf), "band_pass of rank 2", ndim=2),
    case("fc", mf.hann),
    case("fc", mf.hann, "hann of rank 3", ndim=3, axes=(0, 2)),
    case("fc", mf.hamming),
    case("fc", mf.hamming, "hamming of rank 3", ndim=3),
]


# --- operators and constants ------------------------------------------------------------------------------------------


def closure() -> Callable:
    tenth = 0.1

    def constants(value):
        return value * tenth + value * THIRD + WEIGHT * math.pi + value * np.float32(0.3) + np.e / 7

    return constants


OPERATORS = [
    case("fc", lambda value: value**2, "value**2"),
    case("fc", lambda value: value**-3, "value**-3"),
    case("f", lambda value: value**0.5, "value**0.5"),
    case("f", lambda value: value**-0.5, "value**-0.5"),
    case("f", lambda value: value**1.3, "value**1.3"),
    case("f", lambda value: 2**value, "2**value"),
    case("fc", lambda value: value / 3, "value / 3"),
    case("fc", lambda value: 1 / value, "1 / value"),
    case("f", lambda value: value % 0.7, "value % 0.7"),
    case("f", lambda value: value // 0.7, "value // 0.7"),
    case("f", lambda value: divmod(value, 3)[0] + divmod(7, value)[1], "divmod"),
    case("f", lambda value: round(value) * value, "round"),
    case("f", lambda value: round(value, 2), "round to digits"),
    case("f", lambda value: int(value) * value, "int"),
    case("f", lambda value: math.floor(value) + math.ceil(value) + math.trunc(value), "math.floor and its kind"),
    case("f", lambda value: min(max(value, 0), 6), "min and max with ints"),
    case("f", lambda value: abs(value) if value > 0 else -value, "a branch"),
    case("fc", lambda value: abs(value), "abs"),
    case("fc", lambda value: value * math.pi, "value * math.pi"),
    case("fc", lambda value: value * 0.1, "value * 0.1"),
    case("fc", lambda value: value - np.e, "value - np.e"),
    case("fc", closure(), "captured constants"),
    case("fc", lambda value, a, b, c: value * a + b - c, "bound scalars", operands={"a": 1.5, "b": 2, "c": True}),
    case("fc", lambda value, a: value * a, "a bound NumPy scalar", operands={"a": np.float64(0.1)}),
    case("c", lambda value: 1j * value, "1j * value"),
    case("c", lambda value: (value + 1) / (value - 2j), "complex division"),
    case("c", lambda value: 1 / (value + 0.1), "complex reciprocal"),
    case("c", lambda value: value**0.3, "complex value**0.3"),
    case("c", lambda value: value**value, "complex value**value"),
    case("c", lambda value: value.real + 1j * value.imag.conjugate(), "real and imag"),
    case("c", lambda value: value.conjugate() if value == 0 else complex(abs(value), value.imag), "complex()"),
]


# --- functions --------------------------------------------------------------------------------------------------------

UFUNCS_OF_REALS = """
    exp exp2 expm1 log log2 log10 log1p sqrt cbrt square reciprocal
    sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh sinc
    absolute fabs sign signbit floor ceil trunc rint fix round negative positive
    degrees radians deg2rad rad2deg isnan isinf isfinite
""".split()
UFUNCS_OF_PAIRS = """
    add subtract multiply divide true_divide floor_divide remainder mod fmod power float_power
    arctan2 hypot copysign logaddexp logaddexp2 heaviside maximum minimum fmax fmin
""".split()
UFUNCS_OF_COMPLEX = """
    exp exp2 expm1 log log2 log10 log1p sqrt square reciprocal
    sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh sinc
    absolute angle sign conj real imag isnan isinf isfinite negative
""".split()
FUNCTIONS_OF_MATH = "erf erfc gamma lgamma exp log sin cos asin acos atan atanh sqrt isnan".split()
FUNCTIONS_OF_CMATH = "sqrt exp log log10 sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh phase".split()


def unary(module: Any, name: str) -> Callable:
    """``function(value)``, and 0 * value added where the result is no number."""
    function = getattr(module, name)
    return lambda value: function(value) + 0 * value


def binary(name: str) -> Callable:
    function = getattr(np, name)
    return lambda value: function(value, 0.3) + function(value, value + 1)


FUNCTIONS = [
    *(case("f", unary(np, name), f"np.{name}") for name in UFUNCS_OF_REALS),
    *(case("f", binary(name), f"np.{name}") for name in UFUNCS_OF_PAIRS),
    *(case("c", unary(np, name), f"complex np.{name}") for name in UFUNCS_OF_COMPLEX),
    *(case("f", unary(math, name), f"math.{name}") for name in FUNCTIONS_OF_MATH),
    *(case("c", unary(cmath, name), f"cmath.{name}") for name in FUNCTIONS_OF_CMATH),
    case("f", lambda value: math.remainder(value, 2.7) + math.fmod(value, 3), "math.remainder and fmod"),
    case("f", lambda value: math.hypot(value, 2) + math.atan2(value, 2) + math.pow(value, 1.5), "math of pairs"),
    case("f", lambda value: np.clip(value, -1, 1) + np.where(value > 0, value, 1), "np.clip and np.where"),
    case("f", lambda value: np.float32(value) + (value > 0 and value < 1) * 2, "casts and comparisons"),
    case("c", lambda value: cmath.rect(abs(value), 0.1) + cmath.polar(value)[1], "cmath.rect and polar"),
]


# --- index, shape, operands, loops, helpers, chains -------------------------------------------------------------------


def frequency_ramp(value, index, shape, axes):
    total = 0.0
    for a in axes:
        total += mf.signed_frequency(index[a], shape[a]) * math.pi
    return value * total


def positions(value, index, shape):
    where = index[-1] * 0.5 + index[0] / shape[0]
    return value * where + math.sqrt(index[0]) + index[-1] // 3 + index[-1] % shape[-1] + shape[0] // 2


def checkerboard(value, index, shape):
    flat = 0
    for i, n in zip(index, shape):
        flat = flat * n + i
    return -value if sum(index) % 2 else value + flat % 7 // 2


def inner(x, weight):
    return x * weight + 0.1


def middle(x):
    return inner(x, 0.5) / inner(abs(x), math.pi)


def nested_helpers(value):
    return middle(value) + middle(value + 1)


def shifted(value, index, shape, image):
    left, right = (index[-1] - 1) % shape[-1], mf.clamped_index(index[-1] + 1, shape[-1])
    return value + 0.25 * (image[index[0], left] - 2 * image[index] + image[index[0], right]) + image[-1, 0]


def taps(value, index, kernel):
    total = 0 * value
    for k in range(kernel.shape[0]):
        total += kernel[k] * value * (index[-1] + k)
    return total


def horner(value):
    total = 0.0
    for k in range(8):
        total = total * value + 1 / (k + 1)
    return total


def newton(value):
    x = value + 1
    while abs(x * x - value) > 0.001:
        x = 0.5 * (x + value / x)
    return x


def recorded(value, index, log):
    log[index] = value
    return value * 0.5


def accumulated(value, index, total):
    total[index] = total[index] + abs(value) * 0.5
    return value


def laplacian(value, index, shape, source):
    i = index[-1]
    left = source[(*index[:-1], mf.wrapped_index(i - 1, shape[-1]))]
    right = source[(*index[:-1], mf.wrapped_index(i + 1, shape[-1]))]
    return left - 2 * value + right


FOURIER = ("fft prolog", "fft epilog", "elementwise")
PLACES = [
    *(case("fc", frequency_ramp, f"a loop over axes, rank {n}", ndim=n, pipelines=FOURIER) for n in (1, 2, 3, 4)),
    case("fc", frequency_ramp, "a loop over some axes", ndim=4, axes=(0, 2), pipelines=FOURIER),
    case("fc", positions, ndim=2),
    case("fc", checkerboard, ndim=3),
    case("fc", nested_helpers),
    case("fc", shifted, operands={"image": "same[2]"}),
    case("fc", lambda value, index: value * TABLE[index[-1]], "a captured array"),
    case("fc", taps, operands={"kernel": "real[1]"}),
    case("fc", lambda value, pixels: value + pixels, "operands of small integers", operands={"pixels": "uint8[1]"}),
    case(
        "fc",
        lambda value, mask, half: value * half if mask else value,
        "bool and float16 operands",
        operands={"mask": "bool[2]", "half": "float16[2]"},
    ),
    case("fc", horner),
    case("f", newton),
    case("fc", recorded, operands={"log": "same[2]"}),
    case("fc", accumulated, operands={"total": "real[1]"}, ndim=1, pipelines=FOURIER),
    Case("laplacian", mf.prolog(laplacian), ndim=2, pipelines=("fft prolog", "elementwise")),
    case("f", mf.bias(bias=1.0) | mf.silu | mf.scale(factor=0.5), "a chain of reals"),
    case("fc", mf.multiply | mf.gaussian(sigma=2) | mf.power_spectrum, "a chain", operands={"factor": "same[2]"}),
]

# --- every other way in which a float64 might come in: integers and numbers that are wider than the element ----------


def harmonic(value, shape):
    total = 0
    for k in range(shape[0]):
        total += 1 / (k + 1)
    return value * total


def from_a_tuple(value, index):
    weights = (0.1, 0.2, WEIGHT, math.pi)
    return value * weights[index[0] % 4]


def of_index(function: Callable, name: str, **options: Any) -> Case:
    return case("fc", function, name, pipelines=("elementwise",), **options)


WIDE = [
    of_index(lambda value, a: value * a, "an int32 array", operands={"a": "int32[1]"}),
    of_index(lambda value, a: value * (a / 255), "a quotient of uint8", operands={"a": "uint8[1]"}),
    of_index(
        lambda value, index, a: value * a[index[0]] + a[index[0]] // 3 + (a[index[0]] + a[0]) / 2,
        "an int64 array",
        operands={"a": "int64[1]"},
    ),
    of_index(lambda value, index, a: value + a[index[0]] % 5, "a uint64 array", operands={"a": "uint64[1]"}),
    of_index(
        lambda value, index: value * index[0] ** 0.5 + index[0] ** 2 + (index[0] + 1) ** -1, "powers of the index"
    ),
    of_index(lambda value, index: value * float(index[0]) + np.float32(index[-1]), "casts of the index"),
    of_index(
        lambda value, index: value + divmod(index[0], 7)[1] + index[0] % -5 + index[0] // 2.5, "divmod of the index"
    ),
    of_index(lambda value, index: value * np.where(index[0] % 2 == 0, 0.1, 0.2), "np.where of constants"),
    of_index(lambda value, index: value * (0.1 if index[0] > 3 else math.e), "a choice of constants"),
    of_index(lambda value, index, shape: value * min(index[0], shape[0] - index[0], 2.5), "min of ints and a float"),
    of_index(lambda value, shape: value * sum(shape) / len(shape) + math.prod(shape), "sum and prod of shape", ndim=3),
    of_index(
        lambda value, index, shape: value * math.log(index[0] + 1) * math.sqrt(shape[0]) + math.hypot(index[-1], 3),
        "functions of the index",
    ),
    of_index(lambda value, index: abs(value * cmath.exp(2j * cmath.pi * index[0] / 7)), "a complex exponential"),
    of_index(
        lambda value, a, b: value * (a / b) + math.exp(a) + a**b,
        "bound scalars among themselves",
        operands={"a": 1.5, "b": 3},
    ),
    of_index(
        lambda value, a, b: value * (a / b) + a // b + a % b, "bound ints among themselves", operands={"a": 15, "b": 3}
    ),
    of_index(harmonic, "a sum of quotients of ints"),
    of_index(from_a_tuple, "constants in a tuple"),
]

CASES = READY_MADE + OPERATORS + FUNCTIONS + PLACES + WIDE
