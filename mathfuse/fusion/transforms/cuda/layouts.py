"""How cuFFT can see where the elements of an array lie: its advanced data layout.

cuFFT finds element (b, i, j, k) of a batched transform at b·distance + ((i·embed[1] + j)·embed[2] + k)·stride (cuFFT
documentation, "Advanced data layout"). Everything here is a pure function of plain data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from mathfuse.device.fft.block import Configuration
from mathfuse.fusion.elementwise.layouts import Layout
from mathfuse.fusion.transforms.kinds import Shape
from mathfuse.runtime.cuda.cufft import View
from mathfuse.runtime.dtypes import component_of

# Rows, or elements of lines, that lie interleaved between own kernels for rows and columns: whole sectors for both.
TILE = 8


@dataclass(frozen=True)
class Side:
    """How cuFFT sees one side of a transform: its own terms, and the same as a stride for each axis of the array.

    Parameters
    ----------
    view, batch
        What cuFFT is told.
    strides
        Elements between neighbours along each axis of the array; 0 where there is one element only.
    split, inner, outer
        For own kernels: how many axes of the batch are told apart as outer ones, how many lines follow each other at
        the view's distance, and the distance of the next ones.
    tile, step
        Likewise: how many elements of a line lie at the view's stride, and how far the next ones lie; 1 tells that all
        do.
    """

    view: View
    batch: int
    strides: Shape
    split: int
    inner: int
    outer: int
    tile: int = 1
    step: int = 0

    def nested(self, extents: Shape) -> bool:
        """Whether every offset belongs to one index only, so that an index can be found from it."""
        reach = 1
        for stride, extent in sorted((s, n) for s, n in zip(self.strides, extents) if n > 1):
            if stride < reach:
                return False
            reach = stride * extent
        return True


@dataclass(frozen=True)
class Lines:
    """Of an own kernel: how lines follow each other in source and target.

    Parameters
    ----------
    inner
        How many follow each other at one distance, in each.
    outer
        How far the next ones lie.
    tiles, steps
        How many elements of a line lie at the view's stride in each, and how far the next ones lie; 1: all do.
    present
        How many elements of a line there are in each, others being 0 or not stored; None: all.
    configuration
        How the kernel is cut and dealt to threads; None: by table or rule.
    """

    inner: tuple[int, int]
    outer: tuple[int, int]
    tiles: tuple[int, int] = (1, 1)
    steps: tuple[int, int] = (0, 0)
    present: tuple[int | None, int | None] = (None, None)
    configuration: Configuration | None = None

    @classmethod
    def between(cls, source: Side, target: Side, present: tuple[int | None, int | None] = (None, None)) -> Lines:
        inner, outer = (source.inner, target.inner), (source.outer, target.outer)
        return cls(inner, outer, (source.tile, target.tile), (source.step, target.step), present)


def present_of(extent: int, length: int, half: bool) -> int | None:
    """How many elements there are of a line of so many, or of its half spectrum; None of all."""
    return extent if extent < (length // 2 + 1 if half else length) else None


def seen(layout: Layout, transform: Shape, batch: Shape, split: int = 0) -> Side | None:
    """An array as cuFFT sees it, or None where it cannot.

    Parameters
    ----------
    transform
        The axes of the transform, outermost first: at most three.
    batch
        The other axes, in the order in which both sides of the transform count them.
    split
        How many of these are the outer ones, which only own kernels tell apart.
    """
    # Real numbers, too, begin where a complex one may: cuFFT reads two at a time.
    if layout.alignment < 2 * component_of(layout.dtype).itemsize or len(transform) > 3:
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
    distances = [_distance(axes, shape, steps) for axes in (batch[split:], batch[:split])]
    if None in distances:
        return None
    inner, outer = (math.prod(shape[axis] for axis in axes) for axes in (batch[split:], batch[:split]))
    view = View(tuple(embed), stride, distances[0] or step * embed[0])
    return Side(view, inner * outer, tuple(steps), split, inner, distances[1] or 0)


def tiled(layout: Layout, tile: int, axis: int) -> Side:
    """A room whose rows lie interleaved, `tile` of them each, as lines along one of its two innermost axes.

    Element (r, c) lies at ``((r // tile) * columns + c) * tile + r % tile``: lines along either axis then are made of
    pieces that lie together, of several lines or of several elements.
    """
    *_, row, column = layout.order()
    rows, columns = layout.shape[row], layout.shape[column]
    strides = (0,) * len(layout.shape)
    if axis == column:
        return Side(View((columns,), tile, 1), layout.size // columns, strides, 0, tile, columns * tile)
    view = View((rows,), 1, tile)
    return Side(view, layout.size // rows, strides, 0, columns, rows * columns, tile, columns * tile)


def _distance(axes: Shape, shape: Shape, steps: list[int]) -> int | None:
    """Elements between lines that are counted along axes, the last one fastest; 0 of one line, None if it varies."""
    distance, reach = 0, 0
    for axis in reversed(axes):
        if shape[axis] == 1:
            continue
        if distance and steps[axis] != reach:
            return None
        distance = distance or steps[axis]
        reach = steps[axis] * shape[axis]
    return distance


def interleaved(mixed: Shape, transform: Shape, batch: Shape) -> Shape:
    """An order of axes that cuFFT can see, with the innermost axis of `mixed`, the order of what is read.

    More than three axes are for two transforms: the outer ones come first, then the batch, then the inner three.
    """
    outer, inner = transform[:-3], transform[-3:]
    if mixed and mixed[-1] in batch and not outer:
        return (*inner, *batch)
    return (*outer, *batch, *inner)
