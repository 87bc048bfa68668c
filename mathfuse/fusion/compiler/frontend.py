"""From a Python function to blocks of simple statements: Numba's bytecode front end, and what the evaluator asks about them."""

from __future__ import annotations

import functools
import linecache
import types
from collections import Counter
from dataclasses import dataclass
from typing import Any

from numba.core import ir as numba_ir
from numba.core.compiler import run_frontend
from numba.core.errors import NumbaError

from mathfuse.runtime.errors import CallbackError

from . import library


@dataclass(frozen=True, eq=False)
class Code:
    """A function's blocks, the variables live at each block's start, and how often each name is assigned."""

    function: types.FunctionType
    blocks: dict[int, Any]
    first: int
    live: dict[int, frozenset[str]]
    assignments: Counter


def frontend(function: types.FunctionType) -> Code:
    """The code of ``function``; a construct with no meaning in a kernel is a CallbackError at its line."""
    if function.__module__ == library.__name__:
        return _library_code(function)
    return _code(function)


@functools.cache
def _library_code(function: types.FunctionType) -> Code:
    """Our own functions never change; a user's may see other globals at the next plan."""
    return _code(function)


def _code(function: types.FunctionType) -> Code:
    try:
        blocks = run_frontend(function).blocks
    except NumbaError as error:
        text = str(error).split("\n")[0]
        raise CallbackError(
            f"{quote(function, getattr(error, 'loc', None))}\nThis cannot run inside a kernel: {text}"
        ) from None
    targets = Counter(s.target.name for block in blocks.values() for s in block.body if isinstance(s, numba_ir.Assign))
    return Code(function, blocks, min(blocks), _liveness(blocks), targets)


def _liveness(blocks: dict[int, Any]) -> dict[int, frozenset[str]]:
    """Names read before they are written on some path from each block (backward dataflow to a fixed point)."""
    uses: dict[int, set[str]] = {}
    defines: dict[int, set[str]] = {}
    for label, block in blocks.items():
        used: set[str] = set()
        defined: set[str] = set()
        for statement in block.body:
            target = statement.target.name if isinstance(statement, numba_ir.Assign) else None
            value = statement.value if target else statement
            if isinstance(value, numba_ir.Var):
                names = {value.name}
            elif isinstance(value, numba_ir.Arg):
                names = {f"arg.{value.name}"}
            else:
                names = (
                    {v.name for v in value.list_vars()} if isinstance(value, (numba_ir.Stmt, numba_ir.Expr)) else set()
                )
            used |= names - defined
            if target:
                defined.add(target)
        uses[label], defines[label] = used, defined
    live = {label: frozenset(names) for label, names in uses.items()}
    while True:
        previous = live
        live = {
            label: frozenset(uses[label] | (set().union(*(live[s] for s in _successors(block))) - defines[label]))
            for label, block in blocks.items()
        }
        if live == previous:
            return live


def _successors(block: Any) -> list[int]:
    return list(block.body[-1].get_targets()) if hasattr(block.body[-1], "get_targets") else []


def quote(function: types.FunctionType, loc: Any = None) -> str:
    """``file:line, in name`` and the line itself, as a traceback shows them."""
    code = function.__code__
    filename, line = (loc.filename, loc.line) if loc is not None else (code.co_filename, code.co_firstlineno)
    source = linecache.getline(filename, line).strip() or linecache.getline(code.co_filename, line).strip()
    where = f"{filename}:{line}, in {function.__name__}"
    return f"{where}\n    {source}" if source else where
