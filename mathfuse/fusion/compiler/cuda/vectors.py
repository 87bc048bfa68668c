"""Several neighbouring elements of an array in one access of up to 16 bytes."""

from __future__ import annotations

import numpy as np
from llvmlite import ir

from mathfuse.fusion.compiler.emit.emitter import FLOAT, I32, Emitter, Value
from mathfuse.fusion.compiler.emit.scalars import of_dtype
from mathfuse.runtime.dtypes import component_of, is_complex


def load_vector(emitter: Emitter, pointer: ir.Value, dtype: np.dtype, lanes: int, invariant: bool) -> list[Value]:
    """``lanes`` elements at a byte address that is a multiple of all their bytes."""
    if lanes == 1:
        return [emitter.load(pointer, dtype, invariant)]
    packing = _Packing(emitter, dtype, lanes)
    return packing.unpacked(emitter.read(pointer, packing.type, lanes * dtype.itemsize, invariant))


def store_vector(emitter: Emitter, pointer: ir.Value, dtype: np.dtype, values: list[Value]) -> None:
    """The inverse of :func:`load_vector`, for values already of the type of ``dtype``."""
    if len(values) == 1:
        emitter.store(pointer, dtype, values[0])
        return
    packing = _Packing(emitter, dtype, len(values))
    address = emitter.cast(pointer, packing.type)
    emitter.builder.store(packing.packed(values), address, align=len(values) * dtype.itemsize)


class _Packing:
    """Real components in machine words: one each, or, of less than 32 bits, several, lowest bits first."""

    def __init__(self, emitter: Emitter, dtype: np.dtype, lanes: int) -> None:
        self.emitter, self.dtype, self.builder = emitter, dtype, emitter.builder
        self.component = component_of(dtype)
        self.bits, total = 8 * self.component.itemsize, 8 * lanes * dtype.itemsize
        self.word_bits = max(self.bits, min(32, total))
        single = self.bits == self.word_bits
        self.word = emitter.storage(self.component) if single else ir.IntType(self.word_bits)
        self.words = total // self.word_bits
        self.type = ir.VectorType(self.word, self.words) if self.words > 1 else self.word

    def unpacked(self, vector: ir.Value) -> list[Value]:
        words = [self.builder.extract_element(vector, I32(k)) if self.words > 1 else vector for k in range(self.words)]
        parts = [self._component(word, shift) for word in words for shift in range(0, self.word_bits, self.bits)]
        values = [self.emitter.loaded(part, self.component) for part in parts]
        if not is_complex(self.dtype):
            return values
        pairs = zip(values[::2], values[1::2])
        return [Value(of_dtype(self.dtype), (real.parts[0], imag.parts[0])) for real, imag in pairs]

    def packed(self, values: list[Value]) -> ir.Value:
        scalar = of_dtype(self.component)
        parts = [
            self.emitter.storable(Value(scalar, (part,)), self.component) for value in values for part in value.parts
        ]
        each = self.word_bits // self.bits
        words = [self._joined(parts[k : k + each]) for k in range(0, len(parts), each)]
        if self.words == 1:
            return words[0]
        vector: ir.Value = ir.Constant(self.type, ir.Undefined)
        for k, word in enumerate(words):
            vector = self.builder.insert_element(vector, word, I32(k))
        return vector

    def _component(self, word: ir.Value, shift: int) -> ir.Value:
        if self.bits == self.word_bits:
            return word
        part = self.builder.trunc(self.builder.lshr(word, self.word(shift)), ir.IntType(self.bits))
        return self.builder.bitcast(part, FLOAT[16]) if self.component.kind == "f" else part

    def _joined(self, parts: list[ir.Value]) -> ir.Value:
        if len(parts) == 1:
            return parts[0]
        joined = self.word(0)
        for k, part in enumerate(parts):
            if self.component.kind == "f":
                part = self.builder.bitcast(part, ir.IntType(16))
            widened = self.builder.zext(part, self.word)
            joined = self.builder.or_(joined, self.builder.shl(widened, self.word(k * self.bits)))
        return joined
