"""What a DLPack capsule says of an array: structures of dlpack.h, versions 0 and 1."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any

import numpy as np

NO_SYNCHRONISATION = -1  # of `__dlpack__(stream=…)`
_NAMES = _VERSIONED, _PLAIN = b"dltensor_versioned", b"dltensor"
_READ_ONLY = 1  # DLPACK_FLAG_BITMASK_READ_ONLY
# DLDataTypeCode -> NumPy's kind
_KINDS = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}


class _DType(ctypes.Structure):
    _fields_ = [("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device", c_int32),
        ("ndim", c_int32),
        ("dtype", _DType),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("offset", c_uint64),
    ]


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("manager", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("tensor", _Tensor),
    ]


@dataclass(frozen=True)
class Exported:
    """An array as its owner exports it; the capsule keeps it alive.

    Strides are in bytes. An array that does not say that it may be written counts as read-only.
    """

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    device: int
    readonly: bool
    capsule: Any


def export(array: Any, stream: int | None = NO_SYNCHRONISATION) -> Exported:
    """What `array` exports.

    Raises
    ------
    BufferError, TypeError, ValueError, …
        What its library raises, and TypeError for elements that NumPy does not have.
    """
    try:
        capsule = array.__dlpack__(stream=stream, max_version=(1, 0))
    except TypeError:  # from before version 1
        capsule = array.__dlpack__(stream=stream)
    return read(capsule)


def read(capsule: Any) -> Exported:
    """What a capsule holds, which stays its own."""
    is_valid, pointer_of = ctypes.pythonapi.PyCapsule_IsValid, ctypes.pythonapi.PyCapsule_GetPointer
    is_valid.argtypes = pointer_of.argtypes = (ctypes.py_object, ctypes.c_char_p)
    pointer_of.restype = c_void_p
    name = next((name for name in _NAMES if is_valid(capsule, name)), None)
    if name is None:
        raise TypeError("__dlpack__ gave no DLPack capsule")
    address = pointer_of(capsule, name)
    managed = _Versioned.from_address(address) if name == _VERSIONED else None
    tensor = managed.tensor if managed else _Tensor.from_address(address)
    kind = _KINDS.get(tensor.dtype.code)
    if kind is None or tensor.dtype.lanes != 1 or tensor.dtype.bits % 8:
        raise TypeError(f"elements of DLPack's type {tensor.dtype.code} with {tensor.dtype.bits} bits are not in NumPy")
    dtype = np.dtype(f"{kind}{tensor.dtype.bits // 8}")
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else _c_order(shape)
    return Exported(
        (tensor.data or 0) + tensor.offset,
        shape,
        tuple(stride * dtype.itemsize for stride in strides),
        dtype,
        tensor.device,
        bool(managed.flags & _READ_ONLY) if managed else True,
        capsule,
    )


def _c_order(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = [1]
    for extent in reversed(shape[1:]):
        strides.append(strides[-1] * extent)
    return tuple(reversed(strides[: len(shape)]))
