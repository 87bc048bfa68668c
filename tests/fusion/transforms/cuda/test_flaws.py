"""The table of what versions of cuFFT get wrong."""

from __future__ import annotations

import numpy as np
import pytest

from mathfuse.fusion.elementwise.layouts import dense
from mathfuse.fusion.transforms.cuda.builder import build
from mathfuse.fusion.transforms.cuda.flaws import flaw
from mathfuse.fusion.transforms.cuda.program import Fuse
from mathfuse.fusion.transforms.kinds import resolve
from mathfuse.fusion.transforms.pipeline import Pipeline

FLAWED = (12, 3, 0)


def fused(kind, n, role, precision=4):
    real, compound = np.dtype(f"f{precision}"), np.dtype(f"c{2 * precision}")
    problem = resolve(kind, (3, n if kind != "irfft" else n // 2 + 1), n, -1, "forward" if kind == "irfft" else None)
    taken, given = (real, compound) if kind == "rfft" else (compound, real if kind == "irfft" else compound)
    pipeline = Pipeline((problem,), {role: None}, taken, given)  # type: ignore[dict-item, arg-type]
    return build(pipeline, dense(problem.shape, taken), dense(problem.out_shape, given), Fuse(True, True))


@pytest.mark.parametrize(("kind", "role"), [("rfft", "prolog"), ("irfft", "epilog")])
def test_callbacks_on_real_numbers_of_large_primes(kind, role):
    assert "cuFFT 12.3" in flaw(fused(kind, 2 * 4099, role), FLAWED)
    assert "cuFFT 12.3" in flaw(fused(kind, 2 * 2053, role, precision=8), FLAWED)
    assert not flaw(fused(kind, 2 * 2053, role), FLAWED)  # shorter
    assert not flaw(fused(kind, 8209, role), FLAWED)  # odd
    assert not flaw(fused(kind, 8192, role), FLAWED)  # small primes
    for version in ((12, 0, 0), (12, 2, 9), (12, 4, 0), (13, 0, 0)):
        assert not flaw(fused(kind, 2 * 4099, role), version)


@pytest.mark.parametrize(("kind", "role"), [("rfft", "epilog"), ("irfft", "prolog"), ("fft", "prolog")])
def test_callbacks_on_complex_numbers_are_right(kind, role):
    assert not flaw(fused(kind, 2 * 4099, role), FLAWED)
