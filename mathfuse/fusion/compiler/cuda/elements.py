"""What every pipeline does with one element around the callback: scaling, and leaving out what lies outside."""

from __future__ import annotations

from collections.abc import Callable as Function
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from llvmlite import ir

from mathfuse.fusion.compiler.emit.emitter import BYTES, FLOAT, I32, I64, Emitter, Value
from mathfuse.fusion.compiler.emit.scalars import Scalar, of_dtype
from mathfuse.fusion.compiler.language.places import Place
from mathfuse.fusion.compiler.reader import Reader

if TYPE_CHECKING:
    from mathfuse.fusion.compiler.cuda.units import Unit
    from mathfuse.fusion.compiler.lowering import Lowering


def apply_scaled(
    lowering: Lowering,
    emitter: Emitter,
    value: Value,
    place: Place,
    block: ir.Value,
    scale: str | None,
    bits: int,
) -> Value:
    """The callback's result on ``value``, one of the two multiplied by the slot ``scale``, a float of ``bits``."""
    if scale is None:
        return lowering.apply(emitter.builder, value, place, block)
    factor = Reader(emitter, block, lowering.layout).real("scale", bits)
    if scale == "before":
        return lowering.apply(emitter.builder, scaled(emitter, value, factor), place, block)
    return scaled(emitter, lowering.apply(emitter.builder, value, place, block), factor)


def scaled(emitter: Emitter, value: Value, factor: Value) -> Value:
    """``value * factor`` in the precision of ``value``, or of ``factor`` where that is an integer."""
    if not value.type.is_float:
        value = emitter.convert(value, factor.type)
    return emitter.scale("mul", value, emitter.convert(factor, Scalar("f", value.type.bits)))


def guarded(emitter: Emitter, condition: ir.Value, scalar: Scalar, compute: Function[[], Value]) -> Value:
    """``compute()``, a value of type ``scalar``, where ``condition`` holds, else 0; nothing is computed there."""
    builder, before = emitter.builder, emitter.builder.block
    with builder.if_then(condition):
        parts, last = compute().parts, builder.block
    merged = []
    for part, zero in zip(parts, emitter.constant(0, scalar).parts):
        phi = builder.phi(part.type)
        phi.add_incoming(part, last)
        phi.add_incoming(zero, before)
        merged.append(phi)
    return Value(scalar, tuple(merged))


def within(emitter: Emitter, index: tuple[Value, ...], limits: Mapping[int, ir.Value]) -> ir.Value | None:
    """Whether ``index`` is less than the limits by axis; None where there are none."""
    condition = None
    for axis, limit in limits.items():
        fits = emitter.builder.icmp_unsigned("<", index[axis].parts[0], limit)
        condition = emitter.builder.and_(condition, fits) if condition else fits
    return condition


# --- the element as a function ---------------------------------------------------------------------------------------

CALL = 25  # instructions that a call of libdevice stands for, about
PAIR = ir.LiteralStructType([I64, I64])


@dataclass(frozen=True)
class Element:
    """What a kernel does with one element, evaluated once and inlined wherever it is called.

    ``size`` counts its instructions, ``stored`` is the dtype of its result.
    """

    function: ir.Function
    stored: np.dtype
    size: int

    def call(self, emitter: Emitter, block: ir.Value, value: Value, index: tuple[Value, ...]) -> Value:
        arguments = [block, *value.parts, *(position.parts[0] for position in index)]
        pair, scalar = emitter.builder.call(self.function, arguments), of_dtype(self.stored)
        component = Emitter.component_type(scalar)
        words = [emitter.builder.extract_value(pair, k) for k in range(2 if scalar.kind == "c" else 1)]
        return Value(scalar, tuple(_from_word(emitter, word, component) for word in words))


def build_element(lowering: Lowering, unit: Unit, block_type: ir.Type) -> Element:
    """``element(block, value, index)``: scaled, evaluated and converted to what is stored.

    The result's type is known only afterwards: its parts leave as two 64-bit words, which inlining makes disappear.
    """
    signature = unit.signature
    scalar = of_dtype(signature.value_dtype)
    parts = [Emitter.component_type(scalar)] * (2 if scalar.kind == "c" else 1)
    prototype = ir.FunctionType(PAIR, [block_type, *parts, *[I64] * signature.ndim])
    function = ir.Function(lowering.module, prototype, f"{unit.name}_element")
    function.linkage = "internal"
    function.attributes.add("alwaysinline")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    emitter = lowering.emitter(builder)
    value = Value(scalar, tuple(function.args[1 : 1 + len(parts)]))
    place = Place(tuple(emitter.integer(position) for position in function.args[1 + len(parts) :]))
    block = builder.bitcast(function.args[0], BYTES)
    result = apply_scaled(lowering, emitter, value, place, block, unit.scale, unit.scale_bits)
    copied = signature.callback is None and unit.scale is None
    stored = unit.dtype or (signature.value_dtype if copied else result.type.dtype)
    result = lowering.require(result, stored, "the result", emitter)
    pair: ir.Value = ir.Constant(PAIR, ir.Undefined)
    for k, part in enumerate(result.parts):
        pair = builder.insert_value(pair, _to_word(emitter, part), k)
    builder.ret(pair)
    instructions = [instruction for b in function.blocks for instruction in b.instructions]
    calls = sum(isinstance(instruction, ir.CallInstr) for instruction in instructions)
    return Element(function, stored, len(instructions) + CALL * calls)


def _to_word(emitter: Emitter, x: ir.Value) -> ir.Value:
    for bits in (32, 64):
        if x.type == FLOAT[bits]:
            x = emitter.builder.bitcast(x, ir.IntType(bits))
    return x if x.type == I64 else emitter.builder.zext(x, I64)


def _from_word(emitter: Emitter, word: ir.Value, component: ir.Type) -> ir.Value:
    if component == FLOAT[32]:
        return emitter.builder.bitcast(emitter.builder.trunc(word, I32), component)
    if component == FLOAT[64]:
        return emitter.builder.bitcast(word, component)
    return word if component == I64 else emitter.builder.trunc(word, component)
