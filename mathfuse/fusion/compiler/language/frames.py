"""What the evaluator remembers: calls under way, the slots of their variables, and what a run teaches the next."""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from llvmlite import ir

from mathfuse.fusion.compiler.emit.emitter import Value
from mathfuse.fusion.compiler.emit.scalars import Scalar
from mathfuse.fusion.compiler.language.arithmetic import BoundMethod, Described, is_number
from mathfuse.fusion.compiler.language.frontend import Code
from mathfuse.fusion.compiler.language.iterators import Iterator, RangeIterator

UNDEFINED = object()  # a variable that no path has assigned
UNROLL = 16  # constant ranges up to this many turns are unrolled


class Again(Exception):
    """This run cannot go on; the next one starts with ``knowledge``."""

    def __init__(self, knowledge: Knowledge) -> None:
        self.knowledge = knowledge


@dataclass
class Knowledge:
    """What one run over a callback teaches the next.

    Parameters
    ----------
    weak_bits
        Width of weak floats.
    widths
        Types of variables, by the block that they enter.
    assigned
        Operands assigned to.
    unroll
        Constant ranges up to this many turns are unrolled.
    codes
        Front-end results, by function.
    """

    weak_bits: int
    widths: dict[tuple, Scalar] = field(default_factory=dict)
    assigned: set[str] = field(default_factory=set)
    unroll: int = UNROLL
    codes: dict[Any, Code] = field(default_factory=dict)

    def wide(self) -> Again:
        """Something 64-bit takes part: weak floats must be held in 64 bits."""
        return Again(replace(self, weak_bits=64, widths={}))

    def rolled(self) -> Again:
        """The code grows too large: constant ranges stay loops."""
        return Again(replace(self, unroll=0, widths={}))


@dataclass(frozen=True, eq=False)
class Slot:
    """Stack memory (a register, once LLVM has seen it) that carries a variable from block to block."""

    type: Scalar
    cells: tuple[ir.Value, ...]


@dataclass(frozen=True, eq=False)
class LocalFunction(Described):
    """A lambda or an inner function of the callback, with the values it captured and those of its defaults."""

    code: types.CodeType
    home: types.FunctionType
    captured: tuple[Any, ...]
    defaults: tuple[Any, ...]

    def description(self) -> str:
        return f"the inner function {self.code.co_name}"

    def function(self) -> types.FunctionType:
        """A function object: globals and signature for the front end; its cells stay empty."""
        cells = tuple(types.CellType() for _ in self.code.co_freevars)
        return types.FunctionType(
            self.code, self.home.__globals__, self.code.co_name, self.defaults or None, cells or None
        )


@dataclass(eq=False)
class Frame:
    """One call of one function: its code, where it was called, and the blocks made so far.

    ``fixed`` values were there before the call and need no slots. ``versions`` keeps with each block what it was made
    for, so that the identities in its key stay taken.
    """

    code: Code
    path: tuple
    captured: tuple[Any, ...] = ()
    fixed: frozenset[Value] = frozenset()
    versions: dict[tuple, tuple[ir.Block, dict[str, Any]]] = field(default_factory=dict)
    returns: list[tuple[ir.Block, Any]] = field(default_factory=list)
    slots: dict[tuple, Slot] = field(default_factory=dict)
    pending: deque[tuple[int, dict[str, Any], ir.Block]] = field(default_factory=deque)
    ranges: dict[tuple, RangeIterator] = field(default_factory=dict)


def parts(entry: Any) -> tuple | None:
    """The abstract values that a compound one is made of; None for a simple one."""
    if isinstance(entry, tuple):
        return entry
    if isinstance(entry, LocalFunction):
        return entry.captured + entry.defaults
    if isinstance(entry, Iterator):
        return entry.items
    if isinstance(entry, RangeIterator):
        return (entry.first, entry.stop)
    return (entry.value,) if isinstance(entry, BoundMethod) else None


def rebuild(like: Any, items: list[Any]) -> Any:
    """A compound value like ``like``, made of other parts."""
    if isinstance(like, tuple):
        return type(like)(*items) if hasattr(like, "_fields") else tuple(items)
    if isinstance(like, LocalFunction):
        count = len(like.captured)
        return replace(like, captured=tuple(items[:count]), defaults=tuple(items[count:]))
    if isinstance(like, Iterator):
        return replace(like, items=tuple(items))
    if isinstance(like, RangeIterator):
        return replace(like, first=items[0], stop=items[1])
    return BoundMethod(like.name, items[0])


def inside(entry: Any) -> Iterable[Any]:
    """An abstract value, its parts, their parts, and so on."""
    yield entry
    for part in parts(entry) or ():
        yield from inside(part)


def version_key(entry: Any) -> Any:
    """What distinguishes two abstract values: equal keys share one block."""
    if isinstance(entry, Slot):
        return "slot", entry.type
    if is_number(entry):
        return type(entry).__name__, repr(entry)
    items = parts(entry)
    return (*_identity(entry), *(version_key(item) for item in items)) if items is not None else ("object", id(entry))


def _identity(compound: Any) -> tuple:
    if isinstance(compound, LocalFunction):
        return "function", id(compound.code)
    if isinstance(compound, Iterator):
        return "iterator", compound.position
    if isinstance(compound, RangeIterator):
        return "range", compound.step, id(compound.current)
    return type(compound).__name__, getattr(compound, "name", None)
