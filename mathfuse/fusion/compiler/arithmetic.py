"""Operators of the callback language: promotion, weak constants, complex numbers, integers that never trap.

Numbers known at compile time are folded by Python itself; everything else becomes typed instructions through the
:class:`~.emitter.Emitter`, or a function of ``library.py`` that the evaluator inlines.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from . import library
from .emitter import Emitter, Number, Value
from .functions import ARITHMETIC, BITWISE, COMPARISONS, INPLACE, SYMBOLS
from .scalars import BOOL, INT, Scalar, floating, promote


class Reject(Exception):
    """Something the callback language does not have; the evaluator adds the user's line."""


class BoundMethod:
    """``z.conjugate`` and its kind, before the call."""

    def __init__(self, name: str, value: Any) -> None:
        self.name, self.value = name, value


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
        return (
            self.emitter.constant(original, scalar)
            if is_number(original) and scalar.is_float
            else self.emitter.convert(value, scalar)
        )

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
        raise Reject(
            f"the operator {SYMBOLS.get(op, op.__name__)} works on arrays; a callback sees one element at a time"
        )

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
                equal = (
                    self.binary(operator.and_, equal, self.binary(operator.eq, x, y)) if equal is not False else False
                )
            return equal if op is operator.eq else self.unary(operator.not_, equal)
        raise Reject(
            f"{SYMBOLS.get(op, op.__name__)} does not work on a tuple (`index`, `shape` and `axes` are tuples of integers)"
        )

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
            name, constant = (
                ("ashr" if scalar.kind == "i" else "lshr", b.bit_length() - 1) if quotient else ("and_", b - 1)
            )
            return Value(
                scalar,
                (getattr(self.emitter.builder, name)(x.parts[0], self.emitter.constant(constant, scalar).parts[0]),),
            )
        if scalar == Scalar("u", 32):
            return Value(
                scalar,
                ((self.emitter.builder.udiv if quotient else self.emitter.builder.urem)(x.parts[0], y.parts[0]),),
            )
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
            root = self.emitter.math("sqrt", *self.reals(a))
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
