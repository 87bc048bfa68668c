"""C functions of a shared library as a table: each is made callable once, with its argument types."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from ctypes import c_char_p, c_double, c_float, c_int, c_longlong, c_size_t, c_uint, c_ulonglong, c_void_p
from types import SimpleNamespace
from typing import Any

# The letters of a prototype. Handles and addresses of host and device are all "p"; "*" is an address filled by `byref`.
TYPES: dict[str, Any] = {
    "p": c_void_p,
    "*": c_void_p,
    "s": c_char_p,
    "i": c_int,
    "u": c_uint,
    "l": c_longlong,
    "d": c_ulonglong,  # CUdeviceptr
    "n": c_size_t,
    "f": c_float,
    "g": c_double,
}


def bind(library: Any, table: Mapping[str, str], optional: Mapping[str, str] | None = None) -> SimpleNamespace:
    """The functions of `table` (name -> letters of its arguments), all of which return an int status.

    A function of `optional` that the library lacks is None; one of `table` raises AttributeError.
    """
    found = SimpleNamespace()
    for name, letters in {**table, **(optional or {})}.items():
        function = getattr(library, name, None) if optional and name in optional else getattr(library, name)
        if function is not None:
            function.argtypes = tuple(TYPES[letter] for letter in letters)
            function.restype = c_int
        setattr(found, name, function)
    return found


def filled(kind: Any, function: Any, *arguments: Any) -> tuple[int, Any]:
    """The status of a function whose first argument is an address that it fills, and what it put there."""
    place = kind()
    status = function(ctypes.byref(place), *arguments)
    return status, place.value
