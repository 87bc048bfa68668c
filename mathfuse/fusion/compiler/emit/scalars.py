"""Scalar types of the callback language and their promotion rules: pure data, no code generation.

The one rule that NumPy and C lack is *weak* floats: a constant, a bound scalar or a quotient of two integers takes the
precision of the float that it meets, and integers never widen a float.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mathfuse.runtime.dtypes import COMPLEX32, HALF, dtype_name, is_float
from mathfuse.runtime.errors import UnsupportedError


@dataclass(frozen=True)
class Scalar:
    """A scalar type. ``bits`` counts one real component; complex values have two.

    One of 16 bits is stored so; what is computed with it is computed in 32.
    """

    kind: str  # "b" bool, "i" signed, "u" unsigned integer, "f" real, "c" complex
    bits: int
    weak: bool = False

    def __str__(self) -> str:
        return ("weak " if self.weak else "") + dtype_name(self.dtype)

    @property
    def dtype(self) -> np.dtype:
        """The NumPy dtype that stores such a value."""
        if (self.kind, self.bits) == ("c", 16):
            return COMPLEX32
        return np.dtype(bool) if self.kind == "b" else np.dtype(f"{self.kind}{self.itemsize}")

    @property
    def itemsize(self) -> int:
        return 1 if self.kind == "b" else self.bits // (4 if self.kind == "c" else 8)

    @property
    def real(self) -> Scalar:
        """The type of a component, or of a float that holds this integer."""
        return Scalar("f", self.bits, self.weak) if self.kind == "c" else self

    @property
    def is_float(self) -> bool:
        return self.kind in "fc"

    @property
    def computed(self) -> Scalar:
        """The type in which such a value is computed with."""
        return Scalar(self.kind, 32) if self.is_float and self.bits < 32 else self


BOOL, INT = Scalar("b", 1), Scalar("i", 64)
KIND_ORDER = "biufc"


def of_dtype(dtype: np.dtype) -> Scalar:
    """The type in which an element of ``dtype`` is computed: float16 as float32, small integers as 64-bit ones."""
    dtype = HALF.get(dtype, dtype)
    if dtype.kind == "b":
        return BOOL
    if dtype.kind in "iu":
        return Scalar("u", 64) if dtype == np.uint64 else INT
    if dtype.kind in "fc" and dtype.itemsize <= (8 if dtype.kind == "f" else 16):
        return Scalar(dtype.kind, dtype.itemsize * 8 // (2 if dtype.kind == "c" else 1))
    raise UnsupportedError(f"callbacks cannot compute with {dtype}; the nearest type is {nearest(dtype)}")


def nearest(dtype: np.dtype) -> str:
    """The dtype that a message recommends in place of an unsupported one."""
    return {"f": "float64", "c": "complex128"}.get(dtype.kind, "float32")


def precision_of(dtype: np.dtype) -> int:
    """Bits of a weak float beside ``dtype``: float32 holds integers of up to 16 bits, wider ones take float64."""
    if is_float(dtype):
        return of_dtype(dtype).bits
    return 32 if dtype.itemsize <= 2 else 64


def promote(a: Scalar, b: Scalar, weak_bits: int) -> Scalar:
    """The common type of two operands; ``weak_bits`` is the width in which weak floats are held.

    Integers as in NumPy, but an unsigned 64-bit integer and a signed one give an unsigned one, as in C.
    """
    kind = max(a.kind, b.kind, key=KIND_ORDER.index)
    if kind in "fc":
        strong = [t.bits for t in (a, b) if t.is_float and not t.weak]
        return Scalar(kind, max(32, *strong) if strong else weak_bits, not strong)
    if kind == "b":
        return BOOL
    signed, unsigned = (max((t.bits for t in (a, b) if t.kind == kind), default=0) for kind in "iu")
    if not signed or unsigned == 64:
        return Scalar("u", unsigned)
    return Scalar("i", max(signed, 2 * unsigned))


def floating(a: Scalar, weak_bits: int) -> Scalar:
    """The type in which division and transcendental functions of ``a`` are computed."""
    return a.computed if a.is_float else Scalar("f", weak_bits, weak=True)


def resolve(a: Scalar, bits: int) -> Scalar:
    """A result type with nothing weak left: weak floats take ``bits``."""
    return Scalar(a.kind, bits) if a.weak else a
