"""A half spectrum in the memory of its real array: every shape, odd and even, cut or not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mathfuse.fusion.transforms.cpu.passes import boxes
from mathfuse.fusion.transforms.cpu.storage import Halves, Whole, same_memory


@given(st.integers(1, 9), st.integers(1, 5), st.booleans(), st.sampled_from(["f4", "f8"]))
def test_what_is_written_is_read_by_rows_and_by_columns(n, rows, first, dtype):
    axis = 0 if first else 1
    out = np.zeros((n, rows), dtype, order="F") if first else np.zeros((rows, n), dtype)
    halves = Halves.inside(out, axis)
    extents = [rows, rows]
    extents[axis] = n // 2 + 1
    values = np.random.default_rng(0).standard_normal(extents).astype(np.dtype(f"c{2 * out.itemsize}"))
    by_rows = boxes(tuple(extents), axis, (0, 1), 2)
    by_columns = boxes(tuple(extents), 1 - axis, (0, 1), 2, halves.cut)
    for box in by_rows:
        halves.write(box, values[box])
    for box in by_columns:
        np.testing.assert_array_equal(halves.read(box), values[box])
        halves.write(box, -values[box])
    for box in by_rows:
        np.testing.assert_array_equal(halves.read(box), -values[box])
    assert halves.bytes_beside(out) == rows * values.itemsize
    for cut in range(extents[axis] + 1):
        part = halves.part(tuple(cut if a == axis else 2 for a in (0, 1)))
        whole = Whole(-values).part(tuple(cut if a == axis else 2 for a in (0, 1)))
        box = tuple(slice(None) if a == axis else slice(0, 2) for a in (0, 1))
        np.testing.assert_array_equal(part.read(box), whole.read(box))


def test_columns_are_views_that_need_no_writing_back():
    halves = Halves.inside(np.zeros((4, 6), np.float32), 1)
    box = (slice(None), slice(0, 3))
    assert same_memory(halves.read(box), halves.read(box))
    halves.read(box)[...] = 1
    halves.write(box, halves.read(box))
    assert (halves.read(box) == 1).all()


@pytest.mark.parametrize("other", [lambda a: a[::-1], lambda a: a[:-1], lambda a: a.copy(), lambda a: a.view("f4")])
def test_same_memory_means_the_same_elements(other):
    a = np.zeros(4, np.int32)
    assert not same_memory(a, other(a))
    assert same_memory(a, a[:])
