"""How arrays are cut for caches and threads, and kernels chosen by layouts: pure functions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mathfuse as mf
from mathfuse.fusion.compiler.signature import Signature
from mathfuse.fusion.elementwise.cpu import boxes, elements_of
from mathfuse.fusion.elementwise.functions import Function
from mathfuse.fusion.elementwise.layouts import Layout, dense
from mathfuse.fusion.elementwise.maps import kernel_unit, signature_of

FLOAT = np.dtype("float32")


@mf.epilog
def weighted(value, index, w, v, s):
    return value * w[index] * v[index] * s


@given(st.data())
def test_boxes_cover_every_element_once(data):
    shape = tuple(data.draw(st.lists(st.integers(1, 8), min_size=1, max_size=4)))
    source, target = (dense(shape, FLOAT, tuple(data.draw(st.permutations(range(len(shape)))))) for _ in range(2))
    count = np.zeros(shape, int)
    elements = data.draw(st.integers(1, 100))
    for box in boxes(source, target, elements):
        count[box] += 1
        assert count[box].size <= elements
    assert (count == 1).all()


def test_boxes_are_square_between_layouts_and_long_within_one():
    rows, columns = dense((512, 512), FLOAT), dense((512, 512), FLOAT, (1, 0))
    assert boxes(rows, rows, 1024)[0] == (slice(0, 2), slice(0, 512))
    assert boxes(columns, rows, 1024)[0] == (slice(0, 32), slice(0, 32))


def test_small_arrays_stay_whole():
    assert elements_of(1000, 8, 4) == 1000
    assert elements_of(1 << 20, 8, 4) <= (1 << 20) // 16


@pytest.mark.parametrize(
    ("source", "target", "flat", "vector"),
    [
        (dense((8, 8), FLOAT), dense((8, 8), FLOAT), True, 4),
        (dense((8, 8), FLOAT, (1, 0)), dense((8, 8), FLOAT, (1, 0)), True, 4),
        (dense((8, 8), FLOAT, (1, 0)), dense((8, 8), FLOAT), False, 1),
        (dense((8, 8), FLOAT), dense((8, 8), np.dtype("complex128")), True, 1),
        (Layout((8, 8), (32, 4), FLOAT, 8), dense((8, 8), FLOAT), True, 2),
        (Layout((8, 8), (32, 4), FLOAT, 4), dense((8, 8), FLOAT), True, 1),
        (Layout((8, 8), (64, 4), FLOAT), dense((8, 8), FLOAT), False, 1),
        (Layout((8, 8), (0, 4), FLOAT), dense((8, 8), FLOAT), False, 1),
        (Layout((1, 8), (999, 4), FLOAT), dense((1, 8), FLOAT), True, 4),
    ],
)
def test_what_a_kernel_may_rely_on(source, target, flat, vector):
    unit = kernel_unit(Signature.of(mf.relu, FLOAT, 2, (0, 1), {}), source, target, "sm_90a")
    assert (unit.flat, unit.vector, unit.dtype, unit.order) == (flat, vector, target.dtype, target.order())
    assert unit.whole_rows == (target.shape[unit.order[-1]] % vector == 0)


def test_of_padded_sources_nothing_is_flat_and_many_elements_are_counted_in_64_bits():
    signature = Signature.of(None, FLOAT, 1, (0,), {})
    assert not kernel_unit(signature, dense((5,), FLOAT), dense((5,), FLOAT), "sm_80", padded=True).flat
    for size, wide in ((1 << 31, True), ((1 << 31) - 1, False)):
        assert kernel_unit(signature, dense((size,), FLOAT), dense((size,), FLOAT), "sm_80").wide is wide


def test_extents_of_operands_without_gaps_can_be_constants():
    values = {
        "w": np.ones((2, 3), "float32"),
        "v": np.ones((3, 2), "float32").T,
        "s": 2.0,
        "r": np.ones((2, 6), "float32")[:, ::2],
    }
    function = Function(weighted, FLOAT, FLOAT, (2, 3), (2, 3), (0, 1), values, {})
    found = dict(signature_of(function, FLOAT, 2, constant=True).operands)
    assert [found[name].extents for name in "wvsr"] == [(2, 3), (2, 3), None, None]
    assert (found["w"].strides, found["v"].strides) == ((12, 4), (4, 8))
    assert all(kind.extents is None for _, kind in signature_of(function, FLOAT, 2).operands)
