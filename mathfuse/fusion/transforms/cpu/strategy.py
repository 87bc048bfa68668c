"""Strategy `cpu`: an FFT library on cache-sized boxes of lines, the compiled callbacks applied while these are hot."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mathfuse.fusion.plan import Explanation
from mathfuse.fusion.transforms.cpu import backends
from mathfuse.fusion.transforms.cpu.passes import (
    Box,
    Fft,
    Pass,
    boxes,
    filter_passes,
    lines_per_box,
    stride_conflicts,
    transform_passes,
)
from mathfuse.fusion.transforms.cpu.storage import Halves, Storage, Whole, same_memory
from mathfuse.fusion.transforms.kinds import Shape, real_of, replaced
from mathfuse.fusion.transforms.pipeline import Pipeline, Role
from mathfuse.fusion.workers import share
from mathfuse.runtime.dtypes import COMPLEX32, dtype_name
from mathfuse.runtime.words import counted

# Boxes of columns that are worked on in place take no memory and may be wider than the cache: 4096 complex64 at runs of
# 2 KiB, which prefetchers follow, took kernels half the time that they took at runs of 256 bytes.
WIDER_IN_PLACE = 8

# One step on a block: (block, logical index of its first element, where the result belongs or None) -> block
StepFunction = Callable[[np.ndarray, Shape, "np.ndarray | None"], np.ndarray]


@dataclass(frozen=True)
class Stage:
    """A pass with everything chosen: boxes, back ends, kernels."""

    plan: Pass
    boxes: list[Box]
    staged: bool  # whether each box is first copied to contiguous memory
    steps: tuple[StepFunction, ...]
    backends: tuple[backends.Backend, ...]

    def run(self, source: Storage, target: Storage, workers: int) -> None:
        """All boxes, shared by the workers."""
        source, target = source.part(self.plan.extents), target.part(self.plan.result_extents)

        def take(box: Box) -> None:
            block = source.read(box).copy(order="K") if self.staged else source.read(box)
            start = tuple(span.start or 0 for span in box)
            place = target.array[box] if isinstance(target, Whole) else None
            for step in self.steps:
                block = step(block, start, place if step is self.steps[-1] else None)
            if place is None or not same_memory(place, block):
                target.write(box, block)

        share(take, self.boxes, workers)

    def __str__(self) -> str:
        hot = ", staged" if self.staged else ""
        names = "/".join(dict.fromkeys(backend.name for backend in self.backends))
        return f"{self.plan} in {counted(len(self.boxes), 'box', 'boxes')}{hot} by {names}"


@dataclass(frozen=True)
class Tuning:
    """Threads, bytes of a hot box and, where it is not to be found by timing, the back end."""

    workers: int
    block_bytes: int
    backend: str | None = None


class CpuStrategy:
    """A pipeline bound to its input and operands; safe to run from several threads at once."""

    def __init__(self, pipeline: Pipeline, tuning: Tuning, x: np.ndarray) -> None:
        self.pipeline, self.tuning, self.x = pipeline, tuning, x
        self.passes = passes_of(pipeline)
        self._call = pipeline.problems[0] if len(pipeline.problems) == 1 and not pipeline.functions else None
        self._stages: dict[tuple[int, ...], list[Stage]] = {}
        self._default = self.stages(self.new_out())  # whatever cannot be compiled fails here
        backs = {backend.name: backend for stage in self._default for backend in stage.backends}
        self._caller = backs.get("pocketfft") if len(backs) == 1 and self._call and x.size else None
        _keep_freed_memory()

    def new_out(self) -> np.ndarray:
        return np.empty(self.pipeline.out_shape, self.pipeline.out_dtype)

    def run(self, out: np.ndarray | None = None) -> np.ndarray:
        """Compute into `out`, of the right shape and dtype and any strides, or into a new array."""
        if out is None and self._caller and self._call:
            return self._caller.call(self._call, self.x, self.tuning.workers)
        begun = self._begin() if out is None else None
        if out is None:
            out = self.new_out() if begun is None else begun
        if out.size:
            x, work, result = Whole(self.x), self._work(out), Whole(out)
            for stage in self.stages(out)[begun is not None :]:
                source = x if stage.plan.source == "x" else work
                target = result if stage.plan.target == "out" else work
                stage.run(source, target, self.tuning.workers)
        return out

    def _begin(self) -> np.ndarray | None:
        """A new result after the first pass, if one call of the library makes it: nothing is copied, then."""
        p, first = self.pipeline, self.passes[0]
        fft, backend = first.transforms[0], self._default[0].backends[0]
        made = replaced(first.extents, {first.axis: fft.writes})
        if len(first.steps) > 1 or made != p.spectrum_shape or (made, p.spectrum_dtype) != (p.out_shape, p.out_dtype):
            return None
        begun = backend.whole(fft, self.x[tuple(map(slice, first.extents))], first.axis, self.tuning.workers)
        return begun if begun.flags.c_contiguous else None

    def stages(self, out: np.ndarray) -> list[Stage]:
        """The passes prepared for outputs with the strides of this one."""
        if out.strides not in self._stages:
            work = self._work(out)
            self._stages[out.strides] = [self._stage(plan, work, out) for plan in self.passes]
        return self._stages[out.strides]

    def explain(self, title: str) -> Explanation:
        """The decisions for an output in C order."""
        out, tuning = self.new_out(), self.tuning
        stages, work = self.stages(out), self._work(out)
        backs = {f"{step.op}({step.length})": b for s in stages for step, b in zip(s.plan.transforms, s.backends)}
        details = [(step, f"{backend.name}, {backend.reason}") for step, backend in backs.items()]
        details.append(("threads", str(tuning.workers)))
        title = f"{title} → {dtype_name(out.dtype)}{list(out.shape)}"
        if self._caller and self._call:
            reason = "the input is in CPU memory and there is no callback: one call of the library, unless out is given"
            return Explanation(
                title, "cpu", reason, (), (f"scipy.fft.{backends.function_of(self._call)}",), tuple(details)
            )
        moved = f"each callback would move {out.nbytes:,} bytes there and back again"
        return Explanation(
            title=title,
            strategy="cpu",
            reason="the input is in CPU memory; callbacks run on boxes of lines while these are in the cache",
            rejected=(("a library call and NumPy", moved),),
            passes=tuple(map(str, stages)),
            details=(*details, ("a hot box", f"about {tuning.block_bytes:,} bytes")),
            workspace_bytes=work.bytes_beside(out) + tuning.workers * tuning.block_bytes,
        )

    def _work(self, out: np.ndarray) -> Storage:
        """Where the spectrum lies between two passes: in the memory of the result wherever it fits."""
        p = self.pipeline
        if len(self.passes) == 1 or (out.shape, out.dtype) == (p.spectrum_shape, p.spectrum_dtype):
            return Whole(out)
        real = out.shape == p.problems[-1].full_shape and out.dtype == real_of(p.spectrum_dtype)
        if p.halved and real and out.strides[p.real_axis] == out.itemsize:
            return Halves.inside(out, p.real_axis)
        return Whole(np.empty(p.spectrum_shape, p.spectrum_dtype))

    def _stage(self, plan: Pass, work: Storage, out: np.ndarray) -> Stage:
        p, axis = self.pipeline, plan.axis
        source = (Whole(self.x) if plan.source == "x" else work).part(plan.extents)
        target = Whole(out) if plan.target == "out" else work
        staged = stride_conflicts(source.strides[axis])
        unit_stride = work.strides[axis] == p.spectrum_dtype.itemsize
        view = plan.source == "work" and not staged  # whether a block may be a view of the work storage
        parts = self._boxes(plan, source, target, 1)
        shape = source.read(parts[0]).shape if parts else plan.extents
        if parts and view and not unit_stride:
            first = plan.transforms[0]
            backend = self._backend(first, shape, axis, p.spectrum_dtype, inside=True)
            if backend.in_place(first, shape[axis], p.spectrum_dtype, unit_stride):
                parts = self._boxes(plan, source, target, WIDER_IN_PLACE)
                shape = source.read(parts[0]).shape

        steps: list[StepFunction] = []
        chosen: list[backends.Backend] = []
        dtype = self.x.dtype if plan.source == "x" and self.x.dtype != COMPLEX32 else p.spectrum_dtype
        ours = staged or plan.source == "work"  # whether the block's memory may be written
        for step in plan.steps:
            if isinstance(step, Fft):
                backend = self._backend(step, shape, axis, dtype, view and shape[axis] == step.writes)
                chosen.append(backend)
                steps.append(_transform(backend, step, axis, ours))
                view = view and backend.in_place(step, shape[axis], dtype, unit_stride)
                dtype = real_of(p.spectrum_dtype) if step.op == "irfft" else p.spectrum_dtype
                shape = (*shape[:axis], step.writes, *shape[axis + 1 :])
            else:
                steps.append(self._apply(step.role, work, out, view))
                dtype = p.functions[step.role].stored
            ours = True
        return Stage(plan, parts, staged, tuple(steps), tuple(chosen))

    def _boxes(self, plan: Pass, source: Storage, target: Storage, wider: int) -> list[Box]:
        p, axis = self.pipeline, plan.axis
        itemsize = p.spectrum_dtype.itemsize
        lines = math.prod(extent for a, extent in enumerate(plan.extents) if a != axis)
        line_bytes = itemsize * max(step.length for step in plan.transforms)
        height = lines_per_box(lines, line_bytes, itemsize, wider * self.tuning.block_bytes, self.tuning.workers)
        cut = next((s.cut for s in (source, target) if s.cut and s.cut[0] != axis), None)
        return boxes(plan.extents, axis, memory_order(target.strides), height, cut)

    def _backend(self, step: Fft, shape: Shape, axis: int, dtype: np.dtype, inside: bool) -> backends.Backend:
        if name := self.tuning.backend:
            backends.load(name)
            return backends.Backend(name, "as asked for")
        return backends.fastest(step, shape, axis, dtype, inside)

    def _apply(self, role: Role, work: Storage, out: np.ndarray, view: bool) -> StepFunction:
        """The kernel of a callback. Loops run in the order of the memory that is not in the cache yet or any more."""
        function = self.pipeline.functions[role]
        cold = {"prolog": self.x.strides, "transfer": work.strides, "epilog": out.strides}[role]
        order = memory_order(cold)
        inner = order[-1]
        fresh = inner == len(order) - 1  # blocks that are no views are contiguous
        in_work = fresh and (not view or work.strides[inner] == self.pipeline.spectrum_dtype.itemsize)
        unit = {
            "prolog": (self.x.strides[inner] == self.x.itemsize, fresh),
            "transfer": (in_work, in_work),
            "epilog": (in_work, out.strides[inner] == out.itemsize),
        }[role]
        in_place = role == "transfer" or (role == "epilog" and view and work.bytes_beside(out) == 0)
        run = function.kernel(order, unit, in_place).bind(function.operands, function.shape, function.source)

        def step(block: np.ndarray, start: Shape, place: np.ndarray | None) -> np.ndarray:
            if unit[0] and block.strides[inner] != block.itemsize and block.shape[inner] > 1:
                block = contiguous_along(block, inner)  # a library may return another layout than it was given
            if in_place:
                place = block
            elif place is None:
                place = np.empty(block.shape, function.stored)
            run(block, place, start)
            return place

        return step


def passes_of(pipeline: Pipeline) -> list[Pass]:
    if len(pipeline.problems) == 1:
        return transform_passes(pipeline.problems[0], pipeline.functions)
    there, back = pipeline.problems
    return filter_passes(there, back, pipeline.functions)


def _transform(backend: backends.Backend, fft: Fft, axis: int, overwrite: bool) -> StepFunction:
    if fft.kept is None:
        return lambda block, start, place: backend(fft, block, axis, overwrite)
    kept = (*(slice(None) for _ in range(axis)), slice(fft.kept))
    return lambda block, start, place: backend(fft, block, axis, overwrite)[kept]


@functools.cache
def _keep_freed_memory() -> None:
    """Have the C library keep what boxes free for the next ones, rather than give it back and have it cleared again.

    glibc keeps as much as the largest block that was freed, up to 32 MiB (mallopt(3), "M_MMAP_THRESHOLD"); without that
    filters of 65536 elements took a third more time.
    """
    np.empty((32 << 20) - (1 << 16), np.uint8)


def contiguous_along(block: np.ndarray, axis: int) -> np.ndarray:
    """A copy whose elements along `axis` lie side by side."""
    return np.ascontiguousarray(block.swapaxes(axis, -1)).swapaxes(axis, -1)


def memory_order(strides: tuple[int, ...]) -> Shape:
    """The axes from the largest stride to the smallest; axes of stride 0, along which nothing is new, come first."""
    return tuple(sorted(range(len(strides)), key=lambda a: -abs(strides[a]) if strides[a] else -math.inf))
