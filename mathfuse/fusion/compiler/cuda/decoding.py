"""From a flat offset to a multi-index inside generated code: by run-time reciprocals, or by constants."""

from __future__ import annotations

from llvmlite import ir

from mathfuse.fusion.compiler.cuda.division import SLOTS
from mathfuse.fusion.compiler.cuda.geometry import Geometry
from mathfuse.fusion.compiler.emit.emitter import I64, Emitter, Value
from mathfuse.fusion.compiler.language.places import Place
from mathfuse.fusion.compiler.reader import Reader


class Decoder:
    """Decodes offsets by divisors and reciprocals in the parameter block (see :mod:`~.division`).

    Parameters
    ----------
    reader
        Reads the block.
    order
        Axes from the largest storage stride to the smallest.
    wide
        Offsets of 2^32 and more occur.
    dense
        The smallest stride is 1.
    """

    def __init__(self, reader: Reader, order: tuple[int, ...], wide: bool, dense: bool = False) -> None:
        self.reader, self.order, self.bits, self.dense = reader, order, 64 if wide else 32, dense

    def index(self, offset: ir.Value) -> tuple[Value, ...]:
        """The multi-index of an element offset (an i64)."""
        emitter, builder = self.reader.emitter, self.reader.emitter.builder
        integer = ir.IntType(self.bits)
        rows = [self.reader.integers(name, len(self.order)) for name in SLOTS]
        rest = emitter.resized(offset, self.bits)
        index: dict[int, Value] = {}
        for k, axis in enumerate(self.order):
            if self.dense and axis == self.order[-1]:
                index[axis] = emitter.integer(emitter.resized(rest, 64))
                break
            divisor, multiplier, shifts = (emitter.resized(row[k], self.bits) for row in rows)
            high = emitter.call("__nv_umulhi" if self.bits == 32 else "__nv_umul64hi", integer, [multiplier, rest])
            first, second = builder.and_(shifts, integer(255)), builder.lshr(shifts, integer(8))
            quotient = builder.lshr(builder.add(high, builder.lshr(builder.sub(rest, high), first)), second)
            rest = builder.sub(rest, builder.mul(quotient, divisor))
            index[axis] = emitter.integer(emitter.resized(quotient, 64))
        return tuple(index[axis] for axis in sorted(index))


def line_place(emitter: Emitter, geometry: Geometry, line: ir.Value, number: ir.Value) -> Place:
    """Where an element of a line (both i64) is; what follows from the line alone is computed once for all elements."""
    assert geometry.axis is not None
    builder, extent = emitter.builder, geometry.extents[geometry.axis]
    across = [0 if axis == geometry.axis else stride // extent for axis, stride in enumerate(geometry.strides)]
    extents = [1 if axis == geometry.axis else n for axis, n in enumerate(geometry.extents)]
    index = list(constant_place(emitter, Geometry(tuple(extents), tuple(across)), line).index)
    index[geometry.axis] = emitter.integer(number)
    offset = builder.add(builder.mul(line, I64(extent)), number)
    return Place(tuple(index), ((geometry.strides, offset),))


def constant_place(emitter: Emitter, geometry: Geometry, offset: ir.Value) -> Place:
    """Where the element at an offset (an i64) is in a constant geometry; LLVM divides by shifts or products.

    The offset, and what is left of it after each axis, are sums of which addresses may be multiples.
    """
    builder, integer = emitter.builder, ir.IntType(geometry.bits)
    rest = emitter.resized(offset, geometry.bits)
    index = [emitter.integer(I64(0)) for _ in geometry.extents]
    weights = [stride if axis in geometry.order else 0 for axis, stride in enumerate(geometry.strides)]
    sums: list[tuple[tuple[int, ...], ir.Value]] = []
    for axis in geometry.order:
        sums.append((tuple(weights), rest if sums else offset))
        weights[axis] = 0
        stride = integer(geometry.strides[axis])
        quotient = builder.udiv(rest, stride)
        rest = builder.sub(rest, builder.mul(quotient, stride))
        index[axis] = emitter.integer(emitter.resized(quotient, 64))
    return Place(tuple(index), tuple(sums))
