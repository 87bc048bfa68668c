"""Cuts of transforms into stages, and their twiddle factors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mathfuse.device.fft.block import Block, block_of
from mathfuse.device.fft.shapes import (
    MOST_THREADS,
    MOST_VALUES,
    Stages,
    cuts,
    is_supported,
    largest_prime,
    most_threads,
    operations,
    registers,
    stages_of,
)
from mathfuse.device.fft.twiddles import places, powers, roots, table

PRIMES = (2, 3, 5, 7, 11, 13)
lengths = st.lists(st.sampled_from(PRIMES), min_size=1, max_size=14).map(math.prod).filter(lambda n: n <= 16384)


@given(lengths, st.booleans())
def test_supported_lengths_are_cut(length, double):
    if not is_supported(length, double):
        assert length > (5000 if double else 11_500)
        return
    stages = stages_of(length, double)
    assert math.prod(stages.radices) == stages.length == length
    assert max(stages.radices) <= 32
    assert stages.values <= MOST_VALUES >> double
    assert stages.threads <= most_threads(stages, double) <= MOST_THREADS
    assert most_threads(stages, double) * registers(stages, double) <= 65536
    for stage in range(len(stages.radices)):
        assert stages.rounds(stage) * stages.threads >= stages.butterflies(stage)
        assert stages.done(stage) * math.prod(stages.radices[stage:]) == length
    for across in (False, True):
        for arch, most in (("sm_80", 163), ("sm_90a", 227), ("sm_120", 99)):
            block = block_of(stages, double, arch, across=across)
            if block is None:
                assert Block(stages, 1, across).shared_bytes(double) > most << 10
                continue
            assert 1 <= block.threads <= MOST_THREADS
            assert block.shared_bytes(double) <= most << 10


@pytest.mark.parametrize(
    "length", [1, 2, 13, 64, 256, 768, 1000, 1024, 1080, 1536, 1920, 2000, 2048, 3000, 4096, 8192, 16384]
)
def test_usual_lengths_are_supported(length):
    assert is_supported(length, double=False)
    assert is_supported(length, double=True) == (length <= 8192)


@pytest.mark.parametrize("length", [17, 34, 1009, 32768, 14641])
def test_others_are_not(length):
    assert not is_supported(length, double=False)


def test_few_stages_are_taken():
    assert stages_of(4096) == Stages(4096, (16, 16, 16), 256)
    assert stages_of(1000) == Stages(1000, (10, 10, 10), 100)
    assert stages_of(16) == Stages(16, (16,), 1)


def test_operations_grow_with_the_radix():
    counted = [operations(radix) for radix in (2, 4, 8, 16)]
    assert counted == sorted(counted)
    assert operations(2) == 4 + 8


@given(lengths.filter(lambda n: is_supported(n, double=True)))
def test_every_factor_is_in_the_table_or_a_product(length):
    stages = stages_of(length)
    values, rows = table(stages, double=True), places(stages)
    for stage, radix in enumerate(stages.radices):
        if not stage:
            continue
        done, held = stages.done(stage), powers(radix)
        assert set(range(1, radix)) <= {a + b for a in (0, *held) for b in (0, *range(1, radix))}
        for row, leg in enumerate(held):
            k = np.arange(done)
            expected = np.exp(-2j * np.pi * leg * k / (done * radix))
            found = values[rows[stage] + row * done + k]
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 12, 1000, 4096, 6561])
def test_roots_of_unity_are_right_to_the_last_bit(n):
    k = np.arange(-3, 2 * n)
    angle = 8 * np.arctan(np.longdouble(1)) * (k % n) / n
    assert np.abs(roots(k, n) - (np.cos(angle) - 1j * np.sin(angle))).max() < 1.5e-16
    assert {complex(value) for value in roots(np.arange(4), 4)} == {1, -1j, -1, 1j}


@pytest.mark.parametrize(("length", "radices"), [(2000, (20, 20, 5)), (3125, (25, 25, 5)), (1250, (10, 5, 5, 5))])
def test_wide_radices_serve_where_they_leave_fewer_stages(length, radices):
    assert stages_of(length).radices == radices
    assert all(max(cut.radices) <= 16 for cut in cuts(length, double=True))


def test_largest_prime():
    assert [largest_prime(n) for n in (1, 2, 12, 97, 8198, 1 << 20)] == [1, 2, 3, 97, 4099, 2]


@pytest.mark.parametrize(("length", "stages"), [(5000, 3), (6000, 3), (10_000, 3), (12_000, 3), (8192, 3), (6144, 4)])
def test_long_lengths_have_few_stages(length, stages):
    assert len(stages_of(length).radices) == stages


@pytest.mark.parametrize("length", [17, 17 * 256, 19 * 512, 29 * 29 * 16, 31 * 512])
def test_no_radix_has_a_large_prime(length):
    assert not is_supported(length, double=False)
