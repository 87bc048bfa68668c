"""Operators of the callback language: promotion, weak constants, complex numbers, integers that never trap.

Numbers known at compile time are folded by Python itself; everything else becomes typed instructions through the
:class:`~.emitter.Emitter`, or a function of ``library.py`` that the evaluator inlines.
"""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir

from mathfuse.fusion.compiler.emit.emitter import Emitter, Number, Value
from mathfuse.fusion.compiler.emit.scalars import BOOL, INT, Scalar, floating, promote
from mathfuse.fusion.compiler.language import complexes, library
from mathfuse.fusion.compiler.language.functions import ARITHMETIC, BITWISE, COMPARISONS, INPLACE, SYMBOLS
from mathfuse.runtime.words import an


class Reject(Exception):
    """Something the callback language does not have; the evaluator adds the user's line."""


LONGEST = 64  # elements of a tuple that a callback builds
NAMED: tuple[tuple[Any, str], ...] = (
    (types.ModuleType, "module"),
    (type, "class"),
    ((types.FunctionType, types.BuiltinFunctionType, np.ufunc), "function"),
)


class Described:
    """An abstract value with a name for messages."""

    def description(self) -> str:
        return f"an object of type {type(self).__name__}"


class BoundMethod(Described):
    """``z.conjugate`` and its kind, before the call."""

    def __init__(self, name: str, value: Any) -> None:
        self.name, self.value = name, value

    def description(self) -> str:
        return f"the method {self.name!r} of {describe(self.value)}"


def is_number(x: Any) -> bool:
    """A number known at compile time."""
    return isinstance(x, (bool, int, float, complex))


def describe(x: Any) -> str:
    """``x`` in the words of a message."""
    if isinstance(x, Value):
        return f"{an(str(x.type.dtype))} value"
    if isinstance(x, Described):
        return x.description()
    if x is None or isinstance(x, types.EllipsisType):
        return str(x)
    if is_number(x):
        return f"the constant {x!r}"
    if isinstance(x, str):
        return f"the text {x!r}"
    if isinstance(x, tuple):
        return f"a tuple of {len(x)}"
    for kinds, noun in NAMED:
        if isinstance(x, kinds):
            return f"the {noun} {x.__name__}"
    return "a slice" if isinstance(x, slice) else f"an object of type {type(x).__name__}"


def is_integer_constant(x: Any) -> bool:
    return isinstance(x, int) and not isinstance(x, bool)


def fits(number: int, scalar: Scalar) -> bool:
    """Whether an integer type holds ``number``."""
    low = -(1 << scalar.bits - 1) if scalar.kind == "i" else 0
    return scalar.kind in "iu" and low <= number < low + (1 << scalar.bits)


def _joined(*tuples: tuple) -> tuple:
    if sum(map(len, tuples)) > LONGEST:
        raise Reject(f"a tuple grows beyond {LONGEST} elements; in a loop, sum up numbers instead")
    return tuple(item for items in tuples for item in items)


class Arithmetic:
    """Operators over values and compile-time numbers.

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

    # --- operands -----------------------------------------------------------------------------------------------------
    def number(self, x: Any) -> Value | Number:
        """``x`` as a value or a compile-time number."""
        if isinstance(x, Value) or is_number(x):
            return x
        return self.coerce(x)

    def computed(self, x: Value | Number) -> Value | Number:
        """``x`` in the type in which it is computed with."""
        return self.emitter.convert(x, x.type.computed) if isinstance(x, Value) else x

    def value(self, x: Any) -> Value:
        """``x`` as a value; an integer that 64 bits do not hold counts as a float."""
        x = self.number(x)
        if isinstance(x, Value):
            return x
        return self.emitter.literal(self._float(x) if isinstance(x, int) and not fits(x, INT) else x)

    def common_type(self, *xs: Any) -> Scalar:
        """The type of several numbers; a constant integer takes an integer type that it meets, if it fits."""
        integers = [x for x in xs if is_integer_constant(x)]
        types_met = [self.value(x).type for x in xs if not is_integer_constant(x)]
        scalar = functools.reduce(lambda s, t: promote(s, t, self.emitter.weak_bits), types_met or [INT])
        if scalar.kind == "b" and integers:
            scalar = INT
        if not scalar.is_float and (misfits := [x for x in integers if not fits(x, scalar)]):
            raise Reject(f"{misfits[0]} does not fit {an(str(scalar.dtype))} value")
        return scalar

    def common(self, *xs: Any) -> tuple[Scalar, list[Value]]:
        """The operands in their common type."""
        xs = tuple(self.computed(self.number(x)) for x in xs)
        scalar = self.common_type(*xs)
        return scalar, [self.convert(x, scalar) for x in xs]

    def convert(self, x: Any, scalar: Scalar) -> Value:
        """``x`` in type ``scalar``; a constant is rounded once, from Python's own precision."""
        x = self.number(x)
        if is_number(x) and scalar.is_float:
            return self.emitter.constant(self._float(x) if isinstance(x, int) else x, scalar)
        if isinstance(x, int) and fits(x, scalar):
            return self.emitter.constant(x, scalar)
        return self.emitter.convert(self.value(x), scalar)

    @staticmethod
    def _float(x: int) -> float:
        try:
            return float(x)
        except OverflowError:
            raise Reject("an integer constant is too large for a float") from None

    def reals(self, *xs: Any) -> list[Value]:
        """The operands as reals of one type."""
        xs = tuple(self.number(x) for x in xs)
        scalar = floating(self.common_type(*xs), self.emitter.weak_bits)
        return [self.convert(x, scalar) for x in xs]

    def truth(self, x: Any) -> bool | Value:
        if x is None or isinstance(x, (tuple, str)):
            return bool(x)
        x = self.computed(self.number(x))
        return self.emitter.truth(x) if isinstance(x, Value) else bool(x)

    # --- operators ----------------------------------------------------------------------------------------------------
    def binary(self, op: Callable, a: Any, b: Any) -> Any:
        op = INPLACE.get(op, op)
        if op in (operator.is_, operator.is_not):
            return self._identical(a, b) == (op is operator.is_)
        if op is operator.contains:
            return self._contains(a, b)
        if isinstance(a, tuple) or isinstance(b, tuple):
            return self._tuples(op, a, b)
        if isinstance(a, str) and isinstance(b, str) and op in (operator.eq, operator.ne):
            return op(a, b)
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
        raise Reject(
            f"the operator {SYMBOLS.get(op, op.__name__)} works on arrays; a callback sees one element at a time"
        )

    def unary(self, op: Callable, a: Any) -> Any:
        if op is operator.not_:
            truth = self.truth(a)
            return not truth if isinstance(truth, bool) else Value(BOOL, (self.emitter.builder.not_(truth.parts[0]),))
        a = self.number(a)
        if op is operator.invert:
            return self._invert(a)
        if is_number(a):
            return op(a)
        a = self._arithmetic_operand(a)
        return self.emitter.negate(a) if op is operator.neg else a

    def _invert(self, a: Any) -> Any:
        """``~``: the opposite truth of a boolean, as in NumPy, and the complement of an integer."""
        if isinstance(a, bool):
            return not a
        if isinstance(a, (float, complex)) or (isinstance(a, Value) and a.type.is_float):
            raise Reject(f"~ takes integers and booleans, not {describe(a)}")
        return ~a if isinstance(a, int) else Value(a.type, (self.emitter.builder.not_(a.parts[0]),))

    @staticmethod
    def _identical(a: Any, b: Any) -> bool:
        if a is not None and b is not None and any(isinstance(x, Value) or is_number(x) for x in (a, b)):
            raise Reject("`is` compares objects, not numbers; write ==")
        return a is b

    def _fold(self, op: Callable, a: Number, b: Number) -> Number:
        try:
            return op(a, b)
        except ZeroDivisionError:
            raise Reject(f"division by the constant zero: {a!r} {SYMBOLS.get(op, '/')} {b!r}") from None
        except (TypeError, OverflowError, ValueError) as error:
            raise Reject(f"{a!r} {SYMBOLS.get(op, op.__name__)} {b!r}: {error}") from None

    def _arithmetic_operand(self, x: Value | Number) -> Value | Number:
        """Booleans count as integers in arithmetic."""
        return self.emitter.convert(x, INT) if isinstance(x, Value) and x.type.kind == "b" else self.computed(x)

    def _tuples(self, op: Callable, a: Any, b: Any) -> Any:
        if op is operator.add and isinstance(a, tuple) and isinstance(b, tuple):
            return _joined(a, b)
        if op is operator.mul and (isinstance(a, int) or isinstance(b, int)):
            items, count = (a, b) if isinstance(a, tuple) else (b, a)
            return _joined(*[items] * min(count, LONGEST + 1))
        if op in (operator.eq, operator.ne) and isinstance(a, tuple) and isinstance(b, tuple):
            equal: Any = len(a) == len(b)
            for x, y in zip(a, b):
                equal = (
                    self.binary(operator.and_, equal, self.binary(operator.eq, x, y)) if equal is not False else False
                )
            return equal if op is operator.eq else self.unary(operator.not_, equal)
        raise Reject(
            f"{SYMBOLS.get(op, op.__name__)} does not work on a tuple; "
            "`index`, `shape` and `axes` are tuples of integers"
        )

    def _contains(self, items: Any, x: Any) -> Any:
        if not isinstance(items, tuple):
            raise Reject("`in` takes a tuple such as `axes`")
        found: Any = False
        for item in items:
            found = self.binary(operator.or_, found, self.binary(operator.eq, item, x))
        return found

    def _compare(self, op: Callable, a: Any, b: Any) -> bool | Value:
        kinds = [self.value(x).type for x in (a, b)]
        if is_integer_constant(a) and kinds[1].kind in "iu" and not fits(a, kinds[1]):
            return op(a, 0)  # above or below every value of the type
        if is_integer_constant(b) and kinds[0].kind in "iu" and not fits(b, kinds[0]):
            return op(0, b)
        if not is_number(a) and not is_number(b) and {k.kind for k in kinds} == {"i", "u"}:
            return self._compare_signs(op, a, b)
        scalar, values = self.common(a, b)
        if scalar.kind == "c" and op not in (operator.eq, operator.ne):
            raise Reject(f"complex values have no order ({COMPARISONS[op]}); compare abs(value) or value.real")
        return self.emitter.compare(COMPARISONS[op], *values)

    def _compare_signs(self, op: Callable, a: Value, b: Value) -> Value:
        """A signed with an unsigned integer: a negative one is below, others compare as unsigned."""
        e, wide = self.emitter, Scalar("u", 64)
        signed, order = (a, op(-1, 0)) if a.type.kind == "i" else (b, op(0, -1))
        negative = e.compare("<", signed, e.constant(0, signed.type))
        plain = e.compare(COMPARISONS[op], e.convert(a, wide), e.convert(b, wide))
        return e.select(negative, e.constant(order, BOOL), plain)

    def _bitwise(self, op: Callable, a: Any, b: Any) -> Value:
        scalar, (x, y) = self._integers(SYMBOLS[op], a, b)
        name = BITWISE[op]
        if name in ("shl", "shr"):
            return self._shift(name, *((x, y) if scalar.kind != "b" else (self.convert(v, INT) for v in (x, y))))
        return Value(scalar, (getattr(self.emitter.builder, name)(x.parts[0], y.parts[0]),))

    def _shift(self, name: str, x: Value, y: Value) -> Value:
        """Shifts; by the width or more, and by a negative number, every bit is shifted out, as in NumPy."""
        b, scalar, amount = self.emitter.builder, x.type, y.parts[0]
        last = self.emitter.constant(scalar.bits - 1, scalar).parts[0]
        if name == "shr":
            name = "ashr" if scalar.kind == "i" else "lshr"
        if isinstance(amount, ir.Constant) and 0 <= amount.constant < scalar.bits:
            return Value(scalar, (getattr(b, name)(x.parts[0], amount),))
        inside = b.icmp_unsigned("<=", amount, last)
        if name == "ashr":
            return Value(scalar, (b.ashr(x.parts[0], b.select(inside, amount, last)),))
        return Value(scalar, (b.select(inside, getattr(b, name)(x.parts[0], amount), ir.Constant(last.type, 0)),))

    def _integers(self, symbol: str, a: Any, b: Any) -> tuple[Scalar, list[Value]]:
        """Integer operands in one type; a constant adapts to the other operand's type."""
        scalar, values = self.common(a, b)
        if scalar.is_float:
            raise Reject(f"{symbol} takes integers, not {describe(a)} and {describe(b)}")
        return scalar, values

    def _add_or_multiply(self, name: str, a: Any, b: Any) -> Value:
        kinds = [self.value(x).type.kind for x in (a, b)]
        scalar, values = self.common(a, b)
        if kinds.count("c") != 1:
            return self.emitter.arithmetic(name, *values)
        # A real operand touches only what it must: no products with a zero, which would turn infinities into NaN.
        real = Scalar("f", scalar.bits)
        z, x = (values[0], self.convert(b, real)) if kinds[0] == "c" else (values[1], self.convert(a, real))
        if name == "mul":
            return self.emitter.scale("mul", z, x)
        first, second = (Value(real, (part,)) for part in z.parts)
        if kinds[0] == "c":
            return Value(scalar, (self.emitter.arithmetic(name, first, x).parts[0], z.parts[1]))
        imag = self.emitter.negate(second) if name == "sub" else second
        return Value(scalar, (self.emitter.arithmetic(name, x, first).parts[0], imag.parts[0]))

    def _divide(self, a: Any, b: Any) -> Any:
        scalar, values = self.common(a, b)
        kind = self.value(b).type.kind
        if kind == "c":
            return self.inline(complexes.complex_divide, *values)
        if scalar.kind == "c":
            value, divisor = values[0], self.convert(b, Scalar("f", scalar.bits))
        else:
            value, divisor = self.reals(a, b)
        return self.emitter.divided(value, divisor) if kind in "iu" else self.emitter.scale("div", value, divisor)

    def _floor_divide(self, op: Callable, a: Any, b: Any) -> Any:
        quotient = op is operator.floordiv
        scalar, (x, y) = self.common(a, b)
        if scalar.kind == "c":
            raise Reject(f"{SYMBOLS[op]} does not take complex values")
        if scalar.is_float:
            return self.inline(library.divide_floor if quotient else library.remainder_floor, x, y)
        if is_integer_constant(b) and b > 0 and not b & (b - 1):
            if quotient:
                return self._shift("shr", x, self.emitter.constant(b.bit_length() - 1, scalar))
            return Value(
                scalar, (self.emitter.builder.and_(x.parts[0], self.emitter.constant(b - 1, scalar).parts[0]),)
            )
        if scalar.kind == "i":
            function = library.divide_floor_integer if quotient else library.remainder_floor_integer
        else:
            function = library.divide_unsigned if quotient else library.remainder_unsigned
        wide = [self.emitter.convert(v, Scalar(scalar.kind, 64)) for v in (x, y)]
        return self.emitter.convert(self.inline(function, *wide), scalar)

    def divide_unsigned(self, n: Any, d: Any) -> Value:
        """Unsigned 64-bit division, 0 by 0: the processor's own on a CPU, in line on a GPU."""
        if self.emitter.target.is_cuda:
            return self.inline(library.divide_unsigned_in_line, n, d)
        b, zero = self.emitter.builder, self.emitter.constant(0, n.type)
        undefined = b.icmp_unsigned("==", d.parts[0], zero.parts[0])
        quotient = b.udiv(n.parts[0], b.select(undefined, ir.Constant(zero.parts[0].type, 1), d.parts[0]))
        return Value(n.type, (b.select(undefined, zero.parts[0], quotient),))

    def _power(self, a: Any, b: Any) -> Any:
        """Small constant exponents by multiplication and square root, others by the power function."""
        kinds = [self.value(x).type.kind for x in (a, b)]
        if isinstance(b, (int, float)) and not isinstance(b, bool) and abs(b) <= 64 and b == int(b):
            keep = isinstance(b, int) and b >= 0
            base = a if keep or kinds[0] in "fc" else self.reals(a)[0]
            power = self._integer_power(base, abs(int(b)))
            return power if b >= 0 else self._divide(1.0, power)
        if isinstance(b, float) and abs(b) == 0.5:
            root = self.inline(library.square_root, a)
            return root if b > 0 else self._divide(1.0, root)
        if "c" in kinds:
            return self.inline(complexes.complex_power, *self.common(a, b)[1])
        if "f" in kinds:
            return self.emitter.math("pow", *self.reals(a, b))
        if kinds[1] == "i":
            raise Reject(
                "an integer to a power known at run time only may be a fraction; write float(a) ** b, "
                "or a ** numpy.uint64(b) for an integer"
            )
        exponent = self.emitter.convert(self.value(b), Scalar("u", 64))
        return self.inline(library.integer_power, self.value(a), exponent)

    def _integer_power(self, a: Any, n: int) -> Any:
        """Binary exponentiation; a complex square takes two products instead of four."""
        if n == 0:
            return self.convert(1, self.value(a).type)
        if n == 1:
            return a
        half = self._integer_power(a, n // 2)
        is_complex = self.value(a).type.kind == "c"
        square = self.inline(complexes.complex_square, half) if is_complex else self._add_or_multiply("mul", half, half)
        return self._add_or_multiply("mul", square, a) if n % 2 else square
