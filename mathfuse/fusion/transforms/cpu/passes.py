"""A transform as a list of passes, one an axis, and a pass as a list of boxes: pure decisions, no arrays.

A pass reads boxes of its source that are full along its axis, takes each through all of its steps while it is in the
cache, and writes it to its target. The order of the steps is the meaning of a callback: prolog, pad or truncate,
transform, scale, epilog.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from mathfuse.fusion.transforms.kinds import Problem, Shape, replaced
from mathfuse.fusion.transforms.pipeline import Role

Box = tuple[slice, ...]
CACHE_LINE = 64  # bytes: no box is narrower across its lines, which fills the lanes of a vector unit, too
SMALL = 1 << 18  # bytes of work below which a second thread costs more than it brings


@dataclass(frozen=True)
class Fft:
    """SciPy's one-dimensional transform `op` of `length` logical elements, along the axis of its pass.

    With `kept` only the first elements of its result go on.
    """

    op: str
    length: int
    norm: str | None = None
    kept: int | None = None

    @property
    def reads(self) -> int:
        return self.length // 2 + 1 if self.op == "irfft" else self.length

    @property
    def writes(self) -> int:
        return self.kept or (self.length // 2 + 1 if self.op == "rfft" else self.length)

    def __str__(self) -> str:
        return f"{self.op}({self.length})" + (f" → {self.kept} kept" if self.kept else "")


@dataclass(frozen=True)
class Apply:
    """The callback of that role, on every element."""

    role: Role


Step = Fft | Apply


@dataclass(frozen=True)
class Pass:
    """`steps` along `axis`; `extents` are those of the source's data: what a transform lacks of it is padding."""

    axis: int
    steps: tuple[Step, ...]
    extents: Shape
    source: Literal["x", "work"]
    target: Literal["work", "out"]

    @property
    def transforms(self) -> list[Fft]:
        return [step for step in self.steps if isinstance(step, Fft)]

    @property
    def result_extents(self) -> Shape:
        """Those of the target's data."""
        return replaced(self.extents, {self.axis: self.transforms[-1].writes})

    def __str__(self) -> str:
        steps = [str(s) if isinstance(s, Fft) else s.role for s in self.steps]
        return f"axis {self.axis}: " + " → ".join([self.source, *steps, self.target])


def transform_passes(problem: Problem, roles: Collection[Role] = ()) -> list[Pass]:
    """The passes of one transform with the callbacks in `roles`: rows before columns, the real axis first or last."""
    family, real, transforms = problem.kind.family, problem.axes[-1], _transforms(problem)
    order = sorted(problem.axes, reverse=True)
    if family != "c2c":
        order.remove(real)
        order.insert(0 if family == "r2c" else len(order), real)
    return _linked([(a, [transforms[a]]) for a in order], problem.shape, roles)


def filter_passes(there: Problem, back: Problem, roles: Collection[Role] = ()) -> list[Pass]:
    """Forward, transfer, inverse: the last axis to go forward comes back in the same pass, while it is hot."""
    order = there.axes[-1], *sorted(there.axes[:-1], reverse=True)
    forward, inverse = _transforms(there), _transforms(back)
    *first, last = order
    turn: tuple[int, list[Step]] = last, [forward[last], Apply("transfer"), inverse[last]]
    work: list[tuple[int, Sequence[Step]]] = [
        *((a, [forward[a]]) for a in first),
        turn,
        *((a, [inverse[a]]) for a in reversed(first)),
    ]
    return _linked(work, there.shape, roles)


def _transforms(problem: Problem) -> dict[int, Fft]:
    """The one-dimensional transform of each axis."""
    kind, kept = problem.kind, problem.kept or problem.full_shape
    return {
        a: Fft(
            kind.along_real_axis if a == problem.axes[-1] else kind.along_other_axes,
            n,
            problem.norm,
            kept[a] if kept[a] < n else None,
        )
        for a, n in zip(problem.axes, problem.lengths)
    }


def _linked(work: Sequence[tuple[int, Sequence[Step]]], shape: Shape, roles: Collection[Role]) -> list[Pass]:
    """Passes with the outer callbacks put in, sources and targets named and the extents of the data followed."""
    reads = {a: step.reads for a, steps in reversed(work) for step in reversed(steps) if isinstance(step, Fft)}
    extents = tuple(min(n, reads.get(a, n)) for a, n in enumerate(shape))
    passes = []
    for i, (axis, steps) in enumerate(work):
        first, last = i == 0, i == len(work) - 1
        prolog = [Apply("prolog")] if first and "prolog" in roles else []
        epilog = [Apply("epilog")] if last and "epilog" in roles else []
        made = Pass(axis, (*prolog, *steps, *epilog), extents, "x" if first else "work", "out" if last else "work")
        passes.append(made)
        extents = made.result_extents
    return passes


def lines_per_box(lines: int, line_bytes: int, itemsize: int, block_bytes: int, workers: int) -> int:
    """How many lines along its axis a box holds: as many as fit `block_bytes`, but enough boxes for every worker."""
    fitting = block_bytes // line_bytes
    if lines * line_bytes > min(block_bytes, SMALL):
        fitting = min(fitting, -(-lines // (4 * workers)))
    grain = max(1, CACHE_LINE // itemsize)
    return max(grain, fitting // grain * grain)


def boxes(extents: Shape, axis: int, order: Shape, lines: int, cut: tuple[int, int] | None = None) -> list[Box]:
    """The boxes of a pass along `axis`, in memory order.

    Parameters
    ----------
    extents
        Of the index space; a box takes all of `axis`.
    order
        The axes, the one with the smallest stride last: it is filled first.
    lines
        The most lines along `axis` a box holds.
    cut
        (axis, position) that no box straddles.
    """
    spans: dict[int, list[slice]] = {axis: [slice(None)]}
    for a in reversed([a for a in order if a != axis]):
        size = max(1, min(extents[a], lines))
        lines //= size
        edges = {*range(0, extents[a], size), extents[a]}
        if cut and cut[0] == a and cut[1] < extents[a]:
            edges.add(cut[1])
        spans[a] = [slice(i, j) for i, j in itertools.pairwise(sorted(edges))]
    place = [order.index(a) for a in range(len(order))]
    return [tuple(box[i] for i in place) for box in itertools.product(*(spans[a] for a in order))]


def stride_conflicts(stride: int) -> bool:
    """Whether elements `stride` bytes apart share so few sets of a cache that a column of them evicts itself."""
    return stride % 1024 == 0 and stride != 0
