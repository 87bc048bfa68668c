"""Transforms in steps: their lengths, how they are dealt to threads, and the twiddle factors between them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mathfuse.device.fft.shapes import is_supported, most_threads, stages_of
from mathfuse.device.fft.steps import LONGEST_STEP, MOST_STEPS, Twiddles, deal, factors, fine, sector, table
from mathfuse.device.fft.twiddles import roots


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (32768, (256, 128)),
        (65536, (256, 256)),
        (100_000, (250, 400)),
        (1 << 20, (1024, 1024)),
        (1 << 22, (2048, 2048)),
        (1 << 24, (256, 256, 256)),
        (1 << 25, (512, 256, 256)),
        (1 << 27, (512, 512, 512)),
        (3**11, (729, 243)),
        (10**7, (250, 200, 200)),
        (65537, ()),
        (17 * 4096, ()),
        (1 << 31, ()),
    ],
)
def test_factors(length, expected):
    assert factors(length, double=False) == expected


@given(st.lists(st.sampled_from((2, 2, 2, 3, 5, 7)), min_size=1, max_size=24).map(math.prod), st.booleans())
def test_factors_are_supported_and_in_whole_sectors(length, double):
    found = factors(length, double)
    if not found:
        return
    assert math.prod(found) == length
    assert 2 <= len(found) <= MOST_STEPS
    assert max(found) <= LONGEST_STEP
    assert all(is_supported(n, double) for n in found)
    assert all(deal(stages_of(n, double), double)[1] >= sector(double) for n in found)


def test_fewer_steps_of_shorter_blocks():
    assert factors(64, False, 16) == (8, 8)
    assert factors(64, False, 4) == (4, 4, 4)
    assert factors(64, False, 3) == ()


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("length", [16, 250, 256, 512, 1000, 1024, 2048, 4096])
def test_blocks_of_steps_have_registers_to_spare(length, double):
    stages, lines = deal(stages_of(length, double), double)
    assert lines >= sector(double)
    assert stages.threads * lines <= most_threads(stages, double)
    assert all(stages.rounds(s) * stages.threads >= stages.butterflies(s) for s in range(len(stages.radices)))


@pytest.mark.parametrize(
    ("length", "count"), [(64, 1), (64, 2), (64, 64), (1 << 27, 1 << 24), (99, 50), (10**7, 12345)]
)
def test_every_root_is_a_product_of_two(length, count):
    found, each, k = table(length, count, double=True), fine(count), np.arange(0, count, max(1, count // 1000))
    assert len(found) <= each + -(-count // each)
    assert len(found) < 4 * math.sqrt(count) + 3
    np.testing.assert_allclose(found[k % each] * found[each + k // each], roots(k, length), rtol=0, atol=4e-16)


def test_tables_suffice_for_all_columns():
    stages = stages_of(1024)
    twiddles = Twiddles(length=1 << 20, columns=1024, first=False)
    (whole, most), (part, legs) = twiddles.roots(stages)
    butterflies = stages.butterflies(len(stages.radices) - 1)
    assert (whole, part) == (1 << 20, (1 << 20) // butterflies)
    assert most == 1023 * (butterflies - 1) + 1
    assert legs > 1023 * stages.radices[-1] // 2
    assert [len(each) for each in twiddles.tables(stages, False)] == [
        fine(count) + -(-count // fine(count)) for count in (most, legs)
    ]
