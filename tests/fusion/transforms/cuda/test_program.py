"""Programs run in NumPy, with cuFFT played by its documented data layout: every way of fusing gives the transform."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

from mathfuse.fusion.elementwise.layouts import Layout, dense
from mathfuse.fusion.transforms.cuda.builder import build
from mathfuse.fusion.transforms.cuda.program import Fuse, Map, Program, Transform
from mathfuse.fusion.transforms.kinds import KINDS, Problem, complex_of, compute_dtype, real_of, replaced, resolve
from mathfuse.fusion.transforms.pipeline import Pipeline

UNFUSED = Fuse()
WAYS = [Fuse(load, store) for load in (False, True) for store in (False, True)]
WAYS += [Fuse(True, False, True), Fuse(True, True, True)]


def layout_of(array):
    return Layout(array.shape, array.strides, array.dtype)


class Machine:
    """Memory by buffer name, callbacks as functions of values and their indices."""

    def __init__(self, program: Program, x: np.ndarray, out: np.ndarray, functions: dict) -> None:
        self.memory, self.functions = {"x": x, "out": out}, functions
        for room in program.rooms:
            flat = np.full(room.layout.size, np.nan, room.layout.dtype)
            self.memory[room.name] = as_strided(flat, room.layout.shape, room.layout.strides)
        for step in program.steps:
            self.apply(step) if isinstance(step, Map) else self.transform(step)

    def view(self, buffer):
        array = self.memory[buffer.name]
        assert array.strides == buffer.layout.strides
        assert array.dtype == buffer.layout.dtype
        return array[tuple(map(slice, buffer.layout.shape))]

    def value(self, map_: Map) -> np.ndarray:
        """What a map gives, in the logical order of its target."""
        source = self.view(map_.source)
        scale, after = (map_.scale, map_.scale_after)
        done = source if after else source * scale
        if map_.role:
            done = self.functions[map_.role](done, *np.indices(source.shape, sparse=True))
        done = done * scale if after else done
        result = np.zeros(map_.target.layout.shape, done.dtype)
        result[tuple(map(slice, source.shape))] = done
        return result

    def apply(self, map_: Map) -> None:
        assert map_.target.name != "x"
        self.view(map_.target)[...] = self.value(map_)

    def transform(self, step: Transform) -> None:
        call, real = step.call, "float64" if step.call.double else "float32"
        kind_in = real if call.family == "r2c" else complex_of(np.dtype(real))
        kind_out = real if call.family == "c2r" else complex_of(np.dtype(real))
        if step.load:
            logical = self.value(step.load.map)
            assert logical.shape == step.load.map.target.layout.shape
            memory = np.full(
                1 + sum(s * (n - 1) for s, n in zip(step.load.side.strides, logical.shape)), np.nan, kind_in
            )
            as_strided(memory, logical.shape, [s * memory.itemsize for s in step.load.side.strides])[...] = logical
            if step.load.direct:
                assert [s * memory.itemsize for s, n in zip(step.load.side.strides, logical.shape) if n > 1] == [
                    s for s, n in zip(step.load.map.source.layout.strides, logical.shape) if n > 1
                ]
        else:
            source = self.view(step.source)
            assert source.dtype == kind_in
            memory = source if source.size else np.zeros(1, kind_in)
        n = call.lengths
        half = (*n[:-1], n[-1] // 2 + 1)
        given_ = seen_by_cufft(memory, half if call.family == "c2r" else n, call.input, call.batch)
        axes = tuple(range(1, len(n) + 1))
        function = {
            "c2c": np.fft.fftn if step.forward else np.fft.ifftn, "r2c": np.fft.rfftn, "c2r": np.fft.irfftn
        }[call.family]  # fmt: skip
        norm = "backward" if step.forward else "forward"
        result = function(given_, s=n, axes=axes, norm=norm).astype(kind_out)
        if call.family == "c2r" and len(n) > 1:
            assert step.source.writable  # cuFFT writes to it
            self.view(step.source)[...] = np.nan
        target = self.view(step.target)
        assert step.target.name != "x"
        if step.store is None:
            assert target.dtype == kind_out
            seen_by_cufft(target, half if call.family == "r2c" else n, call.output, call.batch)[...] = result
            return
        side, logical_shape = step.store.side, step.store.map.source.layout.shape
        memory = np.full(1 + sum(s * (m - 1) for s, m in zip(side.strides, logical_shape)), np.nan, kind_out)
        seen_by_cufft(memory, half if call.family == "r2c" else n, call.output, call.batch)[...] = result
        logical = as_strided(memory, logical_shape, [s * memory.itemsize for s in side.strides])
        assert not np.isnan(logical).any()
        self.memory["computed"] = logical
        map_ = step.store.map
        name, self.memory[map_.source.name] = map_.source.name, logical
        value = self.value_of(map_, logical)
        self.memory[name] = target if name == step.target.name else self.memory[name]
        self.view(map_.target)[...] = value
        if step.store.direct:
            assert map_.target == step.target

    def value_of(self, map_: Map, source: np.ndarray) -> np.ndarray:
        done = source if map_.scale_after else source * map_.scale
        if map_.role:
            done = self.functions[map_.role](done, *np.indices(source.shape, sparse=True))
        return done * map_.scale if map_.scale_after else done


def seen_by_cufft(memory, extents, view, batch):
    """The elements of a batched transform, by the formula of the advanced data layout."""
    steps = [view.stride]
    for n in reversed(view.embed[1:]):
        steps.insert(0, steps[0] * n)
    strides = [view.distance, *steps]
    shape = (batch, *extents)
    assert all(e >= n for e, n in zip(view.embed[1:], extents[1:]))
    return as_strided(memory, shape, [s * memory.itemsize for s in strides])


def prolog(value, *index):
    return value * (1 + sum(i * (k + 1) for k, i in enumerate(index)) / 10)


def transfer(value, *index):
    return value / (2 + sum(i * (k + 1) for k, i in enumerate(index)))


def epilog(value, *index):
    return value + sum(i * (k + 2) for k, i in enumerate(index))


FUNCTIONS = {"prolog": prolog, "transfer": transfer, "epilog": epilog}
LAYOUTS = {
    "c": lambda x: x,
    "f": np.asfortranarray,
    "strided": lambda x: np.repeat(x, 2, axis=0)[::2],
    "strided last": lambda x: np.repeat(x, 3, axis=-1)[..., ::3],
    "padded rows": lambda x: np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, 3)])[..., : x.shape[-1]],
    "negative": lambda x: x[::-1].copy()[::-1],
    "broadcast": lambda x: np.broadcast_to(x[:1], x.shape),
    "middle": lambda x: np.ascontiguousarray(np.moveaxis(x, 0, -1)).transpose(x.ndim - 1, *range(x.ndim - 1)),
}


def reference(pipeline_problems, x, roles):
    """The same by NumPy's functions."""
    value = x.astype(complex if x.dtype.kind == "c" else float)
    if "prolog" in roles:
        value = prolog(value, *np.indices(x.shape, sparse=True))
    for number, problem in enumerate(pipeline_problems):
        value = getattr(np.fft, problem.kind.along_real_axis + "n")(value, problem.lengths, problem.axes, problem.norm)
        if len(pipeline_problems) == 2 and number == 0 and "transfer" in roles:
            value = transfer(value, *np.indices(value.shape, sparse=True))
    return epilog(value, *np.indices(value.shape, sparse=True)) if "epilog" in roles else value


def check(problems: tuple[Problem, ...], x, roles, out_layout="c", fuse=UNFUSED, epilog_real=False):
    computed = compute_dtype(x.dtype)
    functions = {role: FUNCTIONS[role] for role in roles}
    last = problems[-1]
    out_dtype = real_of(computed) if last.kind.family == "c2r" else complex_of(computed)
    if epilog_real and "epilog" in roles:
        functions["epilog"] = lambda value, *index: np.abs(epilog(value, *index))
        out_dtype = real_of(computed)
    out = LAYOUTS[out_layout](np.full(last.out_shape, np.nan, out_dtype))
    pipeline = Pipeline(problems, functions, computed, out.dtype)  # type: ignore[arg-type]
    program = build(pipeline, layout_of(x), layout_of(out), fuse)
    kept = x.copy()
    with np.errstate(all="ignore"):
        Machine(program, x, out, functions)
    expected = reference(problems, x, roles)
    expected = np.abs(expected) if epilog_real and "epilog" in roles else expected
    scale = np.abs(expected).max(initial=1)
    np.testing.assert_allclose(out / scale, expected / scale, atol=1e-4 if computed.itemsize <= 8 else 1e-10)
    np.testing.assert_array_equal(x, kept)
    if fuse.load and fuse.store and len(last.axes) <= 3 and len(problems) == 1:
        assert len(program.steps) <= 4
    return program


@st.composite
def cases(draw):
    kind = KINDS[draw(st.sampled_from(sorted(KINDS)))]
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=kind.rank or 1, max_size=6)))
    if math.prod(shape) > 2000:
        shape = tuple(min(n, 3) for n in shape)
    axes = tuple(draw(st.permutations(range(len(shape)))))[: kind.rank or draw(st.integers(1, len(shape)))]
    lengths = draw(st.sampled_from([None, tuple(draw(st.integers(1, 6)) for _ in axes)]))
    if kind.family == "c2r" and lengths is None and shape[axes[-1]] == 1:
        lengths = tuple(shape[a] for a in axes)
    norm = draw(st.sampled_from([None, "ortho", "forward"]))
    problem = resolve(kind.name, shape, lengths, axes, norm)
    dtype = draw(st.sampled_from(["f4", "f8", "u1"] if kind.family == "r2c" else ["f4", "c8", "c16", "u1"]))
    random = np.random.default_rng(draw(st.integers(0, 99)))
    x = random.uniform(1, 9, shape) + (1j * random.uniform(-4, 4, shape) if dtype[0] == "c" else 0)
    x = LAYOUTS[draw(st.sampled_from(sorted(LAYOUTS)))](x.astype(dtype))
    roles = draw(st.sets(st.sampled_from(["prolog", "epilog"])))
    out = draw(st.sampled_from([name for name in sorted(LAYOUTS) if name != "broadcast"]))
    return problem, x, roles, out, draw(st.sampled_from(WAYS)), draw(st.booleans())


@given(cases())
@settings(max_examples=600)
def test_every_way_of_fusing_gives_the_transform(case):
    problem, x, roles, out, fuse, epilog_real = case
    check((problem,), x, roles, out, fuse, epilog_real)


@given(cases())
@settings(max_examples=200)
def test_every_way_of_fusing_gives_the_filter(case):
    problem, x, roles, out, fuse, _ = case
    real = x.dtype.kind != "c"
    there = resolve("rfftn" if real else "fftn", x.shape, None, problem.axes)
    lengths = tuple(x.shape[a] for a in problem.axes)
    back = resolve("irfftn" if real else "ifftn", there.spectrum_shape, lengths, problem.axes)
    check((there, back), x, {*roles, "transfer"}, out, fuse)


def steps(kind, shape, axes=None, dtype="c8", roles=(), fuse=UNFUSED, **more):
    problem = resolve(kind, shape, None, axes)
    program = check((problem,), np.ones(shape, dtype), set(roles), fuse=fuse, **more)
    return [str(step) for step in program.steps]


def test_one_call_where_cufft_can():
    assert steps("fft", (8, 16)) == ["x → cuFFT c2c(16) × 8 → out"]
    assert steps("rfft2", (3, 8, 6), dtype="f4") == ["x → cuFFT r2c(8×6) × 3 → out"]
    assert steps("fftn", (4, 5, 6, 7), axes=(1, 2, 3)) == ["x → cuFFT c2c(5×6×7) × 4 → out"]
    assert steps("fft", (8, 16), axes=0) == ["x → cuFFT c2c(8) × 16 → out"]


def test_callbacks_take_the_place_of_kernels():
    both = {"prolog", "epilog"}
    assert steps("fft", (8, 16), roles=both) == [
        "x → prolog → out",
        "out → cuFFT c2c(16) × 8 → out",
        "out → epilog → out",
    ]
    assert steps("fft", (8, 16), roles=both, fuse=Fuse(True, True)) == [
        "x → cuFFT c2c(16) × 8, prolog inside, epilog inside → out"
    ]
    assert steps("rfft2", (8, 16), dtype="f4", roles=both, fuse=Fuse(True, True)) == [
        "x → cuFFT r2c(8×16) × 1, prolog inside, epilog inside → out"
    ]


def test_an_inverse_is_scaled_where_its_result_is_written():
    assert steps("ifft", (8, 16)) == ["x → cuFFT c2c(16) × 8 → out", "out → scale → out"]
    assert steps("ifft", (8, 16), fuse=Fuse(store=True)) == ["x → cuFFT c2c(16) × 8, convert inside → out"]


def test_the_input_of_a_complex_to_real_transform_is_kept():
    problem = resolve("irfft2", (8, 9))
    program = check((problem,), np.ones((8, 9), "c8"), set())
    assert [step.source.name for step in program.transforms] == ["x", "room 1"]
    assert [step.call.family for step in program.transforms] == ["c2c", "c2r"]


def test_a_middle_axis_is_one_call_with_callbacks_and_copies_without():
    assert len(steps("fft", (4, 5, 6), axes=1, fuse=Fuse(True, True))) == 1
    assert steps("fft", (4, 5, 6), axes=1) == [
        "x → copy → room 1", "room 1 → cuFFT c2c(5) × 24 → room 1", "room 1 → copy → out"
    ]  # fmt: skip


def test_many_axes_take_several_calls():
    assert len(steps("fftn", (2, 2, 2, 2, 2))) == 2
    assert len(steps("fftn", (2, 2, 2, 2, 2, 2))) == 2


@pytest.mark.parametrize("fuse", WAYS, ids=str)
def test_real_results_of_complex_transforms(fuse):
    check((resolve("fft", (4, 6)),), np.ones((4, 6), "c8"), {"epilog"}, fuse=fuse, epilog_real=True)


def test_dense_arrays_follow_an_order_of_axes():
    assert dense((2, 3, 4), np.dtype("c8"), (2, 0, 1)).strides == (24, 8, 48)
    assert replaced((1, 2), {0: 5}) == (5, 2)
