"""Timings of ways of fusing, and of the configurations of own kernels among them, one kernel after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from mathfuse.device.fft.block import Configuration
from mathfuse.fusion.transforms.cuda.configurations import block_for, configurations, configured
from mathfuse.fusion.transforms.cuda.program import Program, Transform, moved_bytes
from mathfuse.fusion.tuning import Row, Tuning
from mathfuse.runtime.errors import PlanError, UnsupportedError

HOPEFUL = 1.5  # times the fastest way: own kernels that take longer are not worth other configurations


@dataclass(frozen=True)
class Trials:
    """What times a program in milliseconds, and how much of that is wanted."""

    time: Callable[[Program], float]
    tuning: Tuning

    def rows(self, named: Sequence[tuple[str, Program]], arch: str) -> tuple[Row, ...]:
        """A row for each program, and for other configurations of the kernels in the better ones."""
        rows = [(self._row(name, program), program) for name, program in named]
        least = min(row.milliseconds for row, _ in rows)
        for row, program in tuple(rows):
            if program.fuse.block and not row.why_not and row.milliseconds <= HOPEFUL * least:
                rows += self._configured(row, program, arch)
        return tuple(row for row, _ in rows)

    def _configured(self, first: Row, program: Program, arch: str) -> Iterator[tuple[Row, Program]]:
        """Each kernel in other configurations, the others being the best so far, those that move most first."""
        best = first, program
        blocks = [k for k, step in enumerate(program.steps) if isinstance(step, Transform) and step.block]
        for number in sorted(blocks, key=lambda k: -moved_bytes(program.steps[k])):
            current = best[1]
            step = current.steps[number]
            assert isinstance(step, Transform)
            usual = block_for(step, arch)
            others = [c for c in configurations(step, arch) if not usual or c != usual.configuration]
            for configuration in others[: self.tuning.most]:
                changed = configured(current, number, configuration)
                row = self._row(first.name, changed)
                yield row, changed
                best = min(best, (row, changed), key=lambda each: each[0].milliseconds)

    def _row(self, name: str, program: Program) -> Row:
        try:
            row = Row(name, self.time(program))
        except UnsupportedError as error:
            row = Row(name, why_not=str(error))
        except PlanError as error:  # the memory does not suffice, now
            row = Row(name, why_not=str(error), passing=True)
        row = replace(row, settings=settings_of(program))
        if self.tuning.report:
            self.tuning.report(row)
        return row


def settings_of(program: Program) -> tuple[str, ...]:
    """The configuration of each step, empty of the usual one; none at all if all are that."""
    found = [_configuration(step) for step in program.steps]
    return tuple(str(c or "") for c in found) if any(found) else ()


def with_settings(program: Program, settings: Sequence[str]) -> Program:
    """The program that `settings_of` told of."""
    for number, text in enumerate(settings):
        if text:
            program = configured(program, number, Configuration.read(text))
    return program


def _configuration(step: object) -> Configuration | None:
    return step.block.configuration if isinstance(step, Transform) and step.block else None
