"""From a flat offset to a multi-index without dividing: multiplication by precomputed reciprocals.

Granlund and Montgomery, "Division by invariant integers using multiplication" (PLDI 1994), figure 4.1.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from mathfuse.fusion.compiler.emit.emitter import Value
from mathfuse.fusion.compiler.parameters import Layout, Writer
from mathfuse.fusion.compiler.reader import Reader


def reciprocal(divisor: int, bits: int) -> tuple[int, int, int]:
    """``(multiplier, first shift, second shift)`` for unsigned division of ``bits``-bit numbers by ``divisor`` ≥ 1."""
    length = (divisor - 1).bit_length()
    multiplier = ((1 << bits) * ((1 << length) - divisor)) // divisor + 1
    return multiplier, min(length, 1), max(length - 1, 0)


def divide(n: int, divisor: int, bits: int) -> int:
    """What the generated code computes, in Python."""
    multiplier, first, second = reciprocal(divisor, bits)
    high = (multiplier * n) >> bits
    return (high + ((n - high) >> first)) >> second


class Decoder:
    """Decodes offsets inside generated code.

    Parameters
    ----------
    reader
        Reads divisors and reciprocals from the parameter block.
    order
        Axes from the largest storage stride to the smallest.
    wide
        Offsets of 2^32 and more occur.
    """

    SLOTS = ("decode.divisor", "decode.multiplier", "decode.shifts")

    def __init__(self, reader: Reader, order: tuple[int, ...], wide: bool) -> None:
        self.reader, self.order, self.bits = reader, order, 64 if wide else 32

    @staticmethod
    def reserve(layout: Layout, ndim: int) -> Layout:
        for name in Decoder.SLOTS:
            layout.add(name, ndim)
        return layout

    @staticmethod
    def fill(writer: Writer, strides: Sequence[int], wide: bool) -> None:
        """``strides`` in elements, largest first; each must divide what the larger ones leave."""
        rows = [(stride, *reciprocal(stride, 64 if wide else 32)) for stride in strides]
        writer.integers("decode.divisor", *(row[0] for row in rows))
        writer.integers("decode.multiplier", *(row[1] - (1 << 64) if row[1] >= 1 << 63 else row[1] for row in rows))
        writer.integers("decode.shifts", *(row[2] | row[3] << 8 for row in rows))

    def index(self, offset: ir.Value) -> tuple[Value, ...]:
        """The multi-index of an element offset (an i64)."""
        emitter, builder = self.reader.emitter, self.reader.emitter.builder
        integer = ir.IntType(self.bits)
        rows = [self.reader.integers(name, len(self.order)) for name in self.SLOTS]
        rest = self._narrow(offset)
        index: dict[int, Value] = {}
        for k, axis in enumerate(self.order):
            divisor, multiplier, shifts = (self._narrow(row[k]) for row in rows)
            high = emitter.call("__nv_umulhi" if self.bits == 32 else "__nv_umul64hi", integer, [multiplier, rest])
            first, second = builder.and_(shifts, integer(255)), builder.lshr(shifts, integer(8))
            quotient = builder.lshr(builder.add(high, builder.lshr(builder.sub(rest, high), first)), second)
            rest = builder.sub(rest, builder.mul(quotient, divisor))
            index[axis] = emitter.integer(builder.zext(quotient, ir.IntType(64)) if self.bits == 32 else quotient)
        return tuple(index[axis] for axis in sorted(index))

    def _narrow(self, x: ir.Value) -> ir.Value:
        return self.reader.emitter.builder.trunc(x, ir.IntType(32)) if self.bits == 32 else x
