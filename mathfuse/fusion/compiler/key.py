"""The key under which an artifact is kept: everything that could make its bytes wrong."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
from dataclasses import fields
from pathlib import Path
from typing import Any

from mathfuse.fusion.compiler.fingerprint import fingerprint
from mathfuse.fusion.compiler.signature import Signature

FRONT_END = ("llvmlite", "numba")
EMITTING = ("fusion/compiler", "device")


def artifact_key(pipeline: str, signature: Signature, target: str, **more: Any) -> str:
    """A readable text: pipeline, callback fingerprint, types, options, and versions of compilers and library.

    ``target`` tells the machine apart, or the compilers that serve it.
    """
    parts = {
        "pipeline": pipeline,
        **{field.name: getattr(signature, field.name) for field in fields(signature)},  # all of them, whatever they are
        "callback": fingerprint(signature.callback) if signature.callback else "none",
        **more,
        "target": target,
        "front end": versions(*FRONT_END),
        "library": library_digest(),
    }
    return "; ".join(f"{name}={value}" for name, value in parts.items())


@functools.cache
def versions(*packages: str) -> str:
    """Packages and their versions; one that is missing has no part in it."""
    found = []
    for name in packages:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


@functools.cache
def library_digest() -> str:
    """A digest of all sources that emit code: another version of mathfuse never reads what this one wrote."""
    digest, package = hashlib.sha256(), Path(__file__).parents[2]
    for path in sorted(path for room in EMITTING for path in (package / room).rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
