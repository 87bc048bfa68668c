"""The shape of the house: imports run downward only, libraries stay in their rooms, files stay small."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "mathfuse"

# From the ground up; a room may import from its own level and from those below it.
LEVELS = [
    {"mathfuse.runtime"},
    {"mathfuse.epilogs", "mathfuse.device"},
    {"mathfuse.fusion.compiler.emit"},
    {"mathfuse.fusion.compiler.language"},
    {"mathfuse.fusion.compiler.fingerprint"},
    {"mathfuse.fusion.compiler.signature"},
    {"mathfuse.fusion.compiler.key", "mathfuse.fusion.compiler.parameters", "mathfuse.fusion.compiler.analysis"},
    {"mathfuse.fusion.compiler.reader"},
    {"mathfuse.fusion.compiler.lowering"},
    {"mathfuse.fusion.compiler.cpu", "mathfuse.fusion.compiler.cuda"},
    {"mathfuse.fusion.compiler"},
    {"mathfuse.fusion.plan", "mathfuse.fusion.saved", "mathfuse.fusion.tuning", "mathfuse.fusion.workers"},
    {"mathfuse.fusion.elementwise"},
    {"mathfuse.fusion.transforms", "mathfuse.fusion.products"},
    {"mathfuse.fft", "mathfuse.linalg", "mathfuse.random", "mathfuse.torch"},
    {"mathfuse.cli", "mathfuse.__main__"},
]
RANK = {room: rank for rank, rooms in enumerate(LEVELS) for room in rooms}

# The only places that may import a library; everywhere else it is reached through them.
LIBRARIES = {
    "numba": ("mathfuse.fusion.compiler.language.frontend",),
    "llvmlite": ("mathfuse.fusion.compiler", "mathfuse.device"),
    "cuda": ("mathfuse.runtime.cuda", "mathfuse.fusion.compiler.cuda", "mathfuse.cli.doctor"),
    "ctypes": ("mathfuse.runtime", "mathfuse.fusion.compiler.cpu.kernels", "mathfuse.fusion.compiler.cpu.native"),
}


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        yield name.removesuffix(".__init__"), path


MODULES = dict(modules())


def imports(name: str) -> set[str]:
    """The modules that `name` imports anywhere in its text, inside functions and for type checking too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(MODULES[name].read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = absolute(name, node)
            for alias in node.names:
                full = f"{source}.{alias.name}"
                found.add(full if full in MODULES else source)
    return found


def absolute(name: str, node: ast.ImportFrom) -> str:
    """The module that a `from … import` in module `name` reads, relative or not."""
    if node.level == 0:
        return str(node.module)
    package = name.split(".") if MODULES[name].name == "__init__.py" else name.split(".")[:-1]
    return ".".join(package[: len(package) - node.level + 1] + (node.module.split(".") if node.module else []))


def inside(name: str, room: str) -> bool:
    return name == room or name.startswith(room + ".")


def room_of(name: str) -> str | None:
    return next((room for room in RANK if inside(name, room)), None)


@pytest.mark.parametrize("name", MODULES)
def test_imports_run_downward(name):
    room = room_of(name)
    if room is None:
        assert name in ("mathfuse", "mathfuse.fusion"), f"{name} is in no room of the house: add it to LEVELS"
        return
    for imported in imports(name):
        other = room_of(imported)
        if other is not None:
            assert RANK[other] <= RANK[room], f"{name} imports {imported}, which stands above it"


def test_rooms_of_one_level_do_not_import_each_other_in_a_circle():
    edges = {(room_of(name), room_of(imported)) for name in MODULES for imported in imports(name)}
    assert not {(a, b) for a, b in edges if a and b and a != b and (b, a) in edges}


@pytest.mark.parametrize("library", LIBRARIES)
def test_libraries_stay_in_their_rooms(library):
    guests = {name for name in MODULES for imported in imports(name) if inside(imported, library)}
    assert not {name for name in guests if not any(inside(name, room) for room in LIBRARIES[library])}


def test_the_package_itself_imports_its_parts_for_type_checkers_only():
    tree = ast.parse(MODULES["mathfuse"].read_text())
    eager = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert not {node.lineno for node in eager if "mathfuse" in ast.unparse(node)}


@pytest.mark.parametrize("path", MODULES.values(), ids=MODULES)
def test_files_are_small_and_finished(path):
    lines = path.read_text().splitlines()
    assert len(lines) <= 500
    assert not [line for line in lines if any(word in line for word in ("TODO", "FIXME", "XXX", "NotImplementedError"))]
