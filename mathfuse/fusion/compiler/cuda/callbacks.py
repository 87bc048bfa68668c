"""Functions with a pipeline's own name and types, into which the callback is evaluated: nothing else is left to inline.

A pipeline links and inlines them.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import numpy as np
from llvmlite import ir

from mathfuse.fusion.compiler.cuda.decoding import Decoder, constant_place, line_place
from mathfuse.fusion.compiler.cuda.elements import apply_scaled, guarded, within
from mathfuse.fusion.compiler.emit.emitter import BYTES, FLOAT, I8, I64, Emitter, Value
from mathfuse.fusion.compiler.emit.scalars import Scalar, of_dtype
from mathfuse.fusion.compiler.language.places import Place
from mathfuse.fusion.compiler.reader import Reader

if TYPE_CHECKING:
    from mathfuse.fusion.compiler.cuda.units import Unit
    from mathfuse.fusion.compiler.lowering import Lowering


def build_transform_callback(lowering: Lowering, unit: Unit) -> np.dtype:
    """cuFFT's callback: find index and element, load or take it, evaluate, return or store. Gives the dtype moved."""
    assert unit.dtype is not None
    element = llvm_element(lowering.module, unit.dtype)
    load = unit.side == "prolog"
    arguments = [BYTES, I64, BYTES, BYTES] if load else [BYTES, I64, element, BYTES, BYTES]
    prototype = ir.FunctionType(element if load else ir.VoidType(), arguments)
    function = ir.Function(lowering.module, prototype, unit.name)
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    side = _Side(lowering, unit, lowering.emitter(builder), function.args[0], function.args[1], function.args[-2])
    if load:
        builder.ret(to_struct(side.emitter, side.load(), element))
        return unit.dtype
    stored = side.store(from_struct(side.emitter, function.args[2], of_dtype(unit.dtype)))
    builder.ret_void()
    return stored


def build_transfer_callback(lowering: Lowering, unit: Unit) -> np.dtype:
    """What is done to an element of a spectrum; gives its dtype."""
    assert unit.dtype is not None
    element = llvm_element(lowering.module, unit.dtype)
    function = ir.Function(lowering.module, ir.FunctionType(element, [element, I64, I64, BYTES]), unit.name)
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    emitter, (argument, line, number, info) = lowering.emitter(builder), function.args
    assert unit.geometry is not None
    place, block = line_place(emitter, unit.geometry, line, number), builder.addrspacecast(info, I8.as_pointer(1))
    value, scale = from_struct(emitter, argument, of_dtype(unit.dtype)), unit.geometry.scale
    result = apply_scaled(lowering, emitter, value, place, block, scale, unit.scale_bits)
    builder.ret(to_struct(emitter, lowering.require(result, unit.dtype, "the spectrum", emitter), element))
    return unit.dtype


class _Side:
    """One side of a transform inside its callback: ``data`` and ``offset`` as cuFFT passes them."""

    def __init__(
        self, lowering: Lowering, unit: Unit, emitter: Emitter, data: ir.Value, offset: ir.Value, info: ir.Value
    ) -> None:
        self.lowering, self.unit, self.emitter, self.data, self.offset = lowering, unit, emitter, data, offset
        self.geometry, self.builder = unit.geometry, emitter.builder
        self.block = self.builder.addrspacecast(info, I8.as_pointer(1))
        self.reader = Reader(emitter, self.block, lowering.layout)
        if self.geometry:
            self.place = constant_place(emitter, self.geometry, offset)
        else:
            order = unit.order or tuple(range(lowering.signature.ndim))
            self.place = Place(Decoder(self.reader, order, unit.wide).index(offset))

    def load(self) -> Value:
        """What the prolog makes of the element, 0 outside the limits, in the prototype's type."""
        assert self.unit.dtype is not None
        value_dtype, dtype = self.lowering.signature.value_dtype, self.unit.dtype
        invariant = self.geometry is not None and self.geometry.address is not None and self.geometry.invariant

        def inside() -> Value:
            value = self.emitter.load(self._address(value_dtype), value_dtype, invariant)
            return self.lowering.require(self._apply(value), dtype, "what the transform reads", self.emitter)

        condition = self._within()
        return guarded(self.emitter, condition, of_dtype(dtype), inside) if condition else inside()

    def store(self, value: Value) -> np.dtype:
        """Stores what the epilog makes of ``value``, inside the limits; gives the dtype stored."""
        assert self.unit.dtype is not None
        condition = self._within()
        with self.builder.if_then(condition) if condition else nullcontext():
            result = self._apply(value)
            stored = self.unit.stored_dtype or (result.type.dtype if self.geometry else self.unit.dtype)
            result = self.lowering.require(result, stored, "the transform's result", self.emitter)
            self.emitter.store(self._address(stored), stored, result)
        return stored

    def _apply(self, value: Value) -> Value:
        scale = self.geometry.scale if self.geometry else None
        return apply_scaled(self.lowering, self.emitter, value, self.place, self.block, scale, self.unit.scale_bits)

    def _address(self, dtype: np.dtype) -> ir.Value:
        """Of the element, which has ``dtype`` in memory."""
        if self.geometry is None or self.geometry.address is None:
            return self.emitter.offset(self.data, [self.offset], [I64(dtype.itemsize)])
        pointer, positions = self.reader.pointer("origin"), [position.parts[0] for position in self.place.index]
        strides, bits = [I64(stride) for stride in self.geometry.address], self.geometry.address_bits
        return self.place.address(self.emitter, pointer, positions, strides, bits)

    def _within(self) -> ir.Value | None:
        """Whether the element lies inside the limits; None where all do."""
        if self.geometry is None or self.geometry.limits is None:
            return None
        limits = self.geometry.limits
        return within(self.emitter, self.place.index, {axis: I64(limits[axis]) for axis in self.geometry.cut})


def build_product_callback(lowering: Lowering, unit: Unit) -> np.dtype:
    """The epilog of a product; a batch has one leading index."""
    assert unit.dtype is not None
    element = llvm_element(lowering.module, unit.dtype)
    prototype = ir.FunctionType(element, [element, I64, I64, I64, BYTES])
    function = ir.Function(lowering.module, prototype, unit.name)
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    emitter = lowering.emitter(builder)
    value, *position, info = function.args
    index = tuple(emitter.integer(i) for i in position)[3 - lowering.signature.ndim :]
    block = builder.addrspacecast(info, I8.as_pointer(1))
    result = lowering.apply(builder, from_struct(emitter, value, of_dtype(unit.dtype)), Place(index), block)
    builder.ret(to_struct(emitter, lowering.require(result, unit.dtype, "the product", emitter), element))
    return unit.dtype


# --- complex numbers in C++ ------------------------------------------------------------------------------------------


def llvm_element(module: ir.Module, dtype: np.dtype) -> ir.Type:
    """How C++ passes an element by value: a scalar, or CUDA's ``float2`` or ``double2``."""
    bits = of_dtype(dtype).bits
    if dtype.kind == "f":
        return FLOAT[bits]
    struct = module.context.get_identified_type("struct.float2" if bits == 32 else "struct.double2")
    if struct.is_opaque:
        struct.set_body(FLOAT[bits], FLOAT[bits])
    return struct


def from_struct(emitter: Emitter, argument: ir.Value, scalar: Scalar) -> Value:
    if scalar.kind != "c":
        return Value(scalar, (argument,))
    return Value(scalar, tuple(emitter.builder.extract_value(argument, k) for k in (0, 1)))


def to_struct(emitter: Emitter, value: Value, llvm: ir.Type) -> ir.Value:
    if value.type.kind != "c":
        return value.parts[0]
    struct: ir.Value = ir.Constant(llvm, ir.Undefined)
    for k in (0, 1):
        struct = emitter.builder.insert_value(struct, value.parts[k], k)
    return struct
