"""Timings of strategies, kept in the artifact store so that the same problem need not be timed twice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mathfuse.runtime.cache import Artifact, default_store


@dataclass(frozen=True)
class Row:
    """A way of doing something and its median time; infinite where it cannot be done, and why not."""

    name: str
    milliseconds: float = math.inf
    why_not: str = ""

    @property
    def result(self) -> str:
        """The time, or why there is none."""
        return self.why_not or f"{1e3 * self.milliseconds:.1f} µs"


def recall(key: str) -> tuple[Row, ...]:
    """The rows remembered for a problem; none if it was never timed on this device with these libraries."""
    artifact = default_store().get(_named(key))
    if artifact is None:
        return ()
    return tuple(Row(name, math.inf if ms is None else ms, why) for name, ms, why in artifact.metadata["rows"])


def remember(key: str, rows: Sequence[Row]) -> None:
    numbers = [[row.name, None if row.why_not else row.milliseconds, row.why_not] for row in rows]
    default_store().put(_named(key), Artifact(b"", {"rows": numbers}))


def fastest(rows: Sequence[Row]) -> Row:
    return min(rows, key=lambda row: row.milliseconds)


def _named(key: str) -> str:
    return f"tuning 3; {key}"
