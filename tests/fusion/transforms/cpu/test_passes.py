"""The passes of a transform and the boxes of a pass."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mathfuse.fusion.transforms.cpu.passes import (
    boxes,
    filter_passes,
    lines_per_box,
    stride_conflicts,
    transform_passes,
)
from mathfuse.fusion.transforms.kinds import resolve


def words(passes):
    return [str(p) for p in passes]


def test_the_real_axis_is_first_on_the_way_there_and_last_on_the_way_back():
    assert words(transform_passes(resolve("rfftn", (4, 6, 8), axes=(2, 0)), {"prolog", "epilog"})) == [
        "axis 0: x → prolog → rfft(4) → work",
        "axis 2: work → fft(8) → epilog → out",
    ]
    assert words(transform_passes(resolve("irfft2", (6, 5), axes=(-2, -1)), {"epilog"})) == [
        "axis 0: x → ifft(6) → work",
        "axis 1: work → irfft(8) → epilog → out",
    ]


def test_complex_transforms_begin_with_the_last_axis():
    assert [p.axis for p in transform_passes(resolve("fftn", (2, 3, 4), axes=(0, 2, 1)))] == [2, 1, 0]


def there_and_back(shape, axes, kind="rfftn", lengths=None, kept=None):
    there = resolve(kind, shape, lengths, axes)
    return there, replace(resolve("i" + kind, there.spectrum_shape, there.lengths, axes), kept=kept)


def test_a_filter_turns_round_in_the_middle_of_a_pass():
    assert words(filter_passes(*there_and_back((6, 8), (0, 1)), {"transfer"})) == [
        "axis 1: x → rfft(8) → work",
        "axis 0: work → fft(6) → transfer → ifft(6) → work",
        "axis 1: work → irfft(8) → out",
    ]
    assert words(filter_passes(*there_and_back((6, 8), (1,)), {"prolog", "transfer", "epilog"})) == [
        "axis 1: x → prolog → rfft(8) → transfer → irfft(8) → epilog → out"
    ]
    assert len(filter_passes(*there_and_back((2, 3, 4), (0, 1, 2), "fftn"))) == 5


def test_extents_follow_what_is_cut_padded_and_halved():
    cut_and_padded = transform_passes(resolve("rfft2", (6, 8), (4, 10), (-2, -1)))
    assert [p.extents for p in cut_and_padded] == [(4, 8), (4, 6)]
    inverse = transform_passes(resolve("irfft2", (6, 9), (8, 10), (-2, -1)))
    assert [p.extents for p in inverse] == [(6, 6), (8, 6)]
    assert [p.extents for p in filter_passes(*there_and_back((6, 9), (1,)))] == [(6, 9)]
    assert [p.extents for p in filter_passes(*there_and_back((6, 9), (0, 1)))] == [(6, 9), (6, 5), (6, 5)]


def test_a_filter_pads_and_keeps_a_part():
    passes = filter_passes(*there_and_back((6, 8), (0, 1), lengths=(10, 12), kept=(9, 8)), {"transfer", "epilog"})
    assert words(passes) == [
        "axis 1: x → rfft(12) → work",
        "axis 0: work → fft(10) → transfer → ifft(10) → 9 kept → work",
        "axis 1: work → irfft(12) → 8 kept → epilog → out",
    ]
    assert [p.extents for p in passes] == [(6, 8), (6, 7), (9, 7)]
    assert [p.result_extents for p in passes] == [(6, 7), (9, 7), (9, 8)]


@given(
    st.lists(st.integers(0, 7), min_size=1, max_size=4),
    st.integers(1, 40),
    st.randoms(use_true_random=False),
    st.integers(0, 7),
)
def test_boxes_cover_the_index_space_once(extents, lines, random, cut):
    axis = random.randrange(len(extents))
    order = list(range(len(extents)))
    random.shuffle(order)
    cut_axis = random.randrange(len(extents))
    made = boxes(tuple(extents), axis, tuple(order), lines, (cut_axis, cut) if cut_axis != axis else None)
    seen = np.zeros(extents, int)
    for box in made:
        assert box[axis] == slice(None)
        part = seen[box]
        assert part.size <= lines * extents[axis]
        assert cut_axis == axis or not box[cut_axis].start < cut < box[cut_axis].stop
        part += 1
    assert (seen == 1).all()


def test_boxes_fill_the_fastest_axis_first():
    assert boxes((4, 6, 8), 1, (0, 1, 2), 16)[1] == (slice(2, 4), slice(None), slice(0, 8))
    assert boxes((4, 6, 8), 1, (2, 1, 0), 4)[1] == (slice(0, 4), slice(None), slice(1, 2))


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.sampled_from([8, 16]), st.integers(1, 64))
def test_boxes_keep_whole_cache_lines_and_the_hot_size(lines, length, itemsize, workers):
    block = 1 << 20
    height = lines_per_box(lines, length * itemsize, itemsize, block, workers)
    grain = 64 // itemsize
    assert height % grain == 0
    assert height == grain or height * length * itemsize <= block
    if lines * length * itemsize > block and height > grain:
        assert math.ceil(lines / height) >= min(workers, lines // grain)


def test_powers_of_two_share_cache_sets():
    assert stride_conflicts(4096 * 8)
    assert not stride_conflicts(2049 * 8)
    assert not stride_conflicts(0)
