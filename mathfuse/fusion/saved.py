"""Plans in files: what was planned, as JSON, and the compiled artifacts, under one checksum; nothing is pickled.

Callbacks travel by module and name, with the numbers bound to them; arrays are given anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mathfuse.epilogs import Callback
from mathfuse.epilogs.callback import Link
from mathfuse.epilogs.pickling import reference, resolve
from mathfuse.epilogs.values import is_scalar
from mathfuse.runtime.cache import Artifact, decode_any, default_store, encode
from mathfuse.runtime.errors import CallbackError, PlanError

MAGIC, VERSION = b"mathfuse plan\n", 1
_HEAD, _SIZE, _DIGEST_BYTES = struct.Struct("<14sIQI"), struct.Struct("<Q"), 32
_NUMBERS = {"bool": bool, "int": int, "float": float, "complex": complex}

Path_ = str | os.PathLike[str]


# --- files -----------------------------------------------------------------------------------------------------------


def write(path: Path_, header: Mapping[str, Any], artifacts: Mapping[str, Artifact]) -> None:
    """Write a file; it appears under its name only when complete."""
    entries = [encode(key, artifact) for key, artifact in sorted(artifacts.items(), key=lambda item: item[0])]
    text = json.dumps(header, default=lambda number: number.item()).encode()  # NumPy's
    body = _HEAD.pack(MAGIC, VERSION, len(text), len(entries)) + text
    body += b"".join(_SIZE.pack(len(entry)) + entry for entry in entries)
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        temporary.write_bytes(body + _digest(body))
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def read(path: Path_) -> tuple[dict[str, Any], dict[str, Artifact]]:
    """The header and the artifacts by key.

    Raises
    ------
    PlanError
        If it is no plan file, of another version, or damaged.
    """
    content = Path(path).read_bytes()
    if not content.startswith(MAGIC):
        raise PlanError(f"{path} is no plan file")
    try:
        _, version, header_bytes, count = _HEAD.unpack_from(content)
        if version != VERSION:
            raise PlanError(f"{path} is a plan file of version {version}, this mathfuse reads {VERSION}: save it anew")
        body, digest = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
        if _digest(body) != digest:
            raise ValueError("its checksum differs")
        at = _HEAD.size + header_bytes
        header, artifacts = json.loads(body[_HEAD.size : at]), {}
        for _ in range(count):
            (size,) = _SIZE.unpack_from(body, at)
            key, artifact = decode_any(body[at + _SIZE.size : at + _SIZE.size + size])
            artifacts[key] = artifact
            at += _SIZE.size + size
    except (ValueError, KeyError, TypeError, struct.error) as error:
        raise PlanError(f"{path} is a damaged plan file: {error}") from None
    return header, artifacts


def keep(artifacts: Mapping[str, Artifact]) -> None:
    """Put into the store what it lacks."""
    store = default_store()
    for key, artifact in artifacts.items():
        if store.get(key) is None:
            store.put(key, artifact)


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest()


# --- callbacks -------------------------------------------------------------------------------------------------------


def described(callback: Callback | None) -> dict[str, Any] | None:
    """A callback as JSON: its functions by name, and bound numbers.

    Raises
    ------
    PlanError
        If another process does not find a function by its name.
    """
    return {"kind": callback.kind, "links": [_link(link) for link in callback.links]} if callback else None


def _link(link: Link) -> dict[str, Any]:
    found = reference(link.function)
    if isinstance(found, bytes):
        raise PlanError(
            f"callback {link.function.__qualname__} of {link.function.__module__} is not found by its name in another "
            "process: define it at the top level of a module that can be imported"
        )
    numbers = {name: _plain(value) for name, value in link.bindings if is_scalar(value)}
    return {"function": found, "fastmath": link.fastmath, "precision": link.precision, "numbers": numbers}


def _plain(value: Any) -> tuple[str, Any]:
    value = value.item() if isinstance(value, np.generic) else value
    return type(value).__name__, [value.real, value.imag] if isinstance(value, complex) else value


def restored(data: Mapping[str, Any] | None, operands: Mapping[str, Any], path: Path_) -> Callback | None:
    """The callback that `described` tells of, with its operands bound.

    Raises
    ------
    PlanError
        If a function is gone, or an operand that is no number is not given.
    """
    if data is None:
        return None
    try:
        links = [
            Link.of(resolve(tuple(link["function"])), data["kind"], link["fastmath"], link["precision"]).bind(
                {name: _number(*number) for name, number in link["numbers"].items()}
            )
            for link in data["links"]
        ]
    except (CallbackError, ImportError) as error:
        raise PlanError(f"{path} has a callback that is not found any more: {error}") from None
    callback = Callback(data["kind"], tuple(links))
    callback = callback(**{name: value for name, value in operands.items() if name in callback.operands})
    if callback.free:
        raise PlanError(f"{path} needs the operands {', '.join(callback.free)}: give them by name")
    return callback


def _number(kind: str, value: Any) -> Any:
    return complex(*value) if kind == "complex" else _NUMBERS[kind](value)
