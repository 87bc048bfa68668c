"""`elementwise` on the CPU: the compiled callback on boxes that fit a core's cache, shared by threads."""

from __future__ import annotations

import copy
import itertools
import math
import threading
from collections.abc import Callable as Test
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mathfuse.epilogs import Callback
from mathfuse.epilogs.values import is_array
from mathfuse.fusion.compiler.fingerprint import captured_arrays, watch
from mathfuse.fusion.elementwise import binding
from mathfuse.fusion.elementwise.functions import Function
from mathfuse.fusion.elementwise.layouts import Layout, Shape
from mathfuse.fusion.workers import share
from mathfuse.runtime import arrays, settings
from mathfuse.runtime.arrays import HostArray

if TYPE_CHECKING:
    from mathfuse.fusion.compiler.cpu.kernels import CpuKernel

SMALL = 1 << 18  # bytes below which a second thread costs more than it brings

MOST_KNOWN = 256  # combinations of code, types and shapes

Box = tuple[slice, ...]


def run(callback: Callback, x: Any, inputs: Mapping[str, Any] | None, out: Any, workers: int | None) -> Any:
    """Compute ``out[i] = callback(x[i])``; gives `out`, or a new array of the framework of `x`."""
    held = arrays.as_host(x, "x")
    view = held.view
    source = view if view.ndim else view.reshape(1)
    function, kernels = _placed(callback, inputs, source)
    workers = settings.workers(workers)
    if out is None:
        arrays.check_result(function.stored, held.framework)
        result = np.empty(view.shape, function.stored)
        _apply(function, kernels, source, result.reshape(source.shape), workers)
        return held.restore(result)
    target = arrays.as_output(out)
    binding.check_output(target, view.shape, function.stored)
    binding.check_overlap(target, view, not function.reads_source)
    if binding.shares_operand(target, function):  # code for the CPU takes it that operands are not written
        result = np.empty(source.shape, function.stored)
        _apply(function, kernels, source, result, workers)
        target[...] = result.reshape(view.shape)
    else:
        _apply(function, kernels, source, target if target.ndim else target.reshape(1), workers)
    return out


def _apply(function: Function, kernels: Kernels, source: np.ndarray, target: np.ndarray, workers: int) -> None:
    """The callback on every element, from one array to another or within one."""
    if source.size == 0:
        return
    layouts = [Layout(array.shape, array.strides, array.dtype) for array in (source, target)]
    order = layouts[1].order()
    unit = tuple(layout.strides[order[-1]] == layout.dtype.itemsize for layout in layouts)
    variant = order, (unit[0], unit[1]), arrays.same_view(source, target)
    kernel = kernels.get(variant)
    if kernel is None:
        kernel = kernels[variant] = _bare(function.kernel(*variant))
    run = kernel.bind(function.values, function.shape, function.source)

    def take(box: Box) -> None:
        run(source[box], target[box], tuple(span.start for span in box))

    itemsize = source.itemsize + target.itemsize
    share(take, boxes(layouts[0], layouts[1], elements_of(source.size, itemsize, workers)), workers)


# --- what was found out before ----------------------------------------------------------------------------------------

Variant = tuple[Shape, tuple[bool, bool], bool]  # order of the loops, unit strides, whether in place
Kernels = dict[Variant, "CpuKernel"]


@dataclass(frozen=True)
class Known:
    """What holds for all calls with the same code and the same types and shapes. It holds no array."""

    functions: tuple[Any, ...]  # their ids stay theirs
    unchanged: Test[[], bool]
    stored: np.dtype
    assigned: frozenset[str]
    own: frozenset[str]
    kernels: Kernels


_known: dict[Hashable, Known] = {}
_lock = threading.Lock()


def _placed(callback: Callback, inputs: Mapping[str, Any] | None, x: np.ndarray) -> tuple[Function, Kernels]:
    """The callback on every element of `x`, all checked, and the code that there is for it."""
    axes = tuple(range(x.ndim))
    values = {name: binding.unwrapped(value) for name, value in {**callback.bound, **(inputs or {})}.items()}
    held = {name: arrays.as_host(value, f"operand {name!r}") for name, value in values.items() if is_array(value)}
    key = _key(callback, values, held, x)
    known = _known.get(key)
    if known is None or not known.unchanged():
        bound = binding.bound(callback, callback.kind, inputs, arrays.as_host, "callback")
        assert bound is not None
        function = binding.placed(bound, callback.kind, x.dtype, x.shape, x.shape, axes, source=x)
        kernels: Kernels = {}
        if not captured_arrays(callback):
            functions = tuple(link.function for link in callback.links)
            found = Known(functions, watch(callback), function.stored, function.assigned, function.own, kernels)
            with _lock:
                _known[key] = found
                while len(_known) > MOST_KNOWN:
                    _known.pop(next(iter(_known)), None)
        return function, kernels
    operands = {name: held[name].view if name in held else value for name, value in values.items()}
    callback = callback(**(inputs or {}))
    binding.check_assigned(binding.Bound(callback, held, operands), callback.kind, sorted(known.assigned), x)
    place = (x.dtype, known.stored, x.shape, x.shape, axes)
    return Function(callback, *place, operands, held, x, known.assigned, known.own), known.kernels


def _key(callback: Callback, values: Mapping[str, Any], held: Mapping[str, HostArray], x: np.ndarray) -> Hashable:
    """Code, types and shapes."""
    parts: list[Hashable] = [x.dtype, x.shape, x.strides[-1] == x.itemsize]
    for link in callback.links:
        parts += id(link.function), link.fastmath, link.precision
    for name, value in values.items():
        if name in held:
            view = held[name].view
            unit = view.ndim > 0 and view.strides[-1] == view.itemsize
            parts += name, view.dtype, view.shape, unit, view.flags.writeable, held[name].copied
        else:
            parts += name, type(value).__name__
    return tuple(parts)


def _bare(kernel: CpuKernel) -> CpuKernel:
    """A kernel without what it was made for: the callback and its operands, which may be large."""
    bare = copy.copy(kernel)
    bare.spec = replace(kernel.spec, callback=None, operands={}, source=None)
    bare.signature = replace(kernel.signature, callback=None)
    return bare


# --- boxes ------------------------------------------------------------------------------------------------------------


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
