"""From a Python function to blocks of simple statements, by Numba's front end, and what flows between them."""

from __future__ import annotations

import dis
import functools
import linecache
import types
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from numba.core import ir as numba_ir
from numba.core.bytecode import ByteCode, FunctionIdentity
from numba.core.interpreter import Interpreter

from mathfuse.epilogs.signature import definition, file_of
from mathfuse.fusion.compiler.language.messages import GAVE_UP, INSTRUCTIONS, TRY
from mathfuse.runtime.errors import CallbackError


@dataclass(frozen=True, eq=False)
class Code:
    """A function's blocks and what flows between them.

    ``live`` has the variables that are read later, by block; ``assignments`` counts them by name. ``after`` has the
    variables read after an assignment to a variable that inner functions may capture, by the statement's identity.
    """

    function: types.FunctionType
    blocks: dict[int, Any]
    first: int
    live: dict[int, frozenset[str]]
    assignments: Counter
    after: dict[int, frozenset[str]]


def frontend(function: types.FunctionType) -> Code:
    """The code of ``function``; a construct with no meaning in a kernel is a CallbackError at its line."""
    ours = (function.__module__ or "").startswith("mathfuse.")
    return _library_code(function) if ours else _code(function)


@functools.cache
def _library_code(function: types.FunctionType) -> Code:
    """Our own functions never change; a user's may see other globals at the next plan."""
    return _code(function)


class _Interpreter(Interpreter):
    """Numba's, which drops temporaries that are assigned on, though ``(a := x)`` and ``a = b = x`` read them again."""

    def _remove_unused_temporaries(self) -> None:
        block: Any = self.current_block
        unused = self.assigner.unused_dests
        block.body = [s for s in block.body if not (_is_temporary(s) and s.target.name in unused)]


def _is_temporary(statement: Any) -> bool:
    return isinstance(statement, numba_ir.Assign) and statement.target.is_temp


def _code(function: types.FunctionType) -> Code:
    _refuse_instructions(function)
    try:
        identity = FunctionIdentity.from_function(_without_wrapped(function))
        blocks = _Interpreter(identity).interpret(ByteCode(func_id=identity)).blocks
    except Exception as error:  # Numba raises whatever comes: NumbaError, AssertionError, KeyError
        text = next((text for part, text in GAVE_UP.items() if part in str(error)), str(error).split("\n")[0])
        raise CallbackError(f"{quote(function)}\nThis cannot run inside a kernel: {text}") from error
    live = _liveness(blocks)
    targets = Counter(s.target.name for block in blocks.values() for s in block.body if isinstance(s, numba_ir.Assign))
    after = _read_after(blocks, live, frozenset(function.__code__.co_cellvars))
    return Code(function, blocks, min(blocks), live, targets, after)


def _without_wrapped(function: types.FunctionType) -> types.FunctionType:
    """A wrapper as itself: where ``functools.wraps`` made it, Numba would take its parameters from what it wraps."""
    if not hasattr(function, "__wrapped__"):
        return function
    code, names = function.__code__, function.__globals__
    return types.FunctionType(code, names, function.__name__, function.__defaults__, function.__closure__)


def _refuse_instructions(function: types.FunctionType) -> None:
    """What the front end would not understand, or misunderstand, at its line."""
    code = function.__code__
    lines = dict(dis.findlinestarts(code))
    line = code.co_firstlineno
    for instruction in dis.get_instructions(code):
        line = lines.get(instruction.offset) or line
        text = INSTRUCTIONS.get(instruction.opname)
        if instruction.opname == "STORE_DEREF" and instruction.argval in code.co_freevars:
            text = (
                f"an inner function cannot assign to {instruction.argval!r} of the function around it; return the value"
            )
        if text:
            raise CallbackError(f"{quote(function, _line_of_try(code, line) if text == TRY else line)}\n{text}")


def _line_of_try(code: types.CodeType, handler: int) -> int:
    """The line of ``try`` above that of its handler: the bytecode does not have it."""
    lines = range(handler, code.co_firstlineno, -1)
    return next((n for n in lines if linecache.getline(code.co_filename, n).lstrip().startswith("try:")), handler)


# --- data flow --------------------------------------------------------------------------------------------------------
def _reads(statement: Any) -> set[str]:
    value = statement.value if isinstance(statement, numba_ir.Assign) else statement
    if isinstance(value, numba_ir.Var):
        return {value.name}
    if isinstance(value, numba_ir.Arg):
        return {f"arg.{value.name}"}
    return {v.name for v in value.list_vars()} if isinstance(value, (numba_ir.Stmt, numba_ir.Expr)) else set()


def _backwards(block: Any, live: frozenset[str]) -> Iterator[tuple[Any, frozenset[str]]]:
    """Each statement from the last to the first, with the variables that are read after it; at last None."""
    for statement in reversed(block.body):
        yield statement, live
        if isinstance(statement, numba_ir.Assign):
            live -= {statement.target.name}
        live |= _reads(statement)
    yield None, live


def _liveness(blocks: dict[int, Any]) -> dict[int, frozenset[str]]:
    """Names read before they are written on some path from each block (backward data flow to a fixed point)."""
    live: dict[int, frozenset[str]] = dict.fromkeys(blocks, frozenset())
    while True:
        previous = dict(live)
        for label, block in sorted(blocks.items(), reverse=True):
            *_, (_, live[label]) = _backwards(block, _after(block, live))
        if live == previous:
            return live


def _after(block: Any, live: dict[int, frozenset[str]]) -> frozenset[str]:
    last = block.body[-1]
    successors = last.get_targets() if hasattr(last, "get_targets") else ()
    return frozenset().union(*(live[s] for s in successors))


def _read_after(
    blocks: dict[int, Any], live: dict[int, frozenset[str]], captured: frozenset[str]
) -> dict[int, frozenset[str]]:
    return {
        id(statement): names
        for block in blocks.values()
        for statement, names in _backwards(block, _after(block, live))
        if isinstance(statement, numba_ir.Assign) and statement.target.name in captured
    }


# --- the user's line --------------------------------------------------------------------------------------------------
def quote(function: types.FunctionType, line: int | None = None) -> str:
    """``file:line, in name`` and the line itself, as a traceback shows them; without ``line`` where it is defined."""
    code = function.__code__
    line = line or definition(function)[0]
    where = f"{file_of(code)}:{line}, in {function.__name__}"
    source = linecache.getline(code.co_filename, line).strip()
    return f"{where}\n    {source}" if source else where
