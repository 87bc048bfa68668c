"""What the machine code of a callback depends on: its code, and the types (not the values) of everything it meets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mathfuse.epilogs import Callback, Constant
from mathfuse.fusion.compiler.fingerprint import captured_arrays
from mathfuse.runtime.arrays import as_host
from mathfuse.runtime.cuda.arrays import DeviceArray, as_device, is_device_array
from mathfuse.runtime.dtypes import dtype_name
from mathfuse.runtime.errors import UnsupportedError


@dataclass(frozen=True)
class OperandType:
    """What generated code depends on in an operand: everything but its values.

    ``dtype`` is an array's element type (``ndim`` ≥ 0), or ``"bool"``, ``"int"``, ``"float"`` or ``"complex"`` of a
    bound scalar (``ndim`` −1). ``contiguous`` promises unit stride along the last axis. ``extents`` and ``strides``, in
    bytes, are constants of the code, for arrays without gaps.
    """

    dtype: str
    ndim: int = -1
    contiguous: bool = False
    readonly: bool = True
    extents: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None

    @property
    def is_scalar(self) -> bool:
        return self.ndim < 0


def numpy_view(value: Any) -> np.ndarray:
    """An operand array of any framework as generated code can read it: native, aligned; a copy where it is not so."""
    return as_host(value.array if isinstance(value, Constant) else value, "an operand").view


def array_view(value: Any) -> np.ndarray | DeviceArray:
    """An operand array where it is: on a GPU, or as `numpy_view` has it."""
    array = value.array if isinstance(value, Constant) else value
    return as_device(array, "an operand") if is_device_array(array) else numpy_view(array)


def operand_type(value: Any) -> OperandType:
    """The type of an operand: a Python or NumPy scalar, or an array in CPU memory or on a GPU."""
    if isinstance(value, OperandType):
        return value
    if isinstance(value, np.generic):
        value = value.item()
    for python in (bool, int, float, complex):
        if isinstance(value, python):
            return OperandType(python.__name__)
    array = array_view(value)
    if array.ndim == 0:
        return operand_type(_only_element(array))
    contiguous = array.strides[-1] == array.itemsize
    readonly = array.readonly if isinstance(array, DeviceArray) else not array.flags.writeable
    return OperandType(dtype_name(array.dtype), array.ndim, contiguous, isinstance(value, Constant) or readonly)


def fixed(kind: OperandType, array: Any) -> OperandType:
    """``kind`` for this shape alone: with constant extents where ``array`` has no gaps, in any order, else as it is.

    ``array`` is anything with ``shape``, ``strides`` in bytes and ``itemsize``.
    """
    if kind.is_scalar:
        return kind
    step, strides = array.itemsize, [0] * array.ndim
    for axis in sorted(range(array.ndim), key=lambda axis: array.strides[axis] * (array.shape[axis] > 1)):
        strides[axis] = step
        step *= array.shape[axis]
    if any(n > 1 and have != want for n, have, want in zip(array.shape, array.strides, strides)):
        return kind
    contiguous = array.shape[-1] == 1 or strides[-1] == array.itemsize
    return replace(kind, contiguous=contiguous, extents=tuple(map(int, array.shape)), strides=tuple(map(int, strides)))


def _only_element(array: np.ndarray | DeviceArray) -> Any:
    if isinstance(array, DeviceArray):  # its value is not known, as others may still be writing it
        raise UnsupportedError(
            "an operand is an array on a GPU without axes; pass a number, or array.reshape(1) and index it with 0"
        )
    return array[()]


def types_of(operands: Mapping[str, Any]) -> tuple[tuple[str, OperandType], ...]:
    """Types by name, in the order of the names."""
    return tuple((name, operand_type(operands[name])) for name in sorted(operands))


@dataclass(frozen=True)
class Signature:
    """Everything in a use of a callback that its machine code depends on.

    Parameters
    ----------
    callback
        The callback (None: the element passes unchanged). Only its code counts, not its bound values.
    value_dtype
        dtype of the elements read.
    ndim
        Rank of the logical index space.
    axes
        Transform axes, non-negative.
    operands
        Types of bound, free and captured operands by name.
    source
        Type of the whole input array where the callback reads it.
    shape
        What the callback sees as `shape`, where that is a constant of the code.
    """

    callback: Callback | None
    value_dtype: np.dtype
    ndim: int
    axes: tuple[int, ...]
    operands: tuple[tuple[str, OperandType], ...] = ()
    source: OperandType | None = None
    shape: tuple[int, ...] | None = None

    @staticmethod
    def of(
        callback: Callback | None,
        value_dtype: np.dtype,
        ndim: int,
        axes: tuple[int, ...],
        operands: Mapping[str, Any],
        source: Any = None,
    ) -> Signature:
        """The signature for operands given by value or type; arrays that the callback captured count among them."""
        captured = captured_arrays(callback) if callback else {}
        reads_source = callback is not None and any("source" in link.reserved for link in callback.links)
        kind = operand_type(source) if reads_source and source is not None else None
        return Signature(callback, np.dtype(value_dtype), ndim, tuple(axes), types_of({**operands, **captured}), kind)
