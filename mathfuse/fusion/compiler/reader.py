"""The parameter block as generated code reads it."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from mathfuse.fusion.compiler.emit.emitter import BYTES, FLOAT, I64, Emitter, Value
from mathfuse.fusion.compiler.emit.scalars import BOOL, INT, Scalar
from mathfuse.fusion.compiler.language.operands import Operand
from mathfuse.fusion.compiler.parameters import Layout
from mathfuse.fusion.compiler.signature import OperandType
from mathfuse.runtime.dtypes import named


class Reader:
    """Reads the block inside generated code, in whatever address space its pointer is."""

    def __init__(self, emitter: Emitter, block: ir.Value, layout: Layout) -> None:
        self.emitter, self.block, self.layout = emitter, block, layout

    def _load(self, slot: int, element: ir.Type) -> ir.Value:
        builder = self.emitter.builder
        address = builder.gep(self.block, [I64(8 * slot)])
        address = builder.bitcast(address, element.as_pointer(self.block.type.addrspace))
        loaded = builder.load(address, align=4 if element == FLOAT[32] else 8)
        loaded.set_metadata("invariant.load", builder.module.add_metadata([]))
        return loaded

    def integers(self, name: str, count: int = 1) -> tuple[ir.Value, ...]:
        first = self.layout.slots[name]
        return tuple(self._load(first + k, I64) for k in range(count))

    def real(self, name: str, bits: int) -> Value:
        """A float that no callback has bound."""
        return Value(Scalar("f", bits), (self._load(self.layout.slots[name], FLOAT[bits]),))

    def pointer(self, name: str) -> ir.Value:
        return self.emitter.builder.inttoptr(self.integers(name)[0], BYTES)

    def operand(self, name: str, kind: OperandType) -> Any:
        """The operand as a callback sees it: a scalar value or an :class:`~.operands.Operand`."""
        return self._scalar(name, kind) if kind.is_scalar else self._array(name, kind)

    def _array(self, name: str, kind: OperandType) -> Operand:
        dtype = named(kind.dtype)
        if kind.extents is None or kind.strides is None:
            extents, strides = (self.integers(f"{name}.{part}", kind.ndim) for part in ("shape", "strides"))
            strides = (*strides[:-1], I64(dtype.itemsize)) if kind.contiguous else strides
        else:
            extents = tuple(map(I64, kind.extents))
            strides = tuple(map(I64, kind.strides))
        shape = tuple(map(self.emitter.integer, extents))
        return Operand(name, dtype, self.pointer(f"{name}.pointer"), shape, strides, kind.readonly)

    def _scalar(self, name: str, kind: OperandType) -> Value:
        first, bits = self.layout.slots[name], self.emitter.weak_bits
        if kind.dtype == "int":
            return Value(INT, (self._load(first, I64),))
        if kind.dtype == "bool":
            return Value(BOOL, (self.emitter.builder.icmp_signed("!=", self._load(first, I64), I64(0)),))
        parts = tuple(self._load(first + k, FLOAT[bits]) for k in range(2 if kind.dtype == "complex" else 1))
        return Value(Scalar("c" if len(parts) == 2 else "f", bits, weak=True), parts)
