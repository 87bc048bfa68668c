"""`elementwise` on the CPU: the compiled callback on boxes that fit a core's cache, shared by threads."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from mathfuse.epilogs import Callback
from mathfuse.fusion.elementwise import binding
from mathfuse.fusion.elementwise.functions import Function
from mathfuse.fusion.elementwise.layouts import Layout
from mathfuse.fusion.workers import share
from mathfuse.runtime import arrays, settings

SMALL = 1 << 18  # bytes below which a second thread costs more than it brings

Box = tuple[slice, ...]


def run(callback: Callback, x: Any, inputs: Mapping[str, Any] | None, out: Any, workers: int | None) -> Any:
    """Compute ``out[i] = callback(x[i])``; gives `out`, or a new array of the framework of `x`."""
    held = arrays.as_host(x, "x")
    view = held.view
    source = view if view.ndim else view.reshape(1)
    bound = binding.bound(callback, callback.kind, inputs, arrays.as_host, "callback")
    assert bound is not None
    axes = tuple(range(source.ndim))
    function = binding.placed(bound, callback.kind, source.dtype, source.shape, source.shape, axes, source=source)
    workers = workers or settings.workers()
    if out is None:
        result = np.empty(view.shape, function.stored)
        apply(function, source, result.reshape(source.shape), workers)
        return held.restore(result)
    target = arrays.as_output(out)
    binding.check_output(target, view.shape, function.stored)
    binding.check_overlap(target, view, not function.reads_source)
    if binding.shares_operand(target, function):  # code for the CPU takes it that operands are not written
        result = np.empty(source.shape, function.stored)
        apply(function, source, result, workers)
        target[...] = result.reshape(view.shape)
    else:
        apply(function, source, target.reshape(1) if target.ndim == 0 else target, workers)
    return out


def apply(function: Function, source: np.ndarray, target: np.ndarray, workers: int) -> None:
    """The callback on every element, from one array to another or within one."""
    if source.size == 0:
        return
    layouts = [Layout(array.shape, array.strides, array.dtype) for array in (source, target)]
    order = layouts[1].order()
    inner = order[-1]
    unit = tuple(layout.strides[inner] == layout.dtype.itemsize for layout in layouts)
    in_place = arrays.same_view(source, target)
    kernel = function.kernel(order, (unit[0], unit[1]), in_place)
    run = kernel.bind(function.operands, function.shape, function.source)

    def take(box: Box) -> None:
        run(source[box], target[box], tuple(span.start for span in box))

    itemsize = source.itemsize + target.itemsize
    share(take, boxes(layouts[0], layouts[1], elements_of(source.size, itemsize, workers)), workers)


def elements_of(size: int, itemsize: int, workers: int) -> int:
    """Elements of a box, of `itemsize` bytes on both sides together: what stays hot, and enough boxes for all."""
    if size * itemsize <= SMALL:
        return size
    return max(1, min(settings.block_bytes() // itemsize, -(-size // (4 * workers))))


def boxes(source: Layout, target: Layout, elements: int) -> list[Box]:
    """Boxes of up to about `elements`, in the order of the target's memory.

    Where source and target have different innermost axes, a box is about as long along both, so that cache lines that
    are read, and those that are written, are used whole.
    """
    order = target.order()
    lengths = dict.fromkeys(order, 1)
    inner = list(dict.fromkeys((order[-1], source.order()[-1])))
    side = elements if len(inner) == 1 else max(1, math.isqrt(elements))
    for axis in inner:
        lengths[axis] = min(target.shape[axis], side)
    for axis in reversed(order):
        room = max(1, elements // math.prod(lengths.values()))
        lengths[axis] = min(target.shape[axis], lengths[axis] * room)
    spans = [_spans(target.shape[axis], lengths[axis]) for axis in order]
    place = [order.index(axis) for axis in range(len(order))]
    return [tuple(box[k] for k in place) for box in itertools.product(*spans)]


def _spans(extent: int, length: int) -> list[slice]:
    return [slice(start, min(start + length, extent)) for start in range(0, extent, length)]
