"""Functions of the callback language: ``math``, ``cmath``, NumPy's scalar functions and the builtins, by types."""

from __future__ import annotations

import cmath
import difflib
import inspect
import math
import operator
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import numpy as np

from mathfuse.epilogs.helpers import to_half
from mathfuse.fusion.compiler.emit.emitter import Number, Value
from mathfuse.fusion.compiler.emit.scalars import INT, Scalar, floating, of_dtype
from mathfuse.fusion.compiler.language import approximations, library
from mathfuse.fusion.compiler.language.arithmetic import (
    Arithmetic,
    BoundMethod,
    Reject,
    describe,
    fits,
    is_integer_constant,
    is_number,
)
from mathfuse.fusion.compiler.language.functions import (
    CALLABLES,
    DTYPES,
    FUNCTIONS,
    INTEGER_KEEPING,
    OPERATOR_CALLS,
    OWN_VERSIONS,
    TO_INTEGER,
    TWO_OPERANDS,
    name_of,
)
from mathfuse.runtime.words import an, counted


class Operations(Arithmetic):
    """Functions and builtins, besides the operators."""

    def call(self, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """A call to a function of ``math``, ``cmath``, NumPy or the builtins; ``NotImplemented`` for any other."""
        if not isinstance(function, Hashable):
            return NotImplemented
        if function in SPECIAL:
            return self._special(function, args, kwargs)
        if function in OPERATOR_CALLS:
            self._expect(function, 2, args, kwargs)
            return self.binary(OPERATOR_CALLS[function], *args)
        if function in CALLABLES:
            name = CALLABLES[function][1]
            self._expect(function, 3 if name == "clip" else 2 if name in TWO_OPERANDS else 1, args, kwargs)
            return self._function(function, [self.number(x) for x in args])
        if is_pure(function) and args and not kwargs and all(is_number(x) for x in args):
            return self._fold_function(function, args)
        return NotImplemented

    def _special(self, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        try:
            inspect.signature(SPECIAL[function]).bind(self, *args, **kwargs)
        except TypeError as error:
            raise Reject(f"{name_of(function)}() inside a callback: {error}") from None
        return SPECIAL[function](self, *args, **kwargs)

    @staticmethod
    def _expect(function: Any, count: int, args: tuple, kwargs: dict[str, Any]) -> None:
        if len(args) != count or kwargs:
            found = f"{len(args)} and {', '.join(kwargs)}=" if kwargs else len(args)
            takes = counted(count, "argument", "arguments")
            raise Reject(f"{name_of(function)}() takes {takes} inside a callback, not {found}")

    def _function(self, function: Any, args: list[Any]) -> Any:
        module, name = CALLABLES[function]
        if all(is_number(x) for x in args):
            return self._fold_function(function, args)
        real, complex_version = FUNCTIONS[name]
        kinds = {self.value(x).type.kind for x in args}
        if complex_version and module != "math" and ("c" in kinds or (module == "cmath" and name != "rect")):
            scalar = floating(self.common_type(*args), self.emitter.weak_bits)
            return self.inline(complex_version, *[self.convert(x, Scalar("c", scalar.bits, scalar.weak)) for x in args])
        if "c" in kinds:
            raise Reject(self._no_complex(function, name, complex_version is not None))
        if name in INTEGER_KEEPING and "f" not in kinds:
            return self._integer_function(name, args)
        if callable(real):
            return self.inline(real, *self.reals(*args))
        return self._primitive(name, str(real), self.reals(*args))

    @staticmethod
    def _no_complex(function: Any, name: str, exists: bool) -> str:
        twin = next((f for f, (module, n) in CALLABLES.items() if n == name and module == "numpy"), None)
        instead = f"{name_of(twin)} takes both" if exists and twin else "use value.real, value.imag or abs(value)"
        return f"{name_of(function)}() takes real values, not a complex one; {instead}"

    def _primitive(self, name: str, libm: str, values: list[Value]) -> Value:
        e = self.emitter
        own = OWN_VERSIONS.get((e.target.name, values[0].type.bits), {}).get(name)
        return self.inline(own, *values) if own else e.math(libm, *values)

    def _integer_function(self, name: str, args: list[Any]) -> Any:
        if name in ("floor", "ceil", "trunc", "rint"):
            return args[0]
        if name == "absolute":
            return self.inline(library.absolute_integer, self._arithmetic_operand(args[0]))
        return self.inline(FUNCTIONS[name][0], *self.common(*args)[1])

    def _fold_function(self, function: Any, args: Iterable[Number]) -> Any:
        """A pure function of constants, by Python itself: NaN and infinity for NumPy's, an error for ``math``'s."""
        try:
            with np.errstate(all="ignore"):
                result = function(*args)
        except Exception as error:  # NumPy's Python functions raise whatever comes
            raise Reject(f"{name_of(function)}(): {error}") from None
        return tuple(map(_plain_number, result)) if isinstance(result, tuple) else _plain_number(result)

    # --- builtins and NumPy functions with rules of their own ---------------------------------------------------------
    def least(self, *args: Any) -> Any:
        return self._extreme(operator.lt, args)

    def greatest(self, *args: Any) -> Any:
        return self._extreme(operator.gt, args)

    def _extreme(self, op: Callable, args: tuple) -> Any:
        """Python's ``min`` and ``max``: the first operand unless another compares better."""
        items = args[0] if len(args) == 1 and isinstance(args[0], tuple) else args
        if not items or (items is args and len(items) < 2):
            raise Reject("min() and max() take two numbers or more, or a tuple that is not empty")
        best = self.number(items[0])
        for item in items[1:]:
            item = self.number(item)
            better = self.binary(op, item, best)
            best = self.where(better, item, best)
        return best

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        """``np.where``: one of two numbers without a branch."""
        truth = self.truth(condition)
        if isinstance(truth, bool):
            return a if truth else b
        a, b = self.number(a), self.number(b)
        alike = isinstance(a, Value) and isinstance(b, Value) and a.type == b.type
        return self.emitter.select(truth, *([a, b] if alike else self.common(a, b)[1]))

    def cast(self, scalar: Scalar, x: Any = 0) -> Value:
        """``np.float32(x)`` and its kind: an explicit type, never weak."""
        x = self.number(x)
        if self.value(x).type.kind == "c" and scalar.kind != "c":
            raise Reject(f"a complex value cannot become {scalar}; use value.real, value.imag or abs(value)")
        if is_integer_constant(x) and scalar.kind in "iu" and not fits(x, scalar):
            raise Reject(f"{x} does not fit {an(str(scalar.dtype))} value")
        return self.emitter.convert(self.convert(x, scalar.computed), scalar)

    def half(self, value: Any) -> Value:
        """A value as it is stored in 16 bits a component."""
        kind = self.value(value).type.kind
        return self.cast(Scalar("c" if kind == "c" else "f", 16), value)

    def to_int(self, x: Any = 0) -> Any:
        """Python's ``int``: toward zero, in 64 bits; what they do not hold becomes the nearest that they do, NaN 0."""
        x = self.number(x)
        if is_number(x):
            return self._fold_function(int, [x])
        return x if x.type in (INT, Scalar("u", 64)) else self.cast(INT, x)

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
        if digits is not None and not (isinstance(digits, int) and abs(digits) <= 300):
            raise Reject("round(x, digits) takes a constant number of digits, at most 300")
        if is_number(x):
            return self._fold_function(round, [x] if digits is None else [x, digits])
        if not x.type.is_float:
            return self.to_int(x)
        if digits is None:
            return self.cast(INT, self._function(np.rint, [x]))
        if digits == 0:
            return self._function(np.rint, [x])
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

    def float_power(self, a: Any, b: Any) -> Any:
        """``math.pow`` and ``np.float_power``: never in integers."""
        a = self.number(a)
        return self.power(a if self.value(a).type.kind == "c" else self.to_float(a), b)

    def log(self, x: Any, base: Any = None) -> Any:
        """``math.log`` with its optional base."""
        logarithm = self._function(math.log, [self.number(x)])
        return logarithm if base is None else self.binary(operator.truediv, logarithm, self.log(base))

    def isclose(self, a: Any, b: Any, *, rel_tol: Any = 1e-9, abs_tol: Any = 0.0) -> Any:
        return self.inline(library.isclose, *map(self.number, (a, b, rel_tol, abs_tol)))

    def isclose_to(self, a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8) -> Any:
        return self.inline(library.isclose_to, *map(self.number, (a, b, rtol, atol)))

    def decimals(self, x: Any, decimals: Any = 0) -> Any:
        """``np.round``: integers stay such."""
        x = self.number(x)
        if self.value(x).type.kind == "c":
            raise Reject("numpy.round() of a complex value; round value.real and value.imag")
        return self.round(x if self.value(x).type.kind in "iu" else self.to_float(x), decimals)

    def real(self, x: Any) -> Any:
        return self.attribute(self.number(x), "real")

    def imag(self, x: Any) -> Any:
        return self.attribute(self.number(x), "imag")

    def conjugate(self, x: Any) -> Any:
        x = self.number(x)
        if is_number(x):
            return x.conjugate()
        x = self.computed(x)
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
        exponent = builder.fptosi(
            builder.select(number, n.parts[0], self.emitter.constant(0, n.type).parts[0]), integer
        )
        pattern = builder.shl(builder.add(exponent, integer(bias)), integer(fraction))
        return Value(n.type, (builder.bitcast(pattern, n.parts[0].type),))

    def divide_single(self, n: Value, d: Value) -> Value:
        return Value(n.type, (self.emitter.builder.udiv(n.parts[0], d.parts[0]),))

    # --- attributes ---------------------------------------------------------------------------------------------------
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
        hint = "; numpy.float32(x) and its kind convert" if name in ("astype", "dtype") else ""
        raise Reject(f"{describe(x)} has no {name!r} inside a callback; there are .real, .imag and .conjugate()" + hint)


def _plain_number(x: Any) -> Any:
    return x.item() if isinstance(x, np.generic) else x


def _operator(op: Callable) -> Callable:
    return lambda operations, x: operations.unary(op, x)


def _logical(op: Callable) -> Callable:
    return lambda operations, a, b: operations.binary(op, operations.truth(a), operations.truth(b))


def _cast(dtype: np.dtype) -> Callable:
    scalar = of_dtype(dtype) if dtype.kind in "bc" else Scalar(dtype.kind, dtype.itemsize * 8)
    return lambda operations, x=0: operations.cast(scalar, x)


def _to_integer(name: str) -> Callable:
    return lambda operations, x: operations.to_integer(name, x)


SPECIAL: dict[Any, Callable] = {
    min: Operations.least,
    max: Operations.greatest,
    int: Operations.to_int,
    float: Operations.to_float,
    complex: Operations.to_complex,
    bool: Operations.to_bool,
    round: Operations.round,
    len: Operations.length,
    sum: Operations.total,
    pow: Operations.power,
    divmod: Operations.divmod,
    math.prod: Operations.product,
    math.pow: Operations.float_power,
    math.log: Operations.log,
    math.isclose: Operations.isclose,
    cmath.isclose: Operations.isclose,
    **{function: _to_integer(name) for function, name in TO_INTEGER.items()},
    np.where: Operations.where,
    np.real: Operations.real,
    np.imag: Operations.imag,
    np.conj: Operations.conjugate,
    np.divmod: Operations.divmod,
    np.float_power: Operations.float_power,
    np.isclose: Operations.isclose_to,
    np.round: Operations.decimals,
    np.around: Operations.decimals,
    np.negative: _operator(operator.neg),
    np.positive: _operator(operator.pos),
    np.invert: _operator(operator.invert),
    np.logical_not: _operator(operator.not_),
    np.logical_and: _logical(operator.and_),
    np.logical_or: _logical(operator.or_),
    np.logical_xor: _logical(operator.xor),
    **{dtype: _cast(np.dtype(dtype)) for dtype in DTYPES},
    to_half: Operations.half,
    library.divide_unsigned: Operations.divide_unsigned,
    library.divide_single: Operations.divide_single,
    approximations.bit_pattern: Operations.bit_pattern,
    approximations.power_of_two: Operations.power_of_two,
}


def is_pure(function: Any) -> bool:
    """A function of ``math``, ``cmath`` or NumPy's ufuncs: of constants it is a constant."""
    return getattr(function, "__module__", None) in ("math", "cmath") or isinstance(function, np.ufunc)


def unknown_callable(function: Any) -> Reject:
    """The error for a call that the language does not have, with the nearest names that it has."""
    name = name_of(function)
    known: dict[str, str] = {}
    for f in [*CALLABLES, *SPECIAL, *OPERATOR_CALLS]:
        known.setdefault(name_of(f).rsplit(".", 1)[-1], name_of(f))
    short = name.rsplit(".", 1)[-1]
    close = [known[near] for near in difflib.get_close_matches(short, known, n=3)]
    hint = f"; write {known[short]}" if short in known else f"; near it there is {', '.join(close)}" if close else ""
    return Reject(
        f"{name} cannot run inside a callback{hint}. Callbacks may use math, cmath and NumPy's scalar functions, "
        "and plain Python helpers"
    )
