"""What captured CUDA graphs run with: nothing tells when they end, so it is held until it is let go."""

from __future__ import annotations

from typing import Any

_held: dict[int, tuple[Any, ...]] = {}  # by the identity of the first


def hold(each: Any, *others: Any) -> None:
    """Keep objects alive, once each `each`: code, memory and plans of what was put into a graph."""
    _held.setdefault(id(each), (each, *others))


def release() -> None:
    """Let go of all: no graph that was captured before may be replayed."""
    _held.clear()
