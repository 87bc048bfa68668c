"""What operators and functions mean in the callback language: the tables, and their dispatch on operand types.

Numbers known at compile time are folded by Python itself; everything else becomes typed instructions through the
:class:`~.emitter.Emitter`, or a function of ``library.py`` that the evaluator inlines.
"""

from __future__ import annotations

import cmath
import difflib
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from . import library
from .emitter import Emitter, Number, Value
from .scalars import BOOL, INT, Scalar, floating, of_dtype, promote


class Reject(Exception):
    """Something the callback language does not have; the evaluator adds the user's line."""


class BoundMethod:
    """``z.conjugate`` and its kind, before the call."""

    def __init__(self, name: str, value: Any) -> None:
        self.name, self.value = name, value


INPLACE = {getattr(operator, f"i{name}"): getattr(operator, name) for name in "add sub mul truediv floordiv mod xor lshift rshift pow".split()}
INPLACE |= {operator.iand: operator.and_, operator.ior: operator.or_}
ARITHMETIC = {operator.add: "add", operator.sub: "sub", operator.mul: "mul"}
COMPARISONS = {operator.eq: "==", operator.ne: "!=", operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">="}
BITWISE = {operator.and_: "and_", operator.or_: "or_", operator.xor: "xor", operator.lshift: "shl", operator.rshift: "shr"}
SYMBOLS = {operator.truediv: "/", operator.floordiv: "//", operator.mod: "%", operator.pow: "**", operator.matmul: "@", operator.and_: "&",
           operator.or_: "|", operator.xor: "^", operator.lshift: "<<", operator.rshift: ">>"} | {
    operator.add: "+", operator.sub: "-", operator.mul: "*"} | COMPARISONS

# name -> (real implementation, complex implementation): a libm name, a function of library.py, or None where there is none.
FUNCTIONS: dict[str, tuple[str | Callable | None, Callable | None]] = {
    **{name: (name, None) for name in "acos acosh asin asinh atan atanh cbrt erf erfc exp2 expm1 lgamma log1p log2 tgamma".split()},
    **{name: (name, None) for name in "floor ceil trunc rint".split()},
    "exp": ("exp", library.complex_exp),
    "log": ("log", library.complex_log),
    "log10": ("log10", library.complex_log10),
    "sqrt": ("sqrt", library.complex_sqrt),
    "sin": ("sin", library.complex_sin),
    "cos": ("cos", library.complex_cos),
    "tan": ("tan", library.complex_tan),
    "sinh": ("sinh", library.complex_sinh),
    "cosh": ("cosh", library.complex_cosh),
    "tanh": ("tanh", library.complex_tanh),
    "absolute": ("fabs", library.complex_abs),
    "isnan": (library.isnan, library.complex_isnan),
    "isinf": (library.isinf, library.complex_isinf),
    "isfinite": (library.isfinite, library.complex_isfinite),
    "square": (library.square, library.complex_square),
    "reciprocal": (library.reciprocal, library.complex_reciprocal),
    "sign": (library.sign, library.complex_sign),
    "phase": (library.phase, library.phase),
    "polar": (library.polar, library.polar),
    "degrees": (library.degrees, None),
    "radians": (library.radians, None),
    "signbit": (library.signbit, None),
    "sinc": (library.sinc, None),
    # two operands
    "atan2": ("atan2", None),
    "copysign": ("copysign", None),
    "fmod": ("fmod", None),
    "ieee_remainder": ("remainder", None),
    "hypot": (library.hypot, None),
    "logaddexp": (library.logaddexp, None),
    "heaviside": (library.heaviside, None),
    "rect": (library.rect, None),
    "maximum": (library.maximum, None),
    "minimum": (library.minimum, None),
    "fmax": (library.fmax, None),
    "fmin": (library.fmin, None),
    "clip": (library.clip, None),
}

# Where Python and NumPy use other names than the table above.
MATH_NAMES = {"gamma": "tgamma", "fabs": "absolute", "remainder": "ieee_remainder"}
NUMPY_NAMES = {
    "arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan", "arctanh": "atanh", "arctan2": "atan2",
    "abs": "absolute", "fabs": "absolute", "deg2rad": "radians", "rad2deg": "degrees", "angle": "phase", "fix": "trunc",
}
NUMPY_OPERATORS = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "divide": operator.truediv, "true_divide": operator.truediv,
    "floor_divide": operator.floordiv, "mod": operator.mod, "remainder": operator.mod, "power": operator.pow, "float_power": operator.pow,
    "equal": operator.eq, "not_equal": operator.ne, "less": operator.lt, "less_equal": operator.le, "greater": operator.gt,
    "greater_equal": operator.ge, "bitwise_and": operator.and_, "bitwise_or": operator.or_, "bitwise_xor": operator.xor,
    "left_shift": operator.lshift, "right_shift": operator.rshift,
}
INTEGER_KEEPING = frozenset("absolute square sign maximum minimum fmax fmin clip floor ceil trunc rint".split())
TO_INTEGER = {math.floor: "floor", math.ceil: "ceil", math.trunc: "trunc"}
DTYPES = (np.float32, np.float64, np.complex64, np.complex128, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64, np.bool_)


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


def is_number(x: Any) -> bool:
    """A number known at compile time."""
    return isinstance(x, (bool, int, float, complex))


def describe(x: Any) -> str:
    """``x`` in the words of a message."""
    if isinstance(x, Value):
        return f"a {x.type} value"
    if is_number(x):
        return f"the constant {x!r}"
    return "None" if x is None else f"an object of type {type(x).__name__}"


class Operations:
    """Operators and functions over values and compile-time numbers.

    Parameters
    ----------
    emitter
        Generates the instructions.
    inline
        ``inline(function, *arguments)`` evaluates a function of ``library.py`` in place.
    coerce
        Turns anything else that may stand for a number (an operand array: its element at the own index) into a value.
    """

    def __init__(self, emitter: Emitter, inline: Callable[..., Any], coerce: Callable[[Any], Any]) -> None:
        self.emitter, self.inline, self.coerce = emitter, inline, coerce

    # --- operands -----------------------------------------------------------------------------------------------------------
    def number(self, x: Any) -> Value | Number:
        """``x`` as a value or a compile-time number."""
        if isinstance(x, Value) or is_number(x):
            return x
        return self.coerce(x)

    def value(self, x: Any) -> Value:
        x = self.number(x)
        return x if isinstance(x, Value) else self.emitter.literal(x)

    def common(self, *xs: Any) -> tuple[Scalar, list[Value]]:
        """The operands in their common type."""
        values = [self.value(x) for x in xs]
        scalar = values[0].type
        for v in values[1:]:
            scalar = promote(scalar, v.type, self.emitter.weak_bits)
        return scalar, [self.convert(x, v, scalar) for x, v in zip(xs, values)]

    def convert(self, original: Any, value: Value, scalar: Scalar) -> Value:
        """Converts; a constant is rounded once, from Python's own precision."""
        return self.emitter.constant(original, scalar) if is_number(original) and scalar.is_float else self.emitter.convert(value, scalar)

    def reals(self, *xs: Any) -> list[Value]:
        """The operands as reals of one type."""
        scalar, values = self.common(*xs)
        scalar = floating(scalar, self.emitter.weak_bits)
        return [self.convert(x, v, scalar) for x, v in zip(xs, values)]

    def truth(self, x: Any) -> bool | Value:
        x = self.number(x) if not isinstance(x, (tuple, str)) and x is not None else x
        return self.emitter.truth(x) if isinstance(x, Value) else bool(x)

    # --- operators ----------------------------------------------------------------------------------------------------------
    def binary(self, op: Callable, a: Any, b: Any) -> Any:
        op = INPLACE.get(op, op)
        if op in (operator.is_, operator.is_not):
            return (a is b) == (op is operator.is_)
        if op is operator.contains:
            return self._contains(a, b)
        if isinstance(a, tuple) or isinstance(b, tuple):
            return self._tuples(op, a, b)
        a, b = self.number(a), self.number(b)
        if is_number(a) and is_number(b):
            return self._fold(op, a, b)
        if op in COMPARISONS:
            return self._compare(op, a, b)
        if op in BITWISE:
            return self._bitwise(op, a, b)
        a, b = self._arithmetic_operand(a), self._arithmetic_operand(b)
        if op in ARITHMETIC:
            return self._add_or_multiply(ARITHMETIC[op], a, b)
        if op is operator.truediv:
            return self._divide(a, b)
        if op is operator.pow:
            return self._power(a, b)
        if op in (operator.floordiv, operator.mod):
            return self._floor_divide(op, a, b)
        raise Reject(f"the operator {SYMBOLS.get(op, op.__name__)} works on arrays; a callback sees one element at a time")

    def unary(self, op: Callable, a: Any) -> Any:
        if op is operator.not_:
            truth = self.truth(a)
            return not truth if isinstance(truth, bool) else Value(BOOL, (self.emitter.builder.not_(truth.parts[0]),))
        a = self.number(a)
        if is_number(a):
            return op(a)
        if op is operator.invert:
            if a.type.is_float:
                raise Reject(f"~ takes integers and booleans, not {describe(a)}")
            return Value(a.type, (self.emitter.builder.not_(a.parts[0]),))
        a = self._arithmetic_operand(a)
        return self.emitter.negate(a) if op is operator.neg else a

    def _fold(self, op: Callable, a: Number, b: Number) -> Number:
        try:
            return op(a, b)
        except ZeroDivisionError:
            raise Reject(f"division by the constant zero: {a!r} {SYMBOLS.get(op, '/')} {b!r}") from None
        except (TypeError, OverflowError, ValueError) as error:
            raise Reject(str(error)) from None

    def _arithmetic_operand(self, x: Value | Number) -> Value | Number:
        """Booleans count as integers in arithmetic."""
        return self.emitter.convert(x, INT) if isinstance(x, Value) and x.type.kind == "b" else x

    def _tuples(self, op: Callable, a: Any, b: Any) -> Any:
        if op is operator.add and isinstance(a, tuple) and isinstance(b, tuple):
            return a + b
        if op is operator.mul and (isinstance(a, int) or isinstance(b, int)):
            return a * b
        if op in (operator.eq, operator.ne) and isinstance(a, tuple) and isinstance(b, tuple):
            equal: Any = len(a) == len(b)
            for x, y in zip(a, b):
                equal = self.binary(operator.and_, equal, self.binary(operator.eq, x, y)) if equal is not False else False
            return equal if op is operator.eq else self.unary(operator.not_, equal)
        raise Reject(f"{SYMBOLS.get(op, op.__name__)} does not work on a tuple (`index`, `shape` and `axes` are tuples of integers)")

    def _contains(self, items: Any, x: Any) -> Any:
        if not isinstance(items, tuple):
            raise Reject("`in` takes a tuple such as `axes`")
        found: Any = False
        for item in items:
            found = self.binary(operator.or_, found, self.binary(operator.eq, item, x))
        return found

    def _compare(self, op: Callable, a: Any, b: Any) -> Value:
        scalar, values = self.common(a, b)
        if scalar.kind == "c" and op not in (operator.eq, operator.ne):
            raise Reject(f"complex values have no order ({COMPARISONS[op]}); compare abs(value) or value.real")
        return self.emitter.compare(COMPARISONS[op], *values)

    def _bitwise(self, op: Callable, a: Any, b: Any) -> Value:
        scalar, values = self._integers(SYMBOLS[op], a, b)
        name = BITWISE[op]
        if scalar.kind == "b" and name in ("shl", "shr"):
            values = [self.emitter.convert(v, INT) for v in values]
        if name == "shr":
            name = "ashr" if scalar.kind == "i" else "lshr"
        return Value(values[0].type, (getattr(self.emitter.builder, name)(values[0].parts[0], values[1].parts[0]),))

    def _integers(self, symbol: str, a: Any, b: Any) -> tuple[Scalar, list[Value]]:
        """Integer operands in one type; a constant adapts to the other operand's width."""
        if is_number(a) != is_number(b):
            known, other = (a, b) if is_number(a) else (b, a)
            if isinstance(known, int) and not isinstance(known, bool) and other.type.kind in "iu":
                constant = self.emitter.constant(known, other.type)
                return other.type, [constant, other] if known is a else [other, constant]
        scalar, values = self.common(a, b)
        if scalar.is_float:
            raise Reject(f"{symbol} takes integers, not {describe(a)} and {describe(b)}")
        return scalar, values

    def _add_or_multiply(self, name: str, a: Any, b: Any) -> Value:
        e = self.emitter
        kinds = [self.value(x).type.kind for x in (a, b)]
        if kinds.count("c") == 1:  # a real operand touches only what it must
            scalar, _ = self.common(a, b)
            real = Scalar("f", scalar.bits)
            z, x = (a, b) if kinds[0] == "c" else (b, a)
            z, x = self.convert(z, self.value(z), scalar), self.convert(x, self.value(x), real)
            if name == "mul":
                return e.scale("mul", z, x)
            parts = [Value(real, (part,)) for part in z.parts]
            if kinds[0] == "c":
                return Value(scalar, (e.arithmetic(name, parts[0], x).parts[0], z.parts[1]))
            imag = e.negate(parts[1]) if name == "sub" else parts[1]
            return Value(scalar, (e.arithmetic(name, x, parts[0]).parts[0], imag.parts[0]))
        if "f" in kinds or "c" in kinds:
            _, values = self.common(a, b)
        else:
            _, values = self._integers(name, a, b)
        return e.arithmetic(name, *values)

    def _divide(self, a: Any, b: Any) -> Any:
        scalar, _ = self.common(a, b)
        if scalar.kind != "c":
            return self.emitter.arithmetic("div", *self.reals(a, b))
        if self.value(b).type.kind != "c":
            z = self.convert(a, self.value(a), scalar)
            return self.emitter.scale("div", z, self.convert(b, self.value(b), Scalar("f", scalar.bits)))
        _, values = self.common(a, b)
        return self.inline(library.complex_divide, *values)

    def _floor_divide(self, op: Callable, a: Any, b: Any) -> Any:
        quotient = op is operator.floordiv
        scalar, _ = self.common(a, b)
        if scalar.kind == "c":
            raise Reject(f"{SYMBOLS[op]} does not take complex values")
        if scalar.is_float:
            return self.inline(library.divide_floor if quotient else library.remainder_floor, *self.reals(a, b))
        scalar, (x, y) = self._integers(SYMBOLS[op], a, b)
        if isinstance(b, int) and b > 0 and not b & (b - 1):
            name, constant = ("ashr" if scalar.kind == "i" else "lshr", b.bit_length() - 1) if quotient else ("and_", b - 1)
            return Value(scalar, (getattr(self.emitter.builder, name)(x.parts[0], self.emitter.constant(constant, scalar).parts[0]),))
        if scalar == Scalar("u", 32):
            return Value(scalar, ((self.emitter.builder.udiv if quotient else self.emitter.builder.urem)(x.parts[0], y.parts[0]),))
        if scalar.kind == "u":
            wide = [self.emitter.convert(v, Scalar("u", 64)) for v in (x, y)]
            return self.inline(library.divide_unsigned if quotient else library.remainder_unsigned, *wide)
        return self.inline(library.divide_floor_integer if quotient else library.remainder_floor_integer, x, y)

    def _power(self, a: Any, b: Any) -> Any:
        """Small constant exponents by multiplication and square root, others by the power function."""
        if isinstance(b, (int, float)) and not isinstance(b, bool) and float(b).is_integer() and abs(b) <= 64:
            keep = isinstance(b, int) and b >= 0
            base = a if keep or self.value(a).type.is_float else self.reals(a)[0]
            power = self._integer_power(base, abs(int(b)))
            return power if b >= 0 else self._divide(1.0, power)
        complex_power = "c" in (self.value(a).type.kind, self.value(b).type.kind)
        if isinstance(b, float) and abs(b) == 0.5 and not complex_power:
            root = self.call(math.sqrt, (a,), {})
            return root if b > 0 else self._divide(1.0, root)
        if complex_power:
            scalar, values = self.common(a, b)
            return self.inline(library.complex_power, *values)
        return self.emitter.math("pow", *self.reals(a, b))

    def _integer_power(self, a: Any, n: int) -> Any:
        """Binary exponentiation; a complex square takes two products instead of four."""
        if n == 0:
            return self.convert(1, self.value(1), self.value(a).type)
        if n == 1:
            return a
        half = self._integer_power(a, n // 2)
        is_complex = self.value(a).type.kind == "c"
        square = self.inline(library.complex_square, half) if is_complex else self._add_or_multiply("mul", half, half)
        return self._add_or_multiply("mul", square, a) if n % 2 else square

    # --- functions ----------------------------------------------------------------------------------------------------------
    def call(self, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """A call to a function of ``math``, ``cmath``, NumPy or the builtins; ``NotImplemented`` when it is none of them."""
        try:
            hash(function)
        except TypeError:
            return NotImplemented
        if function in SPECIAL:
            try:
                return SPECIAL[function](self, *args, **kwargs)
            except TypeError as error:
                raise Reject(f"{_name(function)}: {error}") from None
        if function in OPERATOR_CALLS and len(args) == 2 and not kwargs:
            return self.binary(OPERATOR_CALLS[function], *args)
        if function in CALLABLES:
            if kwargs:
                raise Reject(f"{_name(function)} takes no keyword arguments inside a callback")
            return self._function(function, [self.number(x) for x in args])
        return NotImplemented

    def _function(self, function: Any, args: list[Any]) -> Any:
        module, name = CALLABLES[function]
        if all(is_number(x) for x in args):
            return self._fold_function(function, args)
        real, complex_version = FUNCTIONS[name]
        values = [self.value(x) for x in args]
        is_complex = any(v.type.kind == "c" for v in values)
        if is_complex and module == "math":
            raise Reject(f"math.{function.__name__} takes real values, not {describe(values[0])}; numpy.{function.__name__} takes both")
        if is_complex or (module == "cmath" and complex_version is not None and name not in ("rect",)):
            if complex_version is None:
                raise Reject(f"{_name(function)} has no complex version inside a callback; use value.real, value.imag or abs(value)")
            scalar, _ = self.common(*args)
            scalar = Scalar("c", floating(scalar, self.emitter.weak_bits).bits, scalar.weak or not scalar.is_float)
            return self.inline(complex_version, *[self.convert(x, v, scalar) for x, v in zip(args, values)])
        if name in INTEGER_KEEPING and all(v.type.kind in "biu" for v in values):
            return self._integer_function(name, args)
        if callable(real):
            return self.inline(real, *self.reals(*args))
        return self._primitive(name, str(real), self.reals(*args))

    def _primitive(self, name: str, libm: str, values: list[Value]) -> Value:
        e = self.emitter
        if e.target.is_cuda and values[0].type.bits == 32 and name in ("sin", "cos", "tan"):
            return self.inline({"sin": library.sin_single, "cos": library.cos_single, "tan": library.tan}[name], *values)
        return e.math(libm, *values)

    def _integer_function(self, name: str, args: list[Any]) -> Any:
        if name in ("floor", "ceil", "trunc", "rint"):
            return args[0]
        if name == "absolute":
            return self.inline(library.absolute_integer, self._arithmetic_operand(args[0]))
        return self.inline(FUNCTIONS[name][0], *args)

    def _fold_function(self, function: Any, args: list[Number]) -> Number:
        try:
            result = function(*args)
        except (ValueError, OverflowError, TypeError) as error:
            raise Reject(f"{_name(function)}: {error}") from None
        return result.item() if isinstance(result, np.generic) else result

    # --- builtins and NumPy functions with rules of their own ----------------------------------------------------------------
    def extreme(self, op: Callable, *args: Any) -> Any:
        """Python's ``min`` and ``max``: the first operand unless another compares better."""
        items = args[0] if len(args) == 1 and isinstance(args[0], tuple) else args
        best = self.number(items[0])
        for item in items[1:]:
            item = self.number(item)
            if is_number(best) and is_number(item):
                best = item if op(item, best) else best
                continue
            scalar, (x, y) = self.common(best, item)
            if scalar.kind == "c":
                raise Reject("complex values have no order; compare abs(value)")
            best = self.emitter.select(self.emitter.compare(COMPARISONS[op], y, x), y, x)
        return best

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        truth = self.truth(condition)
        if isinstance(truth, bool):
            return a if truth else b
        _, values = self.common(a, b)
        return self.emitter.select(truth, *values)

    def cast(self, scalar: Scalar, x: Any = 0) -> Any:
        """``np.float32(x)`` and its kind: an explicit type, never weak."""
        x = self.number(x)
        value = self.value(x)
        if value.type.kind == "c" and scalar.kind != "c":
            raise Reject(f"a complex value cannot become {scalar}; use value.real, value.imag or abs(value)")
        return self.convert(x, value, scalar)

    def to_int(self, x: Any = 0) -> Any:
        x = self.number(x)
        if is_number(x):
            return self._fold_function(int, [x])
        return x if x.type.kind in "iu" else self.cast(INT, x)

    def to_float(self, x: Any = 0.0) -> Any:
        """Python's ``float``: a real of the precision at hand."""
        x = self.number(x)
        if is_number(x):
            return self._fold_function(float, [x])
        if x.type.kind == "c":
            raise Reject("float() of a complex value; use value.real or abs(value)")
        return self.reals(x)[0]

    def to_complex(self, real: Any = 0, imag: Any = 0) -> Any:
        real, imag = self.number(real), self.number(imag)
        if is_number(real) and is_number(imag):
            return complex(real, imag)
        if "c" in (self.value(real).type.kind, self.value(imag).type.kind):
            if is_number(imag) and imag == 0:
                return real
            raise Reject("complex(real, imag) takes two real values")
        x, y = self.reals(real, imag)
        return Value(Scalar("c", x.type.bits, x.type.weak), (x.parts[0], y.parts[0]))

    def to_bool(self, x: Any = False) -> Any:
        return self.truth(x)

    def round(self, x: Any, digits: Any = None) -> Any:
        """Half to even; without digits an integer, as in Python."""
        x = self.number(x)
        if is_number(x):
            return round(x) if digits is None else round(x, digits)  # type: ignore[arg-type, call-overload]
        if not x.type.is_float:
            return x
        if digits is None:
            return self.cast(INT, self._function(np.rint, [x]))
        if not isinstance(digits, int):
            raise Reject("round(x, digits) takes a constant number of digits")
        power = 10.0 ** abs(digits)
        if digits >= 0:
            return self._divide(self._function(np.rint, [self._add_or_multiply("mul", x, power)]), power)
        return self._add_or_multiply("mul", self._function(np.rint, [self._divide(x, power)]), power)

    def to_integer(self, name: str, x: Any) -> Any:
        """``math.floor`` and its kind give integers."""
        x = self.number(x)
        if is_number(x):
            return self._fold_function(getattr(math, name), [x])
        return self.cast(INT, self._function(getattr(np, name), [x])) if x.type.is_float else x

    def length(self, x: Any) -> int:
        if not isinstance(x, tuple):
            raise Reject("len() takes a tuple; for an operand write array.shape[0]")
        return len(x)

    def total(self, items: Any, start: Any = 0) -> Any:
        if not isinstance(items, tuple):
            raise Reject("sum() takes a tuple; write a loop instead")
        for item in items:
            start = self.binary(operator.add, start, item)
        return start

    def product(self, items: Any) -> Any:
        if not isinstance(items, tuple):
            raise Reject("math.prod() takes a tuple such as `shape`")
        result: Any = 1
        for item in items:
            result = self.binary(operator.mul, result, item)
        return result

    def power(self, a: Any, b: Any) -> Any:
        return self.binary(operator.pow, a, b)

    def real(self, x: Any) -> Any:
        return self.attribute(self.number(x), "real")

    def imag(self, x: Any) -> Any:
        return self.attribute(self.number(x), "imag")

    def conjugate(self, x: Any) -> Any:
        x = self.number(x)
        if is_number(x):
            return x.conjugate()
        if x.type.kind != "c":
            return x
        return Value(x.type, (x.parts[0], self.emitter.builder.fneg(x.parts[1])))

    def divmod(self, a: Any, b: Any) -> Any:
        return self.binary(operator.floordiv, a, b), self.binary(operator.mod, a, b)

    def bit_pattern(self, x: Any) -> Value:
        value = self.cast(Scalar("f", 32), x)
        return Value(Scalar("u", 32), (self.emitter.builder.bitcast(value.parts[0], self.emitter.component_type(Scalar("u", 32))),))

    def logical(self, op: Callable, *args: Any) -> Any:
        truths = [self.truth(x) for x in args]
        return self.unary(operator.not_, truths[0]) if op is operator.not_ else self.binary(op, *truths)

    # --- attributes ---------------------------------------------------------------------------------------------------------
    def attribute(self, x: Any, name: str) -> Any:
        """``value.real``, ``value.imag``, ``value.conjugate``."""
        if name in ("conjugate", "conj"):
            return BoundMethod("conjugate", x)
        if is_number(x) and name in ("real", "imag"):
            return getattr(x, name)
        if isinstance(x, Value) and name in ("real", "imag"):
            if x.type.kind == "c":
                return Value(x.type.real, (x.parts[name == "imag"],))
            return x if name == "real" else self.emitter.constant(0, x.type)
        raise Reject(f"{describe(x)} has no attribute {name!r} inside a callback; there are .real, .imag and .conjugate()")


SPECIAL: dict[Any, Callable] = {
    min: lambda o, *a: o.extreme(operator.lt, *a),
    max: lambda o, *a: o.extreme(operator.gt, *a),
    np.where: Operations.where,
    int: Operations.to_int,
    float: Operations.to_float,
    complex: Operations.to_complex,
    bool: Operations.to_bool,
    round: Operations.round,
    len: Operations.length,
    sum: Operations.total,
    math.prod: Operations.product,
    pow: Operations.power,
    math.pow: Operations.power,
    divmod: Operations.divmod,
    np.real: Operations.real,
    np.imag: Operations.imag,
    np.conj: Operations.conjugate,
    np.negative: lambda o, x: o.unary(operator.neg, x),
    np.positive: lambda o, x: o.unary(operator.pos, x),
    np.invert: lambda o, x: o.unary(operator.invert, x),
    np.logical_and: lambda o, a, b: o.logical(operator.and_, a, b),
    np.logical_or: lambda o, a, b: o.logical(operator.or_, a, b),
    np.logical_xor: lambda o, a, b: o.logical(operator.xor, a, b),
    np.logical_not: lambda o, a: o.logical(operator.not_, a),
    library.bit_pattern: Operations.bit_pattern,
    np.round: lambda o, x, decimals=0: o.round(o.to_float(x), decimals),
    **{function: (lambda name: lambda o, x: o.to_integer(name, x))(name) for function, name in TO_INTEGER.items()},
    **{dtype: (lambda s: lambda o, x=0: o.cast(s, x))(Scalar(np.dtype(dtype).kind, np.dtype(dtype).itemsize * 8)) for dtype in DTYPES if np.dtype(dtype).kind in "iu"},
    **{dtype: (lambda s: lambda o, x=0: o.cast(s, x))(of_dtype(np.dtype(dtype))) for dtype in DTYPES if np.dtype(dtype).kind in "bfc"},
}


def _name(function: Any) -> str:
    """``numpy.exp``, ``math.exp``, ``abs``: a callable as the user would write it."""
    module = getattr(function, "__module__", None) or ("numpy" if isinstance(function, np.ufunc) else "builtins")
    name = getattr(function, "__name__", None) or repr(function)
    return name if module == "builtins" else f"{module}.{name}"


def unknown_callable(function: Any) -> Reject:
    """The error for a call that the language does not have, with the nearest names that it has."""
    name = _name(function)
    known = {_name(f): f for f in [*CALLABLES, *SPECIAL, *OPERATOR_CALLS]}
    short = name.rsplit(".", 1)[-1]
    close = difflib.get_close_matches(short, {k.rsplit(".", 1)[-1] for k in known}, n=3)
    hint = f"; near it there is {', '.join(close)}" if close else ""
    return Reject(f"{name} cannot run inside a callback{hint}. Callbacks may use math, cmath and NumPy's scalar functions, and plain Python helpers")
