"""Axes that are too long for one block, in steps: as digits, as programs, on a GPU that is played, as machine code."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import mathfuse as mf
from mathfuse.fusion.compiler.cuda import toolchain
from mathfuse.fusion.compiler.cuda.artifacts import Compiled
from mathfuse.fusion.compiler.cuda.audit import audit
from mathfuse.fusion.compiler.cuda.blockcode import link
from mathfuse.fusion.compiler.cuda.blocks import NAME
from mathfuse.fusion.elementwise.functions import Function
from mathfuse.fusion.elementwise.layouts import dense
from mathfuse.fusion.transforms.cuda import choice
from mathfuse.fusion.transforms.cuda.blocks import kernel_of
from mathfuse.fusion.transforms.cuda.builder import build
from mathfuse.fusion.transforms.cuda.code import units_of
from mathfuse.fusion.transforms.cuda.configurations import configurations, work_of
from mathfuse.fusion.transforms.cuda.long import Split
from mathfuse.fusion.transforms.cuda.program import Fuse
from mathfuse.fusion.transforms.kinds import resolve
from mathfuse.fusion.transforms.pipeline import Pipeline
from tests.fusion.transforms.halves import check_filter

SINGLE, DOUBLE = np.dtype(np.complex64), np.dtype(np.complex128)
ARCHS = ("sm_80", "sm_90a", "sm_100", "sm_120")


# --- digits


SPLITS = [
    Split(axis=0, factors=(8, 16), outer=(), inner=(), shape=(128,), most=8),
    Split(axis=1, factors=(4, 3, 16), outer=(0,), inner=(), shape=(2, 192), most=8),
    Split(axis=1, factors=(4, 3, 5), outer=(0,), inner=(2,), shape=(2, 60, 3), most=8),
    Split(axis=0, factors=(9, 9), outer=(), inner=(1,), shape=(81, 2), most=8),
    Split(axis=0, factors=(6, 10), outer=(), inner=(), shape=(60,), most=8),
    Split(axis=1, factors=(6, 12), outer=(0,), inner=(2,), shape=(1, 72, 2), most=8),
]


def places_of(split, step):
    """Of each line of a step and each of its elements the place in the room."""
    side = split.side(split.room(SINGLE), step)
    lines, elements = np.arange(side.batch)[:, None], np.arange(split.factors[step])
    along = elements * side.view.stride
    if side.tile > 1:
        along = elements // side.tile * side.step + elements % side.tile * side.view.stride
    return lines // side.inner * side.outer + lines % side.inner * side.view.distance + along


@pytest.mark.parametrize("split", SPLITS, ids=str)
def test_each_step_sees_all_of_the_room_once(split):
    for step in range(split.steps):
        places = places_of(split, step)
        assert sorted(places.ravel()) == list(range(math.prod(split.shape)))


@pytest.mark.parametrize("split", SPLITS, ids=str)
def test_steps_tell_where_their_lines_belong(split):
    """Element n of a step's line is element ``n * weight + number``, of the array or of the spectrum."""
    layout = dense(split.shape, SINGLE)
    for step, spectrum in ((0, False), (split.steps - 1, True)):
        side, told = split.end(layout, step, spectrum), split.step(step, returning=False)
        lines = np.arange(side.batch)
        number = sum(lines // every % count * weight for every, count, weight in told.number)
        begin = lines // side.inner * side.outer + lines % side.inner * side.view.distance
        stride = layout.strides[split.axis] // layout.dtype.itemsize
        np.testing.assert_array_equal(begin // stride % split.length, number)
        assert side.view.stride == told.weight * stride
        assert side.tile == 1
    assert split.step(split.steps - 1, returning=False).twiddles is None


def test_pieces_between_steps():
    assert [split.tile for split in SPLITS] == [8, 8, 5, 9, 2, 4]
    assert SPLITS[0].side(SPLITS[0].room(SINGLE), 0).view.distance == 1
    assert SPLITS[0].side(SPLITS[0].room(SINGLE), 1).step == 64


# --- programs


def program(shape, roles=("prolog", "epilog"), lengths=None):
    problem = resolve("fft", shape, lengths, (-1,))
    pipeline = Pipeline((problem,), dict.fromkeys(roles), SINGLE, SINGLE)
    return build(pipeline, dense(shape, SINGLE), dense(problem.out_shape, SINGLE), choice.BLOCKS)


def test_two_or_three_steps():
    assert [str(step) for step in program((3, 65536)).steps] == [
        "x → blocks c2c(256 of 65536) × 768, prolog inside → room 1",
        "room 1 → blocks c2c(256 of 65536) × 768, epilog inside → out",
    ]
    found = program((1 << 27,), roles=())
    assert [str(step) for step in found.steps] == [
        "x → blocks c2c(512 of 134217728) × 262144 → room 1",
        "room 1 → blocks c2c(512 of 134217728) × 262144 → room 1",
        "room 1 → blocks c2c(512 of 134217728) × 262144 → out",
    ]
    assert len(found.rooms) == 1
    assert [work_of(step) for step in found.transforms] == ["steps, c2c", "steps, c2c", "last steps, c2c"]


def test_what_is_not_read_or_kept_is_told():
    assert [str(step) for step in program((2, 50_000), lengths=(65536,), roles=()).steps] == [
        "x → blocks c2c(256 of 65536) × 512, 50000 elements given → room 1",
        "room 1 → blocks c2c(256 of 65536) × 512 → out",
    ]


@pytest.mark.parametrize("arch", ARCHS)
def test_what_tuning_tries_for_steps(arch):
    for step in program((1 << 20,)).transforms:
        assert len(configurations(step, arch)) > 4


# --- on a GPU that is played


@mf.prolog
def before(value, index, w):
    return value * w[index]


@mf.epilog
def between(value, index, w):
    return value * w[index]


@mf.epilog
def after(value, index, shape, w):
    return value * w[index] + index[len(shape) - 1]


@pytest.fixture(params=[16, 4], ids=["two steps", "three steps"])
def longest(request, monkeypatch):
    """Blocks of few elements, so that short axes are long."""
    monkeypatch.setattr(choice, "BLOCKS", Fuse(True, True, block=True, longest=request.param))


def data(shape, seed=0):
    random = np.random.default_rng(seed)
    return random.standard_normal(shape) + 1j * random.standard_normal(shape), random.standard_normal((3, *shape))


LAYOUTS = {
    "C": lambda x: x,
    "F": np.asfortranarray,
    "reversed": lambda x: x[..., ::-1].copy()[..., ::-1],
    "with gaps": lambda x: np.repeat(x, 2, axis=0)[::2],
}
SHAPES = [((64,), 0), ((3, 64), 1), ((64, 2), 0), ((2, 64, 9), 1), ((2, 48), 1)]


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13 * np.abs(expected).max())


@pytest.mark.parametrize("kind", ["fft", "ifft"])
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_callbacks_see_the_index_of_the_whole_axis(gpu, longest, shape, axis, kind):
    x, w = data(shape)
    plan = mf.fft.FFT(gpu.array(x), (axis,), kind=kind)
    plan.plan(prolog=before(w=gpu.array(w[0])), epilog=after(w=gpu.array(w[1])), strategy="kernel")
    expected = getattr(np.fft, kind)(x * w[0], axis=axis) * w[1] + np.indices(shape, sparse=True)[-1]
    close(gpu.numpy(plan.execute()), expected)
    assert all(" of 64)" in step or " of 48)" in step for step in plan.explain().passes)


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_filters_turn_back_in_the_last_step(gpu, longest, shape, axis):
    x, w = data(shape)
    plan = mf.fft.SpectralFilter(gpu.array(x), between(w=gpu.array(w[1])), (axis,))
    plan.plan(prolog=before(w=gpu.array(w[0])), epilog=after(w=gpu.array(w[2])), strategy="kernel")
    y = np.fft.ifft(np.fft.fft(x * w[0], axis=axis) * w[1], axis=axis)
    close(gpu.numpy(plan.execute()), y * w[2] + np.indices(shape, sparse=True)[-1])
    assert len(plan.explain().passes) in (3, 5)


@pytest.mark.parametrize(("layout", "out"), [("F", "C"), ("reversed", "F"), ("with gaps", "reversed"), ("C", "F")])
def test_layouts(gpu, longest, layout, out):
    x, w = data((3, 64))
    plan = mf.fft.FFT(gpu.array(LAYOUTS[layout](x)), (1,))
    plan.plan(epilog=after(w=gpu.array(w[1])), strategy="kernel")
    target = gpu.array(LAYOUTS[out](np.zeros((3, 64), complex)))
    close(gpu.numpy(plan.execute(out=target)), np.fft.fft(x) * w[1] + np.arange(64))


@pytest.mark.parametrize("kind", ["fft2", "ifft2", "filter"])
def test_several_axes(gpu, longest, kind):
    x, w = data((20, 64))
    if kind == "filter":
        plan = mf.fft.SpectralFilter(gpu.array(x), between(w=gpu.array(w[0])))
        expected = np.fft.ifft2(np.fft.fft2(x) * w[0])
    else:
        plan, expected = mf.fft.FFT(gpu.array(x), kind=kind), getattr(np.fft, kind)(x)
    close(gpu.numpy(plan.plan(strategy="kernel").execute()), expected)


@pytest.mark.parametrize(("given", "length"), [(40, 64), (3, 64), (1, 64), (70, 64)])
def test_padded_and_cut_axes(gpu, longest, given, length):
    x, w = data((2, given))
    for fused, expected in (({}, x), ({"prolog": before(w=gpu.array(w[0]))}, x * w[0])):
        plan = mf.fft.FFT(gpu.array(x), (1,), (length,)).plan(strategy="kernel", **fused)
        close(gpu.numpy(plan.execute()), np.fft.fft(expected, length))


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
def test_convolutions(gpu, longest, mode):
    x, k = data((2, 55))[0], data((1, 9), seed=1)[0]
    plan = mf.fft.Convolution(gpu.array(x), gpu.array(k), mode=mode, axes=(1,)).plan(strategy="kernel")
    close(gpu.numpy(plan.execute()), np.stack([np.convolve(row, k[0], mode) for row in x]))


def test_half_precision_is_read_and_written_by_the_first_and_the_last_step(gpu, longest):
    found = check_filter(gpu, (3, 64), (1,), True, False, strategy="kernel").passes
    assert len(found) in (3, 5)
    assert ["half" in step for step in found] == [True, *[False] * (len(found) - 2), True]


def test_the_input_may_be_the_output(gpu, longest):
    x, w = data((2, 64))
    array = gpu.array(x)
    plan = mf.fft.FFT(array, (1,)).plan(epilog=between(w=gpu.array(w[0])), strategy="kernel")
    assert plan.execute(out=array) is array
    close(gpu.numpy(array), np.fft.fft(x) * w[0])


def test_float32_is_as_exact_as_in_one_step(gpu):
    x, w = data((1 << 16,))
    x, w = x.astype(SINGLE), w[0].astype(np.float32)
    plan = mf.fft.FFT(gpu.array(x)).plan(epilog=between(w=gpu.array(w)), strategy="kernel")
    found, exact = gpu.numpy(plan.execute()), np.fft.fft(x.astype(DOUBLE)) * w
    assert np.linalg.norm(found - exact) <= 2.5e-7 * np.linalg.norm(exact)


# --- machine code


@mf.prolog
def sloped(value, index, shape):
    return value * (index[0] + shape[0])


@mf.epilog
def halved(value, index):
    return value * 0.5 if index[0] % 2 else value


def fused(length, dtype, filtered):
    """A pipeline with callbacks on all sides, and its program."""
    problems = [resolve(kind, (length,), None, (0,)) for kind in (("fft", "ifft") if filtered else ("fft",))]
    function = Function(halved, dtype, dtype, (length,), (length,), (0,), {}, {})
    roles = ("prolog", "transfer", "epilog") if filtered else ("prolog", "epilog")
    functions = {role: replace(function, callback=sloped if role == "prolog" else halved) for role in roles}
    pipeline, layout = Pipeline(tuple(problems), functions, dtype, dtype), dense((length,), dtype)
    return pipeline, build(pipeline, layout, layout, choice.BLOCKS)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize(
    ("length", "dtype", "filtered"), [(1 << 20, SINGLE, True), (1 << 27, SINGLE, False), (1 << 16, DOUBLE, False)]
)
def test_nothing_is_called_and_nothing_spilled(arch, length, dtype, filtered):
    pipeline, program = fused(length, dtype, filtered)
    units = dict(units_of(program, pipeline, arch))
    for step in program.transforms:
        inside = [units[hook.map] for hook in step.hooks]
        kernel = kernel_of(step, [unit.side for unit in inside], arch)
        cubin, log = link(kernel, [Compiled(unit).ltoir for unit in inside])
        found = audit(toolchain.disassemble(cubin), log)[NAME]
        assert (found.calls, found.helper_calls, found.local_memory_bytes) == (0, 0, 0), (str(step), found)
        assert dtype == DOUBLE or found.float64_instructions == 0
        assert found.registers * kernel.block.threads <= 65536
