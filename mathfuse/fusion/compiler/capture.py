"""What a callback captures: the objects that its code names in globals, closures and modules, and those of its helpers."""

from __future__ import annotations

import dis
import types
from collections.abc import Iterator
from typing import Any

from mathfuse.epilogs import Callback

LOADS_GLOBAL = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})
LOADS_CELL = frozenset({"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"})
LOADS_ATTRIBUTE = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
MISSING = object()


def named_objects(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """``(name, object)`` for each global, closure cell and module attribute that the function's code loads."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
    for code in _codes(function.__code__):
        path, value = "", MISSING
        for instruction in dis.get_instructions(code):
            name = str(instruction.argval)
            if instruction.opname in LOADS_GLOBAL:
                path, value = name, function.__globals__.get(name, MISSING)
            elif instruction.opname in LOADS_CELL and name in cells:
                path, value = name, _contents(cells[name])
            elif instruction.opname in LOADS_ATTRIBUTE and isinstance(value, types.ModuleType):
                path, value = f"{path}.{name}", getattr(value, name, MISSING)
            else:
                value = MISSING
            if value is not MISSING:
                yield path, value


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return MISSING


def plain_function(value: Any) -> types.FunctionType | None:
    """The Python function behind a helper: itself, a dispatcher's ``py_func``, or a one-link callback's."""
    value = getattr(value, "py_func", value)
    links = getattr(value, "links", None)
    if links and len(links) == 1:
        value = links[0].function
    return value if isinstance(value, types.FunctionType) else None


def is_array(value: Any) -> bool:
    """An array of any framework (NumPy scalars are numbers)."""
    return not isinstance(value, type) and (hasattr(value, "__array_interface__") or hasattr(value, "__dlpack__")) and getattr(value, "ndim", 0) > 0


def captured_arrays(callback: Callback) -> dict[str, Any]:
    """Arrays found in globals and closures of the links and their helpers, by a name that is the same in every process."""
    found: dict[str, Any] = {}
    seen: set[Any] = set()

    def walk(function: types.FunctionType, path: str) -> None:
        if function in seen or (function.__module__ or "").startswith(("numpy", "math", "mathfuse.")):
            return
        seen.add(function)
        for name, value in named_objects(function):
            if is_array(value) and not any(value is other for other in found.values()):
                found[f"{path}:{name}"] = value
            elif helper := plain_function(value):
                walk(helper, f"{path}:{name}")

    for number, link in enumerate(callback.links):
        walk(link.function, str(number))
    return found
