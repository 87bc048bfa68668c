"""Plans that the functions keep, and memory of the GPU: what is reused, what is let go, and when it runs out."""

from __future__ import annotations

import gc
import os
import weakref

import numpy as np
import pytest

import mathfuse as mf
from mathfuse.fusion.transforms.cuda import engine, lanes
from mathfuse.runtime.cuda import cufft
from tests.spaces import CUPY, TORCH, on_gpu

pytestmark = pytest.mark.gpu
MIB = 1 << 20
ALONE = "PYTEST_XDIST_WORKER" not in os.environ  # else others use the same GPU
SHAPE = (16, 20)
X = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
SPECTRUM = np.fft.rfft2(X.astype(float))
GAIN = 2.0
TABLE = np.ones(11, np.float32)


@mf.epilog
def by_global(value):
    return value * GAIN


@mf.epilog
def by_table(value, index):
    return value * TABLE[index[-1]]


@mf.epilog
def weighted(value, index, w):
    return value * w[index]


def close(found, expected, space=CUPY):
    np.testing.assert_allclose(space.numpy(found), expected, rtol=0, atol=5e-6 * max(np.abs(expected).max(), 1))


@pytest.fixture
def made(monkeypatch):
    """What is planned and compiled from now on; weak references to the transforms, cuFFT's and our own."""
    found = {"plans": [], "code": 0}
    compiled = engine.compiled

    def counting(kind):
        class Counted(kind):
            def __init__(self, *given, **named):
                super().__init__(*given, **named)
                found["plans"].append(weakref.ref(self))

        return Counted

    def counted(*given):
        found["code"] += 1
        return compiled(*given)

    monkeypatch.setattr(cufft, "Transform", counting(cufft.Transform))
    monkeypatch.setattr(lanes, "BlockTransform", counting(lanes.BlockTransform))
    monkeypatch.setattr(engine, "compiled", counted)
    mf.clear_plans()
    return found


# --- plans that are kept


@on_gpu
@pytest.mark.parametrize("strategy", ["kernel", "callback", "sequence", None])
def test_functions_reuse_plans(space, made, strategy):
    x, double = space.array(X), mf.scale(factor=2.0)
    close(mf.fft.rfft2(x, epilog=double, strategy=strategy), 2 * SPECTRUM, space)
    plans, code = len(made["plans"]), made["code"]
    assert plans
    for _ in range(5):
        close(mf.fft.rfft2(x, epilog=double, strategy=strategy), 2 * SPECTRUM, space)
        close(mf.fft.rfft2(space.array(2 * X), epilog=double, strategy=strategy), 4 * SPECTRUM, space)
    out = space.array(np.zeros(SPECTRUM.shape, np.complex64))
    mf.fft.rfft2(x, epilog=double, strategy=strategy, out=out)
    close(out, 2 * SPECTRUM, space)
    assert (len(made["plans"]), made["code"]) == (plans, code)


@on_gpu
@pytest.mark.parametrize("strategy", ["kernel", "callback", "sequence"])
def test_other_bound_values_neither_plan_nor_compile(space, made, strategy):
    """Callbacks made anew for each call: by value they differ, in code they do not."""
    x = space.array(X)
    for number in range(30):
        found = mf.fft.rfft2(x, epilog=mf.scale(factor=0.5 * number), strategy=strategy)
        close(found, 0.5 * number * SPECTRUM, space)
        if number == 0:
            plans, code = len(made["plans"]), made["code"]
        w = space.array(np.full(SPECTRUM.shape, number, np.float32))
        close(mf.fft.rfft2(x, epilog=weighted(w=w), strategy="sequence"), number * SPECTRUM, space)
    filtered = [space.numpy(mf.fft.spectral_filter(x, mf.gaussian(sigma=s))) for s in (0.1, 1.0, 3.0)]
    assert filtered[0].std() > filtered[1].std() > filtered[2].std()
    assert made["code"] <= code + 6, "code was made anew"
    assert len(made["plans"]) <= plans + 8, "cuFFT planned anew"


def test_known_problems_are_told_apart():
    """By everything that a plan depends on."""
    x, double, triple = CUPY.array(X), mf.scale(factor=2.0), mf.scale(factor=3.0)
    z = CUPY.array(X.astype(np.complex64))
    for _ in range(3):
        close(mf.fft.rfft2(x, epilog=double), 2 * SPECTRUM)
        close(mf.fft.rfft2(x, epilog=triple), 3 * SPECTRUM)
        close(mf.fft.rfft2(x, norm="ortho"), SPECTRUM / np.sqrt(X.size))
        close(mf.fft.rfft2(x, (8, 10)), np.fft.rfft2(X, (8, 10)))
        close(mf.fft.rfft2(x, axes=(1, 0)), np.fft.rfft2(X, axes=(1, 0)))
        close(mf.fft.rfft(x, axis=0), np.fft.rfft(X, axis=0))
        close(mf.fft.rfft(x), np.fft.rfft(X))
        close(mf.fft.fft2(z), np.fft.fft2(X))
        close(mf.fft.fft2(z.T), np.fft.fft2(X.T))
        close(mf.fft.fft2(z[::-1]), np.fft.fft2(X[::-1]))
        close(mf.fft.fft2(z[:, 1:]), np.fft.fft2(X[:, 1:]))
        close(mf.fft.ifft2(z), np.fft.ifft2(X))
        close(mf.fft.rfft2(CUPY.array(X.astype(float)), epilog=double), 2 * SPECTRUM)


def test_a_rebound_global_takes_effect(monkeypatch):
    x = CUPY.array(X)
    for gain in (2.0, 3.0, -1.0, 2.0):
        monkeypatch.setitem(globals(), "GAIN", gain)
        for _ in range(2):
            close(mf.fft.rfft2(x, epilog=by_global), gain * SPECTRUM)


def test_captured_arrays_are_read_anew(monkeypatch):
    x = CUPY.array(X)
    for factor in (1, 2, 5):
        monkeypatch.setitem(globals(), "TABLE", np.full(11, factor, np.float32))
        close(mf.fft.rfft2(x, epilog=by_table), factor * SPECTRUM)
        TABLE[:] = 7 * factor  # host arrays are uploaded at each call
        close(mf.fft.rfft2(x, epilog=by_table), 7 * factor * SPECTRUM)
        monkeypatch.setitem(globals(), "TABLE", CUPY.array(np.full(11, factor, np.float32)))
        close(mf.fft.rfft2(x, epilog=by_table), factor * SPECTRUM)
        TABLE[:] = 9 * factor  # device arrays are read live
        close(mf.fft.rfft2(x, epilog=by_table), 9 * factor * SPECTRUM)


@on_gpu
def test_kept_plans_hold_no_arrays(space):
    mf.clear_plans()
    large = np.zeros((2048, 1024), np.complex64)
    space.give_back()
    before = space.used_bytes()
    x, w = space.array(large), space.array(large.real.copy())
    with mf.fft.FFT(x, kind="fft").plan(epilog=weighted(w=w), strategy="sequence") as plan:
        workspace = plan.explain().workspace_bytes
    for _ in range(2):
        mf.fft.fft(x, epilog=weighted(w=w), strategy="sequence")
    del x, w, plan
    held = space.used_bytes() - before
    mf.clear_plans()
    rest = space.used_bytes() - before
    assert held < workspace + MIB, "the input or the operand is kept alive"
    assert rest < MIB, "a cleared plan keeps memory"


@on_gpu
@pytest.mark.parametrize("strategy", ["callback", "sequence"])
def test_cleared_and_freed_plans_are_gone(space, made, strategy):
    x = space.array(X)
    mf.fft.rfft2(x, epilog=mf.scale(factor=2.0), strategy=strategy)
    plan = mf.fft.FFT(x, kind="rfft").plan(epilog=mf.scale(factor=2.0), strategy=strategy)
    plan.execute()
    plan.free()
    gc.collect()
    assert made["plans"]
    mf.clear_plans()
    gc.collect()
    assert [each() for each in made["plans"] if each() is not None] == []
    with pytest.raises(mf.PlanError, match="was freed"):
        plan.execute()


def test_a_plan_outlives_the_clearing():
    x = CUPY.array(X)
    with mf.fft.FFT(x, kind="rfft2").plan(epilog=mf.scale(factor=2.0)) as plan:
        mf.clear_plans()
        close(plan.execute(), 2 * SPECTRUM)


@on_gpu
def test_a_plan_keeps_its_operands(space):
    plan = mf.fft.FFT(space.array(X), kind="rfft2")
    plan.plan(epilog=weighted(w=space.array(np.full(SPECTRUM.shape, 2, np.float32))), strategy="sequence")
    gc.collect()
    rubbish = [space.array(np.full(SPECTRUM.shape, -1, np.float32)) for _ in range(8)]
    close(plan.execute(), 2 * SPECTRUM, space)
    del rubbish


def test_results_are_not_overwritten():
    """Each has memory of its own, though the workspace is shared."""
    x, double = CUPY.array(X), mf.scale(factor=2.0)
    results = [mf.fft.rfft2(k * x, epilog=double) for k in range(20)]
    for k, found in enumerate(results):
        close(found, 2 * k * SPECTRUM)


# --- much of it, and too much


def in_use(space) -> tuple[int, int]:
    """Of the framework's pool, and of the whole GPU."""
    mf.clear_plans()
    space.give_back()
    free, total = CUPY.library.cuda.runtime.memGetInfo()
    return space.used_bytes(), total - free


@on_gpu
def test_a_thousand_plans_leave_nothing_behind(space):
    shapes = [(8 + 2 * k, 30) for k in range(10)]
    inputs = [space.array(np.ones(shape, np.complex64)) for shape in shapes]

    def round_of(number: int) -> None:
        x = inputs[number % len(inputs)]
        strategy = "sequence" if number % 50 else "callback"
        fused = {"epilog": mf.scale(factor=float(number))} if number % 3 else {}
        with mf.fft.FFT(x, kind="fft2").plan(strategy=strategy, **fused) as plan:
            plan.execute()
        if number % 100 == 0:
            mf.clear_plans()

    for number in range(110):
        round_of(number)
    pool, whole = in_use(space)
    for number in range(1000):
        round_of(number)
    pool_after, whole_after = in_use(space)
    assert pool_after - pool < MIB
    if ALONE:
        assert whole_after - whole < 16 * MIB


@on_gpu
@pytest.mark.parametrize("strategy", ["callback", "sequence"])
def test_out_of_memory_is_an_error_that_passes(space, strategy):
    """A padded transform of 2**36 elements needs 512 GiB."""
    z = X.astype(np.complex64)
    x = space.array(z)
    before = space.used_bytes()
    for _ in range(2):
        with pytest.raises(mf.PlanError, match="memory"):
            mf.fft.fft2(x, (1 << 18, 1 << 18), epilog=mf.scale(factor=2.0), strategy=strategy)
        with pytest.raises(mf.PlanError, match="memory"):
            mf.fft.FFT(x, s=(1 << 18, 1 << 18), kind="ifft2").plan(strategy=strategy).execute()
        close(mf.fft.fft2(x, epilog=mf.scale(factor=2.0), strategy=strategy), 2 * np.fft.fft2(X), space)
    mf.clear_plans()
    assert space.used_bytes() - before < MIB


@on_gpu
def test_a_filter_needs_little_beside_its_result(space):
    mf.clear_plans()
    image = space.array(np.zeros((4096, 4096), np.float32))
    plan = mf.fft.SpectralFilter(image, mf.gaussian(sigma=2.0)).plan()
    told = plan.explain().workspace_bytes
    nbytes = 4 * 4096 * 4096
    before = space.used_bytes()
    plan.execute()
    assert space.used_bytes() - before < MIB, "something is made anew with each run"
    assert told <= 3 * nbytes, plan.explain()


def test_the_pools_of_both_frameworks_are_their_own():
    """A plan of CuPy's arrays takes nothing from PyTorch's pool, and the other way round."""
    mf.clear_plans()
    large = np.zeros((1024, 1024), np.complex64)
    for mine, other in ((CUPY, TORCH), (TORCH, CUPY)):
        x = mine.array(large)
        before = other.used_bytes()
        plan = mf.fft.FFT(x, kind="fft2").plan(epilog=mf.scale(factor=2.0))
        result = plan.execute()
        assert other.used_bytes() == before
        del plan, result
