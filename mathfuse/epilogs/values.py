"""What an operand may be bound to, when two bound values are the same, and how they are shown."""

from __future__ import annotations

import numbers
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mathfuse.runtime.dtypes import COMPLEX32
from mathfuse.runtime.errors import CallbackError
from mathfuse.runtime.words import an

ARRAY_PROTOCOLS = ("__array_interface__", "__cuda_array_interface__", "__dlpack__")

_PYTHON_SCALARS = (bool, int, float, complex)
_NUMPY_SCALARS = {"b": 1, "i": 8, "u": 8, "f": 8, "c": 16}  # dtype kind -> widest item in bytes

# What to write instead of a value of these types, in the order of the test; `{}` is the operand's name.
_INSTEAD: tuple[tuple[type | tuple[type, ...], str], ...] = (
    ((list, tuple, range), "pass numpy.asarray({}), with the dtype you want"),
    ((set, frozenset), "pass an array with the elements in the order you want"),
    (dict, "bind each entry as an operand of its own, or pass an array"),
    (type(None), "bind a number or an array, or leave {} unbound"),
    ((str, bytes), "a callback computes with numbers only; bind a number, or choose among several callbacks"),
    ((np.generic, numbers.Number), "write float({0}), int({0}) or complex({0})"),
)


@dataclass(frozen=True, eq=False)
class Constant:
    """An array that its owner promises not to change; made by `constant`.

    Attributes
    ----------
    array : array
        The array itself, not a copy.
    copies : dict
        What plans made of it, by what they know it by.
    """

    array: object
    copies: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if not is_array(self.array):
            raise CallbackError(
                f"constant() takes an array, not {an(type(self.array).__name__)}: "
                "bind a number as it is, and pass other data as numpy.asarray(data)"
            )

    def __eq__(self, other: object) -> bool:
        return self.array is other.array if isinstance(other, Constant) else NotImplemented

    def __hash__(self) -> int:
        return hash((Constant, id(self.array)))

    def __reduce__(self) -> tuple[type, tuple[object]]:
        return Constant, (self.array,)

    def __repr__(self) -> str:
        return f"constant({summary(self.array)})"


def constant(array: object) -> Constant:
    """Promise that `array` will not change, so that a plan may upload or lay out a copy once, which the constant holds.

    Parameters
    ----------
    array : array
        NumPy, CuPy, PyTorch, JAX or any array with ``__array_interface__``, ``__cuda_array_interface__`` or
        ``__dlpack__``. It is not copied, and nothing stops you from changing it: results are then undefined.

    Returns
    -------
    Constant
        To be bound like the array itself: ``multiply(factor=mf.constant(transfer))``. Two constants are equal when they
        hold the same array.

    Raises
    ------
    CallbackError
        If `array` is not an array.
    """
    return Constant(array)


def is_scalar(value: object) -> bool:
    """Whether `value` is a number that a callback can be bound to, of Python or of NumPy."""
    if isinstance(value, np.generic):
        return value.itemsize <= _NUMPY_SCALARS.get(value.dtype.kind, 0)
    return type(value) in _PYTHON_SCALARS


def is_array(value: object) -> bool:
    """Whether `value` is an array of some framework; NumPy scalars, which pose as arrays, are not."""
    if isinstance(value, (np.generic, type)):
        return False
    return any(hasattr(type(value), name) or hasattr(value, name) for name in ARRAY_PROTOCOLS)


def objection(name: str, value: object) -> str | None:
    """Why operand `name` cannot be bound to `value` and what to write instead; None if it can."""
    if is_scalar(value):
        too_big = isinstance(value, int | np.integer) and not -(2**63) <= int(value) < 2**63
        return f"operand {name!r} does not fit int64: write float({name}), or bind an array" if too_big else None
    array = value.array if isinstance(value, Constant) else value
    if isinstance(array, np.ndarray):
        return _objection_to_ndarray(name, array)
    if is_array(array):
        return None
    otherwise = "pass numpy.asarray({})" if hasattr(type(value), "__array__") else "bind a number or an array"
    instead = next((text for types, text in _INSTEAD if isinstance(value, types)), otherwise)
    return f"operand {name!r} cannot be {an(type(value).__name__)}: {instead.format(name)}"


def identity(value: object) -> Hashable:
    """Equal for two bound values exactly when they are the same: scalars by type and value, arrays as objects.

    1, 1.0 and True differ, −0.0 differs from 0.0, and NaN equals NaN. The key of an array holds while the array lives.
    """
    if isinstance(value, Constant):
        return value
    if not is_scalar(value):
        return "array", id(value)
    kind = value.dtype.str if isinstance(value, np.generic) else type(value)  # a dtype itself equals Python's type
    if isinstance(value, (complex, np.complexfloating)):
        return kind, float(value.real).hex(), float(value.imag).hex()
    if isinstance(value, (float, np.floating)):
        return kind, float(value).hex()
    return kind, value


def summary(value: object) -> str:
    """A bound value in a `repr`: a number as Python writes it, an array as `float32[3, 4]`."""
    if is_scalar(value) or isinstance(value, Constant):
        return repr(value)
    dtype = str(getattr(value, "dtype", type(value).__name__))
    return f"{dtype.removeprefix('torch.')}{list(getattr(value, 'shape', ()))}"


def _objection_to_ndarray(name: str, array: np.ndarray) -> str | None:
    dtype = array.dtype
    if isinstance(array, np.ma.MaskedArray):
        return f"operand {name!r} is a masked array, and its mask would be lost: pass {name}.filled(value)"
    number = dtype.kind in "biufc" or dtype == COMPLEX32 or (dtype.kind == "V" and dtype.type is not np.void)
    if not number:  # ml_dtypes' bfloat16, which is one, is of kind V
        return f"operand {name!r} has dtype {dtype}, which is no number: pass {name}.astype(numpy.float32) or the like"
    if not dtype.isnative:
        return f"operand {name!r} has foreign byte order ({dtype}): pass {name}.astype({name}.dtype.newbyteorder('='))"
    return None
