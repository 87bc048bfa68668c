"""From what the user decorated to a plain function, and what its parameters mean."""

from __future__ import annotations

import functools
import linecache
import sys
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import NamedTuple

import numpy as np

from mathfuse.epilogs.values import objection
from mathfuse.runtime.errors import CallbackError
from mathfuse.runtime.words import an

RESERVED = ("value", "index", "shape", "axes", "source")

_VARARGS, _VARKEYWORDS, _GENERATOR, _COROUTINE, _ASYNC_GENERATOR = 0x04, 0x08, 0x20, 0x80, 0x200  # inspect.CO_*
_FORBIDDEN = (
    (_GENERATOR | _ASYNC_GENERATOR, "a generator cannot be a callback: return one value instead of yielding"),
    (_COROUTINE, "an async function cannot be a callback: write a plain `def`"),
    (_VARARGS, "*args has no meaning in a callback: name every operand"),
    (_VARKEYWORDS, "**kwargs has no meaning in a callback: name every operand"),
)

# What to write instead of an object of these types.
_INSTEAD: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (functools.partial, "decorate the function itself and bind by name, {kind}(function)(name=value)"),
    (MethodType, "write a function, and pass what it reads from its object as operands"),
    ((staticmethod, classmethod), "write @staticmethod above @{kind}, not below it"),
    (type, "write a function, and pass the state of the class as operands"),
    ((BuiltinFunctionType, np.ufunc), "wrap it, {kind}(lambda value: {name}(value))"),
)


class Parameters(NamedTuple):
    """The parameters of a callback's function, in the order of its signature."""

    names: tuple[str, ...]
    reserved: tuple[str, ...]
    operands: tuple[str, ...]
    defaults: dict[str, object]


def plain_function(candidate: object, kind: str) -> FunctionType:
    """The plain Python function of what was decorated: itself, or that of a Numba dispatcher.

    Raises
    ------
    CallbackError
        If `candidate` is something else; the message says what to write.
    """
    function = getattr(candidate, "py_func", candidate)  # numba.njit and cuda.jit keep the user's function there
    if isinstance(function, FunctionType):
        return function
    name = getattr(candidate, "__name__", repr(candidate))
    otherwise = f"decorate a function, @{kind} above its `def`"
    instead = next((text for types, text in _INSTEAD if isinstance(candidate, types)), otherwise)
    problem = f"{kind} takes a plain Python function, and {name} is {an(type(candidate).__name__)}"
    raise CallbackError(f"{problem}: {instead.format(kind=kind, name=name)}")


def parameters(function: FunctionType, kind: str) -> Parameters:
    """Sort the parameters of `function` into reserved ones and operands.

    Raises
    ------
    CallbackError
        If the signature has no meaning for a callback.
    """
    code = function.__code__
    for flag, problem in _FORBIDDEN:
        if code.co_flags & flag:
            raise error(kind, problem, function)
    if code.co_posonlyargcount:
        raise error(kind, "parameters of a callback are passed by name: remove the `/`", function)
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    reserved = tuple(name for name in names if name in RESERVED)
    if not reserved:
        raise error(kind, f"it takes none of {', '.join(RESERVED)}: call the element `value`", function)
    positional = function.__defaults__ or ()
    defaults = dict(zip(names[code.co_argcount - len(positional) : code.co_argcount], positional, strict=True))
    defaults.update(function.__kwdefaults__ or {})
    for name, default in defaults.items():
        if name in RESERVED:
            raise error(kind, f"`{name}` is given by the pipeline: remove its default", function)
        if (wrong := objection(name, default)) is not None:
            raise error(kind, f"bad default: {wrong}", function)
    return Parameters(names, reserved, tuple(name for name in names if name not in RESERVED), defaults)


def error(kind: str, problem: str, *functions: FunctionType) -> CallbackError:
    """A CallbackError that names the user's functions, their files and lines, and quotes their definitions."""
    places, quotes = [], ""
    for function in functions:
        line, text = definition(function)
        places.append(f"{function.__name__!r} ({file_of(function.__code__)}:{line})")
        quotes += f"\n    {text}" if text else ""
    return CallbackError(f"{kind} {' | '.join(places)}: {problem}{quotes}")


def file_of(code: CodeType) -> str:
    """The file of a function's code; in a notebook the cell, ``Cell In[3]``, not the temporary file behind it."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    named = shell and shell.compile.format_code_name(code.co_filename)
    return " ".join(named) if named else code.co_filename


def definition(function: FunctionType) -> tuple[int, str]:
    """Line number and text of the line that defines `function`, below its decorators; no text without a source."""
    code = function.__code__
    mark = "lambda" if code.co_name == "<lambda>" else f"def {code.co_name}"
    for number in range(code.co_firstlineno, code.co_firstlineno + 50):
        if mark in (text := linecache.getline(code.co_filename, number)):
            return number, text.strip()
    return code.co_firstlineno, ""
