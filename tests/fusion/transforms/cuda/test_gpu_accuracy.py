"""On a GPU: errors of own kernels' transforms are at most half as large again as those of cuFFT."""

from __future__ import annotations

import numpy as np
import pytest

import mathfuse as mf
from benchmarks.sweep_problems import SECTIONS
from tests.fusion.compiler.cuda.accuracy import (
    FAMILIES,
    MOST,
    error,
    mixed,
    needs_more_than_float64,
    problem,
    supported,
)
from tests.spaces import CUPY

pytestmark = [pytest.mark.gpu, needs_more_than_float64]

ELEMENTS, CUTS = 1 << 18, 4
LENGTHS = [each.lengths[0] for each in SECTIONS["1d"]]
KINDS = {"c2c": "fft", "r2c": "rfft", "c2r": "irfft"}
TAKEN = [
    pytest.param(family, length, double, id=f"{family}-{length}-{'double' if double else 'float'}")
    for family in FAMILIES
    for length in LENGTHS
    for double in (False, True)
    if supported(family, length, double)
]


def batch(length: int) -> int:
    return max(2, ELEMENTS // length)


def found(family: str, length: int, x: np.ndarray, strategy: str) -> np.ndarray:
    lengths, norm = ((length,), "forward") if family == "c2r" else (None, None)
    plan = mf.fft.FFT(CUPY.array(x), (1,), lengths, KINDS[family], norm).plan(strategy=strategy)
    assert plan.explain().strategy == strategy
    return CUPY.numpy(plan.execute())


@pytest.mark.parametrize(("family", "length", "double"), TAKEN)
def test_errors_are_near_those_of_cufft(family, length, double):
    x, exact = problem(family, length, batch(length), double)
    own, theirs = (error(found(family, length, x, strategy), exact) for strategy in ("kernel", "sequence"))
    assert own <= MOST * theirs, f"{own / theirs:.2f} times cuFFT's {theirs:.2e}"


@pytest.mark.parametrize("length", [each for each in LENGTHS if supported("c2c", each, False)])
def test_errors_of_other_radices(length):
    from tests.fusion.compiler.cuda import device
    from tests.fusion.compiler.cuda.test_gpu_blocks import launch, made

    for double in (False, True):
        x, exact = problem("c2c", length, batch(length), double)
        theirs = error(found("c2c", length, x, "sequence"), exact)
        for block in mixed(length, double, device.architecture(), CUTS) if supported("c2c", length, double) else ():
            y = CUPY.array(np.full_like(x, np.nan))
            launch(made(length, double=double, block=block), CUPY.array(x), y)
            own = error(CUPY.numpy(y), exact)
            assert own <= MOST * theirs, f"{block.stages}: {own / theirs:.2f} times cuFFT's {theirs:.2e}"
