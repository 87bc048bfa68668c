"""Twiddle factors of a transform as one table: few enough to stay in the cache, the rest are products."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mathfuse.device.fft.shapes import Stages


def roots(k: npt.ArrayLike, n: int) -> npt.NDArray[np.complex128]:
    """``exp(-2πi k / n)`` to the last bit or nearly so, of integers k: the angle is at most an eighth of a turn."""
    eighths, rest = np.divmod(8 * (np.asarray(k, np.int64) % n), n)
    odd = eighths % 2 == 1
    angle = np.where(odd, n - rest, rest) * (np.pi / 4 / n)
    cos, sin = np.cos(angle), np.sin(angle)
    cos, sin = np.where(odd, sin, cos), np.where(odd, cos, sin)  # now of an angle within a quarter
    turns = np.array([1, -1j, -1, 1j])[eighths // 2]
    return turns * (cos - 1j * sin)


def powers(radix: int) -> list[int]:
    """The legs of a butterfly whose factors are in the table: powers of two; the others are products of two of them."""
    return [1 << k for k in range(radix.bit_length()) if 1 << k < radix]


def places(stages: Stages) -> list[int]:
    """Where the rows of each stage begin, in elements: one for each of its `powers`, of `done` factors."""
    found, place = [], 0
    for s, radix in enumerate(stages.radices):
        found.append(place)
        if s:
            place += len(powers(radix)) * stages.done(s)
    return found


def table(stages: Stages, double: bool) -> npt.NDArray[np.complexfloating]:
    """``exp(-2πi · leg · k / (done · radix))`` for each stage but the first, leg and k, of a forward transform."""
    rows = [
        roots(leg * np.arange(stages.done(s)), stages.done(s) * radix)
        for s, radix in enumerate(stages.radices)
        for leg in powers(radix)
        if s
    ]
    dtype = np.complex128 if double else np.complex64
    return np.concatenate(rows).astype(dtype) if rows else np.ones(1, dtype)
