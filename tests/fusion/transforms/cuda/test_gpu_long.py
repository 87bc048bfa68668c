"""On a GPU: axes that own kernels transform in two or three steps, against NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest

import mathfuse as mf
from mathfuse.fusion.transforms.cuda import choice
from mathfuse.fusion.transforms.cuda.program import Fuse

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy", reason="GPU tests hold their arrays with CuPy")
EPS = {np.dtype(np.complex64): 1.2e-7, np.dtype(np.complex128): 2.3e-16}


@mf.prolog
def tilted(value, index, shape, axes):
    return value * (1.0 + mf.signed_frequency(index[axes[0]], shape[axes[0]]))


@mf.epilog
def weighted(value, index, w):
    return value * w[index]


@mf.epilog
def striped(value, index):
    return value * (2.0 if index[0] % 3 == 1 else 0.5) if index[-1] % 2 else value


def data(shape, dtype=np.complex64):
    random = np.random.default_rng(5)
    x = random.standard_normal((*shape, 2), np.float32)
    return x.view(np.complex64)[..., 0].astype(dtype)


def tilt(shape, axis):
    """What `tilted` multiplies by."""
    return 1.0 + np.fft.fftfreq(shape[axis]).reshape([-1 if a == axis else 1 for a in range(len(shape))])


def stripes(shape):
    """What `striped` multiplies by."""
    index = np.indices(shape, sparse=True)
    return np.where(index[-1] % 2 == 1, np.where(index[0] % 3 == 1, 2.0, 0.5), 1.0)


def close(found, expected, bound=2.5):
    """By the root of the mean square, which cuFFT's own float32 results of 2^15 elements miss by 3e-7."""
    found = cupy.asnumpy(found)
    error = np.linalg.norm((found - expected).ravel()) / np.linalg.norm(expected.ravel())
    assert error <= bound * EPS[found.dtype], error


def exact(x, kind="fft", axis=-1):
    return getattr(np.fft, kind)(x.astype(complex), axis=axis)


SHAPES = [
    ((32_768,), 0), ((5, 32_768), 1), ((65_536,), 0), ((3, 100_000), 1), ((1 << 20,), 0), ((7, 1 << 20), 1),
    ((65_536, 12), 0), ((2, 32_768, 9), 1), ((177_147,), 0), ((10_000_000,), 0), ((1 << 24,), 0), ((1 << 25,), 0),
]  # fmt: skip


CALLBACKS = [("fft", tilted, striped), ("ifft", None, striped), ("ifft", tilted, None)]


@pytest.mark.parametrize(("shape", "axis"), SHAPES, ids=str)
def test_transforms_with_callbacks_that_see_the_index(shape, axis):
    x = data(shape)
    here = cupy.asarray(x)
    for kind, prolog, epilog in CALLBACKS if x.size < 1 << 23 else CALLBACKS[:1]:
        with mf.fft.FFT(here, (axis,), kind=kind) as plan:
            plan.plan(prolog=prolog, epilog=epilog, strategy="kernel")
            found = plan.execute()
            assert plan.explain().strategy == "kernel"
            assert 2 <= len(plan.explain().passes) <= 3
        expected = exact(x * tilt(shape, axis) if prolog else x, kind, axis)
        close(found, expected * stripes(shape) if epilog else expected)
    np.testing.assert_array_equal(cupy.asnumpy(here), x)


@pytest.mark.parametrize(("shape", "axis"), SHAPES[1:7:2] + SHAPES[-5:-1], ids=str)
def test_filters(shape, axis):
    x = data(shape)
    w = np.random.default_rng(6).uniform(0.5, 1.5, shape).astype(np.float32)
    expected = np.fft.ifft(exact(x, axis=axis) * w, axis=axis)
    for array in (cupy.asarray(w), mf.constant(cupy.asarray(w))):
        with mf.fft.SpectralFilter(cupy.asarray(x), weighted(w=array), (axis,)) as plan:
            plan.plan(strategy="kernel")
            close(plan.execute(), expected, 4)
            assert len(plan.explain().passes) in (3, 5)
    with mf.fft.SpectralFilter(cupy.asarray(x), striped, (axis,)) as plan:
        plan.plan(prolog=tilted, epilog=striped, strategy="kernel")
        between = exact(x * tilt(shape, axis), axis=axis) * stripes(shape)
        close(plan.execute(), np.fft.ifft(between, axis=axis) * stripes(shape), 4)


@pytest.mark.parametrize(("shape", "axis"), [((3, 16_384), 1), ((65_536,), 0), ((20_000, 5), 0), ((1 << 20,), 0)])
def test_float64(shape, axis):
    x = data(shape, np.complex128)
    for kind in ("fft", "ifft"):
        with mf.fft.FFT(cupy.asarray(x), (axis,), kind=kind) as plan:
            plan.plan(prolog=tilted, epilog=striped, strategy="kernel")
            close(plan.execute(), exact(x * tilt(shape, axis), kind, axis) * stripes(shape), 6)
    with mf.fft.SpectralFilter(cupy.asarray(x), striped, (axis,)) as plan:
        plan.plan(strategy="kernel")
        close(plan.execute(), np.fft.ifft(exact(x, axis=axis) * stripes(shape), axis=axis), 8)


@pytest.mark.parametrize(("given", "length"), [(20_000, 32_768), (100_000, 65_536), (9, 65_536), (1 << 19, 1 << 20)])
def test_padded_and_cut_axes(given, length):
    x = data((3, given))
    with mf.fft.FFT(cupy.asarray(x), (1,), (length,)) as plan:
        plan.plan(epilog=striped, strategy="kernel")
        close(plan.execute(), np.fft.fft(x.astype(complex), length) * stripes((3, length)))


def test_layouts():
    x = data((6, 65_536))
    expected = exact(x) * stripes(x.shape)
    for lying in (cupy.asfortranarray(cupy.asarray(x)), cupy.asarray(x[:, ::-1].copy())[:, ::-1]):
        out = cupy.zeros((65_536, 6), np.complex64).T
        with mf.fft.FFT(lying, (1,)) as plan:
            plan.plan(epilog=striped, strategy="kernel")
            close(plan.execute(), expected)
            close(plan.execute(out=out), expected)


def test_in_place_and_on_streams():
    x = data((4, 100_000))
    here, stream = cupy.asarray(x), cupy.cuda.Stream(non_blocking=True)
    with mf.fft.FFT(here, (1,)) as plan:
        plan.plan(epilog=striped, strategy="kernel")
        close(plan.execute(out=here), exact(x) * stripes(x.shape))
        here[...] = cupy.asarray(x)
        stream.wait_event(cupy.cuda.get_current_stream().record())
        found = plan.execute(stream=stream)
        stream.synchronize()
        close(found, exact(x) * stripes(x.shape))


def test_several_axes():
    x = data((48, 65_536))
    with mf.fft.FFT(cupy.asarray(x), kind="fft2") as plan:
        plan.plan(epilog=striped, strategy="kernel")
        close(plan.execute(), np.fft.fft2(x.astype(complex)) * stripes(x.shape))


def test_convolution():
    x, k = data((2, 60_000)), data((1, 401))
    found = mf.fft.convolve(cupy.asarray(x), cupy.asarray(k), "same", axes=(1,), strategy="kernel")
    length = 131_072
    full = np.fft.ifft(np.fft.fft(x.astype(complex), length) * np.fft.fft(k.astype(complex), length))
    close(found, full[:, 200:60_200], 4)


@pytest.mark.slow
def test_2_to_the_27():
    x = data((1 << 27,))
    here = cupy.asarray(x)
    with mf.fft.FFT(here) as plan:
        plan.plan(prolog=tilted, epilog=striped, strategy="kernel")
        found = cupy.asnumpy(plan.execute())
    del here
    expected = np.fft.fft(x.astype(complex) * tilt(x.shape, 0)) * stripes(x.shape)
    error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
    assert error <= 3e-7


@pytest.mark.parametrize("longest", [16, 4])
def test_short_axes_in_steps(longest, monkeypatch):
    """All the ways that lines can lie, on small arrays."""
    monkeypatch.setattr(choice, "BLOCKS", Fuse(True, True, block=True, longest=longest))
    for shape, axis in (((64,), 0), ((5, 64), 1), ((64, 5), 0), ((3, 64, 5), 1), ((3, 48), 1), ((2, 60), 1)):
        x = data(shape, np.complex128)
        with mf.fft.FFT(cupy.asarray(x), (axis,)) as plan:
            plan.plan(prolog=tilted, epilog=striped, strategy="kernel")
            close(plan.execute(), exact(x * tilt(shape, axis), axis=axis) * stripes(shape), 6)
        with mf.fft.SpectralFilter(cupy.asarray(x), striped, (axis,)) as plan:
            plan.plan(strategy="kernel")
            close(plan.execute(), np.fft.ifft(exact(x, axis=axis) * stripes(shape), axis=axis), 8)
