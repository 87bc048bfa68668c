"""Functions of the callback language: ``math``, ``cmath``, NumPy's scalar functions and the builtins, dispatched on types."""

from __future__ import annotations

import difflib
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from . import library
from .arithmetic import Arithmetic, BoundMethod, Reject, describe, is_number
from .emitter import Number, Value
from .functions import (
    CALLABLES,
    COMPARISONS,
    DTYPES,
    FUNCTIONS,
    INTEGER_KEEPING,
    OPERATOR_CALLS,
    OWN_VERSIONS,
    TO_INTEGER,
    name_of,
)
from .scalars import INT, Scalar, floating, of_dtype


class Operations(Arithmetic):
    """Functions and builtins, besides the operators."""

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
                raise Reject(f"{name_of(function)}: {error}") from None
        if function in OPERATOR_CALLS and len(args) == 2 and not kwargs:
            return self.binary(OPERATOR_CALLS[function], *args)
        if function in CALLABLES:
            if kwargs:
                raise Reject(f"{name_of(function)} takes no keyword arguments inside a callback")
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
            raise Reject(
                f"math.{function.__name__} takes real values, not {describe(values[0])}; numpy.{function.__name__} takes both"
            )
        if is_complex or (module == "cmath" and complex_version is not None and name not in ("rect",)):
            if complex_version is None:
                raise Reject(
                    f"{name_of(function)} has no complex version inside a callback; use value.real, value.imag or abs(value)"
                )
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
        own = OWN_VERSIONS.get((e.target.name, values[0].type.bits), {}).get(name)
        return self.inline(own, *values) if own else e.math(libm, *values)

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
            raise Reject(f"{name_of(function)}: {error}") from None
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
            return round(x) if digits is None else round(x, digits)
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
        return Value(x.type, (x.parts[0], self.emitter.negated(x.parts[1])))

    def divmod(self, a: Any, b: Any) -> Any:
        return self.binary(operator.floordiv, a, b), self.binary(operator.mod, a, b)

    def bit_pattern(self, x: Any) -> Value:
        value = self.cast(Scalar("f", 32), x)
        return Value(
            Scalar("u", 32),
            (self.emitter.builder.bitcast(value.parts[0], self.emitter.component_type(Scalar("u", 32))),),
        )

    def power_of_two(self, n: Any) -> Value:
        """The bits of 2^n: a biased exponent in place."""
        (n,) = self.reals(n)
        builder, bits = self.emitter.builder, n.type.bits
        bias, fraction = (127, 23) if bits == 32 else (1023, 52)
        integer = self.emitter.component_type(Scalar("i", bits))
        number = builder.fcmp_ordered("==", n.parts[0], n.parts[0])  # NaN has no integer
        exponent = builder.fptosi(builder.select(number, n.parts[0], self.emitter.constant(0, n.type).parts[0]), integer)
        pattern = builder.shl(builder.add(exponent, integer(bias)), integer(fraction))
        return Value(n.type, (builder.bitcast(pattern, n.parts[0].type),))

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
        raise Reject(
            f"{describe(x)} has no attribute {name!r} inside a callback; there are .real, .imag and .conjugate()"
        )


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
    library.power_of_two: Operations.power_of_two,
    np.round: lambda o, x, decimals=0: o.round(o.to_float(x), decimals),
    **{function: (lambda name: lambda o, x: o.to_integer(name, x))(name) for function, name in TO_INTEGER.items()},
    **{
        dtype: (lambda s: lambda o, x=0: o.cast(s, x))(Scalar(np.dtype(dtype).kind, np.dtype(dtype).itemsize * 8))
        for dtype in DTYPES
        if np.dtype(dtype).kind in "iu"
    },
    **{
        dtype: (lambda s: lambda o, x=0: o.cast(s, x))(of_dtype(np.dtype(dtype)))
        for dtype in DTYPES
        if np.dtype(dtype).kind in "bfc"
    },
}


def unknown_callable(function: Any) -> Reject:
    """The error for a call that the language does not have, with the nearest names that it has."""
    name = name_of(function)
    known = {name_of(f): f for f in [*CALLABLES, *SPECIAL, *OPERATOR_CALLS]}
    short = name.rsplit(".", 1)[-1]
    close = difflib.get_close_matches(short, {k.rsplit(".", 1)[-1] for k in known}, n=3)
    hint = f"; near it there is {', '.join(close)}" if close else ""
    return Reject(
        f"{name} cannot run inside a callback{hint}. Callbacks may use math, cmath and NumPy's scalar functions, and plain Python helpers"
    )
