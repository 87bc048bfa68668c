"""Which transforms there are, and what one of them means for a given input: axes, lengths, shapes and dtypes.

Everything here is a pure function of plain data.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, SupportsIndex

import numpy as np

from mathfuse.runtime.dtypes import HALF
from mathfuse.runtime.errors import PlanError, UnsupportedError

Shape = tuple[int, ...]
Family = Literal["c2c", "r2c", "c2r"]
Ints = SupportsIndex | Sequence[SupportsIndex] | None
NORMS = (None, "backward", "ortho", "forward")


@dataclass(frozen=True)
class Kind:
    """One of SciPy's twelve transforms: `rank` is 1, 2 or None for any number of axes."""

    name: str
    family: Family
    forward: bool
    rank: int | None

    @property
    def along_real_axis(self) -> str:
        """The one-dimensional transform of the last axis: rfft of `rfft2`, irfft of `irfftn`, fft of `fft2`."""
        return self.name.rstrip("2n")

    @property
    def along_other_axes(self) -> str:
        return "fft" if self.forward else "ifft"


_FAMILIES: dict[str, Family] = {"fft": "c2c", "ifft": "c2c", "rfft": "r2c", "irfft": "c2r"}
KINDS = {
    op + suffix: Kind(op + suffix, family, not op.startswith("i"), rank)
    for op, family in _FAMILIES.items()
    for suffix, rank in (("", 1), ("2", 2), ("n", None))
}


@dataclass(frozen=True)
class Problem:
    """A transform of an array of `shape` along `axes`, `lengths` logical elements each; the real axis is the last.

    Of the result the first `kept` elements along each axis of the array are stored; None stores all.
    """

    kind: Kind
    shape: Shape
    axes: Shape
    lengths: Shape
    norm: str | None = None
    kept: Shape | None = None

    @property
    def full_shape(self) -> Shape:
        """The logical extents of the transform."""
        return replaced(self.shape, dict(zip(self.axes, self.lengths)))

    @property
    def prolog_shape(self) -> Shape:
        """The logical extents a prolog sees: the input's own, and of a half spectrum those of the whole."""
        if self.kind.family != "c2r":
            return self.shape
        return replaced(self.shape, {self.axes[-1]: self.lengths[-1]})

    @property
    def epilog_shape(self) -> Shape:
        """The logical extents an epilog sees: those of the transform, or what is kept of it."""
        return self.kept or self.full_shape

    @property
    def spectrum_shape(self) -> Shape:
        if self.kind.family == "c2c":
            return self.full_shape
        return replaced(self.full_shape, {self.axes[-1]: self.lengths[-1] // 2 + 1})

    @property
    def out_shape(self) -> Shape:
        return self.kept or (self.full_shape if self.kind.family == "c2r" else self.spectrum_shape)

    @property
    def scale(self) -> float:
        """The factor of `norm`, which a transform by cuFFT or own kernels leaves to do."""
        count, norm = math.prod(self.lengths), self.norm or "backward"
        if norm == "ortho":
            return 1 / math.sqrt(count)
        return 1 / count if (norm == "forward") == self.kind.forward else 1.0


def replaced(values: Shape, new: dict[int, int]) -> Shape:
    return tuple(new.get(i, value) for i, value in enumerate(values))


LONGEST = 2**40  # no memory holds a longer line


def resolve(kind: str, shape: Shape, lengths: Ints = None, axes: Ints = None, norm: str | None = None) -> Problem:
    """The problem that SciPy's function of the name `kind` solves for `s=lengths` (or `n=`) and `axes=` (or `axis=`).

    Raises
    ------
    PlanError
        If the axes, lengths or norm do not fit the shape.
    """
    if not isinstance(kind, str) or kind not in KINDS:
        raise PlanError(f"kind={kind!r} is none of the transforms {', '.join(KINDS)}")
    if not (norm is None or isinstance(norm, str)) or norm not in NORMS:
        raise PlanError(f'norm={norm!r}: it is "backward" (the default), "ortho" or "forward"')
    chosen = KINDS[kind]
    extents = _integers(lengths, "s")
    where = _axes(chosen, shape, extents, _integers(axes, "axes"))
    if extents is None:
        extents = tuple(shape[a] for a in where)
        if chosen.family == "c2r":
            extents = (*extents[:-1], 2 * (extents[-1] - 1))
    if len(extents) != len(where):
        raise PlanError(f"{kind}: s={extents} for the axes {where}: give one length for each axis")
    if bad := [(a, n) for a, n in zip(where, extents) if not 1 <= n < LONGEST]:
        raise PlanError(
            f"{kind} of shape {shape}: axis {bad[0][0]} has transform length {bad[0][1]}, it must be 1 or more"
            + (f" and less than {LONGEST}" if bad[0][1] > 0 else "")
        )
    if empty := [a for a in where if shape[a] < 1]:
        raise PlanError(f"{kind} of shape {shape}: axis {empty[0]} has no elements to transform")
    return Problem(chosen, shape, where, extents, norm)


def _axes(kind: Kind, shape: Shape, lengths: Shape | None, axes: Shape | None) -> Shape:
    """The transform axes, non-negative, in the order given."""
    rank = len(shape)
    if rank == 0:
        raise PlanError(f"{kind.name} needs an array with at least one axis, this one has none (a 0-d array)")
    if axes is None:
        count = kind.rank or (rank if lengths is None else len(lengths))
        axes = tuple(range(-count, 0))
    if kind.rank == 1 and len(axes) != 1:
        raise PlanError(f"{kind.name} transforms one axis, got axes={axes}: use {kind.name}n")
    if not axes:
        raise PlanError(f"{kind.name} needs at least one axis to transform, got axes=()")
    if outside := [a for a in axes if not -rank <= a < rank]:
        raise PlanError(f"{kind.name}: axis {outside[0]} is out of range for shape {shape} ({rank} axes)")
    where = tuple(a % rank for a in axes)
    if len(set(where)) != len(where):
        raise PlanError(f"{kind.name}: axes={axes} name one axis of shape {shape} twice")
    return where


def whole(value: Any, name: str) -> int:
    """`value`, which users call `name`, as an int.

    Raises
    ------
    PlanError
        If it is no whole number.
    """
    try:
        return operator.index(value)
    except TypeError:
        raise PlanError(f"{name}={value!r}: expected a whole number") from None


def _integers(value: Ints, name: str) -> Shape | None:
    if value is None:
        return None
    try:
        items = value if isinstance(value, Sequence) else (value,)
        return tuple(operator.index(item) for item in items)
    except TypeError:
        raise PlanError(f"{name}={value!r}: expected a whole number or a sequence of them") from None


_COMPLEX_OF: dict[np.dtype, np.dtype] = {
    np.dtype(np.float32): np.dtype(np.complex64),
    np.dtype(np.float64): np.dtype(np.complex128),
}
_REAL_OF = {value: key for key, value in _COMPLEX_OF.items()}


def compute_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype in which data of `dtype` is transformed, as in scipy.fft.

    float32, complex64, float64 and complex128 stay; float16 becomes float32 and complex32 complex64; integers and bool
    become float64.

    Raises
    ------
    UnsupportedError
        For every other dtype.
    """
    native = dtype.newbyteorder("=")
    if native in _COMPLEX_OF or native in _REAL_OF:
        return native
    if native in HALF:
        return HALF[native]
    if native.kind in "biu":
        return np.dtype(np.float64)
    nearest = {"f": "float64", "c": "complex128"}.get(native.kind)
    advice = f"convert it with .astype({nearest!r})" if nearest else "give real or complex numbers"
    raise UnsupportedError(f"a transform of {dtype} is not supported: {advice}")


def complex_of(dtype: np.dtype) -> np.dtype:
    """The complex dtype of the precision of a compute dtype."""
    return _COMPLEX_OF.get(dtype, dtype)


def real_of(dtype: np.dtype) -> np.dtype:
    """The real dtype of the precision of a compute dtype."""
    return _REAL_OF.get(dtype, dtype)
