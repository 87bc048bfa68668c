"""The generated cases on a GPU: strides, ranks, dtypes, lengths, callbacks and operands against float64 NumPy.

Nine in ten take the strategy "sequence", which is planned in a few milliseconds; the others have callbacks in cuFFT.
One in eight runs by own kernels as well.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.spaces import CUPY, HOST, TORCH, Space

from .cases import COUNT, case, check

pytestmark = pytest.mark.gpu
TOGETHER = 40  # cases in one test
ENOUGH = 6  # failures that a test tells at most


def space_of(number: int) -> Space:
    """CuPy for most: it has all strides there are."""
    return {3: TORCH, 6: TORCH, 9: HOST}.get(number // 2 % 12, CUPY)


@pytest.mark.parametrize("start", range(0, COUNT, TOGETHER))
def test_cases(start):
    wrong: list[str] = []
    for number in range(start, start + TOGETHER):
        space = space_of(number)
        if found := check(case(number), space):
            wrong.append(f"{space} {found}")
        if len(wrong) == ENOUGH:
            break
    if wrong:
        pytest.fail("\n".join([f"{len(wrong)} wrong among {start}…{number}:", *wrong]), pytrace=False)


@pytest.mark.parametrize("start", range(0, 64, 8))
def test_cases_by_own_kernels(start):
    numbers = range(start, COUNT, 64)
    found = [(n, check(replace(case(n), strategy="kernel"), space_of(n))) for n in numbers]
    done = [(n, text) for n, text in found if "own kernels transform axes" not in text]
    wrong = [f"{n} {text}" for n, text in done if text]
    assert len(done) > len(found) // 2
    if wrong:
        pytest.fail("\n".join([f"{len(wrong)} wrong of {len(done)}:", *wrong[:ENOUGH]]), pytrace=False)
