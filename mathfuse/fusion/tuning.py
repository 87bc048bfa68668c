"""Timings of strategies, kept in the artifact store so that the same problem need not be timed twice."""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mathfuse.runtime.cache import Artifact, default_store

VERSION = 4  # of rows and of what is timed: those of other versions are not found
ITERATIONS = 9  # timings of a way, of which the median counts
QUICK = 4  # configurations of a kernel that `plan` times


@dataclass(frozen=True)
class Tuning:
    """How ways are to be timed.

    Parameters
    ----------
    iterations
        Timings of each way.
    most
        Configurations of each own kernel, the most promising first; None: all.
    again
        Also where timings are remembered.
    report
        Told of each timing.
    """

    iterations: int = ITERATIONS
    most: int | None = QUICK
    again: bool = False
    report: Callable[[Row], None] | None = None


@dataclass(frozen=True)
class Row:
    """A way of doing something and its median time; infinite where it cannot be done, and why not.

    `settings` tell ways of one name apart. What is in the way of one that is `passing` may be gone another time: it is
    not remembered.
    """

    name: str
    milliseconds: float = math.inf
    why_not: str = ""
    settings: tuple[str, ...] = ()
    passing: bool = False

    def __str__(self) -> str:
        return "; ".join([self.name, *filter(None, self.settings)])

    @property
    def result(self) -> str:
        """The time, or why there is none."""
        return " ".join(self.why_not.split()) or f"{1e3 * self.milliseconds:.1f} µs"


class Progress:
    """Shows in one line of standard error what is timed, and the best so far; `close` ends the line."""

    def __init__(self) -> None:
        self.count, self.best, self._width = 0, Row("none yet", why_not="none yet"), 0

    def __call__(self, row: Row) -> None:
        self.count, self.best = self.count + 1, fastest([self.best, row])
        best = "none yet" if self.best.why_not else f"{self.best.result} ({self.best})"
        text = f"{self.count} timed, best {best}; last {row.result} ({row})"
        text = text[: shutil.get_terminal_size().columns - 1]
        sys.stderr.write("\r" + text.ljust(self._width))
        sys.stderr.flush()
        self._width = len(text)

    def close(self) -> None:
        if self.count:
            sys.stderr.write("\n")


def recall(key: str) -> tuple[Row, ...]:
    """The rows remembered for a problem; none if it was never timed on this device with these libraries."""
    artifact = default_store().get(_named(key))
    rows = artifact.metadata.get("rows") if artifact else None
    if not isinstance(rows, list) or not all(map(_is_row, rows)):
        return ()
    return tuple(Row(name, math.inf if ms is None else ms, why, tuple(settings)) for name, ms, why, settings in rows)


def remember(key: str, rows: Sequence[Row]) -> tuple[Row, ...]:
    """Keep the rows of a problem, and give them as they are remembered, with those that are not."""
    lasting = [row for row in rows if not row.passing]
    kept = [
        [r.name, r.milliseconds if math.isfinite(r.milliseconds) else None, r.why_not, [*r.settings]] for r in lasting
    ]
    default_store().put(_named(key), Artifact(b"", {"rows": kept}))
    return (*(recall(key) or lasting), *(row for row in rows if row.passing))


def ranked(rows: Sequence[Row]) -> list[Row]:
    """Those that were timed, the fastest first."""
    return sorted((row for row in rows if not row.why_not), key=lambda row: row.milliseconds)


def fastest(rows: Sequence[Row]) -> Row:
    return min(rows, key=lambda row: row.milliseconds)


def _is_row(row: object) -> bool:
    """A name, milliseconds or None, why not, and settings, as JSON gives them back."""
    match row:
        case [str(), int() | float() | None, str(), [*settings]]:
            return all(isinstance(each, str) for each in settings)
    return False


def _named(key: str) -> str:
    return f"tuning {VERSION}; {key}"
