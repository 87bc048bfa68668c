"""A callback's code as a digest: one in every process and on every machine, another whenever a result could differ.

It covers the bytecode of every function that can be reached, and the values of the globals and closure cells that it
names. Arrays count with dtype and rank only: they are run-time data. Line numbers, file names, docstrings and bound
values do not count, and neither do the types of bound values, which belong to what is compiled *for*.
"""

from __future__ import annotations

import dis
import functools
import hashlib
import sys
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from mathfuse.epilogs.callback import Callback
from mathfuse.epilogs.values import Constant, is_array

SCHEMA = 1
MISSING = "missing"

Description = tuple[Any, ...]  # nested tuples of texts, numbers and None: what `ascii` shows the same way everywhere

# Their Python functions are never inlined: a name says which one is meant.
_BY_NAME = {"numpy", "scipy", "torch", "cupy", "jax", "jaxlib", "numba"}
_WITH_NAMES = {*dis.hasname, *dis.haslocal, *dis.hasfree, *dis.hasjrel, *dis.hasjabs, *dis.hascompare}
_SCOPES = {"LOAD_GLOBAL": "global", "LOAD_NAME": "global", **{dis.opname[code]: "free" for code in dis.hasfree}}
_SIGNATURE_FLAGS = 0x04 | 0x08  # inspect.CO_VARARGS, CO_VARKEYWORDS; others say where a function stands


def fingerprint(callback: Callback) -> str:
    """Hexadecimal digest of the code that `callback` stands for now; globals may be others at the next plan."""
    key = _key(callback)
    known = _known.get(key)
    if known is not None and known.unchanged():
        return known.digest
    survey, description = _surveyed(callback)
    digest = hashlib.blake2b(ascii(description).encode(), digest_size=20).hexdigest()
    arrays = any(is_array(value) for value in survey.objects)

    def forget(_: Any) -> None:
        _known.pop(key, None)

    references = tuple(weakref.ref(link.function, forget) for link in callback.links)
    _known[key] = _Known(references, _watch(survey), digest, arrays)
    return digest


def captured_arrays(callback: Callback) -> dict[str, Any]:
    """Arrays in globals, closures, defaults and modules that the callback's code can reach, by a name for each.

    The names are the same wherever the fingerprint is.
    """
    known = _known.get(_key(callback))
    if known is not None and not known.arrays and known.unchanged():
        return {}
    survey, _ = _surveyed(callback)
    return {f"captured.{number}": value for number, value in enumerate(survey.objects) if is_array(value)}


def watch(callback: Callback) -> Callable[[], bool]:
    """Tells, at each call and in about a microsecond, whether what the callback's code names is still the same.

    Objects are compared by identity: an array that was written to is the same. Nothing is kept alive but what globals
    and closures hold.
    """
    return _watch(_surveyed(callback)[0])


def describe(callback: Callback) -> Description:
    """Everything that `fingerprint` digests."""
    return _surveyed(callback)[1]


@dataclass(frozen=True)
class _Known:
    """What a survey found, while what it looked at is unchanged."""

    references: tuple[weakref.ref[FunctionType], ...]
    unchanged: Callable[[], bool]
    digest: str
    arrays: bool


_known: dict[tuple[Any, ...], _Known] = {}


def _key(callback: Callback) -> tuple[Any, ...]:
    return tuple((id(link.function), link.parameters, link.fastmath, link.precision) for link in callback.links)


def _surveyed(callback: Callback) -> tuple[_Survey, Description]:
    """The survey, which numbers objects, and the description."""
    survey = _Survey()
    links = tuple(
        (survey.value(link.function), link.parameters, link.reserved, link.fastmath, link.precision)
        for link in callback.links
    )
    return survey, (SCHEMA, sys.implementation.name, sys.version_info[:2], links, survey.everything())


def _watch(survey: _Survey) -> Callable[[], bool]:
    names: list[tuple[dict[str, Any], str, Any]] = []
    places: list[tuple[ModuleType, str, Any]] = []
    cells: list[tuple[CellType, Any]] = []
    codes: list[tuple[weakref.ref[FunctionType], tuple[Any, ...]]] = []
    for value in survey.objects:
        if isinstance(value, ModuleType):
            places += [(value, name, _attribute(value, name)) for name in survey.attributes]
        if not isinstance(value, FunctionType):
            continue
        codes.append((weakref.ref(value), (value.__code__, value.__defaults__, dict(value.__kwdefaults__ or {}))))
        cells += [(cell, _content(cell)) for cell in value.__closure__ or ()]
        for scope, name, *attributes in _read(value.__code__)[2]:
            if scope == "global":
                names.append((value.__globals__, name, value.__globals__.get(name, MISSING)))
            for count in range(len(attributes)):
                module = _look_up(value, scope, name, *attributes[:count])
                if isinstance(module, ModuleType):
                    places.append((module, attributes[count], _attribute(module, attributes[count])))

    def code_unchanged() -> bool:
        for reference, (code, defaults, named) in codes:
            function = reference()
            if function is None or function.__code__ is not code or function.__defaults__ is not defaults:
                return False
            now = function.__kwdefaults__
            if (now or named) and not _alike(now or {}, named):
                return False
        return True

    def unchanged() -> bool:
        for scope, name, value in names:
            if scope.get(name, MISSING) is not value:
                return False
        for module, name, value in places:
            if _attribute(module, name) is not value:
                return False
        for cell, value in cells:
            if _content(cell) is not value:
                return False
        return code_unchanged()

    return unchanged if names or places or cells else code_unchanged


def _alike(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Whether two mappings hold the same objects."""
    return a.keys() == b.keys() and all(a[name] is b[name] for name in a)


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet, or emptied
        return MISSING


class _Survey:
    """Numbers functions, arrays and modules as they are met; elsewhere the number stands for the object.

    So cycles end, and two names for one array differ from two arrays.
    """

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}  # by id
        self.objects: list[Any] = []  # keeps them alive, and their ids with them
        self.attributes: dict[str, None] = {}  # all names that any code looks up, an ordered set

    def everything(self) -> Description:
        """All objects met from the numbered ones on."""
        described: list[Description] = []
        looked_up: set[tuple[int, str]] = set()
        while True:
            while len(described) < len(self.objects):
                described.append(self._object(self.objects[len(described)]))
            # A module that is a value, `m = settings`, may have any of its attributes read, in a helper even.
            modules = [(k, module) for k, module in enumerate(self.objects) if isinstance(module, ModuleType)]
            new = [(k, m, name) for k, m in modules for name in self.attributes if (k, name) not in looked_up]
            if not new:
                return tuple(described)
            for k, module, name in new:
                looked_up.add((k, name))
                described[k] += ((name, self.value(_attribute(module, name))),)

    def value(self, value: Any) -> Description:
        """What matters of a value that code can name."""
        kind = type(value)
        for types, describer in _DESCRIBERS:
            if isinstance(value, types):
                return kind.__module__, kind.__qualname__, describer(self, value)
        if isinstance(getattr(value, "py_func", None), FunctionType):  # Numba's dispatchers
            return self.value(value.py_func)
        if is_array(value) or isinstance(value, ModuleType):
            return "object", self._number(value)
        return kind.__module__, kind.__qualname__, _qualified_name(value)

    def function(self, function: FunctionType) -> Description:
        by_name = (function.__module__ or "").partition(".")[0] in _BY_NAME
        return _qualified_name(function) if by_name else ("object", self._number(function))

    def _number(self, value: Any) -> int:
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self.objects)
            self.objects.append(value)
        return self._numbers[id(value)]

    def _object(self, value: Any) -> Description:
        if isinstance(value, FunctionType):
            return self._code(value)
        if isinstance(value, ModuleType):
            return ("module", value.__name__)
        if hasattr(value, "dtype") and hasattr(value, "shape"):  # interfaces may refuse: tensors that require grad
            return "array", str(value.dtype), len(value.shape)
        interfaces = (getattr(value, name, None) for name in ("__array_interface__", "__cuda_array_interface__"))
        interface = next(filter(None, interfaces), {"typestr": MISSING, "shape": ()})
        return "array", interface["typestr"], len(interface["shape"])

    def _code(self, function: FunctionType) -> Description:
        instructions, attributes, paths = _read(function.__code__)
        self.attributes.update(dict.fromkeys(attributes))
        named = tuple((path, self.value(_look_up(function, *path))) for path in paths)
        defaults = self.value(function.__defaults__), self.value(tuple((function.__kwdefaults__ or {}).items()))
        return instructions, named, defaults


@functools.lru_cache(maxsize=1024)
def _read(code: CodeType) -> tuple[Description, tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """A function's code without its place in a file, the attributes that it reads, the paths to outer values."""
    constants = _Survey()  # they hold nothing that needs a number
    names = code.co_varnames, code.co_cellvars, code.co_freevars
    counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags & _SIGNATURE_FLAGS
    instructions = []
    # Constants and names by value, not by number: a docstring is a constant, too, and shifts the numbers.
    for step in dis.get_instructions(code):
        operand = constants.value(step.argval) if step.opcode in dis.hasconst else step.arg
        instructions.append((step.opname, step.argval if step.opcode in _WITH_NAMES else operand))
    codes = list(_nested(code))
    attributes = dict.fromkeys(step.argval for c in codes for step in dis.get_instructions(c) if _is_attribute(step))
    paths = dict.fromkeys(path for c in codes for path in _paths(c))
    handlers = getattr(code, "co_exceptiontable", b"")  # Python 3.10 has them among the instructions
    return (names, counts, tuple(instructions), handlers), tuple(attributes), tuple(paths)


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


def _paths(code: CodeType) -> Iterator[tuple[str, ...]]:
    """`("global", "settings", "FACTOR")` for each `settings.FACTOR`: outer names and their chains of attributes."""
    path: tuple[str, ...] = ()
    for step in dis.get_instructions(code):
        if path and _is_attribute(step):
            path += (step.argval,)
            continue
        if path:
            yield path
        scope = _SCOPES.get(step.opname)
        path = (scope, step.argval) if scope else ()


def _is_attribute(step: dis.Instruction) -> bool:
    return step.opname in ("LOAD_ATTR", "LOAD_METHOD")


def _look_up(function: FunctionType, scope: str, name: str, *attributes: str) -> Any:
    """The value at a path as far as it leads through modules; attributes of other objects are read at run time."""
    if scope == "free":
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        try:
            value = cells[name].cell_contents
        except (KeyError, ValueError):  # the function's own cell; one that is not filled yet
            return MISSING
    else:
        builtins = function.__globals__.get("__builtins__", {})
        builtins = builtins if isinstance(builtins, dict) else vars(builtins)
        value = function.__globals__.get(name, builtins.get(name, MISSING))
    for attribute in attributes:
        if not isinstance(value, ModuleType):
            break
        value = _attribute(value, attribute)
    return value


def _attribute(module: ModuleType, name: str) -> Any:
    try:
        return getattr(module, name)
    except Exception:  # a lazy module may raise anything; compiling the callback will tell
        return MISSING


def _qualified_name(value: Any) -> Description:
    return tuple(
        name for key in ("__module__", "__qualname__", "__name__") if isinstance(name := getattr(value, key, None), str)
    )


# By the first type that fits; what none fits is known by its qualified name if it has one, else by its type's.
_DESCRIBERS: tuple[tuple[Any, Any], ...] = (
    (np.generic, lambda survey, x: (x.dtype.str, x.tobytes().hex())),  # first: np.float64 is a float, too
    (float, lambda survey, x: float(x).hex()),
    (complex, lambda survey, x: (x.real.hex(), x.imag.hex())),
    (int, lambda survey, x: int(x)),
    ((str, bytes, type(None), type(Ellipsis), np.dtype), lambda survey, x: str(x)),
    (tuple, lambda survey, x: tuple(map(survey.value, x))),
    (frozenset, lambda survey, x: tuple(sorted(map(ascii, map(survey.value, x))))),
    ((slice, range), lambda survey, x: tuple(map(survey.value, (x.start, x.stop, x.step)))),
    (CodeType, lambda survey, x: _read(x)[0]),
    (FunctionType, lambda survey, x: survey.function(x)),
    (Callback, lambda survey, x: tuple(survey.function(link.function) for link in x.links)),
    (Constant, lambda survey, x: survey.value(x.array)),
)
