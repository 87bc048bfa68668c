"""cuFFT through its table on a real GPU: every family against NumPy in float64."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import mathfuse as mf
from mathfuse.runtime.cuda import cufft
from mathfuse.runtime.cuda.arrays import download, upload
from mathfuse.runtime.cuda.cufft import Call, Hook, Transform, View
from mathfuse.runtime.cuda.driver import allocate, architecture, device_guard, synchronize
from mathfuse.runtime.errors import UnsupportedError

pytestmark = pytest.mark.gpu

RNG = np.random.default_rng(3)
LENGTHS = [(1,), (16,), (1000,), (97,), (12, 15), (8, 6, 10), (5, 7, 9)]


@pytest.fixture(autouse=True)
def guarded():
    with device_guard(0):
        yield


def test_the_version_is_one_that_is_known():
    assert (11, 3) <= cufft.version()[:2] < (14, 0)


def dense(shape):
    """The view of a batch of C-contiguous arrays."""
    return View(shape, 1, int(np.prod(shape)))


def half(lengths):
    return (*lengths[:-1], lengths[-1] // 2 + 1)


def random(shape, dtype):
    x = RNG.standard_normal(shape)
    return (x + 1j * RNG.standard_normal(shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def run(call, x, out, forward=True, stream=0, hooks=(), device=0):
    """`out` as cuFFT leaves it, for NumPy arrays whose memory is what is described by the call's views."""
    transform = Transform(call, hooks, device)
    source, target = upload(x, device, stream), upload(out, device, stream)
    work = allocate(transform.work_bytes, device, stream)
    transform.set_stream(stream)
    transform.set_work_area(work.pointer)
    transform.run(source.pointer, target.pointer, forward)
    result = download(target, stream)
    transform.destroy()
    return result


def close(result, expected, double):
    scale = np.abs(expected).max()
    np.testing.assert_allclose(result, expected, rtol=0, atol=(1e-13 if double else 2e-6) * scale)


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("batch", [1, 5])
def test_every_family_is_numpy_s(lengths, batch, double):
    real, complex_ = ("float64", "complex128") if double else ("float32", "complex64")
    axes, shape, spectrum = tuple(range(1, len(lengths) + 1)), (batch, *lengths), (batch, *half(lengths))
    z = random(shape, complex_)
    c2c = Call("c2c", double, lengths, batch, dense(lengths), dense(lengths))
    close(run(c2c, z, np.zeros_like(z)), np.fft.fftn(z.astype("c16"), axes=axes), double)
    backward = np.fft.ifftn(z.astype("c16"), axes=axes, norm="forward")
    close(run(c2c, z, np.zeros_like(z), forward=False), backward, double)
    x = random(shape, real)
    r2c = Call("r2c", double, lengths, batch, dense(lengths), dense(half(lengths)))
    close(run(r2c, x, np.zeros(spectrum, complex_)), np.fft.rfftn(x.astype("f8"), axes=axes), double)
    y = np.fft.rfftn(x.astype("f8"), axes=axes).astype(complex_)
    c2r = Call("c2r", double, lengths, batch, dense(half(lengths)), dense(lengths))
    close(run(c2r, y, np.zeros(shape, real), forward=False), x.astype("f8") * np.prod(lengths), double)


def test_strided_views():
    z = random((6, 32), "complex64")  # six transforms of 8 with stride 3, 32 apart; results transposed
    inside = as_strided(z, (6, 8), (32 * 8, 3 * 8))
    call = Call("c2c", False, (8,), 6, View((8,), 3, 32), View((8,), 6, 1))
    result = run(call, z, np.zeros((8, 6), "complex64"))
    close(result.T, np.fft.fft(inside.astype("c16")), False)
    image = random((3, 4, 12), "float64")  # columns of a wider image
    call = Call("r2c", True, (4, 10), 3, View((4, 12), 1, 48), View((4, 6), 1, 24))
    close(run(call, image, np.zeros((3, 4, 6), "complex128")), np.fft.rfft2(image[..., :10]), True)


def test_sizes_of_64_bits_arrive():
    call = Call("c2c", False, (8,), 2, View((8,), 1, 1 << 33), View((8,), 1, 1 << 33))
    Transform(call).destroy()


def test_what_cufft_does_not_do_is_refused():
    with pytest.raises(UnsupportedError, match="cuFFT does not do this transform for Call"):
        Transform(Call("c2c", False, (0,), 1, dense((1,)), dense((1,))))


def test_streams_and_threads():
    cupy = pytest.importorskip("cupy")
    z = random((64, 256), "complex64")
    call = Call("c2c", False, (256,), 64, dense((256,)), dense((256,)))
    expected, failures = np.fft.fft(z.astype("c16")), []

    def work():
        try:
            with device_guard(0):
                stream = cupy.cuda.Stream(non_blocking=True)
                for _ in range(5):
                    close(run(call, z, np.zeros_like(z), stream=stream.ptr), expected, False)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.parametrize(("side", "dtype"), [("prolog", "float32"), ("epilog", "complex64")])
def test_hooks_are_called_and_read_their_block(side, dtype):
    def load(data_in, offset, user_info, reserved):
        return data_in[offset] * user_info[0]

    def store(data_out, offset, data, user_info, reserved):
        data_out[offset] = data * user_info[0]

    make = {"prolog": mf.fft.compile_prolog, "epilog": mf.fft.compile_epilog}[side]
    ltoir = make(load if side == "prolog" else store, dtype, "float32", compute_capability=architecture(0))
    factor = upload(np.full(1, 3, "float32"), 0, 0)
    synchronize(0)
    hook = Hook(side, np.dtype(dtype), ltoir, factor.pointer)
    x = random((5, 128), "float32")
    call = Call("r2c", False, (128,), 5, dense((128,)), dense((65,)))
    result = run(call, x, np.zeros((5, 65), "complex64"), hooks=[hook])
    close(result, 3 * np.fft.rfft(x.astype("f8")), False)


@pytest.mark.multigpu
def test_another_device_than_the_current_one():
    z = random((3, 64), "complex64")
    call = Call("c2c", False, (64,), 3, dense((64,)), dense((64,)))
    transform = Transform(call, device=1)
    source, target = upload(z, 1, 0), upload(np.zeros_like(z), 1, 0)
    work = allocate(transform.work_bytes, 1, 0)
    with device_guard(1):
        transform.set_stream(0)
        transform.set_work_area(work.pointer)
        transform.run(source.pointer, target.pointer, True)
    close(download(target, 0), np.fft.fft(z.astype("c16")), False)
    transform.destroy()
