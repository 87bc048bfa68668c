"""The constant geometry of one side of a cuFFT transform: where the elements of a logical index lie. Plain data."""

from __future__ import annotations

import math
from dataclasses import dataclass

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Geometry:
    """How a callback finds its index and its element; constants of the code, since a plan is made for one shape.

    Parameters
    ----------
    extents
        Of cuFFT's view, one for each axis of the logical index: transform and batch axes alike.
    strides
        Elements between neighbours in cuFFT's view: positive, nested (0 where the extent is 1).
    address
        None: the element lies at cuFFT's own pointer and offset. Else byte strides, of any sign, from the pointer in
        the slot ``origin``: a load callback reads, and a store callback writes, any layout and dtype.
    limits
        Extents of the data. Outside a load gives 0 and a store writes nothing, without the callback being called.
    scale
        ``"before"`` or ``"after"``: the value is multiplied by the slot ``scale`` before or after the callback.
    invariant
        What is loaded through ``address`` is not written to while the transform runs.
    axis
        Of own kernels that tell which line along this axis it is, and which element of that, in place of an offset.
    """

    extents: Shape
    strides: Shape
    address: Shape | None = None
    limits: Shape | None = None
    scale: str | None = None
    invariant: bool = False
    axis: int | None = None

    @property
    def order(self) -> Shape:
        """Axes of more than one element by falling stride: the order in which an offset decodes."""
        return tuple(sorted((a for a, n in enumerate(self.extents) if n > 1), key=lambda axis: -self.strides[axis]))

    @property
    def largest(self) -> int:
        """The largest offset that cuFFT passes."""
        return sum((extent - 1) * stride for extent, stride in zip(self.extents, self.strides) if extent > 1)

    @property
    def bits(self) -> int:
        """Width of the arithmetic on offsets."""
        return 32 if self.largest < 1 << 31 else 64

    @property
    def address_bits(self) -> int:
        """Width of the arithmetic on ``address``, counted in what divides all its strides."""
        strides = [abs(stride) for stride in self.address or ()]
        reach = sum((extent - 1) * stride for extent, stride in zip(self.extents, strides))
        return 32 if reach < math.gcd(*strides) << 31 else 64

    @property
    def cut(self) -> Shape:
        """Axes along which some elements lie outside the limits."""
        return tuple(a for a, (limit, n) in enumerate(zip(self.limits or self.extents, self.extents)) if limit < n)
