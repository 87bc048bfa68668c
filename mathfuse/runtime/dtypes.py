"""Half precision, which is stored and not computed with: float16, and PyTorch's complex32 of two of them.

NumPy has no complex32; here it is a record of its parts, which is how NumPy arrays may hold it, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

COMPLEX32: np.dtype[Any] = np.dtype([("real", np.float16), ("imag", np.float16)], align=True)
HALF: dict[np.dtype[Any], np.dtype[Any]] = {  # what data in half precision is computed as
    np.dtype(np.float16): np.dtype(np.float32),
    COMPLEX32: np.dtype(np.complex64),
}


def is_complex(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "c" or dtype == COMPLEX32


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether it holds real or complex floating-point numbers."""
    return dtype.kind in "fc" or dtype == COMPLEX32


def component_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Of the parts of a complex dtype; any other is its own."""
    if dtype == COMPLEX32:
        return np.dtype(np.float16)
    return np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype


def dtype_name(dtype: np.dtype[Any]) -> str:
    """``"float32"``, ``"complex32"``: what messages and artifacts call it."""
    return "complex32" if dtype == COMPLEX32 else str(dtype)


def named(name: str) -> np.dtype[Any]:
    """The inverse of `dtype_name`."""
    return COMPLEX32 if name == "complex32" else np.dtype(name)


def described(dtype: np.dtype[Any]) -> dict[str, Any]:
    """The entries of ``__cuda_array_interface__`` that tell a dtype."""
    return {"typestr": dtype.str, **({"descr": dtype.descr} if dtype.names else {})}


def dtype_described(interface: Mapping[str, Any]) -> np.dtype[Any]:
    """The inverse of `described`."""
    void = np.dtype(interface["typestr"])
    return np.dtype(interface["descr"]) if void.kind == "V" and "descr" in interface else void


def widened(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """An array of complex32 as one of complex64, a copy; any other as it is."""
    if array.dtype != COMPLEX32:
        return array
    wide = np.empty_like(array, np.complex64)
    wide.real, wide.imag = array["real"], array["imag"]
    return wide


def pairs(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """An array of complex32 as one of float16 in the same memory, with the parts along a further axis, the last."""
    shape, strides = (*array.shape, 2), (*array.strides, 2)
    return np.lib.stride_tricks.as_strided(array["real"], shape, strides)
