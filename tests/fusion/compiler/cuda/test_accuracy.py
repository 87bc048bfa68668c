"""Errors of own kernels' transforms, run on this processor: no more than those of a good library, for any radices."""

from __future__ import annotations

import numpy as np
import pytest

from mathfuse.device.fft.block import block_of
from mathfuse.device.fft.shapes import stages_of

from .accuracy import FAMILIES, MOST, computed, error, mixed, needs_more_than_float64, problem, transformed
from .test_blocks import launch, made

ARCH, ELEMENTS = "sm_90a", 4096
REAL = {"c2c": (False, False), "r2c": (True, False), "c2r": (False, True)}

pytestmark = needs_more_than_float64


@pytest.mark.parametrize("length", [13, 64, 243, 768, 1000, 2048, 4096])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("double", [False, True])
def test_errors_are_near_those_of_pocketfft(length, family, double):
    n = computed(family, length)
    x, exact = problem(family, length, max(2, ELEMENTS // length), double)
    most = MOST * error(transformed(family, length, x), exact)
    for block in (block_of(stages_of(n, double), double, ARCH), *mixed(n, double, ARCH, 1)):
        kernel = made(length, double=double, block=block, real=REAL[family], forward=family != "c2r", arch=ARCH)
        y = np.full(exact.shape, np.nan, kernel.side(1))
        launch(kernel, x, y)
        assert error(y, exact) <= most, block.stages


@pytest.mark.parametrize("double", [False, True])
def test_errors_are_found(double):
    """One element of one transform that is wrong by a hundred times the precision."""
    x, exact = problem("c2c", 64, 64, double)
    y = transformed("c2c", 64, x)
    most = MOST * error(y, exact)
    y[3, 5] += 100 * np.finfo(y.dtype).eps * np.abs(exact).max()
    assert error(y, exact) > most
