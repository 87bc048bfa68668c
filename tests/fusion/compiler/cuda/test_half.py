"""Half precision in GPU code: read and stored as it is, in accesses as wide as those of float32; no GPU needed."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import mathfuse as mf
from mathfuse.fusion.compiler.cuda import toolchain
from mathfuse.fusion.compiler.cuda.artifacts import Compiled
from mathfuse.fusion.compiler.cuda.audit import audit
from mathfuse.fusion.compiler.cuda.blockcode import link
from mathfuse.fusion.compiler.cuda.blocks import NAME
from mathfuse.fusion.compiler.cuda.geometry import Geometry
from mathfuse.fusion.compiler.cuda.units import analyse
from mathfuse.runtime.dtypes import COMPLEX32, is_complex, widened

from . import emulator
from .test_blocks import ARCHS, halved, launch, lying, made, side
from .test_emulated import aligned, run
from .test_emulated import made as unit_of

RNG = np.random.default_rng(3)
HALF, SINGLE = (True, True), (False, False)
EPS = 2.0**-11  # half a unit in the last place


def numbers(shape, complex_):
    """Random numbers in half precision."""
    if not complex_:
        return RNG.standard_normal(shape).astype(np.float16)
    z = np.zeros(shape, COMPLEX32)
    z["real"], z["imag"] = RNG.standard_normal((2, *shape))
    return z


def double(x):
    return widened(x).astype(complex if is_complex(x.dtype) else float)


def close(found, exact):
    """Within the rounding of each element, and of the transform in float32."""
    bound = EPS * np.abs(exact) + 2e-6 * np.abs(exact).max() + 2.0**-24
    assert (np.abs(double(found) - exact) <= bound).all()


# --- own FFT kernels


@pytest.mark.parametrize(("length", "across"), [(12, False), (15, False), (64, True), (48, False), (7, True)])
@pytest.mark.parametrize("real", [(False, False), (True, False), (False, True)])
def test_transforms(length, across, real):
    forward, count = real != (False, True), length // 2 + 1
    kernel = made(length, across, real=real, forward=forward, half=HALF)
    x = lying(numbers((5, count if real[1] else length), not real[0]), kernel)
    y = lying(numbers((5, count if real[0] else length), not real[1]), kernel)
    launch(kernel, x, y)
    transform = np.fft.rfft if real[0] else np.fft.fft
    close(y, np.fft.irfft(double(x), length) * length if real[1] else transform(double(x)))


@pytest.mark.parametrize("length", [12, 9])
def test_one_side_alone(length):
    for half in ((True, False), (False, True)):
        kernel = made(length, real=(True, False), half=half)
        x = numbers((5, length), complex_=False).astype("f2" if half[0] else "f4")
        y = numbers((5, length // 2 + 1), complex_=True)
        y = y if half[1] else widened(y)
        launch(kernel, x, y)
        close(y, np.fft.rfft(x.astype(float)))


@pytest.mark.parametrize(("length", "given", "kept"), [(12, 8, 10), (12, 7, 5), (15, 11, 15)])
def test_filters_of_lines_that_are_padded_and_cut(length, given, kept):
    kernel = made(length, real=(True, True), transfer=True, half=HALF)
    paired = (kernel.packed and given % 2 == 0, kernel.packed and kept % 2 == 0)
    kernel = replace(kernel, present=(given, kept), paired=paired)
    x, y = np.full((3, length + 1 + length % 2), np.nan, "f2"), np.full((3, 2 * length), np.nan, "f2")
    x[:, :given] = numbers((3, given), complex_=False)
    launch(kernel, x, y, {"transfer": side(halved, kernel.dtype, (3, length // 2 + 1), name="transfer")})
    spectrum = np.fft.rfft(x[:, :given].astype(float), length)
    spectrum[:, 1::2] /= 2
    close(y[:, :kept], np.fft.irfft(spectrum, length)[:, :kept] * length)
    assert np.isnan(y[:, kept:]).all()


def test_in_place():
    kernel = made(60, half=HALF)
    z = numbers((5, 60), complex_=True)
    exact = np.fft.fft(double(z))
    launch(kernel, z, z)
    close(z, exact)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("real", [(False, False), (True, True)])
def test_accesses_are_whole_words(arch, real):
    """Of two real numbers, or a complex one, 32 bits at once, as many accesses as there are of float32."""
    kernel = made(2048, real=real, transfer=real[0], half=HALF, arch=arch)
    units = [side(halved, kernel.dtype, (64, 1025), arch, "transfer")] if real[0] else []
    cubin, log = link(kernel, [Compiled(unit).ltoir for unit in units])
    sass = toolchain.disassemble(cubin)
    found = audit(sass, log)[NAME]
    assert (found.calls, found.helper_calls, found.local_memory_bytes, found.float64_instructions) == (0, 0, 0, 0)
    each = (1024 if real[0] else 2048) // kernel.block.stages.threads
    for access in ("LDG", "STG"):
        widths = [width for width in re.findall(rf"\b{access}\.E(\S*)", sass) if "CONSTANT" not in width]
        assert widths == [""] * each


# --- callbacks and elementwise kernels


@pytest.mark.parametrize("vector", [1, 2, 4])
@pytest.mark.parametrize("stored", ["complex32", "complex64"])
def test_elementwise_kernels_read_and_store_complex32(vector, stored):
    target = COMPLEX32 if stored == "complex32" else np.dtype(stored)
    vector = min(vector, 16 // target.itemsize)
    unit = unit_of(mf.scale(factor=2.0), "elementwise", "complex64", operands={"factor": 2.0}, value_dtype=COMPLEX32)
    unit = replace(unit, dtype=target, flat=True, vector=vector)
    x, y = aligned((3001,), COMPLEX32), aligned((3001,), target)
    x[:] = numbers((3001,), complex_=True)
    run(unit, x, y, 3, {"factor": 2.0})
    np.testing.assert_array_equal(widened(y), 2 * widened(x))


def test_strided_kernels_read_and_store_complex32():
    copy = unit_of(None, "elementwise", "complex64", ndim=2, value_dtype=COMPLEX32, dtype=COMPLEX32, order=(0, 1))
    x, y = numbers((6, 15), complex_=True)[::-1, ::3], np.zeros((5, 6), COMPLEX32).T
    run(copy, x, y, 1)
    np.testing.assert_array_equal(y, x)


@pytest.mark.parametrize("length", [8, 9])
def test_cufft_callbacks_read_and_store_complex32(length):
    shape, strides = (3, length), (length, 1)
    options = {"ndim": 2, "value_dtype": None, "geometry": Geometry(shape, strides, invariant=True)}
    x, y = numbers(shape, complex_=True), np.zeros(shape, COMPLEX32)
    load = unit_of(None, "fft", "complex64", "prolog", **{**options, "value_dtype": COMPLEX32})
    store = unit_of(mf.half, "fft", "complex64", stored_dtype=COMPLEX32, **options)
    value = np.zeros(1, np.complex64)
    blocks = [np.zeros(each.layout.size, np.int64) for each in (load, store)]
    for offset in range(x.size):
        emulator.callback(load)(x.ctypes.data, offset, value, blocks[0])
        assert value[0] == widened(x).ravel()[offset]
        emulator.callback(store)(y.ctypes.data, offset, value, blocks[1])
    np.testing.assert_array_equal(y, x)
    assert analyse(store).result_dtype == COMPLEX32


@pytest.mark.parametrize("arch", ARCHS)
def test_kernels_of_halves_are_audited(arch):
    """Two float16, or a complex32, of a word at once."""
    for value, stored in (("float16", np.dtype(np.float16)), ("complex64", COMPLEX32)):
        unit = unit_of(mf.half, "elementwise", value, value_dtype=COMPLEX32 if value == "complex64" else value)
        unit = replace(unit, arch=arch, dtype=stored, flat=True, vector=16 // stored.itemsize)
        compiled = Compiled(unit)
        assert compiled.result_dtype == stored
        found = compiled.audit
        assert (found.calls, found.local_memory_bytes, found.float64_instructions) == (0, 0, 0)
        assert re.search(r"LDG\.E\.128", compiled.sass)
        assert re.search(r"STG\.E\.128", compiled.sass)
