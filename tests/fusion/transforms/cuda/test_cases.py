"""The generated cases themselves, on the CPU: what they expect is right, and they reach what they are for."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tests.spaces import NUMPY

from .cases import COUNT, LAYOUTS, PAIRS, Case, case, check, expected, may_be_in_place, result_dtype

CASES = [case(number) for number in range(COUNT)]


@pytest.mark.parametrize("start", range(8))
def test_a_sample_on_the_cpu(start):
    wrong = [found for each in CASES[start::160] if (found := check(each, NUMPY))]
    assert not wrong, "\n".join(wrong)


def counted(of) -> Counter:
    return Counter(map(of, CASES))


def test_a_case_is_the_same_each_time():
    assert [case(number) for number in range(0, COUNT, 100)] == CASES[::100]


@pytest.mark.parametrize(
    ("of", "kinds", "least"),
    [
        (lambda c: c.kind, 13, 150),
        (lambda c: len(c.shape), 5, 200),
        (lambda c: len(c.axes), 5, 30),
        (lambda c: c.dtype, 7, 150),
        (lambda c: c.layout, len(LAYOUTS), 150),
        (lambda c: c.prolog, len(PAIRS), 100),
        (lambda c: c.epilog, len(PAIRS), 100),
        (lambda c: c.lengths is None, 2, 500),
        (lambda c: max(c.shape) > 12, 2, 500),
        (lambda c: 0 in c.shape, 2, 40),
        (lambda c: c.stray, 2, 20),
    ],
)
def test_everything_comes_up(of, kinds, least):
    found = counted(of)
    assert len(found) >= kinds, found
    assert min(found.values()) >= least, found


def test_strategies():
    found = counted(lambda c: c.strategy)
    assert found["sequence"] >= 2700
    assert found["callback"] + found[None] >= 300


def test_many_are_in_place():
    def whether(c: Case) -> bool:
        dtype = result_dtype(c)
        return c.out == "in place" and dtype is not None and may_be_in_place(c, dtype, expected(c).shape)

    assert sum(map(whether, CASES[::10])) >= 3


def test_a_failure_tells_the_case(monkeypatch):
    monkeypatch.setitem(PAIRS, "scale", PAIRS["rows"])
    monkeypatch.setattr("mathfuse.scale", lambda factor: 1 / 0)
    wrong = next(c for c in CASES if c.prolog == "scale" and c.shape[-1] > 2 and 0 not in c.shape)
    assert check(wrong, NUMPY) == ""
    monkeypatch.setattr(NUMPY, "numpy", lambda array: np.asarray(array) + 1)
    assert f"case {wrong.number}: kind={wrong.kind}" in check(wrong, NUMPY)
