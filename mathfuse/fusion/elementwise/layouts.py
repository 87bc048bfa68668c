"""Where the elements of an array lie in memory. Pure functions of plain data."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

Shape = tuple[int, ...]
MOST_ALIGNED = 16  # bytes that one access moves at most


@dataclass(frozen=True)
class Layout:
    """An array in memory: extents, strides in bytes (any sign, 0 where it is broadcast), dtype.

    Its address is a multiple of `alignment` bytes.
    """

    shape: Shape
    strides: Shape
    dtype: np.dtype
    alignment: int = MOST_ALIGNED

    @classmethod
    def of(cls, array: Any, pointer: int | None = None) -> Layout:
        """That of what has a shape, strides, a dtype and a pointer."""
        address = array.pointer if pointer is None else pointer
        return cls(array.shape, array.strides, array.dtype, min(address & -address, MOST_ALIGNED) or MOST_ALIGNED)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def order(self) -> Shape:
        """The axes from the largest stride to the smallest; equal ones as they come, axes of stride 0 first."""
        return tuple(
            sorted(range(len(self.shape)), key=lambda a: -abs(self.strides[a]) if self._moves(a) else -math.inf)
        )

    def is_dense(self, order: Shape) -> bool:
        """Whether it is contiguous with its axes in `order`, the innermost last."""
        wanted = dense(self.shape, self.dtype, order).strides
        return all(n == 1 or have == want for n, have, want in zip(self.shape, self.strides, wanted))

    def cropped(self, extents: Shape) -> Layout:
        """The leading part of these extents."""
        return replace(self, shape=tuple(map(min, self.shape, extents)))

    def _moves(self, axis: int) -> bool:
        return self.shape[axis] > 1 and self.strides[axis] != 0


def dense(shape: Shape, dtype: np.dtype, order: Shape | None = None) -> Layout:
    """A contiguous array whose axes lie in `order`, the innermost last; without one in C order."""
    strides, step = [0] * len(shape), dtype.itemsize
    for axis in reversed(range(len(shape)) if order is None else order):
        strides[axis] = step
        step *= max(1, shape[axis])
    return Layout(shape, tuple(strides), dtype)
