"""Every notebook runs from top to bottom, and is committed as such a run left it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
LIMIT = 700_000  # bytes of a notebook with its figures
SECONDS = 300  # for one cell, on a busy machine
ABSOLUTE_PATH = re.compile(r"""(?:^|[\s"'(=])/\w[\w.-]*/\w""", re.MULTILINE)

pytestmark = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)


@pytest.mark.slow
def test_runs(path: Path):
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    for package in ("ipykernel", "matplotlib"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    notebook = nbformat.read(path, as_version=4)
    committed = [kinds(cell) for cell in code_cells(notebook)]
    search = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]  # what is tested is this checkout
    environment = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}  # figures go inline
    client = nbclient.NotebookClient(notebook, timeout=SECONDS, resources={"metadata": {"path": str(path.parent)}})
    client.execute(env={**environment, "PYTHONPATH": os.pathsep.join(search)})  # an error in a cell is raised here
    assert [kinds(cell) for cell in code_cells(notebook)] == committed, "its outputs are not the committed ones' kind"


def test_is_committed_as_executed(path: Path):
    cells = code_cells(nbformat.read(path, as_version=4))
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1)), "run all cells in a new kernel"
    assert any(cell.outputs for cell in cells)
    assert not {"error", "stderr"} & {kind for cell in cells for kind in kinds(cell)}


def test_is_small_and_names_no_folder_of_its_author(path: Path):
    assert path.stat().st_size < LIMIT
    for cell in code_cells(nbformat.read(path, as_version=4)):
        for output in cell.outputs:
            shown = [output.get("text", ""), *(v for k, v in output.get("data", {}).items() if k.startswith("text/"))]
            assert not [text for text in shown if ABSOLUTE_PATH.search(text)]


def code_cells(notebook: Any) -> list[Any]:
    """The cells that a kernel runs and counts."""
    return [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]


def kinds(cell: Any) -> set[str]:
    """What a cell puts out: media types, names of streams, "error"."""
    return {kind for output in cell.outputs for kind in output.get("data", [output.get("name", output.output_type)])}
