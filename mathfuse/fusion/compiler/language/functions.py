"""The vocabulary: which operators and functions callbacks may use, and what computes each. Tables only."""

from __future__ import annotations

import cmath
import math
import operator
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from mathfuse.fusion.compiler.language import approximations, complexes, library

INPLACE = {
    getattr(operator, f"i{name}"): getattr(operator, name)
    for name in "add sub mul truediv floordiv mod xor lshift rshift pow".split()
}
INPLACE |= {operator.iand: operator.and_, operator.ior: operator.or_}
ARITHMETIC = {operator.add: "add", operator.sub: "sub", operator.mul: "mul"}
COMPARISONS = {
    operator.eq: "==",
    operator.ne: "!=",
    operator.lt: "<",
    operator.le: "<=",
    operator.gt: ">",
    operator.ge: ">=",
}
BITWISE = {
    operator.and_: "and_",
    operator.or_: "or_",
    operator.xor: "xor",
    operator.lshift: "shl",
    operator.rshift: "shr",
}
SYMBOLS = (
    {
        operator.truediv: "/",
        operator.floordiv: "//",
        operator.mod: "%",
        operator.pow: "**",
        operator.matmul: "@",
        operator.and_: "&",
        operator.or_: "|",
        operator.xor: "^",
        operator.lshift: "<<",
        operator.rshift: ">>",
    }
    | {operator.add: "+", operator.sub: "-", operator.mul: "*"}
    | COMPARISONS
)

# name -> (for reals, for complex values): a libm name, a function in the callback language, or None.
FUNCTIONS: dict[str, tuple[str | Callable | None, Callable | None]] = {
    **{name: (name, None) for name in "cbrt erf erfc lgamma tgamma floor ceil trunc rint".split()},
    **{
        name: (name, getattr(complexes, f"complex_{name}"))
        for name in "acos acosh asin asinh atan atanh cos cosh exp exp2 expm1 log log10 log1p log2".split()
    },
    **{name: (name, getattr(complexes, f"complex_{name}")) for name in "sin sinh sqrt tan tanh".split()},
    "absolute": ("fabs", complexes.complex_abs),
    "isnan": (library.isnan, complexes.complex_isnan),
    "isinf": (library.isinf, complexes.complex_isinf),
    "isfinite": (library.isfinite, complexes.complex_isfinite),
    "square": (library.square, complexes.complex_square),
    "reciprocal": (library.reciprocal, complexes.complex_reciprocal),
    "sign": (library.sign, complexes.complex_sign),
    "phase": (complexes.phase, complexes.phase),
    "polar": (complexes.polar, complexes.polar),
    "degrees": (library.degrees, None),
    "radians": (library.radians, None),
    "signbit": (library.signbit, None),
    "sinc": (library.sinc, library.sinc),
    "modf": (library.modf, None),
    # two operands
    "atan2": ("atan2", None),
    "copysign": ("copysign", None),
    "fmod": ("fmod", None),
    "ieee_remainder": ("remainder", None),
    "hypot": (library.hypot, None),
    "logaddexp": (library.logaddexp, None),
    "logaddexp2": (library.logaddexp2, None),
    "heaviside": (library.heaviside, None),
    "rect": (complexes.rect, None),
    "maximum": (library.maximum, None),
    "minimum": (library.minimum, None),
    "fmax": (library.fmax, None),
    "fmin": (library.fmin, None),
    "clip": (library.clip, None),
}

TWO_OPERANDS = frozenset(
    "atan2 copysign fmod ieee_remainder hypot logaddexp logaddexp2 heaviside rect maximum minimum fmax fmin".split()
)

# By target and precision, where plain Python does better than a call: libdevice's float32 versions of these call, use
# float64 or local memory; libm's keep a loop from being vectorised.
OWN_VERSIONS: dict[tuple[str, int], dict[str, Callable]] = {
    ("cuda", 32): {
        "sin": approximations.sin_single,
        "cos": approximations.cos_single,
        "tan": library.tan,
        "atan2": approximations.atan2_single,
        "asinh": approximations.asinh_single,
    },
    ("cpu", 32): {"exp": approximations.exp_single, "tanh": approximations.tanh_single},
    ("cpu", 64): {"exp": approximations.exp_double},
}

# Where Python and NumPy use other names than the table above.
MATH_NAMES = {"gamma": "tgamma", "fabs": "absolute", "remainder": "ieee_remainder"}
NUMPY_NAMES = {
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctanh": "atanh",
    "arctan2": "atan2",
    "abs": "absolute",
    "fabs": "absolute",
    "deg2rad": "radians",
    "rad2deg": "degrees",
    "angle": "phase",
    "fix": "trunc",
}
NUMPY_OPERATORS = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "true_divide": operator.truediv,
    "floor_divide": operator.floordiv,
    "mod": operator.mod,
    "remainder": operator.mod,
    "power": operator.pow,
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "bitwise_and": operator.and_,
    "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor,
    "left_shift": operator.lshift,
    "right_shift": operator.rshift,
}
INTEGER_KEEPING = frozenset("absolute square sign maximum minimum fmax fmin clip floor ceil trunc rint".split())
TO_INTEGER = {math.floor: "floor", math.ceil: "ceil", math.trunc: "trunc"}
DTYPES = (
    np.float16,
    np.float32,
    np.float64,
    np.complex64,
    np.complex128,
    np.int8,
    np.int16,
    np.int32,
    np.int64,
    np.uint8,
    np.uint16,
    np.uint32,
    np.uint64,
    np.bool_,
)


def _callables() -> dict[Any, tuple[str, str]]:
    """Python callable -> (module, name in FUNCTIONS)."""
    table: dict[Any, tuple[str, str]] = {}
    for module, renamed in ((math, MATH_NAMES), (cmath, {}), (np, NUMPY_NAMES)):
        for name in [*FUNCTIONS, *renamed]:
            function = getattr(module, name, None)
            if callable(function):
                table[function] = (module.__name__, renamed.get(name, name))
    for function in TO_INTEGER:
        del table[function]
    table[abs] = ("builtins", "absolute")
    return table


CALLABLES = _callables()
OPERATOR_CALLS = {getattr(np, name): function for name, function in NUMPY_OPERATORS.items()}
UFUNCS = ("numpy", "scipy.special")  # modules that have some


def name_of(function: Any) -> str:
    """``numpy.exp``, ``math.exp``, ``scipy.special.erf``, ``abs``: a callable as the user would write it."""
    name = getattr(function, "__name__", None)
    if name is None:
        return f"an object of type {type(function).__module__}.{type(function).__name__}"
    module = getattr(function, "__module__", None) or "builtins"
    if isinstance(function, np.ufunc):  # which do not know their module
        homes = [home for home in UFUNCS if getattr(sys.modules.get(home), name, None) is function]
        module = homes[0] if homes else "builtins"
    return name if module == "builtins" else f"{module}.{name}"
