"""Which artifacts a piece of work uses, whether they come from disk, from memory or are made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_noted: ContextVar[dict[str, Any] | None] = ContextVar("mathfuse_noted", default=None)


def note(artifacts: Mapping[str, Any]) -> None:
    """Tell that these artifacts, by the keys of the store, are used."""
    if (noted := _noted.get()) is not None:
        noted.update(artifacts)


@contextmanager
def noting() -> Iterator[dict[str, Any]]:
    """The artifacts noted inside; outer ones note them, too."""
    found: dict[str, Any] = {}
    token = _noted.set(found)
    try:
        yield found
    finally:
        _noted.reset(token)
        note(found)


@contextmanager
def unnoted() -> Iterator[None]:
    """What is noted inside is for nobody outside."""
    token = _noted.set(None)
    try:
        yield
    finally:
        _noted.reset(token)
