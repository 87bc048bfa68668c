"""mathfuse.runtime.words"""

from __future__ import annotations

import pytest

from mathfuse.runtime.words import an, counted


@pytest.mark.parametrize(
    "words",
    ["an int64 value", "a uint8 value", "a float32 value", "an array.array", "a list", "an object", "a numpy.str_"],
)
def test_articles(words):
    assert an(words.partition(" ")[2]) == words


def test_numbers():
    assert [counted(number, "box", "boxes") for number in (0, 1, 2)] == ["0 boxes", "1 box", "2 boxes"]
