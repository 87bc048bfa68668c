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
from mathfuse.epilogs.values import Constant, is_scalar
from mathfuse.runtime.cache import Artifact, decode_any, default_store, encode
from mathfuse.runtime.errors import CallbackError, PlanError

MAGIC, VERSION = b"mathfuse plan\n", 1
_HEAD, _SIZE, _DIGEST_BYTES = struct.Struct("<14sIQI"), struct.Struct("<Q"), 32
_NUMBERS = {"bool": bool, "int": int, "float": float, "complex": complex}

FilePath = str | os.PathLike[str]


# --- files -----------------------------------------------------------------------------------------------------------


def write(path: FilePath, header: Mapping[str, Any], artifacts: Mapping[str, Artifact]) -> None:
    """Write a file; it appears under its name only when complete."""
    entries = [encode(key, artifact) for key, artifact in sorted(artifacts.items(), key=lambda item: item[0])]
    text = json.dumps(header, default=lambda number: number.item()).encode()  # NumPy's
    body = _HEAD.pack(MAGIC, VERSION, len(text), len(entries)) + text
    body += b"".join(_SIZE.pack(len(entry)) + entry for entry in entries)
    target = Path(os.path.realpath(os.fsdecode(path)))
    temporary = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        temporary.write_bytes(body + _digest(body))
        os.replace(temporary, target)
    except OSError as error:
        raise type(error)(error.errno, error.strerror, os.fsdecode(path)) from None
    finally:
        temporary.unlink(missing_ok=True)


def read(path: FilePath) -> tuple[dict[str, Any], dict[str, Artifact]]:
    """The header and the artifacts by key.

    Raises
    ------
    PlanError
        If it is no plan file, of another version, or damaged.
    """
    content = Path(os.fsdecode(path)).read_bytes()
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


def described(callbacks: Mapping[str, Callback | None]) -> dict[str, Any]:
    """Callbacks by their roles as JSON: functions by name, bound numbers, and the names of arrays.

    Raises
    ------
    PlanError
        If another process does not find a function by its name, or one name stands for two arrays.
    """
    arrays: dict[str, Any] = {}
    for link in (link for callback in callbacks.values() if callback for link in callback.links):
        for name, value in link.bindings:
            if not is_scalar(value) and arrays.setdefault(name, _array(value)) is not _array(value):
                raise PlanError(
                    f"operand {name!r} is another array in each of two callbacks: a file needs a name for each"
                )
    return {
        role: {"kind": callback.kind, "links": [_link(link) for link in callback.links]}
        for role, callback in callbacks.items()
        if callback
    }


def _link(link: Link) -> dict[str, Any]:
    found = reference(link.function)
    if isinstance(found, bytes):
        raise PlanError(
            f"callback {link.function.__qualname__} of {link.function.__module__} is not found by its name in another "
            "process: define it at the top level of a module that can be imported"
        )
    numbers = {name: _plain(value) for name, value in link.bindings if is_scalar(value)}
    arrays = [name for name, value in link.bindings if not is_scalar(value)]
    return {
        "function": found,
        "fastmath": link.fastmath,
        "precision": link.precision,
        "numbers": numbers,
        "arrays": arrays,
    }


def _array(value: Any) -> Any:
    return value.array if isinstance(value, Constant) else value


def _plain(value: Any) -> tuple[str, Any]:
    value = value.item() if isinstance(value, np.generic) else value
    return type(value).__name__, [value.real, value.imag] if isinstance(value, complex) else value


def restored(data: Mapping[str, Any], operands: Mapping[str, Any], path: FilePath) -> dict[str, Callback]:
    """The callbacks that `described` tells of, by their roles, with operands bound.

    What stands for an array takes anything; a number is replaced by a number only.

    Raises
    ------
    PlanError
        If a function is gone, an array is not given, or what is given has no place.
    """
    every = [link for callback in data.values() for link in callback["links"]]
    arrays = {name for link in every for name in link["arrays"]}
    numbers = {name for link in every for name in link["numbers"]}
    if missing := sorted(arrays - operands.keys()):
        raise PlanError(f"{path} needs the operands {', '.join(missing)}: give them by name")
    if unknown := [name for name in operands if name not in arrays | numbers]:
        raise PlanError(
            f"{path} has no operand {unknown[0]!r}; it has: {', '.join(sorted(arrays | numbers)) or 'none'}"
        )
    if wrong := [name for name, value in operands.items() if name not in arrays and not is_scalar(value)]:
        raise PlanError(f"operand {wrong[0]!r} of {path} is a number: give a number")
    try:
        return {
            role: Callback(each["kind"], tuple(_relinked(link, each["kind"], operands) for link in each["links"]))
            for role, each in data.items()
        }
    except (CallbackError, ImportError) as error:
        raise PlanError(f"{path} has a callback that is not found any more, or does not fit: {error}") from None


def _relinked(link: Mapping[str, Any], kind: str, operands: Mapping[str, Any]) -> Link:
    function = resolve(tuple(link["function"]))
    values = {name: _number(*number) for name, number in link["numbers"].items()}
    values |= {name: value for name, value in operands.items() if name in values and is_scalar(value)}
    values |= {name: operands[name] for name in link["arrays"]}
    made = Callback(kind, (Link.of(function, kind, link["fastmath"], link["precision"]),))
    return made(**values).links[0]


def _number(kind: str, value: Any) -> Any:
    return complex(*value) if kind == "complex" else _NUMBERS[kind](value)
