"""Where elements lie in memory, and how cuFFT can see that: its advanced data layout.

cuFFT finds element (b, i, j, k) of a batched transform at b·distance + ((i·embed[1] + j)·embed[2] + k)·stride (cuFFT
documentation, "Advanced data layout"). Everything here is a pure function of plain data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mathfuse.fusion.transforms.kinds import Shape, complex_of
from mathfuse.runtime.cuda.cufft import View

MOST_ALIGNED = 16  # bytes that one access moves at most


@dataclass(frozen=True)
class Layout:
    """An array in device memory: extents, strides in bytes (any sign, 0 where it is broadcast), dtype.

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

    def cropped(self, extents: Shape) -> Layout:
        """The leading part of these extents."""
        return replace(self, shape=tuple(map(min, self.shape, extents)))

    def _moves(self, axis: int) -> bool:
        return self.shape[axis] > 1 and self.strides[axis] != 0


def dense(shape: Shape, dtype: np.dtype, order: Shape) -> Layout:
    """A contiguous array whose axes lie in `order`, the innermost last."""
    strides, step = [0] * len(shape), dtype.itemsize
    for axis in reversed(order):
        strides[axis] = step
        step *= max(1, shape[axis])
    return Layout(shape, tuple(strides), dtype)


@dataclass(frozen=True)
class Side:
    """How cuFFT sees one side of a transform: its own terms, and the same as a stride for each axis of the array.

    Parameters
    ----------
    view, batch
        What cuFFT is told.
    strides
        Elements between neighbours along each axis of the array; 0 where there is one element only.
    """

    view: View
    batch: int
    strides: Shape

    def nested(self, extents: Shape) -> bool:
        """Whether every offset belongs to one index only, so that an index can be found from it."""
        reach = 1
        for stride, extent in sorted((s, n) for s, n in zip(self.strides, extents) if n > 1):
            if stride < reach:
                return False
            reach = stride * extent
        return True


def seen(layout: Layout, transform: Shape, batch: Shape) -> Side | None:
    """An array as cuFFT sees it, or None where it cannot.

    Parameters
    ----------
    transform
        The axes of the transform, outermost first: at most three.
    batch
        The other axes, in the order in which both sides of the transform count them.
    """
    # Real numbers, too, begin where a complex one may: cuFFT reads two at a time.
    if layout.alignment < complex_of(layout.dtype).itemsize or len(transform) > 3:
        return None
    itemsize, shape = layout.dtype.itemsize, layout.shape
    if any(n > 1 and (s <= 0 or s % itemsize) for n, s in zip(shape, layout.strides)):
        return None
    steps = [s // itemsize if n > 1 else 0 for n, s in zip(shape, layout.strides)]
    inner = transform[-1]
    stride = steps[inner] or 1
    embed, step = [shape[inner]], stride
    for outer, within in zip(reversed(transform[:-1]), reversed(transform[1:])):
        wanted = steps[outer] or step * embed[0]
        if wanted % step or wanted // step < shape[within]:
            return None
        embed[0] = wanted // step
        embed.insert(0, shape[outer])
        step = wanted
    distance, reach = 0, 0
    for axis in reversed(batch):
        if shape[axis] == 1:
            continue
        if distance and steps[axis] != reach:
            return None
        distance = distance or steps[axis]
        reach = steps[axis] * shape[axis]
    count = math.prod(shape[axis] for axis in batch)
    return Side(View(tuple(embed), stride, distance or step * embed[0]), count, tuple(steps))


def interleaved(mixed: Shape, transform: Shape, batch: Shape) -> Shape:
    """An order of axes that cuFFT can see, with the innermost axis of `mixed`, the order of what is read.

    More than three axes are for two transforms: the outer ones come first, then the batch, then the inner three.
    """
    outer, inner = transform[:-3], transform[-3:]
    if mixed and mixed[-1] in batch and not outer:
        return (*inner, *batch)
    return (*outer, *batch, *inner)
