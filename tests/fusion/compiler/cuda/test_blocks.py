"""Kernels that transform in a block of threads: run on this processor against NumPy, and audited."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import mathfuse as mf
from mathfuse.device.fft.block import Block, block_of
from mathfuse.device.fft.shapes import Stages, stages_of
from mathfuse.fusion.compiler.cuda import toolchain
from mathfuse.fusion.compiler.cuda.artifacts import Compiled
from mathfuse.fusion.compiler.cuda.audit import audit
from mathfuse.fusion.compiler.cuda.blocks import NAME, SLOTS, BlockKernel
from mathfuse.fusion.compiler.cuda.geometry import Geometry
from mathfuse.fusion.compiler.cuda.interface import make_unit

from . import threads

ARCHS = ("sm_80", "sm_90a", "sm_100", "sm_120")
RNG = np.random.default_rng(0)


def made(length, across=False, block=None, **options):
    block = block or block_of(stages_of(length), across)
    given = {"double": False, "forward": True, "load": False, "store": False, "transfer": False, **options}
    return BlockKernel(block, dense=(not block.across, not block.across), arch="sm_90a", **given)


def numbers(shape, dtype):
    return (RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape)).astype(dtype)


def launch(kernel, x, y, callbacks=None):
    """Transforms `x` into `y`; `callbacks` are units by hook, which find their indices in arrays like `x`."""
    callbacks, factors, block = callbacks or {}, kernel.table(), np.zeros(len(SLOTS), np.int64)
    informations = {hook: information(unit, x.shape) for hook, unit in callbacks.items()}
    infos = [informations[hook].ctypes.data if hook in callbacks else 0 for hook in ("load", "transfer", "store")]
    steps = [stride // kernel.dtype.itemsize for stride in (x.strides[1], x.strides[0], y.strides[1], y.strides[0])]
    block[:] = x.ctypes.data, y.ctypes.data, *infos, factors.ctypes.data, x.shape[0], *steps
    run = threads.kernel(kernel, [unit.lower()[0] for unit in callbacks.values()])
    run(block, kernel.blocks(x.shape[0]))


def expected(x, forward=True):
    exact = x.astype("complex128")
    return np.fft.fft(exact, axis=1) if forward else np.fft.ifft(exact, axis=1) * x.shape[1]


def check(kernel, x, y):
    launch(kernel, x, y)
    exact = expected(x, kernel.forward)
    # An element's error is the root of the number of stages times the precision, about.
    assert np.abs(y - exact).max() <= 4 * np.finfo(y.dtype).eps * np.abs(exact).max()


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("radix", range(2, 17))
def test_butterflies(radix, double):
    kernel = made(radix, double=double, block=Block(Stages(radix, (radix,), 1), 4))
    x = numbers((6, radix), kernel.dtype)
    for forward in (True, False):
        check(replace(kernel, forward=forward), x, np.full_like(x, np.nan))


@pytest.mark.parametrize(
    ("length", "batch", "options"),
    [
        (256, 9, {}),
        (768, 2, {"forward": False}),
        (1000, 3, {}),
        (1024, 3, {"double": True}),
        (169, 17, {"double": True, "forward": False}),
        (2000, 1, {}),
        (4096, 2, {}),
        (30, 7, {}),
        (121, 5, {"across": True}),
        (1024, 18, {"across": True, "forward": False}),
    ],
)
def test_transforms(length, batch, options):
    kernel = made(length, **options)
    x = numbers((batch, length), kernel.dtype)
    x = np.asfortranarray(x) if kernel.block.across else x
    check(kernel, x, np.full_like(x, np.nan))


@pytest.mark.parametrize("radices", [(4, 4, 4), (2, 8, 4), (16, 4), (2, 2, 2, 2, 2, 2)])
@pytest.mark.parametrize("count", [4, 8, 16, 32])
def test_any_radices_and_threads(radices, count):
    stages = Stages(64, radices, count)
    kernel = made(64, block=Block(stages, 2))
    x = numbers((3, 64), kernel.dtype)
    check(kernel, x, np.full_like(x, np.nan))


def test_lines_with_gaps_in_another_order():
    kernel = replace(made(60), dense=(False, True))
    x = numbers((60, 3, 5), kernel.dtype)[:, 1, :].T  # elements of a line are 15 apart
    y = np.full((5, 70), np.nan, kernel.dtype)[:, :60]
    check(kernel, x, y)


def test_in_place():
    kernel = made(1000)
    x = numbers((3, 1000), kernel.dtype)
    exact = expected(x)
    launch(kernel, x, x)
    np.testing.assert_allclose(x, exact, rtol=0, atol=1e-4)


def side(function, kernel, shape, arch="sm_90a", name=None):
    """A callback on one side, which finds its index in an array of `shape`."""
    strides = tuple(int(np.prod(shape[k + 1 :])) for k in range(len(shape)))
    unit = make_unit(function, "fft", kernel.dtype, {}, arch, ndim=len(shape), axes=(len(shape) - 1,))
    return replace(unit, geometry=Geometry(shape, strides), side=name or unit.side)


def information(unit, shape):
    """The parameters of a callback without operands."""
    block = np.zeros(unit.layout.size, np.int64)
    start = unit.layout.slots["shape"]
    block[start : start + len(shape)] = shape
    return block


@mf.prolog
def ramp(value, index, shape):
    return value * (index[0] * shape[1] + index[1])


@mf.epilog
def halved(value, index):
    return value * 0.5 if index[1] % 2 else value


def test_callbacks_on_both_sides():
    kernel = made(48, load=True, store=True)
    x = numbers((5, 48), kernel.dtype)
    y = np.full_like(x, np.nan)
    launch(kernel, x, y, {"load": side(ramp, kernel, x.shape), "store": side(halved, kernel, x.shape)})
    exact = expected(x * (np.arange(5)[:, None] * 48 + np.arange(48)))
    exact[:, 1::2] /= 2
    np.testing.assert_allclose(y, exact, rtol=0, atol=1e-4 * np.abs(exact).max())


@pytest.mark.parametrize(("length", "across"), [(12, False), (240, False), (1000, False), (256, True)])
@pytest.mark.parametrize("double", [False, True])
def test_filters(length, across, double):
    kernel = made(length, across, double=double, transfer=True)
    x = numbers((5, length), kernel.dtype)
    x = np.asfortranarray(x) if across else x
    y = np.full_like(x, np.nan)
    launch(kernel, x, y, {"transfer": side(ramp, kernel, x.shape, name="transfer")})
    spectrum = expected(x) * (np.arange(5)[:, None] * length + np.arange(length))
    exact = np.fft.ifft(spectrum, axis=1) * length
    assert np.abs(y - exact).max() <= 8 * np.finfo(y.dtype).eps * np.abs(exact).max()


@pytest.mark.parametrize("hooks", [(), ("load", "store"), ("transfer",), ("load", "transfer", "store")])
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("double", [False, True])
def test_nothing_is_called_and_nothing_spilled(arch, double, hooks):
    functions = {"load": (ramp, None), "transfer": (halved, "transfer"), "store": (halved, None)}
    for length in (3000,) if double else (1000, 4096):
        kernel = replace(made(length, double=double, **dict.fromkeys(hooks, True)), arch=arch)
        units = [side(functions[hook][0], kernel, (64, length), arch, functions[hook][1]) for hook in hooks]
        cubin, log = kernel.link([Compiled(unit).ltoir for unit in units])
        found = audit(toolchain.disassemble(cubin), log)[NAME]
        assert (found.calls, found.helper_calls, found.local_memory_bytes) == (0, 0, 0), (length, found)
        assert double or found.float64_instructions == 0
        assert found.registers * kernel.block.threads <= 65536
