"""A pipeline as a program, for given layouts and one way of fusing: pure decisions, no GPU."""

from __future__ import annotations

import math
from dataclasses import replace

from mathfuse.fusion.elementwise.layouts import Layout, dense
from mathfuse.fusion.transforms.cuda.fastest import TILES
from mathfuse.fusion.transforms.cuda.layouts import TILE, Lines, Side, interleaved, present_of, seen, tiled
from mathfuse.fusion.transforms.cuda.long import Split, long_axes
from mathfuse.fusion.transforms.cuda.program import Buffer, Fuse, Hook, Map, Program, Transform
from mathfuse.fusion.transforms.kinds import Family, Problem, Shape, complex_of, real_of, replaced
from mathfuse.fusion.transforms.pipeline import Pipeline, Role
from mathfuse.runtime.cuda.cufft import Call
from mathfuse.runtime.dtypes import HALF

MOST_AXES = 3  # of one cuFFT transform
# Columns, and elements of two axes, that cuFFT transforms on their own about as fast as together with the rows.
LONGEST_COLUMNS, LARGEST_COLUMNS = 4096, 16384


def build(pipeline: Pipeline, x: Layout, out: Layout, fuse: Fuse) -> Program:
    """The steps from `x` to `out`."""
    builder = _Builder(pipeline, x, out, fuse)
    count = len(pipeline.problems)
    if fuse.block and count == 2:
        builder.filter(*pipeline.problems)
    else:
        for number, problem in enumerate(pipeline.problems):
            builder.problem(problem, first=number == 0, last=number == count - 1)
    return Program(fuse, tuple(builder.steps), tuple(builder.rooms))


class _Builder:
    """Follows the data: `here` is where it lies, `waiting` says that its map is still to become a callback."""

    def __init__(self, pipeline: Pipeline, x: Layout, out: Layout, fuse: Fuse) -> None:
        self.pipeline, self.fuse = pipeline, fuse
        self.out, self.here = Buffer("out", out), Buffer("x", x)
        self.complex, self.real = complex_of(pipeline.computed), real_of(complex_of(pipeline.computed))
        self.steps: list[Map | Transform] = []
        self.rooms: list[Buffer] = []
        self.waiting = False
        double = self.real.itemsize == 8
        self.long = long_axes(pipeline.problems, double, fuse.longest) if fuse.block else {}  # lengths of steps by axis
        unscaled = len(pipeline.problems) > 1 or pipeline.problems[0].scale == 1
        # Own kernels store half precision themselves, but for a last factor.
        self.narrows = fuse.block and unscaled and pipeline.narrows
        self.tiled: Shape = ()  # the axes between whose transforms a room is tiled
        self.role: Role | None = "prolog" if "prolog" in pipeline.functions else None  # of the next map on the way in

    def problem(self, problem: Problem, first: bool, last: bool) -> None:
        self._begin(problem, first)
        self._along(problem, problem.axes, last)

    def filter(self, there: Problem, back: Problem) -> None:
        """Along the last axis forward, the transfer function and back are one step."""
        self._begin(there, first=True)
        remaining = there.axes
        if there.kind.family == "r2c" and len(remaining) == 2:
            self.tiled = remaining
        while len(remaining) > 1:
            group = self._next(there, remaining)
            remaining = tuple(a for a in remaining if a not in group)
            self._transform(there, group, final=False, last=False)
        group = self._next(there, remaining)
        rest = tuple(a for a in back.axes if a not in group)
        self._transform(there, group, final=True, last=not rest, back=back)
        if rest:
            self._begin(back, first=False)
            self._along(back, rest, last=True)

    def _begin(self, problem: Problem, first: bool) -> None:
        """What is done to the data before a problem's transforms."""
        real, halved = problem.axes[-1], problem.lengths[-1] // 2 + 1
        lengths = dict(zip(problem.axes, problem.lengths))
        self.shape = replaced(problem.shape, {**lengths, real: halved} if problem.kind.family == "c2r" else lengths)
        self.dtype = self.real if problem.kind.family == "r2c" else self.complex
        self.here = replace(self.here, layout=self.here.layout.cropped(self.shape))
        if self.fuse.block:
            self.shape = self.here.layout.shape  # own kernels pad one axis after the other
        gather, stored = first and self.fuse.gather, self.here.layout.dtype
        read = HALF.get(stored, stored) if self.fuse.block else stored  # own kernels widen half precision
        if gather or self.role or (self.here.layout.shape, read) != (self.shape, self.dtype):
            self._move(problem, problem.axes)

    def _along(self, problem: Problem, remaining: Shape, last: bool) -> None:
        """The transforms along axes."""
        while remaining:
            group = self._next(problem, remaining)
            remaining = tuple(a for a in remaining if a not in group)
            self._transform(problem, group, final=not remaining, last=last)

    # --- which axes next ---------------------------------------------------------------------------------------------

    def _next(self, problem: Problem, remaining: Shape) -> Shape:
        """The largest group of axes that cuFFT can take at once; the data is laid out anew where it can take none."""
        for _ in range(2):
            for group in self._groups(problem, remaining):
                if self.waiting or self._split(self.here, group, self._batch(group)) is not None:
                    return group
            self._move(problem, remaining)
        raise AssertionError(f"no axes of {remaining} can be transformed in {self.here}")

    def _groups(self, problem: Problem, remaining: Shape) -> list[Shape]:
        """Groups in the order of preference. The real axis is the innermost of the first, or of the last, transform."""
        family, real = problem.kind.family, problem.axes[-1]
        order = [a for a in self.here.layout.order() if a in remaining]
        others = order if family == "c2c" else [a for a in order if a != real]
        count = len(others)
        most = 1 if self.fuse.block else MOST_AXES
        runs = [tuple(others[k - n : k]) for n in range(min(most, count), 0, -1) for k in range(count, n - 1, -1)]
        if family == "c2c" or real not in remaining:
            return runs
        if family == "r2c":
            return [(*others[len(others) - k + 1 :], real) for k in range(min(most, len(order)), 0, -1)]
        if not others:
            return [(real,)]
        if len(order) > most:
            return runs
        # cuFFT writes to the input of a complex-to-real transform of several axes. So the user's is transformed along
        # the others first; where these are long a copy, and then all axes in one call, take less time.
        if self.here.writable or self.waiting:
            return [(*others, real), *runs]
        lengths = [problem.shape[a] for a in others]
        return runs if max(lengths) <= LONGEST_COLUMNS and math.prod(lengths) <= LARGEST_COLUMNS else []

    def _batch(self, group: Shape) -> Shape:
        return tuple(a for a in self.here.layout.order() if a not in group)

    def _split(self, buffer: Buffer, group: Shape, batch: Shape) -> int | None:
        """How many axes of the batch have to be told apart for a buffer to be seen; None where it cannot be."""
        splits = range(max(1, len(batch)) if self.fuse.block else 1)
        return next((k for k in splits if self._seen(buffer, group, batch, k)), None)

    def _seen(self, buffer: Buffer, group: Shape, batch: Shape, split: int) -> Side | None:
        """How a buffer is seen that a transform reads: of a long axis, by the first step."""
        digits = self._by_digits(buffer, group, batch)
        return digits.end(buffer.layout, 0, spectrum=False) if digits else _seen(buffer, group, batch, split)

    def _by_digits(self, buffer: Buffer, group: Shape, batch: Shape) -> Split | None:
        lengths = self.long.get(group[0])
        return Split.of(buffer.layout, group[0], batch, lengths, self.fuse.tile or TILE) if lengths else None

    # --- steps -------------------------------------------------------------------------------------------------------

    def _transform(self, problem: Problem, group: Shape, final: bool, last: bool, back: Problem | None = None) -> None:
        """Adds the transform of `group`, with what comes after it where it is the problem's final one.

        With `back` it is a filter along that axis.
        """
        real = problem.axes[-1]
        family: Family = problem.kind.family if real in group else "c2c"
        source, batch, load = self.here, self._batch(group), None
        if self.waiting:
            # cuFFT writes to its input in a complex-to-real transform of several axes: that must not be the user's.
            load, batch = self._load(group, batch, away=family == "c2r" and len(group) > 1)
            source, view = load.map.target if load.map.target in self.rooms else source, load.side
        else:
            view = _visible(self._seen(source, group, batch, self._split(source, group, batch) or 0))
        transfer = self._between(problem, family, group, batch) if back else None
        given = self.shape
        self._follow(back or problem, "c2c" if back else family, group)
        digits = self._by_digits(load.map.target if load else source, group, batch)
        if digits:
            target, side = self._end(digits, final and last, bool(back))
        else:
            target, side = self._target(family, group, batch, view.split, last=final and last)
        lengths = tuple(dict(zip(problem.axes, problem.lengths))[a] for a in group)
        call = Call(family, self.real.itemsize == 8, lengths, view.batch, view.view, side.view)
        lines = None
        if self.fuse.block:
            (n,), axis = lengths, group[0]
            present = (
                present_of(given[axis], n, family == "c2r"),
                present_of(self.shape[axis], n, family == "r2c" and not back),
            )
            lines = Lines.between(view, side, present)
        step = Transform(call, problem.kind.forward, source, target, load, transfer=transfer, block=lines)
        if digits:
            *others, step = self._in_steps(digits, step, (view, side))
            self.steps += others
        self.here = target
        after = self._after(back or problem, target, last) if final and (last or not back) else None
        if after and self.fuse.store:
            direct = after.target == target and side.nested(self.shape)
            step = replace(step, store=Hook(after, side, direct))
        self.steps.append(step)
        if after:
            self.here = after.target
            if not step.store:
                self.steps.append(after)

    def _in_steps(self, digits: Split, whole: Transform, ends: tuple[Side, Side]) -> list[Transform]:
        """The steps of a long transform; a filter turns back in the last one, and returns by the others."""
        room, last = self._keep(digits.room(self.complex)), digits.steps - 1
        numbers = [*range(digits.steps), *(reversed(range(last)) if whole.transfer else ())]
        assert whole.block is not None
        (given, kept), found = whole.block.present, list[Transform]()
        for place, number in enumerate(numbers):
            begins, stops, returning = place == 0, place == len(numbers) - 1, place > last
            between = _visible(digits.side(room.layout, number))
            source, target = ends[0] if begins else between, ends[1] if stops else between
            call = replace(whole.call, lengths=(digits.factors[number],), batch=source.batch)
            step = Transform(
                call=replace(call, input=source.view, output=target.view),
                forward=whole.forward != returning,
                source=whole.source if begins else room,
                target=whole.target if stops else room,
                load=whole.load if begins else None,
                transfer=whole.transfer if number == last else None,
                block=Lines.between(source, target, (given if begins else None, kept if stops else None)),
                part=digits.step(number, returning),
            )
            found.append(step)
        return found

    def _follow(self, problem: Problem, family: Family, group: Shape) -> None:
        """What the data become by a transform of a problem's: only own kernels leave out what is not kept."""
        extents = problem.kept if problem.kept and self.fuse.block else problem.full_shape
        new = {axis: extents[axis] for axis in group}
        if family == "r2c":
            new[problem.axes[-1]] = problem.lengths[-1] // 2 + 1
        self.shape = replaced(self.shape, new)
        self.dtype = {"r2c": self.complex, "c2r": self.real, "c2c": self.dtype}[family]

    def _load(self, group: Shape, batch: Shape, away: bool) -> tuple[Hook, Shape]:
        """The waiting map as a callback: cuFFT sees the source as it is, or a dense array that is nowhere.

        With `away` it is given a room to write to.
        """
        self.waiting, role, self.role = False, self.role, None
        source = self.here.layout
        if (source.shape, source.dtype) == (self.shape, self.dtype) and not (away or self.fuse.gather):
            split = self._split(self.here, group, batch)
            side = None if split is None else self._seen(self.here, group, batch, split)
            if side and side.nested(self.shape):
                return Hook(Map(role, self.here, self.here), side, direct=True), batch
        batch = tuple(a for a in self.out.layout.order() if a not in group)
        order = interleaved(source.order(), group, batch)
        virtual = self._room(order) if away else Buffer("cuFFT", dense(self.shape, self.dtype, order))
        split = self._split(self.out, group, batch) or 0
        side = _visible(self._seen(virtual, group, batch, split))
        return Hook(Map(role, self.here, virtual), side, direct=False), batch

    def _between(self, there: Problem, family: Family, group: Shape, batch: Shape) -> Hook:
        """The transfer function between two transforms of one step: it sees the spectrum line after line."""
        shape = replaced(self.shape, {group[0]: there.spectrum_shape[group[0]]})
        spectrum = Buffer("spectrum", dense(shape, self.complex, (*batch, *group)))
        map_ = self._after(there, spectrum, last=False)
        assert map_ is not None
        function = self.pipeline.functions[map_.role] if map_.role else None
        arrays = function is not None and bool(function.arrays)  # of a long axis, neighbours are on different lines
        across = arrays if group[0] in self.long else function is not None and function.reads_across(group[0])
        return Hook(map_, _visible(_seen(spectrum, group, batch, 0)), direct=True, axis=group[0], across=across)

    def _after(self, problem: Problem, target: Buffer, last: bool) -> Map | None:
        """What is to be done to a problem's result, or None.

        A filter's factor goes with its transfer function, after it: the inverse transform is linear.
        """
        wanted: Role = "epilog" if last else "transfer"
        role = wanted if wanted in self.pipeline.functions else None
        if last and self.narrows and target == self.out:
            return None
        scale = problem.scale if len(self.pipeline.problems) == 1 else 1.0 if last else self.pipeline.problems[-1].scale
        end = self.out if last else target
        return Map(role, target, end, scale, not last) if role or scale != 1 or end != target else None

    def _target(self, family: Family, group: Shape, batch: Shape, split: int, last: bool) -> tuple[Buffer, Side]:
        """Where a transform writes: to the result at last, else where its input lies if it may, or to a room."""
        # Where the lines of the source follow each other evenly, those of the target need not.
        even = self.fuse.block and split == 0 and self.here.tile == 1
        splits = range(max(1, len(batch))) if even else (split,)
        for buffer in self._targets(family, last):
            if side := next(filter(None, (_seen(buffer, group, batch, k) for k in splits)), None):
                return buffer, side
        order = interleaved(self.out.layout.order(), group, batch)
        turned = self.here.layout.order() if self.here.tile > 1 else order
        fits = family != "c2r" and split == 0 and turned[-2:] == self.tiled
        extent = self.shape[self.tiled[0]] if self.tiled else 0
        tile = self.fuse.tile or TILES.get(extent, TILE)
        room = self._room(turned, tile) if fits and extent % tile == 0 else self._room(order)
        return room, _visible(_seen(room, group, batch, split))

    def _end(self, digits: Split, last: bool, returning: bool) -> tuple[Buffer, Side]:
        """Likewise where a long transform writes, or a filter that returns to its first step."""
        step = 0 if returning else digits.steps - 1
        for buffer in self._targets("c2c", last):
            if side := digits.end(buffer.layout, step, not returning):
                return buffer, side
        room = self._room((*digits.outer, digits.axis, *digits.inner))
        return room, _visible(digits.end(room.layout, step, not returning))

    def _targets(self, family: Family, last: bool) -> list[Buffer]:
        """Where a transform may write, but for new rooms."""
        in_place = [self.here] if self.here.writable and family == "c2c" else []
        buffers = [self.out, *in_place] if last else [*in_place, self.out]
        return [each for each in buffers if self._holds(each.layout, last)]

    def _holds(self, layout: Layout, last: bool) -> bool:
        """Whether a buffer may hold what a transform gives, at last in half precision where that is stored at once."""
        dtype = HALF.get(layout.dtype, layout.dtype) if last and self.narrows else layout.dtype
        return (layout.shape, dtype) == (self.shape, self.dtype)

    def _move(self, problem: Problem, axes: Shape) -> None:
        """The map on the way in, as a callback to be or as a kernel that writes what cuFFT can see."""
        if self.here.name == "x" and self.fuse.load and not self.waiting:
            self.waiting = True
            return
        role, self.role, self.waiting = self.role, None, False
        order, real = self.here.layout.order(), problem.axes[-1]
        transform = [a for a in order if a in axes]
        if problem.kind.family != "c2c" and real in axes:
            transform.remove(real)
            last = problem.kind.family == "c2r" and len(axes) > MOST_AXES  # the real axis has to wait outside
            transform.insert(0 if last else len(transform), real)
        batch = tuple(a for a in self.out.layout.order() if a not in axes)
        fits = (self.out.layout.shape, self.out.layout.dtype) == (self.shape, self.dtype)
        whole = seen(self.out.layout, tuple(transform), batch)
        if fits and whole and self.here.name == "x":
            target = self.out
        else:
            target = self._room(interleaved(order, tuple(transform), batch))
        self.steps.append(Map(role, self.here, target))
        self.here = target

    def _room(self, order: Shape, tile: int = 1) -> Buffer:
        return self._keep(dense(self.shape, self.dtype, order), tile)

    def _keep(self, layout: Layout, tile: int = 1) -> Buffer:
        room = Buffer(f"room {len(self.rooms) + 1}", layout, tile)
        self.rooms.append(room)
        return room


def _seen(buffer: Buffer, group: Shape, batch: Shape, split: int) -> Side | None:
    return seen(buffer.layout, group, batch, split) if buffer.tile == 1 else tiled(buffer.layout, buffer.tile, *group)


def _visible(side: Side | None) -> Side:
    assert side is not None, "the axes of a transform cannot be seen"
    return side
