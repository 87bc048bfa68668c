"""From a flat offset to a multi-index without dividing: multiplication by precomputed reciprocals.

Granlund and Montgomery, "Division by invariant integers using multiplication" (PLDI 1994), figure 4.1.
"""

from __future__ import annotations

from collections.abc import Sequence

from mathfuse.fusion.compiler.parameters import Layout, Writer

SLOTS = ("decode.divisor", "decode.multiplier", "decode.shifts")


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


def reserve(layout: Layout, ndim: int) -> Layout:
    """Slots for decoding a multi-index of rank ``ndim``."""
    for name in SLOTS:
        layout.add(name, ndim)
    return layout


def fill(writer: Writer, strides: Sequence[int], wide: bool) -> None:
    """``strides`` in elements, largest first; each must divide what the larger ones leave."""
    rows = [(stride, *reciprocal(stride, 64 if wide else 32)) for stride in strides]
    writer.integers("decode.divisor", *(row[0] for row in rows))
    writer.integers("decode.multiplier", *(row[1] - (1 << 64) if row[1] >= 1 << 63 else row[1] for row in rows))
    writer.integers("decode.shifts", *(row[2] | row[3] << 8 for row in rows))
