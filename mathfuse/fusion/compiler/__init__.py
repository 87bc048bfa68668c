"""Callbacks and types to machine code: LTO-IR for GPU pipelines, native code for the CPU, the audit."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """``compile`` on first use: a process whose code comes from the cache never imports a compiler."""
    if name in ("compile", "Compiled"):
        from mathfuse.fusion.compiler.cuda import interface

        return getattr(interface, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
