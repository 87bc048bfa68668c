"""The helpers against numpy.fft."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mathfuse.epilogs import (
    angular_frequency,
    clamped_index,
    radial_frequency,
    signed_frequency,
    signed_index,
    wrapped_index,
)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8, 97, 100])
def test_frequencies_are_those_of_fftfreq(n):
    expected = np.fft.fftfreq(n)
    np.testing.assert_allclose([signed_frequency(i, n) for i in range(n)], expected, rtol=3e-16)
    np.testing.assert_array_equal([signed_index(i, n) for i in range(n)], np.fft.fftfreq(n, 1 / n).round())
    np.testing.assert_allclose([angular_frequency(i, n) for i in range(n)], 2 * np.pi * expected, rtol=1e-15)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8])
def test_half_spectra_have_the_frequencies_of_rfftfreq_but_for_the_sign(n):
    np.testing.assert_array_equal([abs(signed_frequency(i, n)) for i in range(n // 2 + 1)], np.fft.rfftfreq(n))


def test_indices_above_2_to_24_stay_exact():
    n = 2**26
    assert signed_index(n - 1, n) == -1
    assert signed_frequency(n - 1, n) == -1 / n
    assert isinstance(signed_index(n - 1, n), int)


@given(st.integers(1, 2**40), st.data())
def test_signed_index_is_congruent_and_in_range(n, data):
    i = data.draw(st.integers(0, n - 1))
    assert (signed_index(i, n) - i) % n == 0
    assert -n <= 2 * signed_index(i, n) < n


def test_radial_frequency():
    shape, axes = (4, 5, 6), (0, 2)
    grid = np.meshgrid(*(np.fft.fftfreq(n) for n in shape), indexing="ij")
    expected = np.sqrt(grid[0] ** 2 + grid[2] ** 2)
    actual = [radial_frequency(index, shape, axes) for index in np.ndindex(shape)]
    np.testing.assert_allclose(actual, expected.ravel(), rtol=1e-15)
    assert radial_frequency((3,), (8,), ()) == 0.0
    assert math.isclose(radial_frequency((1, 1), (4, 4), (0, 1)), math.sqrt(2) / 4)


@given(st.integers(-100, 100), st.integers(1, 40))
def test_neighbours_at_the_edges(i, n):
    around = np.arange(n)
    assert wrapped_index(i, n) == np.take(around, i, mode="wrap")
    assert clamped_index(i, n) == np.take(around, i, mode="clip")
