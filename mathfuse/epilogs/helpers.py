"""Plain functions for use inside a callback; they are compiled with it.

Those of indices reduce in integers before they divide, so that they stay exact above 2^24 in 32-bit computations.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def signed_index(i: int, n: int) -> int:
    """Signed index of frequency bin `i` of a transform of length `n`: ``n * numpy.fft.fftfreq(n)[i]``.

    0, 1, …, then the negative ones, −⌊n/2⌋, …, −1; for even `n` bin n/2 is negative. It serves half spectra too.
    """
    return i if i < n - i else i - n


def signed_frequency(i: int, n: int) -> float:
    """Frequency of bin `i` of a transform of length `n` in cycles per sample: ``numpy.fft.fftfreq(n)[i]``."""
    return signed_index(i, n) / n


def angular_frequency(i: int, n: int) -> float:
    """Frequency of bin `i` of a transform of length `n` in radians per sample: ``2π numpy.fft.fftfreq(n)[i]``."""
    return 2 * math.pi * signed_frequency(i, n)


def radial_frequency(index: tuple[int, ...], shape: tuple[int, ...], axes: tuple[int, ...]) -> float:
    """Distance of a bin from zero frequency in cycles per sample: the root of the squared frequencies' sum over `axes`.

    Parameters
    ----------
    index, shape, axes : tuple of int
        The reserved parameters of the callback, handed on.
    """
    squares = 0.0
    for a in axes:
        f = signed_frequency(index[a], shape[a])
        squares += f * f
    return math.sqrt(squares)


def wrapped_index(i: int, n: int) -> int:
    """Index `i` wrapped into 0 … n − 1, for neighbours in a periodic array of extent n = ``source.shape[0]``:
    ``source[wrapped_index(i - 1, n)]``.
    """
    return i % n


def clamped_index(i: int, n: int) -> int:
    """Index `i` clamped to 0 … n − 1, for neighbours where the edge repeats: ``source[clamped_index(i - 1, n)]``, with
    n = ``source.shape[0]``.
    """
    return min(max(i, 0), n - 1)


def to_half(x: Any) -> Any:
    """`x` rounded to half precision: what the ready-made callback `half` does, and how a callback calls that."""
    if isinstance(x, complex | np.complexfloating):
        return np.complex64(complex(np.float16(x.real), np.float16(x.imag)))
    return np.float16(x)
