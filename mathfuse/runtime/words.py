"""Words of messages."""

from __future__ import annotations


def an(noun: str) -> str:
    """`noun` with its article: "an int64", "a uint8", "an array.array"."""
    return f"{'an' if noun[:1] in 'aeioAEIO' else 'a'} {noun}"


def counted(number: int, one: str, several: str) -> str:
    """`number` of something: "1 box", "2 boxes"."""
    return f"{number} {one if number == 1 else several}"
