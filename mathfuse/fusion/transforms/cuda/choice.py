"""Which way of fusing a plan takes: by the rule of costs, by timings that are remembered, or by timing now."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace

from mathfuse.device.fft.steps import LONGEST_STEP
from mathfuse.fusion.elementwise.layouts import Layout
from mathfuse.fusion.transforms.cuda.blocks import fits_blocks
from mathfuse.fusion.transforms.cuda.builder import build
from mathfuse.fusion.transforms.cuda.code import units_of
from mathfuse.fusion.transforms.cuda.costs import cost, share
from mathfuse.fusion.transforms.cuda.engine import Engine, engine
from mathfuse.fusion.transforms.cuda.flaws import flaw
from mathfuse.fusion.transforms.cuda.program import Fuse, Hook, Program, Transform
from mathfuse.fusion.transforms.cuda.trials import Trials, with_settings
from mathfuse.fusion.transforms.pipeline import Pipeline
from mathfuse.fusion.tuning import Row, Tuning, fastest, recall, remember
from mathfuse.runtime.cuda import cufft, driver
from mathfuse.runtime.cuda.frameworks import Framework
from mathfuse.runtime.errors import UnsupportedError
from mathfuse.runtime.notes import unnoted

FUSES = (Fuse(), Fuse(True, True), Fuse(True, False), Fuse(False, True))
GATHERING = (Fuse(True, True, True), Fuse(True, False, True))
BLOCKS = Fuse(True, True, block=True)  # an own kernel loses nothing by callbacks
OTHERS = [replace(BLOCKS, tile=tile) for tile in (4, 8, 16)]  # rows that may lie interleaved between them
SHORTER = replace(BLOCKS, longest=LONGEST_STEP)  # in more steps, where a block of a small GPU has too little room
TOO_LONG = (
    "own kernels transform axes of at most 16384 elements, 8192 in float64 or on small GPUs, or longer complex ones in "
    "steps, that have small factors only: no primes above 13, and few of 7 to 13"
)
TWICE = (
    "own kernels call callbacks on half spectra twice for some elements, which what assigns to an operand may not be"
)


@dataclass(frozen=True)
class Place:
    """Where a program runs."""

    framework: Framework
    device: int


@dataclass(frozen=True)
class Job:
    """What is to be computed, where, from and to which layouts, and how ways are timed.

    `arrange` gives the pipeline with operands as a program reads them best.
    """

    pipeline: Pipeline
    place: Place
    x: Layout
    out: Layout
    arrange: Callable[[Program], Pipeline]
    time: Callable[[Engine], float] | None
    tuning: Tuning

    @property
    def arch(self) -> str:
        return driver.architecture(self.place.device)


@dataclass(frozen=True)
class Chosen:
    """An engine and why it was taken; `rejected` are the other ways, each with the reason, `rows` what was timed."""

    engine: Engine
    reason: str
    rejected: tuple[tuple[str, str], ...] = ()
    rows: tuple[Row, ...] = ()


def candidates(pipeline: Pipeline, x: Layout, out: Layout, arch: str) -> list[Program]:
    """The different programs there are on a GPU architecture: without callbacks first, by own kernels last."""
    found: dict[object, Program] = {}
    for fuse in (*FUSES, *(() if x.is_dense(x.order()) else GATHERING)):
        program = build(pipeline, x, out, fuse)
        found.setdefault(program.steps, program)
    own, why = by_blocks(pipeline, x, out, arch)
    return [*found.values(), *(() if why else (own,))]


def by_blocks(pipeline: Pipeline, x: Layout, out: Layout, arch: str) -> tuple[Program, str]:
    """The program of own kernels, and why it cannot be."""
    for fuse in (BLOCKS, SHORTER):
        program = build(pipeline, x, out, fuse)
        if not (why := unfit(program, pipeline, arch)):
            break
    return program, why


def unfit(program: Program, pipeline: Pipeline, arch: str) -> str:
    """Why own kernels cannot run it; empty where they can."""
    blocks = [step for step in program.transforms if step.block]
    if not all(fits_blocks(step, arch) for step in blocks):
        return TOO_LONG
    halves = [hook for step in blocks for hook in step.hooks if _on_half_spectrum(step, hook)]
    return TWICE if any(hook.map.role and pipeline.functions[hook.map.role].assigned for hook in halves) else ""


def _on_half_spectrum(step: Transform, hook: Hook) -> bool:
    return (hook is step.transfer and step.call.family == "r2c") or (hook is step.load and step.call.family == "c2r")


def name_of(program: Program) -> str:
    """The strategy: ``"kernel"`` of own kernels, ``"callback"`` where anything is fused, else ``"sequence"``."""
    return "kernel" if program.fuse.block else "callback" if program.hooks else "sequence"


def label(program: Program) -> str:
    """The strategy, what is fused, and how many rows lie interleaved where that is not the usual number."""
    name = name_of(program)
    if program.fuse.tile:
        name += f" on {program.fuse.tile} rows"
    if not program.hooks:
        return name
    inside = " and ".join(
        hook.map.role or ("conversion" if hook is step.load else "scale")
        for step in program.transforms
        for hook in step.hooks
    )
    gathered = ", input gathered" if program.fuse.gather else ""
    return f"{name} ({inside} inside{', the rest in kernels' if program.maps else ''}{gathered})"


def choose(
    pipeline: Pipeline,
    x: Layout,
    out: Layout,
    place: Place,
    strategy: str | None,
    time: Callable[[Engine], float] | None = None,
    arrange: Callable[[Program], Pipeline] | None = None,
    tuning: Tuning | None = None,
) -> Chosen:
    """The engine for these layouts.

    Parameters
    ----------
    strategy
        Asked for; None leaves the choice open.
    time
        Gives milliseconds of an engine, where ways are to be timed unless they were before.
    arrange
        Gives the pipeline for a program, with copies of operands that it reads faster.
    tuning
        How ways are timed.
    """
    job = Job(pipeline, place, x, out, arrange or (lambda program: pipeline), time, tuning or Tuning())
    version = cufft.version()
    programs = candidates(pipeline, x, out, job.arch)
    found = [(program, flaw(program, version)) for program in programs]
    rejected = [(label(p), why) for p, why in found if why]
    if not any(program.fuse.block for program in programs):
        _, why = by_blocks(pipeline, x, out, job.arch)
        if strategy == "kernel":
            raise UnsupportedError(f'{why}: take strategy="callback" or "sequence", or leave the choice open')
        rejected.append(("kernel", why))
    chosen = _chosen([p for p, why in found if not why], job, strategy)
    return replace(chosen, rejected=(*chosen.rejected, *rejected))


def _chosen(programs: list[Program], job: Job, strategy: str | None) -> Chosen:
    if not strategy:  # where there is nothing to fuse, a library serves
        programs = [p for p in programs if p.fuses or not p.fuse.block]
    wanted = [p for p in programs if strategy in (None, name_of(p))] or programs[:1]
    if strategy == "callback":  # as much as can be
        wanted = sorted(wanted, key=lambda p: -len(p.hooks))
    one = len(wanted) == 1 and not wanted[0].fuse.block
    if not one and strategy != "callback":
        ways, rows = _timings({label(program): program for program in wanted}, _key(programs[0], job), job)
        if rows:
            return _by_rows(ways, rows, job)
    if one or strategy:
        return _first_that_works(wanted, job, _why_only(programs, strategy))
    return _by_rule(wanted, job)


def _timings(usual: dict[str, Program], key: str, job: Job) -> tuple[dict[str, Program], tuple[Row, ...]]:
    """The ways and those with other rooms, and timings, old or new; none unless all of the first were timed."""
    known = recall(key)
    again = job.tuning.again and job.time
    missing = [name for name in usual if again or name not in {row.name for row in known}]
    if missing and not job.time:
        return usual, ()
    ways = usual | {label(program): program for program in _in_other_rooms(list(usual.values()), job)}
    if missing and job.time:
        new = [(name, program) for name, program in ways.items() if name in missing or program.fuse.tile]
        rows = Trials(functools.partial(_timed, job, job.time), job.tuning).rows(new, job.arch)
        old = [row for row in known if row.name not in {row.name for row in rows}]
        known = remember(key, (*old, *rows))
    rows = tuple(row for row in known if row.name in ways)
    return ways, rows if any(not row.why_not for row in rows) else ()


def _in_other_rooms(programs: list[Program], job: Job) -> list[Program]:
    """Own kernels between which other numbers of rows lie interleaved, where any do."""
    usual = _tiles(*programs)
    found = [build(job.pipeline, job.x, job.out, fuse) for fuse in OTHERS] if usual else []
    return [p for p in found if _tiles(p) - usual and not unfit(p, job.pipeline, job.arch)]


def _tiles(*programs: Program) -> set[int]:
    """How many elements of lines lie together between own kernels."""
    return {tile for p in programs for step in p.transforms if step.block for tile in step.block.tiles} - {1}


def _timed(job: Job, time: Callable[[Engine], float], program: Program) -> float:
    with unnoted():  # what is not taken is no part of a plan
        return time(_ready(program, job))


def _why_only(programs: list[Program], strategy: str | None) -> str:
    if strategy:
        return "as asked for" if any(name_of(p) == strategy for p in programs) else "there is nothing to fuse"
    return "there is nothing to fuse: no callback, scale or conversion"


def _first_that_works(wanted: list[Program], job: Job, reason: str) -> Chosen:
    rejected: list[tuple[str, str]] = []
    for program in wanted:
        try:
            return Chosen(_ready(program, job), reason, tuple(rejected))
        except UnsupportedError as error:
            rejected.append((label(program), str(error)))
    reasons = "; ".join(f"{name}: {why}" for name, why in rejected)
    raise UnsupportedError(f'{reasons}; take strategy="sequence", or leave the choice open')


def _by_rows(ways: dict[str, Program], rows: tuple[Row, ...], job: Job) -> Chosen:
    best = fastest(rows)
    by_name = {row.name: [each for each in rows if each.name == row.name] for row in rows}
    rejected = tuple((name, fastest(each).result) for name, each in by_name.items() if name != best.name)
    count = len(by_name[best.name])
    reason = f"timed: {best.result}" + (f", the fastest of {count} configurations" if count > 1 else "")
    return Chosen(_ready(with_settings(ways[best.name], best.settings), job), reason, rejected, rows)


def _by_rule(programs: list[Program], job: Job) -> Chosen:
    """The cheapest by the rule; whether callbacks cost cuFFT another pass is seen once there is a plan."""
    slowed: frozenset[Transform] = frozenset()
    open_, probed, failed = list(programs), set(), []
    while True:
        best = min(open_, key=lambda program: cost(program, slowed))
        if best.hooks and best not in probed:
            probed.add(best)
            try:
                found = _ready(best, job)
            except UnsupportedError as error:
                open_.remove(best)
                failed.append((label(best), str(error)))
                continue
            slowed |= _slowed(found, job.place)
            continue
        rejected = [(label(p), _why_not(p, best, slowed)) for p in open_ if p is not best]
        return Chosen(_ready(best, job), _why(best), (*rejected, *failed))


def _ready(program: Program, job: Job) -> Engine:
    """The engine with its lane for the current stream: what cannot be planned fails here."""
    place = job.place
    found = engine(program, job.arrange(program), place.framework, place.device)
    with driver.device_guard(place.device):
        found.lane(place.framework.current_stream(place.device))
    return found


def _slowed(found: Engine, place: Place) -> frozenset[Transform]:
    """Transforms that need more of a work area than they would without callbacks: another pass over memory."""
    with driver.device_guard(place.device):
        work = found.lane(place.framework.current_stream(place.device)).work_bytes
    return frozenset(
        step
        for step, nbytes in zip(found.program.transforms, work)
        if (step.load or step.store) and nbytes > _work_bytes(step.call, place.device)
    )


@functools.lru_cache(maxsize=1024)
def _work_bytes(call: cufft.Call, device: int) -> int:
    """The work area of a transform without callbacks."""
    return cufft.Transform(call, (), device).work_bytes


def _why(program: Program) -> str:
    if program.fuse.block:
        return f"{len(program.steps)} passes over memory by own kernels are the fastest by the rule"
    if not program.hooks:
        return "cuFFT between elementwise kernels is the fastest by the rule"
    return f"{len(program.hooks)} of cuFFT's callbacks in place of as many passes over memory"


def _why_not(program: Program, best: Program, slowed: frozenset[Transform]) -> str:
    reasons = [
        why
        for step in program.transforms
        if not step.block
        for hook in (step.load, step.store)
        if hook
        for why in [share(step, hook)[1]]
        if why
    ]
    if any(step in slowed for step in program.transforms):
        reasons.append("with callbacks cuFFT needs another pass over memory")
    more = f"{cost(program, slowed) / cost(best, slowed):.2f} times the cost by the rule"
    return "; ".join([*dict.fromkeys(reasons), more])


def _key(program: Program, job: Job) -> str:
    device = job.place.device
    units = [unit.key() for _, unit in units_of(program, job.pipeline, job.arch)]
    version = ".".join(map(str, cufft.version()))
    return f"transform; device={driver.name(device)}; cufft={version}; program={program}; {units}"
