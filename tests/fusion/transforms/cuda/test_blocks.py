"""Own kernels in the place of cuFFT's, on a GPU that is played: a sample of the generated cases, and of what is not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import mathfuse as mf

from .cases import COUNT, case, check
from .test_emulated import can_be_played, close


@pytest.mark.parametrize("start", range(4))
def test_cases(gpu, start):
    sample = [replace(each, strategy="kernel") for each in map(case, range(start, COUNT, 200)) if can_be_played(each)]
    found = [check(each, gpu) for each in sample]
    done = [each for each in found if "own kernels transform axes" not in each]
    assert len(done) > 2
    assert not any(done), "\n".join(done)


@mf.epilog
def weighted(value, index, w):
    return value * w[index]


@pytest.mark.parametrize("kind", ["fft", "rfft", "fft2", "rfft2", "ifftn", "rfftn"])
def test_one_axis_after_the_other_with_callbacks_inside(gpu, kind):
    x = np.random.default_rng(0).standard_normal((4, 6, 10))
    expected = getattr(np.fft, kind)(x)
    w = np.random.default_rng(1).standard_normal(expected.shape)
    plan = mf.fft.FFT(gpu.array(x), kind=kind)
    plan.plan(prolog=mf.scale(factor=2.0), epilog=weighted(w=gpu.array(w)), strategy="kernel")
    close(gpu.numpy(plan.execute()), 2 * expected * w)
    text = str(plan.explain())
    found = plan.explain()
    assert found.strategy == "kernel"
    assert found.moved_bytes >= x.nbytes + expected.nbytes + w.nbytes
    assert found.limit_seconds == pytest.approx(found.moved_bytes / 4.917e12, rel=1e-3)  # of the GPU that is played
    assert f"read and written: {found.moved_bytes:,} bytes, " in text
    assert "blocks" in text
    assert "cuFFT c2c" not in text


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
@pytest.mark.parametrize(("shape", "axes", "passes"), [((5, 12), (1,), 1), ((5, 9), (1,), 1), ((6, 4, 10), (0, 2), 3)])
def test_a_filter_leaves_the_block_only_between_axes(gpu, dtype, shape, axes, passes):
    x = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    there, back = (np.fft.rfftn, np.fft.irfftn) if dtype == np.float32 else (np.fft.fftn, np.fft.ifftn)
    spectrum = there(x.astype(np.result_type(dtype, np.float64)), axes=axes)
    w = np.random.default_rng(1).standard_normal(spectrum.shape[-1]).astype(np.float32)
    transfer = mf.epilog(lambda value, index, w: value * w[index[-1]])(w=gpu.array(w))
    plan = mf.fft.SpectralFilter(gpu.array(x), transfer, axes)
    plan.plan(prolog=mf.scale(factor=2.0), epilog=mf.scale(factor=0.25), strategy="kernel")
    close(gpu.numpy(plan.execute()), 0.5 * back(spectrum * w, [shape[axis] for axis in axes], axes=axes))
    found = plan.explain()
    assert len(found.passes) == passes
    assert "and back" in str(found)
    assert "transfer inside" in str(found)


def test_constant_filter_arrays_are_copied_once_as_columns_read_them(gpu):
    x = np.random.default_rng(0).standard_normal((3, 16, 10)).astype(np.float32)
    w = np.random.default_rng(1).standard_normal((16, 6)).astype(np.float32)
    y = np.fft.irfft2(np.fft.rfft2(x) * w, (16, 10))
    array = gpu.array(w)
    constant = mf.constant(array)
    plan = mf.fft.SpectralFilter(gpu.array(x), constant, (1, 2)).plan(strategy="kernel")
    close(gpu.numpy(plan.execute()), y)
    (copy,) = constant.copies.values()
    assert copy.strides == (4, 64)
    np.testing.assert_array_equal(gpu.numpy(copy), w)
    array.array[...] = 0  # which nobody may do: it tells what is read
    close(gpu.numpy(plan.reset_operands(gpu.array(2 * x)).execute()), 2 * y)
    close(gpu.numpy(mf.fft.SpectralFilter(gpu.array(x), constant, (1, 2)).plan(strategy="kernel").execute()), y)
    assert list(constant.copies.values()) == [copy]
    for transfer in (array, mf.constant(array)):
        mf.fft.spectral_filter(gpu.array(x), transfer, (1, 2), strategy="kernel")
    assert not transfer.copies, "a copy does not pay for one call"


@mf.epilog
def counted(value, index, count):
    count[index] = count[index] + 1.0
    return value


@pytest.mark.parametrize("n", [8, 9])
@pytest.mark.parametrize("kind", ["filter", "irfft", "rfft", "fft"])
def test_what_a_callback_assigns_is_assigned_once(gpu, n, kind):
    x = np.random.default_rng(0).standard_normal((3, n // 2 + 1 if kind == "irfft" else n))
    count = gpu.array(np.zeros((3, n if kind == "fft" else n // 2 + 1)))
    side, s = ("prolog", (n,)) if kind == "irfft" else ("epilog", None)
    plan = (
        mf.fft.SpectralFilter(gpu.array(x), counted(count=count), (1,))
        if kind == "filter"
        else mf.fft.FFT(gpu.array(x), (1,), s, kind)
    )
    callbacks = {} if kind == "filter" else {side: counted(count=count).as_kind(side)}
    if kind in ("filter", "irfft"):
        with pytest.raises(mf.UnsupportedError, match=r"twice for some elements.*take strategy=\"callback\""):
            plan.plan(**callbacks, strategy="kernel")
        plan.plan(**callbacks)
    else:
        plan.plan(**callbacks, strategy="kernel")
    plan.execute()
    np.testing.assert_array_equal(gpu.numpy(count), 1)


def test_what_own_kernels_do_not_do(gpu):
    for shape in ((17,), (32768 * 17,), (4, 34)):
        with pytest.raises(mf.UnsupportedError, match="own kernels transform axes of at most 16384 elements"):
            mf.fft.fft(gpu.array(np.ones(shape, np.complex64)), strategy="kernel")


@pytest.mark.parametrize("shape", [(8, 12), (3, 16, 10), (2, 40, 9), (2, 3, 24, 64)])
def test_rows_lie_interleaved_between_rows_and_columns(gpu, shape):
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    spectrum = np.fft.rfft2(x.astype(float))
    w = np.random.default_rng(1).standard_normal(spectrum.shape).astype(np.float32)
    transfer = mf.epilog(lambda value, index, w: value * w[index])(w=gpu.array(w))
    plan = mf.fft.SpectralFilter(gpu.array(x), transfer, (-2, -1))
    plan.plan(prolog=mf.scale(factor=2.0), strategy="kernel")
    y = 2 * np.fft.irfft2(spectrum * w, shape[-2:])
    close(gpu.numpy(plan.execute()), y)
    for out in (
        np.zeros(shape, "f4")[..., ::-1],
        np.zeros(shape, "f4")[..., ::-1, :],
        np.zeros(shape, "f4").T.copy().T,
    ):
        close(gpu.numpy(plan.execute(out=gpu.array(out))), y)
    assert [step.count("rows interleaved") for step in plan.explain().passes] == [1, 2, 1]
