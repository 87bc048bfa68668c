"""Words of messages."""

from __future__ import annotations


def an(noun: str) -> str:
    """`noun` with its article: "an int64", "a uint8", "an array.array"."""
    return f"{'an' if noun[:1] in 'aeioAEIO' else 'a'} {noun}"


def either(*choices: str) -> str:
    """One of them: "a", "a or b", "a, b or c"."""
    return " or ".join([", ".join(choices[:-1]), choices[-1]] if len(choices) > 1 else choices)


def counted(number: int, one: str, several: str) -> str:
    """`number` of something: "1 box", "2 boxes"."""
    return f"{number} {one if number == 1 else several}"
