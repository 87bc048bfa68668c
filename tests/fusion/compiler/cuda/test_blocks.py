"""Kernels that transform in a block of threads: run on this processor against NumPy, and audited."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import mathfuse as mf
from mathfuse.device.fft.block import Block, block_of
from mathfuse.device.fft.shapes import Stages, stages_of
from mathfuse.fusion.compiler.cuda import toolchain
from mathfuse.fusion.compiler.cuda.artifacts import Compiled
from mathfuse.fusion.compiler.cuda.audit import audit
from mathfuse.fusion.compiler.cuda.blockcode import link
from mathfuse.fusion.compiler.cuda.blocks import NAME, SLOTS, BlockKernel
from mathfuse.fusion.compiler.cuda.geometry import Geometry
from mathfuse.fusion.compiler.cuda.interface import make_unit

from . import threads

ARCHS = ("sm_80", "sm_90a", "sm_100", "sm_120")
RNG = np.random.default_rng(0)


def made(length, across=False, block=None, real=(False, False), arch="sm_90a", **options):
    packed = any(real) and length % 2 == 0
    given = {"double": False, "forward": True, "load": False, "store": False, "transfer": False, **options}
    stages = stages_of(length // 2 if packed else length, given["double"])
    block = block or block_of(stages, given["double"], arch, across=across)
    dense = not block.across
    strides, paired = (1 if dense else None,) * 2, (dense and packed,) * 2
    given = {"strides": strides, "paired": paired, **given}
    return BlockKernel(length, block, real=real, arch=arch, **given)


def numbers(shape, dtype):
    return (RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape)).astype(dtype)


def launch(kernel, x, y, callbacks=None):
    """Transforms `x` into `y`; `callbacks` are units by hook."""
    callbacks, block = callbacks or {}, np.zeros(len(SLOTS), np.int64)
    informations = {hook: information(unit) for hook, unit in callbacks.items()}
    infos = [informations[hook].ctypes.data if hook in callbacks else 0 for hook in ("load", "transfer", "store")]
    steps = [array.strides[axis] // array.itemsize for array in (x, y) for axis in (1, 0)]
    block[: 6 + len(steps)] = x.ctypes.data, y.ctypes.data, *infos, x.shape[0], *steps
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
@pytest.mark.parametrize("radix", range(1, 17))
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
    kernel = replace(made(60), strides=(None, 1))
    x = numbers((60, 3, 5), kernel.dtype)[:, 1, :].T  # elements of a line are 15 apart
    y = np.full((5, 70), np.nan, kernel.dtype)[:, :60]
    check(kernel, x, y)


def test_in_place():
    kernel = made(1000)
    x = numbers((3, 1000), kernel.dtype)
    exact = expected(x)
    launch(kernel, x, x)
    np.testing.assert_allclose(x, exact, rtol=0, atol=1e-4)


def side(function, dtype, shape, arch="sm_90a", name=None):
    """A callback on one side, which finds its index in an array of `shape`."""
    strides = tuple(int(np.prod(shape[k + 1 :])) for k in range(len(shape)))
    unit = make_unit(function, "fft", dtype, {}, arch, ndim=len(shape), axes=(len(shape) - 1,))
    axis = len(shape) - 1 if name == "transfer" else None
    return replace(unit, geometry=Geometry(shape, strides, axis=axis), side=name or unit.side)


def information(unit):
    """The parameters of a callback without operands."""
    block, shape = np.zeros(unit.layout.size, np.int64), unit.geometry.extents
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
    launch(kernel, x, y, {"load": side(ramp, kernel.dtype, x.shape), "store": side(halved, kernel.dtype, x.shape)})
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
    launch(kernel, x, y, {"transfer": side(ramp, kernel.dtype, x.shape, name="transfer")})
    spectrum = expected(x) * (np.arange(5)[:, None] * length + np.arange(length))
    exact = np.fft.ifft(spectrum, axis=1) * length
    assert np.abs(y - exact).max() <= 8 * np.finfo(y.dtype).eps * np.abs(exact).max()


# --- real transforms -------------------------------------------------------------------------------------------------


def test_real_numbers_that_are_no_pairs_are_read_and_written_one_by_one():
    for real in ((True, False), (False, True)):
        kernel = made(12, real=real, forward=real[0], paired=(False, False))
        x, y = np.zeros((5, 13), "f4"), np.zeros((5, 7), "c8")
        x[:, 1:] = RNG.standard_normal((5, 12))
        y[:] = np.fft.rfft(x[:, 1:])
        if real[0]:
            exact, y[:] = y.copy(), np.nan
            launch(kernel, x[:, 1:], y)
            np.testing.assert_allclose(y, exact, atol=1e-5)
        else:
            exact, x[:] = x.copy(), np.nan
            launch(kernel, y, x[:, 1:])
            np.testing.assert_allclose(x[:, 1:], 12 * exact[:, 1:], atol=1e-5)


def test_pairs_move_at_once():
    sass = {
        paired: toolchain.disassemble(link(made(4096, real=(True, False), paired=(paired, False)), [])[0])
        for paired in (True, False)
    }
    assert len(re.findall(r"LDG\.E\.64 ", sass[True])) >= 16 > len(re.findall(r"LDG\.E ", sass[True]))
    assert len(re.findall(r"LDG\.E ", sass[False])) >= 32


REAL = pytest.mark.parametrize(
    ("length", "across"),
    [(1, False), (2, False), (4, False), (7, False), (12, False), (15, True), (64, True), (360, False), (2048, False)],
)


def real_numbers(shape, kernel):
    return RNG.standard_normal(shape).astype(kernel.side(0))


def lying(x, kernel):
    return np.asfortranarray(x) if kernel.block.across else x


@REAL
@pytest.mark.parametrize("double", [False, True])
def test_real_to_half_spectra_and_back(length, across, double):
    kernel = made(length, across, real=(True, False), double=double)
    x = lying(real_numbers((5, length), kernel), kernel)
    spectrum = lying(np.full((5, length // 2 + 1), np.nan, kernel.dtype), kernel)
    launch(kernel, x, spectrum)
    exact = np.fft.rfft(x.astype(float))
    eps = np.finfo(x.dtype).eps
    assert np.abs(spectrum - exact).max() <= 4 * eps * np.abs(exact).max()

    kernel = made(length, across, real=(False, True), forward=False, double=double)
    spectrum[:, 0] += 3j  # what no spectrum of real numbers has counts for nothing
    spectrum[:, -1] += 3j * (length % 2 == 0)
    back = lying(np.full_like(x, np.nan), kernel)
    launch(kernel, spectrum, back)
    np.testing.assert_allclose(back, length * x, rtol=0, atol=8 * eps * np.abs(exact).max() * np.sqrt(length))


@mf.epilog
def tilted(value, index, shape):
    return value * (index[0] * shape[1] + index[1] + 1j)


@REAL
def test_real_filters(length, across):
    kernel = made(length, across, real=(True, True), transfer=True, double=True)
    x = lying(real_numbers((5, length), kernel), kernel)
    y, count = lying(np.full_like(x, np.nan), kernel), length // 2 + 1
    unit = side(tilted, kernel.dtype, (5, count), name="transfer")
    launch(kernel, x, y, {"transfer": unit})
    factors = np.arange(5)[:, None] * count + np.arange(count) + 1j
    exact = np.fft.irfft(np.fft.rfft(x) * factors, length) * length
    np.testing.assert_allclose(y, exact, rtol=0, atol=1e-13 * np.abs(exact).max())


def test_real_callbacks_on_both_sides():
    for length in (48, 45):
        kernel = made(length, real=(True, False), load=True, store=True)
        x = real_numbers((5, length), kernel)
        y = np.full((5, length // 2 + 1), np.nan, kernel.dtype)
        launch(kernel, x, y, {"load": side(ramp, x.dtype, x.shape), "store": side(halved, y.dtype, y.shape)})
        exact = np.fft.rfft(x * (np.arange(5.0)[:, None] * length + np.arange(length)))
        exact[:, 1::2] /= 2
        np.testing.assert_allclose(y, exact, rtol=0, atol=1e-5 * np.abs(exact).max())
        kernel = made(length, real=(False, True), forward=False, load=True, store=True)
        back = np.full_like(x, np.nan)
        launch(kernel, y, back, {"load": side(ramp, y.dtype, y.shape), "store": side(halved, x.dtype, x.shape)})
        weights = np.arange(5.0)[:, None] * y.shape[1] + np.arange(y.shape[1])
        exact = np.fft.irfft(y * weights, length) * length
        exact[:, 1::2] /= 2
        np.testing.assert_allclose(back, exact, rtol=0, atol=1e-5 * np.abs(exact).max())


# --- lines that are padded, and cut -----------------------------------------------------------------------------------

PRESENT = [(48, 30, 17), (48, 1, 48), (45, 31, 20), (64, 64, 1), (360, 202, 358), (1000, 999, 501)]


@pytest.mark.parametrize(("length", "given", "kept"), PRESENT)
@pytest.mark.parametrize("real", [(False, False), (True, True), (False, True), (True, False)])
@pytest.mark.parametrize("hooks", [(), ("load", "store")])
def test_padded_and_cut_lines(length, given, kept, real, hooks):
    """What is beyond the lines' ends is neither read nor written."""
    transfer, spectrum = real == (True, True), length // 2 + 1
    given = min(given, spectrum) if real == (False, True) else given
    kept = None if real == (True, False) else kept
    options = dict.fromkeys(hooks, True)
    kernel = made(length, real=real, forward=real != (False, True), transfer=transfer, double=True, **options)
    paired = tuple(pair and not (n or 0) % 2 for pair, n in zip(kernel.paired, (given, kept)))
    kernel = replace(kernel, present=(given, kept), paired=paired)
    x, y = (np.full((3, length + 2), np.nan, kernel.side(k)) for k in (0, 1))
    last = kept or spectrum
    x[:, :given] = numbers((3, given), complex).real if real[0] else numbers((3, given), complex)
    units = {}
    if hooks:
        shapes = (3, given), (3, last)
        units = {hook: side(f, kernel.side(k), shapes[k]) for k, (hook, f) in enumerate(zip(hooks, (ramp, halved)))}
        for k, unit in enumerate(units.values()):
            strides = (length + 2, 1)
            units[hooks[k]] = replace(unit, geometry=replace(unit.geometry, strides=strides))
    if transfer:
        units["transfer"] = side(tilted, kernel.dtype, (3, spectrum), name="transfer")
    launch(kernel, x, y, dict(sorted(units.items(), key=lambda each: ("load", "transfer", "store").index(each[0]))))
    line = x[:, :given] * (np.arange(3)[:, None] * given + np.arange(given)) if hooks else x[:, :given]
    if real == (False, True):
        exact = np.fft.irfft(line, length) * length
    else:
        exact = (np.fft.rfft if real[0] else np.fft.fft)(line, length)
    if transfer:
        factors = np.arange(3)[:, None] * spectrum + np.arange(spectrum) + 1j
        exact = np.fft.irfft(exact * factors, length) * length
    exact = exact[:, :last].copy()
    if hooks:
        exact[:, 1::2] /= 2
    np.testing.assert_allclose(y[:, :last], exact, rtol=0, atol=1e-12 * np.abs(exact).max())
    assert np.isnan(y[:, last:]).all()


# --- machine code ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ARCHS)
def test_real_transforms_call_and_spill_nothing(arch):
    for real, hooks in (((True, False), {}), ((False, True), {"forward": False}), ((True, True), {"transfer": True})):
        kernel = made(4096, real=real, arch=arch, **hooks)
        units = [side(halved, kernel.dtype, (64, 2049), arch, "transfer")] if "transfer" in hooks else []
        for present in ((None, None), (3000, None if real[0] and not real[1] else 2900)):
            given = min(present[0] or 4096, 2049) if hooks.get("forward") is False else present[0]
            padded = replace(kernel, present=(given, present[1]))
            cubin, log = link(padded, [Compiled(unit).ltoir for unit in units])
            found = audit(toolchain.disassemble(cubin), log)[NAME]
            assert (found.calls, found.helper_calls, found.local_memory_bytes) == (0, 0, 0), (real, present)
            assert found.float64_instructions == 0


@pytest.mark.parametrize("hooks", [(), ("load", "store"), ("transfer",), ("load", "transfer", "store")])
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("double", [False, True])
def test_nothing_is_called_and_nothing_spilled(arch, double, hooks):
    functions = {"load": (ramp, None), "transfer": (halved, "transfer"), "store": (halved, None)}
    for length in (3000,) if double else (1000, 4096):
        kernel = made(length, double=double, arch=arch, **dict.fromkeys(hooks, True))
        units = [side(functions[hook][0], kernel.dtype, (64, length), arch, functions[hook][1]) for hook in hooks]
        cubin, log = link(kernel, [Compiled(unit).ltoir for unit in units])
        found = audit(toolchain.disassemble(cubin), log)[NAME]
        assert (found.calls, found.helper_calls, found.local_memory_bytes) == (0, 0, 0), (length, found)
        assert double or found.float64_instructions == 0
        assert found.registers * kernel.block.threads <= 65536


@pytest.mark.parametrize("arch", ARCHS)
def test_blocks_fit_the_registers(arch):
    """Also where a transfer function needs more of them than the transform alone."""
    for length, across, double in ((1024, True, False), (2048, True, False), (8192, False, True)):
        block = block_of(stages_of(length, double), double, arch, slack=1, across=across)
        if block is None:
            continue
        kernel = made(length, across, double=double, arch=arch, block=block, load=True, transfer=True, store=True)
        functions = {"prolog": ramp, "transfer": halved, "epilog": halved}
        units = [
            side(functions[hook], kernel.dtype, (64, length), arch, "transfer" if hook == "transfer" else None)
            for hook in functions
        ]
        cubin, log = link(kernel, [Compiled(unit).ltoir for unit in units])
        found = audit(toolchain.disassemble(cubin), log)[NAME]
        assert found.registers * -(-block.threads // 128) * 128 <= 65536, (length, found)
        assert double or found.local_memory_bytes == 0, (length, found)
