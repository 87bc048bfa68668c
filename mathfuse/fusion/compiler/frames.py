"""What the evaluator remembers: calls under way, the slots of their variables, and what a run teaches the next."""

from __future__ import annotations

import types
from dataclasses import dataclass, field
from typing import Any

from llvmlite import ir

from .arithmetic import is_number
from .emitter import Value
from .frontend import Code
from .iterators import Iterator, RangeIterator
from .scalars import Scalar

UNDEFINED = object()  # a variable that no path has assigned


class Widen(Exception):
    """Something 64-bit takes part: weak floats must be held in 64 bits. The caller starts again."""


@dataclass
class Knowledge:
    """What one run over a callback teaches the next: the width of weak floats, types of variables, operands assigned to."""

    weak_bits: int
    widths: dict[tuple, Scalar] = field(default_factory=dict)
    assigned: set[str] = field(default_factory=set)


@dataclass(frozen=True, eq=False)
class Slot:
    """Stack memory (a register, once LLVM has seen it) that carries a variable from block to block."""

    type: Scalar
    cells: tuple[ir.Value, ...]


@dataclass(frozen=True, eq=False)
class LocalFunction:
    """A lambda or an inner function of the callback, with the values it captured."""

    function: types.FunctionType
    captured: tuple[Any, ...]


@dataclass(eq=False)
class Frame:
    """One call of one function: its code, where it was called, and the blocks made so far."""

    code: Code
    path: tuple
    captured: tuple[Any, ...] = ()
    fixed: tuple[Value, ...] = ()
    versions: dict[tuple, ir.Block] = field(default_factory=dict)
    returns: list[tuple[ir.Block, Any]] = field(default_factory=list)
    slots: dict[tuple, Slot] = field(default_factory=dict)
    pending: list[tuple[int, dict[str, Any], ir.Block]] = field(default_factory=list)
    ranges: dict[tuple, RangeIterator] = field(default_factory=dict)


def values_in(entry: Any) -> Any:
    """Every run-time value inside an abstract one."""
    if isinstance(entry, Value):
        yield entry
    elif isinstance(entry, tuple):
        for item in entry:
            yield from values_in(item)


def rebuild(like: tuple, items: list[Any]) -> tuple:
    """A tuple, or the named one that ``like`` is, of other items."""
    return tuple(items) if type(like) is tuple else type(like)(*items)


def version_key(entry: Any) -> Any:
    """What distinguishes two abstract values: equal keys share one block."""
    if isinstance(entry, Slot):
        return ("slot", entry.type)
    if isinstance(entry, tuple):
        return (type(entry).__name__, *(version_key(item) for item in entry))
    if is_number(entry):
        return (type(entry).__name__, repr(entry))
    if isinstance(entry, Iterator):
        return ("iterator", entry.position, *(version_key(item) for item in entry.items))
    return ("object", id(entry))
