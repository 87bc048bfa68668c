"""A sample of the generated cases, whole plans and all, on a GPU that this processor plays."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import mathfuse as mf

from .cases import COUNT, Case, case, check

SMALL = 400  # elements: threads and callbacks run one after another


def can_be_played(each: Case) -> bool:
    """Without functions of libdevice and instructions of PTX, as `exp` and the division of float32."""
    divides = "ramp" in (each.prolog, each.epilog) and each.dtype not in ("float64", "complex128")
    return size(each) <= SMALL and not divides and (each.kind != "filter" or each.number % 2 == 1)


def size(each: Case) -> float:
    return math.prod(each.shape) * math.prod(max(1, n / 4) for n in each.lengths or ())


@pytest.mark.parametrize("start", range(4))
@pytest.mark.parametrize("strategy", ["sequence", "callback"])
def test_cases(gpu, strategy, start):
    sample = [replace(each, strategy=strategy) for each in map(case, range(start, COUNT, 200)) if can_be_played(each)]
    wrong = [found for each in sample if (found := check(each, gpu))]
    assert not wrong, "\n".join(wrong)


# --- whole plans


X = np.random.default_rng(0).standard_normal((6, 10)).astype(np.float32)
SPECTRUM = np.fft.rfft2(X.astype(float))
strategies = pytest.mark.parametrize("strategy", ["sequence", "callback"])


@mf.epilog
def weighted(value, index, w, gain=1.0):
    return value * w[index] * gain


@mf.prolog
def keep(value, index, kept):
    kept[index] = value
    return value


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


@strategies
def test_operands_are_read_live_and_replaced(gpu, strategy):
    w = np.full(SPECTRUM.shape, 2, np.float32)
    x = gpu.array(X)
    with mf.fft.FFT(x, kind="rfft2").plan(epilog=weighted(w=gpu.array(w)), strategy=strategy) as plan:
        close(gpu.numpy(plan.execute()), 2 * SPECTRUM)
        x.array[...] *= 3
        close(gpu.numpy(plan.execute()), 6 * SPECTRUM)
        close(gpu.numpy(plan.reset_operands(gain=0.5).execute()), 3 * SPECTRUM)
        close(gpu.numpy(plan.reset_operands(w=gpu.array(2 * w)).execute()), 6 * SPECTRUM)
        close(gpu.numpy(plan.reset_operands(gpu.array(X)).execute()), 2 * SPECTRUM)
        assert plan.explain().strategy == strategy
    with pytest.raises(mf.PlanError, match="was freed"):
        plan.execute()


@strategies
def test_a_prolog_writes_an_operand(gpu, strategy):
    kept = gpu.array(np.zeros_like(X))
    mf.fft.rfft2(gpu.array(X), prolog=keep(kept=kept), strategy=strategy)
    np.testing.assert_array_equal(gpu.numpy(kept), X)


@strategies
def test_numpy_arrays_are_copied_there_and_back(gpu, strategy):
    x, kept = X.copy(), np.zeros_like(X)
    chosen = {"execution": "cuda", "strategy": strategy}
    plan = mf.fft.FFT(x, kind="rfft2").plan(prolog=keep(kept=kept), **chosen)
    found = plan.execute()
    assert type(found) is np.ndarray
    close(found, SPECTRUM)
    np.testing.assert_array_equal(kept, X)
    x *= 2
    out = np.zeros(SPECTRUM.shape[::-1], np.complex64).T
    assert plan.execute(out=out) is out
    close(out, 2 * SPECTRUM)


def test_what_does_not_fit_the_place(gpu):
    x = gpu.array(X)
    for choices, message in (
        ({"strategy": "cpu"}, "does not run on an array on a GPU: it is 'kernel', 'callback' or 'sequence'"),
        ({"prolog": keep(kept=np.zeros_like(X))}, "must be on the GPU, as x is"),
    ):
        with pytest.raises(mf.MathFuseError, match=message):
            mf.fft.rfft2(x, **choices)
    with pytest.raises(mf.UnsupportedError, match=r'a CPU pipeline does not read.*execution="cuda"'):
        mf.fft.rfft2(x, execution="cpu")


def test_an_output_in_cpu_memory_is_refused(gpu):
    with pytest.raises(mf.MathFuseError, match="out is in CPU memory"):
        mf.fft.rfft2(gpu.array(X), out=np.zeros(SPECTRUM.shape, np.complex64))


def test_memory_that_runs_out_is_an_error_that_passes(gpu):
    x = gpu.array(X)
    with pytest.raises(mf.PlanError, match="memory"):
        mf.fft.rfft2(x, (1 << 15, 1 << 15), epilog=mf.scale(factor=2.0), strategy="sequence")
    close(gpu.numpy(mf.fft.rfft2(x, epilog=mf.scale(factor=2.0))), 2 * SPECTRUM)


def test_explanations(gpu):
    plan = mf.fft.FFT(gpu.array(X), kind="rfft2").plan(epilog=mf.scale(factor=2.0))
    text = str(plan.explain())
    for part in ("rfft2 of [6, 10]", "complex64[6, 6]", "Fake GPU, number 0", "cuFFT: 12.0.0", "cuFFT r2c(6×10) × 1"):
        assert part in text, text
    assert "<b>" in plan._repr_html_()
