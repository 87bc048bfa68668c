"""Operand arrays: layouts, broadcasting, indices, assignment, captured arrays, ``source``."""

from __future__ import annotations

from types import ModuleType

import hypothesis
import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest

import mathfuse as mf

from .harness import kernel_for, plain, run

RNG = np.random.default_rng(2)
X = RNG.normal(size=(4, 5, 6)).astype(np.float32)
FULL = RNG.normal(size=(4, 5, 6))

TABLE = np.linspace(0, 1, 7).astype(np.float32)
PAIR = (np.arange(6.0), np.arange(10, 16))
CONSTANT = mf.constant(np.arange(4, dtype=np.float32))
tables = ModuleType("tables")
tables.WEIGHTS = np.arange(5, dtype=np.float32)


LAYOUTS = {
    "contiguous": FULL,
    "fortran": np.asfortranarray(FULL),
    "transposed": np.ascontiguousarray(FULL.transpose(2, 0, 1)).transpose(1, 2, 0),
    "every other": np.repeat(FULL, 2, axis=2)[:, :, ::2],
    "backwards": FULL[::-1, :, ::-1].copy()[::-1, :, ::-1],
    "stride 0": np.broadcast_to(FULL[:1], FULL.shape),
    "a slice": np.pad(FULL, 1)[1:-1, 1:-1, 1:-1],
    "float32": FULL.astype(np.float32),
    "float16": FULL.astype(np.float16),
    "int8": np.round(40 * FULL).astype(np.int8),
    "uint16": np.round(abs(100 * FULL)).astype(np.uint16),
    "int64": np.round(100 * FULL).astype(np.int64),
    "bool": FULL > 0,
    "complex64": FULL.astype(np.complex64) * (1 + 2j),
    "complex128": FULL * (1 + 2j),
    "read-only": np.frombuffer(FULL.tobytes()).reshape(FULL.shape),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts_and_types(name):
    w = LAYOUTS[name]
    wide = w.astype(np.complex128 if w.dtype.kind == "c" else np.float64)
    np.testing.assert_allclose(run(lambda value, index, w: value + w[index], X, w=w), X + wide, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(run(lambda value, w: value + w, X, w=w), X + wide, rtol=1e-6, atol=1e-6)


SHAPES = [(6,), (1,), (5, 1), (5, 6), (1, 6), (1, 1), (4, 1, 1), (4, 5, 6), (1, 5, 1), (4, 1, 6)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_broadcasting_without_an_index(shape):
    w = RNG.normal(size=shape).astype(np.float32)
    np.testing.assert_allclose(run(mf.bias(bias=w), X), X + w, rtol=1e-6, atol=1e-6)
    assert kernel_for(mf.bias, X, bias=w)[0].accesses == {"bias": ["broadcast"]}


def test_zero_dimensional_arrays_are_scalars():
    found = run(mf.scale, X, factor=np.array(2.5))
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, X * np.float32(2.5))


def test_too_many_dimensions_to_broadcast():
    with pytest.raises(
        mf.CallbackError, match=r"operand 'w' has 2 dimensions, more than the 1 of `index`; write its index"
    ):
        run(lambda value, w: value + w, X[0, 0], w=np.ones((2, 2)))


def test_indices():
    w = FULL

    def function(value, index, shape, w):
        i, j, k = index
        return (
            value
            + w[-1, j, k]
            + w[i, -2, -k - 1]
            + w[i - 1, (j + 1) % shape[1], 0] * 2
            + w[int(value * 0) + i, np.uint8(3), k // 2]
            + w[index[:2] + (5,)]  # noqa: RUF005
            + w[(i, *index[1:])]
        )

    np.testing.assert_allclose(run(function, X, w=w), plain(function, X, w=w), rtol=1e-6, atol=1e-5)


def test_what_is_read_is_noted():
    def function(value, index, shape, w, v):
        i, j, k = index
        return value + w[j, i] + w[k, 0] + v + v[k]

    kernel, _ = kernel_for(function, X, w=np.ones((6, 6)), v=np.ones(6))
    assert {name: sorted(map(str, p)) for name, p in kernel.accesses.items()} == {
        "w": ["[1, 0]", "[2, '0']"],
        "v": ["[2]", "broadcast"],
    }
    assert kernel.assigned == ()


def test_shapes_of_operands():
    def function(value, w):
        total = value
        for i in range(w.shape[0]):
            for j in range(w.shape[1]):
                total += w[i, j]
        return total / w.size + w.ndim

    w = RNG.normal(size=(7, 3))
    np.testing.assert_allclose(run(function, X, w=w), (X.astype(float) + w.sum()) / 21 + 2, rtol=1e-6)


def test_parts_of_a_complex_operand():
    w = (FULL + 1j * FULL[::-1]).astype(np.complex64)
    found = run(lambda value, w: value + w.real * 2 - w.imag + w.conjugate().imag, X, w=w)
    np.testing.assert_allclose(found, X + w.real * 2 - 2 * w.imag, rtol=1e-5, atol=1e-5)


def test_operands_in_conditions_and_functions():
    w = FULL.astype(np.float32)
    mask = FULL > 0

    def function(value, w, mask):
        scaled = w
        if mask:
            scaled = scaled * 2
        return max(scaled, value) if w > value or not mask else np.abs(w)

    np.testing.assert_allclose(run(function, X, w=w, mask=mask), plain(function, X, w=w, mask=mask), rtol=1e-6)
    np.testing.assert_array_equal(run(lambda value, w: w, X, w=w), w)
    np.testing.assert_array_equal(run(lambda value, w, mask: w if mask else 0, X, w=w, mask=mask), np.where(mask, w, 0))


# --- assignment -------------------------------------------------------------------------------------------------------


def test_assigned_operands():
    def function(value, index, out, count):
        out[index] = value * 2
        out[index] += 1
        count[index[0]] += 1
        return out[index] + value

    out, count = np.zeros(X.shape, np.float32), np.zeros(4, np.int32)
    found = run(function, X, out=out, count=count)
    np.testing.assert_allclose(out, X * 2 + 1, rtol=1e-6)
    np.testing.assert_allclose(found, X * 3 + 1, rtol=1e-5, atol=1e-6)
    assert count.tolist() == [30] * 4
    assert kernel_for(function, X, out=out, count=count)[0].assigned == ("count", "out")


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int64", "bool", "float16", "float32", "float64", "complex64"])
def test_assignment_converts(dtype):
    out = np.zeros((3, 4), dtype).T
    x = np.arange(12.0).reshape(4, 3)

    def function(value, index, out):
        out[index] = value + 0.5
        return value

    run(function, x, out=out)
    np.testing.assert_array_equal(out, (x + 0.5).astype(dtype))


def test_assignment_by_a_helper_and_by_constants():
    def store(target, i, what):
        target[i, -1] = what
        target[0, 1] = 7
        return what

    out = np.zeros((4, 3))
    run(lambda value, index, out: store(out, index[0], value), np.arange(4.0), out=out)
    assert out.tolist() == [[0, 7, 0], [0, 0, 1], [0, 0, 2], [0, 0, 3]]


def test_one_place_for_all_elements():
    def count(value, index, w):
        w[0] += value
        return value

    with pytest.raises(mf.CallbackError, match="every element would write to the same place of operand 'w'"):
        run(count, np.ones(3), w=np.zeros(1))


def test_operands_that_must_not_be_assigned():
    def function(value, index, w):
        w[index[0]] = value
        return value

    x = np.ones(3, np.float32)
    for w in (np.frombuffer(bytes(24)), mf.constant(np.ones(3))):
        with pytest.raises(mf.CallbackError, match="'w' is read-only: only an operand that was passed as a plain"):
            kernel_for_callback(function, x, w)
    with pytest.raises(
        mf.CallbackError, match=r"a complex value cannot be assigned to an element of operand 'w' \(float64\)"
    ):
        run(function, x * 1j, w=np.ones(3))


def kernel_for_callback(function, x, w):
    from mathfuse.fusion.compiler.cpu.kernels import elementwise
    from mathfuse.fusion.compiler.cpu.spec import ElementwiseSpec

    spec = ElementwiseSpec(mf.epilog(function), x.dtype, None, 1, (0,), {"w": w}, (0,))
    return elementwise(spec)


# --- captured arrays --------------------------------------------------------------------------------------------------


def test_captured_arrays_are_run_time_data():
    weights = np.arange(6, dtype=np.float32)

    def function(value, index):
        k = index[2]
        return value * TABLE[k] + weights[k] + PAIR[0][k] * PAIR[1][-1] + CONSTANT[index[0]] + tables.WEIGHTS[index[1]]

    def expected():
        i, j, k = np.indices(X.shape)
        return X * TABLE[k] + weights[k] + PAIR[0][k] * 15 + CONSTANT.array[i] + tables.WEIGHTS[j]

    before, _ = kernel_for(function, X)
    np.testing.assert_allclose(run(function, X), expected(), rtol=1e-6)
    try:
        TABLE[:] = TABLE[::-1].copy()
        weights[2] = 100
        np.testing.assert_allclose(run(function, X), expected(), rtol=1e-6)
        assert kernel_for(function, X)[0].function is before.function
    finally:
        TABLE[:] = TABLE[::-1].copy()


def test_a_large_captured_table():
    table = np.arange(100_000, dtype=np.float32)
    x = np.ones(100_000, np.float32)
    np.testing.assert_array_equal(run(lambda value, index: value * table[index], x), table)


def test_arrays_as_arguments_and_defaults_of_helpers():
    def interpolate(array, position, scale=TABLE):
        low = int(position)
        return array[low] + (array[low + 1] - array[low]) * (position - low) + scale[0] * 0

    def function(value, w):
        return interpolate(w, value) + interpolate(array=TABLE, position=value)

    x, w = np.linspace(0, 4.9, 9), np.arange(6.0) ** 2
    expected = np.interp(x, np.arange(6), w) + np.interp(x, np.arange(7), TABLE)
    np.testing.assert_allclose(run(function, x, w=w), expected)


def test_captured_arrays_can_be_assigned_to():
    store = np.zeros(3)

    def function(value, index):
        store[index[0]] = value
        return value

    run(function, np.array([1.0, 2, 3]))
    assert store.tolist() == [1, 2, 3]


def test_operands_chosen_by_a_branch():
    def function(value, index, w, v):
        chosen = w if index[0] > 1 else v
        return value + chosen[index[1], index[2]]

    w, v = RNG.normal(size=(2, 5, 6))
    expected = X + np.where(np.arange(4)[:, None, None] > 1, w, v)
    np.testing.assert_allclose(run(function, X, w=w, v=v), expected, rtol=1e-6)


def test_operands_and_numbers_in_turn():
    def function(value, w):
        total = 0
        for x in (w, 2.0, value, w):
            if x > 0.5:
                total += x
        return total

    w = RNG.normal(size=6)
    np.testing.assert_allclose(run(function, X, w=w), plain(function, X, w=w), rtol=1e-6)


# --- source -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "complex64", "uint8"])
def test_neighbours(dtype):
    def laplacian(value, index, shape, axes, source):
        total = -2 * len(axes) * value
        for a in axes:
            for step in (-1, 1):
                neighbour = (*index[:a], mf.wrapped_index(index[a] + step, shape[a]), *index[a + 1 :])
                total += source[neighbour]
        return total

    x = (10 * X).astype(dtype)[:, ::-1]
    wide = x.astype(complex if dtype == "complex64" else float)
    for axes in ((0, 1, 2), (1,), (2, 0)):
        expected = sum(np.roll(wide, 1, a) + np.roll(wide, -1, a) - 2 * wide for a in axes)
        np.testing.assert_allclose(run(laplacian, x, axes), expected, rtol=1e-5, atol=1e-4)


def test_neighbours_of_negative_index_and_clamped_edges():
    def function(value, index, shape, source):
        i = index[0]
        return source[i - 1] + source[mf.clamped_index(i + 2, shape[0])] + source

    x = np.arange(5.0)
    assert run(function, x).tolist() == [4 + 2 + 0, 0 + 3 + 1, 1 + 4 + 2, 2 + 4 + 3, 3 + 4 + 4]


# --- any shapes -------------------------------------------------------------------------------------------------------


@hypothesis.settings(max_examples=25)
@hypothesis.given(st.data())
def test_any_rank_axes_and_broadcast(data):
    shape = data.draw(hnp.array_shapes(max_dims=4, max_side=4))
    axes = tuple(data.draw(st.lists(st.integers(0, len(shape) - 1), unique=True)))
    kept = data.draw(st.integers(1, len(shape)))
    w_shape = tuple(1 if data.draw(st.booleans()) else n for n in shape[len(shape) - kept :])
    order = data.draw(st.permutations(range(len(shape))))
    x = np.arange(np.prod(shape), dtype=np.float64).reshape([shape[a] for a in order]).transpose(np.argsort(order))
    w = np.arange(1.0, 1 + np.prod(w_shape)).reshape(w_shape)

    def function(value, index, shape, axes, w):
        total = value * w
        for a in axes:
            total += (index[a] + 1) * shape[a] * (a + 1)
        return total

    assert x.shape == shape
    np.testing.assert_array_equal(run(function, x, axes, w=w), plain(function, x, axes, w=w))
