"""Code generation for scalars: values of the callback language become LLVM instructions of one target.

Everything here is arithmetic on typed values; what an operator or a function *means* is decided in ``operations.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir

from mathfuse.fusion.compiler.emit.scalars import BOOL, INT, Scalar, of_dtype
from mathfuse.fusion.compiler.emit.target import Target
from mathfuse.runtime.dtypes import COMPLEX32

Number = bool | int | float | complex
I1, I8, I16, I32, I64 = (ir.IntType(n) for n in (1, 8, 16, 32, 64))
FLOAT = {16: ir.HalfType(), 32: ir.FloatType(), 64: ir.DoubleType()}
BYTES = I8.as_pointer()
COMPARE = {"==": "oeq", "!=": "une", "<": "olt", "<=": "ole", ">": "ogt", ">=": "oge"}


@dataclass(frozen=True, eq=False)
class Value:
    """A scalar known at run time: its type and its LLVM components (two for complex)."""

    type: Scalar
    parts: tuple[ir.Value, ...]


class Emitter:
    """Emits typed arithmetic through one LLVM builder.

    Parameters
    ----------
    builder
        Where instructions go.
    target
        The machine.
    fastmath
        Contraction, flush to zero and approximate division, square root, exp and log.
    weak_bits
        Width in which weak floats are held: 32 unless something 64-bit takes part.
    """

    def __init__(self, builder: ir.IRBuilder, target: Target, fastmath: bool, weak_bits: int) -> None:
        self.builder, self.target, self.fastmath, self.weak_bits = builder, target, fastmath, weak_bits
        # On a CPU `arcp` would make 1 / sqrt(0) a NaN: LLVM's Newton step multiplies infinity by 0.
        self.flags = ("contract", *(("arcp",) if target.is_cuda else ())) if fastmath else ()

    # --- values ------------------------------------------------------------------------------------------------------
    @staticmethod
    def component_type(scalar: Scalar) -> ir.Type:
        return FLOAT[scalar.bits] if scalar.is_float else I1 if scalar.kind == "b" else ir.IntType(scalar.bits)

    def constant(self, number: Number, scalar: Scalar) -> Value:
        """``number`` as a value of type ``scalar``."""
        llvm = self.component_type(scalar)
        if scalar.kind == "c":
            number = complex(number)
            return Value(scalar, (self._float(llvm, number.real), self._float(llvm, number.imag)))
        if scalar.kind == "f":
            return Value(scalar, (self._float(llvm, float(number)),))  # type: ignore[arg-type]
        return Value(scalar, (ir.Constant(llvm, int(number)),))  # type: ignore[arg-type]

    @staticmethod
    def _float(llvm: ir.Type, number: float) -> ir.Constant:
        with np.errstate(over="ignore"):
            return ir.Constant(llvm, float(np.float32(number)) if llvm == FLOAT[32] else number)

    def literal(self, number: Number) -> Value:
        """A Python number as a weak value."""
        if isinstance(number, bool):
            return self.constant(number, BOOL)
        if isinstance(number, int):
            return self.constant(number, INT)
        return self.constant(number, Scalar("c" if isinstance(number, complex) else "f", self.weak_bits, weak=True))

    def integer(self, value: ir.Value) -> Value:
        """An LLVM i64 as a value."""
        return Value(INT, (value,))

    def resized(self, x: ir.Value, bits: int) -> ir.Value:
        """An unsigned LLVM integer in another width."""
        if x.type.width == bits:
            return x
        return (self.builder.trunc if bits < x.type.width else self.builder.zext)(x, ir.IntType(bits))

    # --- conversions -------------------------------------------------------------------------------------------------
    def convert(self, value: Value, to: Scalar) -> Value:
        """``value`` as type ``to``; complex to real drops nothing silently (the caller has checked)."""
        have = value.type
        if (have.kind, have.bits) == (to.kind, to.bits):
            return Value(to, value.parts)
        if have.computed != have and to != have.computed:  # no instructions on 16 bits but to and from 32
            return self.convert(self.convert(value, have.computed), to)
        if to.computed != to and have != to.computed:
            return self.convert(self.convert(value, to.computed), to)
        if to.kind == "b":
            return self.truth(value)
        if to.kind == "c":
            real, imag = value.parts if have.kind == "c" else (value.parts[0], None)
            component = Scalar("f", to.bits)
            source = Scalar("f", have.bits) if have.kind == "c" else have
            parts = [self.convert(Value(source, (real,)), component).parts[0]]
            parts.append(
                self.convert(Value(source, (imag,)), component).parts[0] if imag else ir.Constant(FLOAT[to.bits], 0.0)
            )
            return Value(to, tuple(parts))
        return Value(to, (self._convert_component(value.parts[0], have, to),))

    def _convert_component(self, x: ir.Value, have: Scalar, to: Scalar) -> ir.Value:
        b, llvm = self.builder, self.component_type(to)
        if have.kind == "f" and to.kind == "f":
            return b.fpext(x, llvm) if to.bits > have.bits else b.fptrunc(x, llvm)
        if have.kind == "f":
            return self._truncate_to_integer(x, have, to)
        if to.kind == "f":
            if isinstance(x, ir.Constant):
                return self._float(llvm, float(x.constant))
            return b.uitofp(x, llvm) if have.kind in "bu" else b.sitofp(x, llvm)
        if to.bits < have.bits:
            return b.trunc(x, llvm)
        return b.zext(x, llvm) if have.kind in "bu" else b.sext(x, llvm)

    def _truncate_to_integer(self, x: ir.Value, have: Scalar, to: Scalar) -> ir.Value:
        """Toward zero; saturates, and NaN becomes 0, on every target."""
        b, llvm, signed = self.builder, self.component_type(to), to.kind == "i"
        if not self.target.is_cuda:
            return self.call(f"llvm.fpto{'s' if signed else 'u'}i.sat.i{to.bits}.f{have.bits}", llvm, [x])
        convert = b.fptosi if signed else b.fptoui  # PTX's cvt.rzi saturates, but not to less than 32 bits
        if to.bits < 32:
            low = -(1 << to.bits - 1) if signed else 0
            for relation, bound in (("<", low), (">", low + (1 << to.bits) - 1)):
                limit = ir.Constant(x.type, float(bound))
                x = b.select(b.fcmp_ordered(relation, x, limit), limit, x)
            return b.trunc(convert(x, I32), llvm)
        if 64 not in (have.bits, to.bits):
            return convert(x, llvm)
        return b.select(b.fcmp_ordered("==", x, x), convert(x, llvm), ir.Constant(llvm, 0))  # there NaN is not 0

    def truth(self, value: Value) -> Value:
        """Python's ``bool(value)``."""
        if value.type.kind == "b":
            return value
        zero = self.constant(0, value.type)
        return self.compare("!=", value, zero)

    # --- arithmetic of equal types -----------------------------------------------------------------------------------
    def arithmetic(self, name: str, a: Value, b: Value) -> Value:
        """``add``, ``sub``, ``mul`` of two values of one type, ``div`` of two reals."""
        if a.type.kind == "c":
            return self._complex(name, a, b)
        if a.type.is_float:
            return Value(a.type, (self._real(name, a.parts[0], b.parts[0]),))
        return Value(a.type, (getattr(self.builder, name)(a.parts[0], b.parts[0]),))

    def _real(self, name: str, x: ir.Value, y: ir.Value) -> ir.Value:
        if name == "div":
            return self._divide(x, y)
        return getattr(self.builder, "f" + name)(x, y, flags=self.flags)

    def _divide(self, x: ir.Value, y: ir.Value) -> ir.Value:
        single = x.type == FLOAT[32]
        if not (single and self.fastmath):
            return self.builder.fdiv(x, y)
        if isinstance(y, ir.Constant) and math.isfinite(y.constant) and y.constant:
            reciprocal = self._float(FLOAT[32], 1.0 / y.constant)
            if math.isfinite(reciprocal.constant) and abs(reciprocal.constant) > 1.2e-38:
                return self.builder.fmul(x, reciprocal, flags=self.flags)
        if not self.target.is_cuda:
            return self.builder.fdiv(x, y, flags=self.flags)
        # An instruction of its own: a plain fdiv would become a CALL wherever the final linker is not told -prec-div=0.
        assembly = ir.InlineAsm(ir.FunctionType(FLOAT[32], [FLOAT[32]] * 2), "div.full.ftz.f32 $0, $1, $2;", "=f,f,f")
        return self.builder.call(assembly, [x, y])

    def divided(self, value: Value, whole: Value) -> Value:
        """Each component over a whole number, here a float: its reciprocal is computed once for many values."""
        divisor = whole.parts[0]
        if not (whole.type.bits == 32 and self.fastmath and self.target.is_cuda) or isinstance(divisor, ir.Constant):
            return self.scale("div", value, whole)
        assembly = ir.InlineAsm(ir.FunctionType(FLOAT[32], [FLOAT[32]]), "rcp.approx.ftz.f32 $0, $1;", "=f,f")
        return self.scale("mul", value, Value(whole.type, (self.builder.call(assembly, [divisor]),)))

    def _complex(self, name: str, a: Value, b: Value) -> Value:
        (x, y), (u, v) = a.parts, b.parts
        if name == "mul":
            real = self._real("sub", self._real("mul", x, u), self._real("mul", y, v))
            imag = self._real("add", self._real("mul", x, v), self._real("mul", y, u))
            return Value(a.type, (real, imag))
        return Value(a.type, (self._real(name, x, u), self._real(name, y, v)))

    def scale(self, name: str, z: Value, factor: Value) -> Value:
        """A complex value times or divided by a real one: each component once, no product with a zero."""
        return Value(z.type, tuple(self._real(name, part, factor.parts[0]) for part in z.parts))

    def negate(self, value: Value) -> Value:
        if value.type.is_float:
            return Value(value.type, tuple(self.negated(part) for part in value.parts))
        return Value(value.type, (self.builder.neg(value.parts[0]),))

    def negated(self, x: ir.Value) -> ir.Value:
        """``-x`` of one real component (libNVVM's dialect has no fneg)."""
        return self.builder.fsub(ir.Constant(x.type, -0.0), x) if self.target.is_cuda else self.builder.fneg(x)

    def compare(self, operator: str, a: Value, b: Value) -> Value:
        """Comparison of two values of one type; complex ones know == and != only."""
        if a.type.kind == "c":
            tests = (
                [self.builder.fcmp_unordered(operator, x, y) for x, y in zip(a.parts, b.parts)]
                if operator == "!="
                else [self.builder.fcmp_ordered(operator, x, y) for x, y in zip(a.parts, b.parts)]
            )
            return Value(BOOL, ((self.builder.or_ if operator == "!=" else self.builder.and_)(*tests),))
        x, y = a.parts[0], b.parts[0]
        if a.type.kind == "f":
            compare = self.builder.fcmp_unordered if operator == "!=" else self.builder.fcmp_ordered
        else:
            compare = self.builder.icmp_signed if a.type.kind == "i" else self.builder.icmp_unsigned
        return Value(BOOL, (compare(operator, x, y),))

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        """``a if condition else b`` of two values of one type, without a branch."""
        test = condition.parts[0]
        return Value(a.type, tuple(self.builder.select(test, x, y) for x, y in zip(a.parts, b.parts)))

    # --- functions ---------------------------------------------------------------------------------------------------
    def math(self, name: str, *values: Value) -> Value:
        """A function of reals of one type, by the target's table."""
        scalar = values[0].type
        symbol = self.target.symbol(name, scalar.bits, self.fastmath)
        parts = [value.parts[0] for value in values]
        return Value(scalar, (self.call(symbol, FLOAT[scalar.bits], parts),))

    def call(self, symbol: str, result: ir.Type, arguments: list[ir.Value]) -> ir.Value:
        """A call to an external function or intrinsic, declared on first use."""
        module = self.builder.module
        function = module.globals.get(symbol)
        if function is None:
            function = ir.Function(module, ir.FunctionType(result, [argument.type for argument in arguments]), symbol)
            if not symbol.startswith("llvm."):
                for attribute in ("nounwind", "readnone"):
                    function.attributes.add(attribute)
        return self.builder.call(function, arguments)

    # --- memory ------------------------------------------------------------------------------------------------------
    def load(self, pointer: ir.Value, dtype: np.dtype, invariant: bool) -> Value:
        """One element of ``dtype`` at byte address ``pointer``; complex elements move as one access."""
        scalar = of_dtype(dtype)
        if dtype == COMPLEX32:
            both = self.halves(self.read(pointer, I32, self._alignment(dtype), invariant))
            return Value(scalar, tuple(self.builder.fpext(part, FLOAT[32]) for part in both))
        if dtype.kind == "c":
            pair = ir.VectorType(FLOAT[scalar.bits], 2)
            if not self.target.is_cuda:  # two plain loads: LLVM's vectoriser knows interleaved accesses
                return Value(
                    scalar,
                    tuple(self.read(pointer, FLOAT[scalar.bits], dtype.itemsize // 2, invariant, k) for k in (0, 1)),
                )
            both = self.read(pointer, pair, dtype.itemsize, invariant)
            return Value(scalar, tuple(self.builder.extract_element(both, I32(k)) for k in (0, 1)))
        return self.loaded(self.read(pointer, self.storage(dtype), dtype.itemsize, invariant), dtype)

    def loaded(self, element: ir.Value, dtype: np.dtype) -> Value:
        """A real element as it lies in memory in the type in which it is computed."""
        scalar = of_dtype(dtype)
        if dtype.kind == "b":
            return Value(BOOL, (self.builder.icmp_unsigned("!=", element, I8(0)),))
        if dtype.kind == "f":
            return Value(scalar, (self.builder.fpext(element, FLOAT[32]) if dtype.itemsize == 2 else element,))
        widen = self.builder.sext if dtype.kind == "i" else self.builder.zext
        return Value(scalar, (widen(element, I64) if dtype.itemsize < 8 else element,))

    def storable(self, value: Value, dtype: np.dtype) -> ir.Value:
        """The inverse of :meth:`loaded`."""
        element = value.parts[0]
        if dtype.kind == "b":
            return self.builder.zext(element, I8)
        if dtype.kind == "f" and dtype.itemsize == 2:
            return self.builder.fptrunc(element, FLOAT[16])
        if dtype.kind in "iu" and dtype.itemsize < 8:
            return self.builder.trunc(element, self.storage(dtype))
        return element

    def store(self, pointer: ir.Value, dtype: np.dtype, value: Value) -> None:
        """Stores ``value``, already of the type of ``dtype``, at byte address ``pointer``."""
        if dtype == COMPLEX32:
            word = self.word([self.builder.fptrunc(part, FLOAT[16]) for part in value.parts])
            self.builder.store(word, self.cast(pointer, I32), align=self._alignment(dtype))
            return
        if dtype.kind == "c":
            parts = value.parts
            if self.target.is_cuda:
                pair: ir.Value = ir.Constant(ir.VectorType(parts[0].type, 2), ir.Undefined)
                for k in (0, 1):
                    pair = self.builder.insert_element(pair, parts[k], I32(k))
                self.builder.store(pair, self.cast(pointer, pair.type), align=dtype.itemsize)
            else:
                for k in (0, 1):
                    self.builder.store(parts[k], self._component(pointer, parts[k].type, k), align=dtype.itemsize // 2)
            return
        self.builder.store(self.storable(value, dtype), self.cast(pointer, self.storage(dtype)), align=dtype.itemsize)

    def _alignment(self, dtype: np.dtype) -> int:
        """Of a record: a GPU's arrays have elements at multiples of their size."""
        return dtype.itemsize if self.target.is_cuda else dtype.alignment

    def halves(self, word: ir.Value) -> list[ir.Value]:
        """The two halves in 32 bits, the lower one first: vectors of them are code of their own on some targets."""
        b = self.builder
        return [b.bitcast(b.trunc(part, ir.IntType(16)), FLOAT[16]) for part in (word, b.lshr(word, I32(16)))]

    def word(self, halves: Sequence[ir.Value]) -> ir.Value:
        """The inverse of :meth:`halves`."""
        low, high = (self.builder.zext(self.builder.bitcast(half, ir.IntType(16)), I32) for half in halves)
        return self.builder.or_(low, self.builder.shl(high, I32(16)))

    def storage(self, dtype: np.dtype) -> ir.Type:
        """How a real element lies in memory."""
        return FLOAT[dtype.itemsize * 8] if dtype.kind == "f" else ir.IntType(dtype.itemsize * 8)

    def cast(self, pointer: ir.Value, element: ir.Type) -> ir.Value:
        """The address as one of an ``element``; on a GPU all arrays are in global memory."""
        address = self.builder.bitcast(pointer, element.as_pointer())
        return self.builder.addrspacecast(address, element.as_pointer(1)) if self.target.is_cuda else address

    def _component(self, pointer: ir.Value, element: ir.Type, k: int) -> ir.Value:
        return self.builder.gep(self.cast(pointer, element), [I64(k)])

    def read(self, pointer: ir.Value, element: ir.Type, align: int, invariant: bool, k: int = 0) -> ir.Value:
        """What lies at a byte address, or ``k`` elements further, as an ``element``."""
        address = self._component(pointer, element, k) if k else self.cast(pointer, element)
        loaded = self.builder.load(address, align=align)
        if invariant:
            loaded.set_metadata("invariant.load", self.builder.module.add_metadata([]))
        return loaded

    def offset(self, pointer: ir.Value, indices: list[ir.Value], strides: list[ir.Value]) -> ir.Value:
        """Byte address ``pointer + sum(index * stride)``."""
        total: ir.Value = I64(0)
        for index, stride in zip(indices, strides):
            product = self.builder.mul(index, stride)
            total = product if isinstance(total, ir.Constant) else self.builder.add(total, product)
        return self.builder.gep(pointer, [total])


Primitive = Callable[..., Any]
