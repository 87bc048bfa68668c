"""Convolution and correlation against SciPy's in float64, on the CPU and, where there is one, on a GPU."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.signal
from hypothesis import given, settings
from hypothesis import strategies as st

import mathfuse as mf
from mathfuse.fusion.transforms.convolution import extent_of, gpu_length
from tests.spaces import CUPY, everywhere, on_gpu

RNG = np.random.default_rng(3)
X = RNG.standard_normal((3, 12, 17)).astype(np.float32)
KERNEL = RNG.standard_normal((5, 4))


def numbers(shape, dtype):
    x = RNG.standard_normal(shape) * 8
    return (x + 1j * RNG.standard_normal(shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def expected(x, kernel, mode, axes, correlate=False):
    """SciPy's sums, axes of the kernel that are not convolved broadcast."""
    axes = [a % x.ndim for a in axes]
    wide = "c16" if x.dtype.kind == "c" or kernel.dtype.kind == "c" else "f8"
    x, kernel = x.astype(wide), kernel.astype(wide).reshape((1,) * (x.ndim - kernel.ndim) + kernel.shape)
    kernel = np.flip(kernel.conj(), axes) if correlate else kernel
    kernel = np.broadcast_to(kernel, [m if a in axes else n for a, (n, m) in enumerate(zip(x.shape, kernel.shape))])
    if mode != "circular":
        return scipy.signal.fftconvolve(x, kernel, mode, axes=axes)
    lengths = [x.shape[a] for a in axes]
    y = np.fft.ifftn(np.fft.fftn(x, axes=axes) * np.fft.fftn(kernel, lengths, axes), axes=axes)
    shift = [1 - kernel.shape[a] if correlate else 0 for a in axes]  # the flip put the first element last
    return np.roll(y if wide == "c16" else y.real, shift, axes)


def close(found, exact):
    assert found.shape == exact.shape
    atol = 64 * np.finfo(found.dtype).eps * max(np.abs(exact).max(initial=0), 1e-30)
    np.testing.assert_allclose(found, exact, rtol=0, atol=atol)


# --- extents ---------------------------------------------------------------------------------------------------------


@given(st.sampled_from(["full", "same", "valid"]), st.integers(1, 40), st.integers(1, 40), st.booleans(), st.booleans())
def test_what_wraps_around_stays_outside(mode, n, m, real, on_gpu):
    extent, full = extent_of(mode, n, m, real, on_gpu), np.arange(n + m - 1)
    inside = full[extent.start : extent.start + extent.length]
    assert extent.padded >= max(n, m)
    assert len(inside) == extent.length
    assert set(inside) <= set(range(extent.padded)), "the result lies in the transform"
    others = np.setdiff1d(full, inside) % extent.padded
    assert not set(others) & set(inside)


@pytest.mark.parametrize(
    ("least", "length"),
    [(1, 1), (7, 8), (17, 20), (248, 256), (527, 576), (2063, 2304), (8096, 8192), (70_000, 72_000)],
)
def test_lengths_for_own_kernels(least, length):
    assert gpu_length(least) == length


# --- values ----------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_like_scipy(data):
    rank = data.draw(st.integers(1, 3))
    shape = data.draw(st.tuples(*[st.integers(1, 14)] * rank))
    axes = data.draw(st.permutations(range(-rank, 0)))[: data.draw(st.integers(1, rank))]
    low = min(axes)
    mode = data.draw(st.sampled_from(["full", "same", "valid", "circular"]))
    larger = mode in ("full", "same")
    small = []
    for axis in range(low, 0):
        n = shape[axis]
        most = n + 6 * larger
        small.append(data.draw(st.integers(1, most) if axis in axes else st.sampled_from([1, n])))
    dtypes = st.sampled_from(["f4", "f8", "c8", "c16"])
    x, kernel = numbers(shape, data.draw(dtypes)), numbers(small, data.draw(st.sampled_from(["f4", "f8", "c16", "i2"])))
    correlate = data.draw(st.booleans())
    function = mf.fft.correlate if correlate else mf.fft.convolve
    if data.draw(st.booleans()):
        x, kernel = np.asfortranarray(x), kernel[::-1][::-1]
    found = function(x, kernel, mode, axes)
    assert found.dtype == np.result_type(x.dtype, "c8" if kernel.dtype.kind == "c" else "i1")
    exact = expected(x, kernel, mode, axes, correlate)
    assert found.shape == exact.shape
    # Of a transform's error the norms of what goes in tell; results themselves may cancel to nothing.
    scale = np.linalg.norm(x) * np.linalg.norm(kernel.astype("c16"))
    assert np.abs(found - exact).max(initial=0) <= 8 * np.finfo(found.dtype).eps * scale


@everywhere
@pytest.mark.parametrize("mode", ["full", "same", "valid", "circular"])
def test_kernels_of_lower_rank_are_for_the_last_axes(space, mode):
    found = mf.fft.convolve(space.array(X), space.array(KERNEL), mode, **space.choices(None))
    close(space.numpy(found), expected(X, KERNEL, mode, (-2, -1)))


@everywhere
def test_valid_with_the_larger_one_second(space):
    x, kernel = numbers((4, 5), "f8"), numbers((9, 6), "f8")
    for function, correlate in ((mf.fft.convolve, False), (mf.fft.correlate, True)):
        found = function(space.array(x), space.array(kernel), "valid", **space.choices(None))
        close(space.numpy(found), expected(x, kernel, "valid", (0, 1), correlate))


@everywhere
def test_callbacks_see_the_input_and_the_result(space):
    @mf.prolog
    def before(value, index, shape):
        return value * (index[1] + 1) / shape[1]

    @mf.epilog
    def after(value, index, shape, w):
        return value * w[index] + index[2] / shape[2]

    y = expected(X * ((np.arange(12) + 1) / 12)[:, None], KERNEL, "valid", (1, 2))
    w = numbers(y.shape, "f4")
    choices = {"prolog": before, "epilog": after(w=space.array(w)), **space.choices(None)}
    found = mf.fft.convolve(space.array(X), space.array(KERNEL), "valid", **choices)
    close(space.numpy(found), y * w + np.arange(y.shape[2]) / y.shape[2])


def test_foreign_byte_order():
    found = mf.fft.convolve(X.astype(">f4"), KERNEL.astype(">f8"))
    close(found, expected(X, KERNEL, "full", (1, 2)))


@everywhere
def test_plans(space):
    x, kernel = space.array(X), space.array(KERNEL)
    y = expected(X, KERNEL, "same", (1, 2))
    with mf.fft.Convolution(x, kernel, "same").plan(**space.choices(None)) as plan:
        for _ in range(2):
            close(space.numpy(plan.execute()), y)
        out = space.array(np.asfortranarray(np.zeros_like(X)))
        assert plan.execute(out=out) is out
        close(space.numpy(out), y)
        plan.reset_operands(kernel=space.array(2 * KERNEL))
        close(space.numpy(plan.execute()), 2 * y)
        x = space.array(3 * X)
        close(space.numpy(plan.reset_operands(x).execute()), 6 * y)
        with pytest.raises(mf.PlanError, match=r"cannot become float64 of shape \(4, 4\)"):
            plan.reset_operands(kernel=KERNEL[:4])
        assert plan.execute(out=x) is x
        close(space.numpy(x), 6 * y)
        text = str(plan.explain())
    assert "same convolution of [3, 12, 17] with [5, 4] → float32[3, 12, 17]" in text


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0], np.ones(2)), "x: a list is not an array"),
        ((X, "abc"), "kernel=str is no array"),
        ((X, KERNEL, "fill"), "mode='fill': it is one of full, same, valid, circular"),
        ((X, np.ones((1, 1, 1, 1))), "the kernel has more axes than x"),
        ((X, np.ones((5, 0))), "no elements along axis 2"),
        ((X, np.ones((2, 5, 4)), "full", (1, 2)), "2 elements along axis 0, which is not transformed: 1 or 3 fit"),
        ((X, KERNEL, "full", (0, 1)), r"the last ones of x and lack axis 0: give it more, as kernel\[:, None\]"),
        ((X, KERNEL, "full", 5), "axis 5 is out of range"),
        ((X, np.ones((13, 2)), "circular"), "along axis 1 the kernel is longer than the period: cut it"),
        ((X, np.ones((13, 2)), "valid"), "x or the kernel must be the larger one along all axes"),
        ((X, np.ones((2, 2), "O")), "kernel: dtype object is not supported"),
        ((X, np.float64(2.0)), "kernel=float64 is no array"),
    ],
)
def test_what_does_not_fit(arguments, message):
    with pytest.raises(mf.MathFuseError, match=message):
        mf.fft.convolve(*arguments)


# --- on a GPU --------------------------------------------------------------------------------------------------------


@on_gpu
@pytest.mark.gpu
@pytest.mark.parametrize("strategy", ["kernel", "callback", "sequence"])
@pytest.mark.parametrize(("mode", "dtype"), [("full", "f4"), ("same", "c16"), ("valid", "c8"), ("circular", "f8")])
@pytest.mark.parametrize(("axes", "small"), [((1, 2), (5, 9)), ((2,), (9,)), ((0, 2), (3, 1, 9))])
def test_every_strategy(space, strategy, mode, dtype, axes, small):
    x, kernel = numbers((4, 60, 64), dtype), numbers(small, dtype)
    plan = mf.fft.Convolution(space.array(x), space.array(kernel), mode, axes, correlate=mode == "same")
    plan.plan(epilog=mf.scale(factor=2.0), strategy=strategy)
    close(space.numpy(plan.execute()), 2 * expected(x, kernel, mode, axes, mode == "same"))
    assert plan.explain().strategy == strategy


@pytest.mark.gpu
def test_a_kernel_in_cpu_memory_and_a_captured_call():
    x = CUPY.array(X)
    y = expected(X, KERNEL, "full", (1, 2))
    close(CUPY.numpy(mf.fft.convolve(x, KERNEL)), y)
    cupy, kernel = CUPY.library, CUPY.array(KERNEL)
    out = CUPY.array(np.zeros(y.shape, np.float32))
    with mf.fft.Convolution(x, kernel).plan() as plan:
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            plan.execute(out=out)
            stream.begin_capture()
            plan.execute(out=out)
            graph = stream.end_capture()
        x *= 2
        out[...] = 0
        cupy.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        close(CUPY.numpy(out), 2 * y)
