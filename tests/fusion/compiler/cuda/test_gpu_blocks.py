"""On a GPU: kernels that transform in a block of threads, of all sizes and in all options, against NumPy in float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mathfuse.device.fft.block import block_of
from mathfuse.device.fft.shapes import cuts, is_supported
from mathfuse.fusion.compiler.cuda.artifacts import Compiled
from mathfuse.fusion.compiler.cuda.blockcode import link
from mathfuse.fusion.compiler.cuda.blocks import NAME, SLOTS
from mathfuse.runtime.cuda import driver

from . import device, test_blocks
from .test_blocks import expected, halved, information, numbers, ramp, side, tilted

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy", reason="GPU tests hold their arrays with CuPy")

LENGTHS = [
    *range(2, 17), 18, 20, 24, 30, 32, 49, 64, 100, 121, 128, 169, 243, 256, 343, 360, 500, 512, 625, 720, 768, 1000,
    1024, 1080, 1331, 1536, 1920, 2000, 2048, 2197, 2401, 3000, 3125, 4096, 5000, 6561, 8192, 10_000, 16_384,
]  # fmt: skip


def made(length, *arguments, **options):
    return test_blocks.made(length, *arguments, arch=device.architecture(), **options)


def launch(kernel, x, y, callbacks=None):
    """Transforms `x` into `y`, both on the GPU; `callbacks` are units by hook."""
    callbacks = callbacks or {}
    infos = {hook: cupy.asarray(information(unit)) for hook, unit in callbacks.items()}
    pointers = [infos[hook].data.ptr if hook in infos else 0 for hook in ("load", "transfer", "store")]
    steps = [array.strides[axis] // array.itemsize for array in (x, y) for axis in (1, 0)]
    block = np.zeros(len(SLOTS), np.int64)
    block[: 6 + len(steps)] = x.data.ptr, y.data.ptr, *pointers, x.shape[0], *steps
    cubin, _ = link(kernel, [Compiled(unit).ltoir for unit in callbacks.values()])
    loaded = driver.load_kernel(cubin, NAME, 0)
    assert loaded.local_bytes == 0
    with driver.device_guard(0):
        run = driver.Launch(loaded, kernel.blocks(x.shape[0]), kernel.block.threads, block, kernel.shared_bytes)
        run(0)
        driver.synchronize(0)


def sample(kernel, batch=5):
    x = numbers((batch, kernel.block.stages.length), kernel.dtype)
    return np.asfortranarray(x) if kernel.block.across else x


def close(found, exact, bound=4):
    found = cupy.asnumpy(found)
    assert np.abs(found - exact).max() <= bound * np.finfo(found.dtype).eps * np.abs(exact).max()


@pytest.mark.parametrize("length", LENGTHS)
def test_transforms(length):
    for double in (False, True):
        if not is_supported(length, double):
            continue
        for forward in (True, False):
            for across in {False, length <= 512}:
                kernel = made(length, across, double=double, forward=forward)
                x = sample(kernel)
                y = cupy.full_like(cupy.asarray(x), np.nan)
                launch(kernel, cupy.asarray(x), y)
                close(y, expected(x, forward))


@pytest.mark.parametrize("length", [64, 1000, 4096])
def test_every_cut(length):
    for stages in cuts(length):
        kernel = made(length, block=block_of(stages, False, device.architecture()))
        x = sample(kernel)
        y = cupy.full_like(cupy.asarray(x), np.nan)
        launch(kernel, cupy.asarray(x), y)
        close(y, expected(x))


@pytest.mark.parametrize("length", [16, 256, 1000, 4096])
@pytest.mark.parametrize("double", [False, True])
def test_callbacks_and_filters(length, double):
    kernel = made(length, double=double, load=True, transfer=True, store=True)
    x = sample(kernel)
    functions = {"load": (ramp, None), "transfer": (ramp, "transfer"), "store": (halved, None)}
    units = {hook: side(each, kernel.dtype, x.shape, kernel.arch, name) for hook, (each, name) in functions.items()}
    y = cupy.full_like(cupy.asarray(x), np.nan)
    launch(kernel, cupy.asarray(x), y, units)
    weights = np.arange(5)[:, None] * length + np.arange(length)
    exact = np.fft.ifft(expected(x * weights) * weights, axis=1) * length
    exact[:, 1::2] /= 2
    close(y, exact, 16)


@pytest.mark.parametrize("length", [4, 7, 64, 360, 1000, 2187, 4096, 16_384])
@pytest.mark.parametrize("double", [False, True])
def test_real_transforms_and_filters(length, double):
    rng, count = np.random.default_rng(3), length // 2 + 1
    kernel = made(length, real=(True, False), double=double)
    x = rng.standard_normal((5, length)).astype(kernel.side(0))
    there, back, filtered = cupy.empty((5, count), kernel.dtype), *(cupy.empty_like(cupy.asarray(x)) for _ in range(2))
    launch(kernel, cupy.asarray(x), there)
    close(there, np.fft.rfft(x.astype(float)))
    launch(made(length, real=(False, True), forward=False, double=double), there, back)
    close(back, length * x.astype(float), 16)
    kernel = made(length, real=(True, True), transfer=True, double=double)
    unit = side(tilted, kernel.dtype, (5, count), kernel.arch, "transfer")
    launch(kernel, cupy.asarray(x), filtered, {"transfer": unit})
    factors = np.arange(5)[:, None] * count + np.arange(count) + 1j
    close(filtered, np.fft.irfft(np.fft.rfft(x.astype(float)) * factors, length) * length, 16)


def test_in_place_and_strided():
    kernel = replace(made(60), strides=(None, 1))
    x = numbers((60, 3, 5), kernel.dtype)
    big, y = cupy.asarray(x), cupy.full((5, 70), np.nan, kernel.dtype)
    launch(kernel, big[:, 1, :].T, y[:, :60])
    close(y[:, :60], expected(x[:, 1, :].T))
    kernel = made(1000)
    x = sample(kernel)
    here = cupy.asarray(x)
    launch(kernel, here, here)
    close(here, expected(x))
