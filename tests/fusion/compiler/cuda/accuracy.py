"""What the accuracy of a transform is measured by: problems, their results in more than float64, and other cuts."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
import scipy.fft

from mathfuse.device.fft.block import Block, block_of
from mathfuse.device.fft.shapes import cuts, is_supported

MOST = 1.5  # times the error of another library
FAMILIES = ("c2c", "r2c", "c2r")
needs_more_than_float64 = pytest.mark.skipif(
    np.finfo(np.longdouble).eps == np.finfo(float).eps, reason="long double is float64 here"
)


def problem(family: str, length: int, batch: int, double: bool) -> tuple[np.ndarray, np.ndarray]:
    """Random input, a line a transform, and the right result; c2r is unscaled."""
    rng = np.random.default_rng(length)
    x = rng.standard_normal((batch, length))
    if family == "c2c":
        x = x + 1j * rng.standard_normal((batch, length))
    elif family == "c2r":
        x = scipy.fft.rfft(x)
    x = x if double else x.astype({"f": "f4", "c": "c8"}[x.dtype.kind])
    return x, transformed(family, length, x.astype(np.result_type(x, np.longdouble)))


def transformed(family: str, length: int, x: np.ndarray) -> np.ndarray:
    """By pocketfft, in the precision of `x`."""
    if family == "c2r":
        return scipy.fft.irfft(x, length, norm="forward")
    return {"c2c": scipy.fft.fft, "r2c": scipy.fft.rfft}[family](x)


def error(found: np.ndarray, exact: np.ndarray) -> float:
    """The root of the mean square, over that of the values."""
    return float(np.sqrt(np.sum(np.abs(found - exact) ** 2) / np.sum(np.abs(exact) ** 2)))


def computed(family: str, length: int) -> int:
    """Elements of the complex transform inside."""
    return length // 2 if family != "c2c" and length % 2 == 0 else length


def supported(family: str, length: int, double: bool) -> bool:
    return is_supported(computed(family, length), double)


def mixed(length: int, double: bool, arch: str, count: int) -> list[Block]:
    """Blocks of some cuts of a complex length, their radices in any order."""
    chosen, found = random.Random(length), []
    for stages in chosen.sample(cuts(length, double), min(count, len(cuts(length, double)))):
        radices = tuple(chosen.sample(stages.radices, len(stages.radices)))
        found.append(block_of(replace(stages, radices=radices), double, arch))
    return [block for block in found if block]
