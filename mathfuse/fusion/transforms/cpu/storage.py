"""Where the values between two passes lie, and how a box of them is read and written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from mathfuse.fusion.transforms.cpu.passes import Box
from mathfuse.fusion.transforms.kinds import Shape


class Storage(Protocol):
    @property
    def cut(self) -> tuple[int, int] | None:
        """(axis, position) that no box of a pass along another axis may straddle."""

    def part(self, extents: Shape) -> Storage:
        """The leading part of these extents."""

    def read(self, box: Box) -> np.ndarray:
        """A view of the box, or a copy where it lies in two pieces."""

    def write(self, box: Box, values: np.ndarray) -> None:
        """Store the box, unless `values` are the very memory that `read` gave."""

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes between neighbours along each axis."""

    def bytes_beside(self, out: np.ndarray) -> int:
        """Memory it takes that is not `out`."""


@dataclass(frozen=True)
class Whole:
    """One array."""

    array: np.ndarray
    cut = None

    def part(self, extents: Shape) -> Whole:
        return Whole(self.array[tuple(map(slice, extents))])

    def read(self, box: Box) -> np.ndarray:
        return self.array[box]

    def write(self, box: Box, values: np.ndarray) -> None:
        target = self.array[box]
        if not same_memory(target, values):
            target[...] = values

    @property
    def strides(self) -> tuple[int, ...]:
        return self.array.strides

    def bytes_beside(self, out: np.ndarray) -> int:
        return 0 if self.array is out else self.array.nbytes


@dataclass(frozen=True)
class Halves:
    """A half spectrum inside the memory of the real array it belongs to, but for its last column.

    n real numbers hold n // 2 complex ones; the half spectrum has n // 2 + 1, so `last` holds one column.
    """

    main: np.ndarray
    last: np.ndarray
    axis: int

    @classmethod
    def inside(cls, real: np.ndarray, axis: int) -> Halves:
        """The storage in `real`, which must be contiguous along `axis`."""
        n = real.shape[axis]
        dtype = np.dtype(f"c{2 * real.itemsize}")
        rows = np.moveaxis(real, axis, -1)
        last = np.empty((*rows.shape[:-1], 1), dtype)
        main = rows[..., : n // 2 * 2].view(dtype) if n > 1 else last[..., :0]
        return cls(np.moveaxis(main, -1, axis), np.moveaxis(last, -1, axis), axis)

    @property
    def cut(self) -> tuple[int, int]:
        return self.axis, self.main.shape[self.axis]

    def part(self, extents: Shape) -> Halves:
        here = self.main.shape[self.axis]
        main = tuple(slice(min(n, here) if a == self.axis else n) for a, n in enumerate(extents))
        last = tuple(slice(max(0, n - here) if a == self.axis else n) for a, n in enumerate(extents))
        return Halves(self.main[main], self.last[last], self.axis)

    def read(self, box: Box) -> np.ndarray:
        if box[self.axis] == slice(None):
            return np.concatenate([self.main[box], self.last[box]], axis=self.axis)
        return self._piece(box)

    def write(self, box: Box, values: np.ndarray) -> None:
        if box[self.axis] == slice(None):
            parts = np.split(values, [self.main.shape[self.axis]], axis=self.axis)
            self.main[box], self.last[box] = parts
        elif not same_memory(target := self._piece(box), values):
            target[...] = values

    @property
    def strides(self) -> tuple[int, ...]:
        return self.main.strides

    def bytes_beside(self, out: np.ndarray) -> int:
        return self.last.nbytes

    def _piece(self, box: Box) -> np.ndarray:
        span, here = box[self.axis], self.main.shape[self.axis]
        if span.start < here:
            return self.main[box]
        shifted = slice(span.start - here, span.stop - here)
        return self.last[(*box[: self.axis], shifted, *box[self.axis + 1 :])]


def same_memory(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays are the same elements in the same places."""
    return (
        a.__array_interface__["data"][0] == b.__array_interface__["data"][0]
        and a.strides == b.strides
        and a.shape == b.shape
        and a.dtype == b.dtype
    )
