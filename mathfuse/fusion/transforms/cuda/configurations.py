"""How own kernels are cut and dealt to threads: by the table of the fastest, by rule, and what tuning tries."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mathfuse.device.fft.block import LEAST_THREADS, Block, Configuration, block_of
from mathfuse.device.fft.shapes import LONG, Stages, cuts, stages_of
from mathfuse.device.fft.steps import deal, sector
from mathfuse.fusion.transforms.cuda.fastest import FASTEST
from mathfuse.fusion.transforms.cuda.layouts import TILE
from mathfuse.fusion.transforms.cuda.program import Program, Transform
from mathfuse.runtime.cuda.cufft import Call, View

# Blocks where the table has none, as measured on an H200.
TURNED, TURNED_THREADS = 4, 256  # transforms of rows that become interleaved, threads of those that cease to be
LONE_THREADS, LONG_COLUMNS = 64, 2  # threads of columns between these; transforms of long ones
COLUMNS, COLUMN_THREADS = 4, 256  # transforms and threads, at most, where a filter's array is read across columns
CUTS = 8  # of a length that tuning tries, the most promising first
TIMES = 1, 2, 0.5, 4, 0.25  # as many transforms of a block as by rule
MULTIPROCESSORS = 132  # of an H200, each of which is to have a block
WARP = 32  # threads that a block has at least which tuning tries


def work_of(step: Transform) -> str:
    """What a kernel does as far as its best configuration depends on it: a key of the table."""
    assert step.block is not None
    across, pieces = _across(step), step.block.tiles != (1, 1)
    if step.part and any(beside(view) for view in (step.call.input, step.call.output)):
        lines = "steps" if across and not pieces else "last steps"
    else:
        lines = "tiled" if pieces else "turned" if _turned(step) else "columns" if across else "rows"
    filtered = "" if not step.transfer else " filtered across" if step.transfer.across else " filtered"
    return f"{lines}, {step.call.family}{filtered}"


def block_for(step: Transform, arch: str) -> Block | None:
    """The block of a step on an architecture: as it is configured, else by the table, else by rule; None of none."""
    assert step.block is not None
    length, double = complex_length(step.call), step.call.double
    table = FASTEST.get((work_of(step), length, double))
    own, known = (
        _made(step, arch, Stages(length, each.radices, each.threads), each.transforms) if each else None
        for each in (step.block.configuration, Configuration.read(table) if table else None)
    )
    return own or _spread(step, arch, known or _by_rule(step, arch, stages_of(length, double)))


def configurations(step: Transform, arch: str) -> list[Configuration]:
    """Those that a step may have on an architecture, the most promising first."""
    found: dict[Configuration, None] = {}
    for stages in cuts(complex_length(step.call), step.call.double)[:CUTS]:
        usual = _by_rule(step, arch, stages)
        counts = [max(1, int(usual.transforms * times)) for times in TIMES] if usual else []
        dealt = dict.fromkeys([usual.stages, stages]) if usual else []
        for block in (_made(step, arch, each, count) for each in dealt for count in counts):
            if block and block.threads >= WARP:
                found.setdefault(block.configuration)
    return list(found)


def configured(program: Program, number: int, configuration: Configuration | None) -> Program:
    """The program with another configuration of one of its steps."""
    step = program.steps[number]
    assert isinstance(step, Transform)
    assert step.block is not None
    changed = replace(step, block=replace(step.block, configuration=configuration))
    return replace(program, steps=(*program.steps[:number], changed, *program.steps[number + 1 :]))


def complex_length(call: Call) -> int:
    """Of the complex transform that does it: of an even number of real ones half as long."""
    n = math.prod(call.lengths)
    return n // 2 if call.family != "c2c" and n % 2 == 0 else n


def beside(view: View) -> bool:
    """Whether lines lie closer together than their elements."""
    return view.distance < view.stride


def _by_rule(step: Transform, arch: str, stages: Stages) -> Block | None:
    of, call = _block_of(step, arch, stages), step.call
    work = work_of(step).partition(",")[0]
    if work in ("steps", "last steps"):
        dealt, lines = deal(stages, call.double)
        return _block_of(step, arch, dealt)(lines)
    if work == "tiled":
        across = step.transfer and step.transfer.across
        usual = min(COLUMN_THREADS // stages.threads, COLUMNS) if across else LONE_THREADS // stages.threads
        return of(LONG_COLUMNS if stages.length > LONG else max(1, usual))
    if work == "turned":
        return of(TURNED if call.family == "r2c" else min(max(TURNED_THREADS // stages.threads, 2), TILE))
    return of(0)


def _spread(step: Transform, arch: str, block: Block | None) -> Block | None:
    """The block, with fewer transforms where there would be too few blocks for the multiprocessors."""
    if not block:
        return None
    beside = 1 if work_of(step).partition(",")[0] in ("rows", "tiled") else sector(step.call.double)
    least, count = max(beside, -(-LEAST_THREADS // block.stages.threads)), block.transforms
    while count // 2 >= least and count * MULTIPROCESSORS > step.call.batch:
        count //= 2
    return _made(step, arch, block.stages, count) or block


def _made(step: Transform, arch: str, stages: Stages, transforms: int) -> Block | None:
    """The block of so many transforms, if there can be one."""
    block = _block_of(step, arch, stages)(transforms)
    return block if block and block.transforms == transforms else None


def _block_of(step: Transform, arch: str, stages: Stages) -> Callable[[int], Block | None]:
    """Blocks of at most so many transforms; of as many as make a good size where that is 0."""
    assert step.block is not None
    work, tile = work_of(step).partition(",")[0], math.gcd(max(step.block.tiles), stages.threads)
    if work == "last steps":  # neighbouring threads read elements that make a sector, and write to neighbouring lines
        tile = sector(step.call.double)
        stages = replace(stages, threads=-(-stages.threads // tile) * tile)
    options: dict[str, dict[str, Any]] = {
        "tiled": {"across": True, "tile": tile}, "last steps": {"across": True, "tile": tile},
        "columns": {"across": True}, "steps": {"across": True}, "turned": {"turned": True},
    }  # fmt: skip
    slack = 1 if step.transfer else 0
    return functools.partial(block_of, stages, step.call.double, arch, slack=slack, **options.get(work, {}))


def _across(step: Transform) -> bool:
    return all(beside(view) for view in (step.call.input, step.call.output))


def _turned(step: Transform) -> bool:
    """Whether packed lines are interleaved on the side of the spectrum, and on that only."""
    call = step.call
    if call.family == "c2c" or step.transfer or call.lengths[0] % 2:
        return False
    spectrum, other = (call.output, call.input) if call.family == "r2c" else (call.input, call.output)
    return beside(spectrum) and not beside(other)
