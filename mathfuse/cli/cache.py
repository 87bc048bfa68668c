"""`mathfuse cache info|clear`: the artifact store on disk."""

from __future__ import annotations

import argparse
from typing import Any

from mathfuse.runtime.words import counted


def add_to(subparsers: Any) -> None:
    command = subparsers.add_parser("cache", help="show or empty the cache of compiled callbacks")
    actions = command.add_subparsers(required=True, metavar="ACTION")
    actions.add_parser("info", help="where it lies, what it holds").set_defaults(run=info)
    actions.add_parser("clear", help="remove every entry").set_defaults(run=clear)


def info(_: argparse.Namespace) -> int:
    from mathfuse.runtime.cache import NOT_KEPT, default_store

    facts = default_store().info()
    print(f"path     {facts.path}")
    print(f"entries  {facts.entries}")
    print(f"size     {size(facts.bytes)} of {size(facts.limit_bytes)}")
    if facts.trouble:
        print(f"trouble  {facts.trouble}; {NOT_KEPT}")
    return 0


def clear(_: argparse.Namespace) -> int:
    from mathfuse.runtime.cache import default_store

    store = default_store()
    print(f"removed {counted(store.clear(), 'entry', 'entries')} from {store.path}")
    return 0


def size(number: float) -> str:
    """A number of bytes for people, in units of 1024."""
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} GiB"
