"""Transforms of real numbers by complex ones of half the length: neighbours are the parts of one complex number.

Press, Teukolsky, Vetterling and Flannery, "Numerical Recipes", third edition, section 12.3.2: with Z the transform of
``x[2m] + i x[2m + 1]``, E and O those of the even and of the odd elements, and ``w = exp(-2πi k / N)``,
``X[k] = E + w O`` and ``X[M - k] = conj(E - w O)``, of M = N / 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mathfuse.device.fft.twiddles import roots

if TYPE_CHECKING:
    from mathfuse.device.fft.codelets import Arithmetic, Complex


def table(length: int, double: bool) -> npt.NDArray[np.complexfloating]:
    """``exp(-2πi k / length)`` for each pair of elements of a spectrum, k from 0 to length / 4."""
    return roots(np.arange(length // 4 + 1), length).astype(np.complex128 if double else np.complex64)


def split(a: Arithmetic, low: Complex, high: Complex, w: Complex) -> tuple[Complex, Complex]:
    """``X[k]`` and ``X[M - k]`` from ``Z[k]`` and ``Z[M - k]``."""
    high = a.conjugate(high)
    even, odd = a.scale(a.add(low, high), 0.5), a.scale(a.rotate(a.subtract(low, high), -1), 0.5)
    turned = a.multiply(odd, w)
    return a.add(even, turned), a.conjugate(a.subtract(even, turned))


def merge(a: Arithmetic, low: Complex, high: Complex, w: Complex) -> tuple[Complex, Complex]:
    """``2 Z[k]`` and ``2 Z[M - k]`` from ``X[k]`` and ``X[M - k]``: what `split` undoes, doubled."""
    high = a.conjugate(high)
    even, odd = a.add(low, high), a.multiply(a.subtract(low, high), a.conjugate(w))
    turned = a.rotate(odd, 1)
    return a.add(even, turned), a.conjugate(a.subtract(even, turned))
