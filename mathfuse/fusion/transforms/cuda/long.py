"""An axis that is too long for one block, as digits: the axes of the steps that transform it. Pure functions.

Element ``n = (n1 * N2 + n2) * N3 + n3`` becomes frequency ``k = k1 + N1 * (k2 + N2 * k3)``: the array has an axis for
each digit then, the first one in the place of the long axis, the others behind all axes, and the last one as two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from mathfuse.device.fft.shapes import is_supported
from mathfuse.device.fft.steps import Digits, Step, Twiddles, factors
from mathfuse.fusion.elementwise.layouts import Layout, dense
from mathfuse.fusion.transforms.cuda.layouts import Side, seen
from mathfuse.fusion.transforms.kinds import Problem, Shape, replaced
from mathfuse.runtime.cuda.cufft import View


def long_axes(problems: tuple[Problem, ...], double: bool, longest: int) -> Mapping[int, Shape]:
    """Axes that own kernels transform in steps, with the lengths of these: complex ones."""
    first = problems[0]
    complex_axes = first.axes if first.kind.family == "c2c" else first.axes[:-1]
    found = {
        axis: factors(n, double, longest)
        for axis, n in zip(complex_axes, first.lengths)
        if not (n <= longest and is_supported(n, double))
    }
    return {axis: lengths for axis, lengths in found.items() if lengths}


@dataclass(frozen=True)
class Split:
    """A long axis as digits.

    Parameters
    ----------
    axis, factors
        Which one, and the extents of its digits, those of the first steps first.
    outer, inner
        The other axes, in order: those whose neighbours lie farther apart than elements of the axis, and closer.
    shape
        Of the array.
    most
        Elements, those of inner axes included, that lie together between steps.
    """

    axis: int
    factors: Shape
    outer: Shape
    inner: Shape
    shape: Shape
    most: int

    @classmethod
    def of(cls, layout: Layout, axis: int, batch: Shape, lengths: Shape, most: int) -> Split:
        """For an array whose other axes are `batch`, in order."""
        outside = layout.order().index(axis)
        return cls(axis, lengths, batch[:outside], batch[outside:], layout.shape, most)

    @property
    def steps(self) -> int:
        return len(self.factors)

    @property
    def length(self) -> int:
        return math.prod(self.factors)

    @property
    def every(self) -> int:
        """Elements of the inner axes."""
        return math.prod(self.shape[axis] for axis in self.inner)

    @property
    def tile(self) -> int:
        """Elements of the last digit that lie together between steps: all of them where inner axes suffice.

        Lines of more than two distances are none that a kernel could follow.
        """
        each = math.gcd(self.factors[-1], self.most // self.every)
        even = self.every == 1 or (self.steps == 2 and all(self.shape[axis] == 1 for axis in self.outer))
        return each if even and each > 1 and self.every < self.most else self.factors[-1]

    # --- axes and layouts --------------------------------------------------------------------------------------------

    @property
    def order(self) -> Shape:
        """All axes as they lie between steps, the innermost last."""
        rank = len(self.shape)
        *middle, high, low = range(rank, rank + self.steps)
        return (*self.outer, *middle, high, self.axis, low, *self.inner)

    def along(self, step: int) -> Shape:
        """The axes of a step's lines."""
        rank = len(self.shape)
        if step == self.steps - 1:
            return rank + step - 1, rank + step
        return (self.axis if step == 0 else rank + step - 1,)

    def lines(self, step: int) -> Shape:
        """The axes along which a step's lines are counted."""
        return tuple(axis for axis in self.order if axis not in self.along(step))

    @property
    def extents(self) -> Shape:
        first, *middle, last = self.factors
        return (*replaced(self.shape, {self.axis: first}), *middle, last // self.tile, self.tile)

    def _weights(self, spectrum: bool) -> Shape:
        """What each digit counts for in an element's number, or in a frequency's."""
        if spectrum:
            *weights, last = (math.prod(self.factors[:k]) for k in range(self.steps))
        else:
            *weights, last = (math.prod(self.factors[k + 1 :]) for k in range(self.steps))
        return (*weights, last * self.tile, last)

    def digits(self, layout: Layout, spectrum: bool) -> Layout:
        """An array, or one of frequencies, by digits."""
        first, *others = (weight * layout.strides[self.axis] for weight in self._weights(spectrum))
        return replace(layout, shape=self.extents, strides=(*replaced(layout.strides, {self.axis: first}), *others))

    def room(self, dtype: np.dtype) -> Layout:
        """Where data lie between steps."""
        return dense(self.extents, dtype, self.order)

    # --- steps -------------------------------------------------------------------------------------------------------

    def side(self, layout: Layout, step: int) -> Side | None:
        """How a step sees an array that is laid out by digits; None where it cannot."""
        along, lines = self.along(step), self.lines(step)
        side = next(filter(None, (seen(layout, along, lines, split) for split in range(len(lines)))), None)
        if side is None or len(along) == 1:
            return side
        view = View((self.factors[step],), side.view.stride, side.view.distance)
        if side.view.embed[1] == self.tile:
            return replace(side, view=view)
        return replace(side, view=view, tile=self.tile, step=side.view.embed[1] * view.stride)

    def end(self, layout: Layout, step: int, spectrum: bool) -> Side | None:
        """How the first or the last step sees an array, with strides as of the array itself."""
        side, itemsize = self.side(self.digits(layout, spectrum), step), layout.dtype.itemsize
        strides = tuple(stride // itemsize if n > 1 else 0 for n, stride in zip(layout.shape, layout.strides))
        return replace(side, strides=strides) if side else None

    def step(self, step: int, returning: bool) -> Step:
        """What a step does besides: twiddle factors after it, or before it where a filter returns; none of the last."""
        if step == self.steps - 1:
            weight = self.length // self.factors[-1]
            return Step(self.length, ((self.every, weight, 1),), weight)
        columns = math.prod(self.factors[step + 1 :])
        twiddles = Twiddles(self.factors[step] * columns, columns, returning)
        return Step(self.length, self._column(step), columns, twiddles)

    def _column(self, step: int) -> Digits:
        """Which column of what is yet to be transformed a line is."""
        rank, lines, weights = len(self.shape), self.lines(step), self._weights(spectrum=False)
        found: list[tuple[int, int, int]] = []
        for axis in range(rank + step, rank + self.steps):
            every = math.prod(self.extents[a] for a in lines[lines.index(axis) + 1 :])
            count, weight = self.extents[axis], weights[axis - rank + 1]
            if found and found[-1][0] == every * count and found[-1][2] == weight * count:  # neighbours count on
                found[-1] = every, found[-1][1] * count, weight
            else:
                found.append((every, count, weight))
        return tuple(digit for digit in found if digit[1] > 1)
