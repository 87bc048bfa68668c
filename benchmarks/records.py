"""What a benchmark on a GPU leaves behind: rows, bounds with met or not met, tables, and a JSON file."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import RESULTS

Row = dict[str, Any]


@dataclass(frozen=True)
class Bound:
    """A claim: a measured number and the most that it may be."""

    what: str
    value: float
    most: float

    @property
    def met(self) -> bool:
        return self.value <= self.most

    def __str__(self) -> str:
        return f"{'met    ' if self.met else 'NOT MET'} {self.value:7.3f} ≤ {self.most:<5g} {self.what}"


def save(
    name: str, machine: Mapping[str, Any], rows: Sequence[Row], bounds: Sequence[Bound], folder: Path | None = None
) -> Path:
    """Write a run to ``NAME.json``; `machine` tells the device, the versions and the settings."""
    record = {"benchmark": name, **machine, "bounds": [asdict(b) for b in bounds], "rows": list(rows)}
    folder = folder or RESULTS
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(_json(record) + "\n")
    return path


def _json(record: Mapping[str, Any]) -> str:
    """A line a row: small enough to read, and to see in a diff what changed."""
    lines = []
    for key, value in record.items():
        if isinstance(value, list):
            inside = ",\n  ".join(json.dumps(each, ensure_ascii=False) for each in value)
            lines.append(f"{json.dumps(key)}: [\n  {inside}\n ]" if value else f"{json.dumps(key)}: []")
        else:
            lines.append(f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}")
    return "{\n " + ",\n ".join(lines) + "\n}"


def load(name: str, folder: Path | None = None) -> dict[str, Any] | None:
    """A run as it was saved; None if there is none."""
    path = (folder or RESULTS) / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def bounds_of(record: Mapping[str, Any]) -> list[Bound]:
    return [Bound(**each) for each in record["bounds"]]


def ratio(rows: Sequence[Row], case: str, name: str, base: str) -> float | None:
    """Time of one variant as a multiple of another's in one case; None where either is missing."""
    found = {row["name"]: row["ms"] for row in rows if row["case"] == case and "ms" in row}
    return found[name] / found[base] if name in found and base in found else None


def pivot(
    rows: Sequence[Row], value: str = "ms", down: str = "case", across: str = "name", show: Callable = "{:.4g}".format
) -> str:
    """A Markdown table: a line for each `down`, a column for each `across`, in the order in which they come."""
    columns = list(dict.fromkeys(row[across] for row in rows))
    cells = {(row[down], row[across]): show(row[value]) for row in rows if row.get(value) is not None}
    lines = [[each, *(cells.get((each, c), "–") for c in columns)] for each in dict.fromkeys(r[down] for r in rows)]
    return table(["", *columns], lines)


def table(head: Sequence[str], lines: Sequence[Sequence[Any]]) -> str:
    """A Markdown table."""
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in [head, ["---"] * len(head), *lines])
