"""The artifact store: compiled bytes on disk, private to the user and shared by processes.

A file is magic, schema, lengths, a JSON header with the whole key, the payload, and a checksum over all of it. It
appears under its name only when complete. Whatever is odd (damaged, foreign, unreadable, no space, no lock) costs a
compilation and one logged line, never a wrong artifact and never an exception.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import json
import os
import re
import stat
import struct
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mathfuse.runtime import settings
from mathfuse.runtime.log import logger
from mathfuse.runtime.notes import note

SCHEMA = 1  # part of every file name: another layout never meets this one's files
LOCK_TIMEOUT_S = 10.0  # longer than a slow link, short enough to bear once when the holder hangs
STALE_AFTER_S = 3600.0  # leftovers of killed processes older than this are swept
NOT_KEPT = "what cannot be kept is compiled each time"

_MAGIC = b"mathfuse"
_PREFIX = struct.Struct("<8sIIQ")  # magic, schema, header bytes, payload bytes
_DIGEST_BYTES = 32
_ENTRY, _TEMPORARY, _LOCK = ".artifact", ".tmp", ".lock"
_OURS = re.compile(r"[0-9a-f]{40}(\.artifact|\.\w+\.tmp|\.lock)")
_warned: dict[tuple[str, object], object] = {}  # (store, cause) already logged in this process


@dataclass(frozen=True)
class Artifact:
    """Compiled bytes and what is known about them.

    Parameters
    ----------
    payload
        The bytes.
    metadata
        What JSON gives back unchanged: a dict with string keys; lists, not tuples; no NaN.

    Raises
    ------
    TypeError, ValueError
        If the metadata would not survive JSON.
    """

    payload: bytes
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if json.loads(json.dumps(self.metadata, allow_nan=False)) != self.metadata:
            raise TypeError(f"metadata does not survive JSON: {self.metadata!r}")


@dataclass(frozen=True)
class CacheInfo:
    """Where a store is, how many entries it holds, their total size and the cap, in bytes; why it keeps none, or ""."""

    path: Path
    entries: int
    bytes: int
    limit_bytes: int
    trouble: str = ""


def encode(key: str, artifact: Artifact) -> bytes:
    """The content of the file that keeps `artifact` under `key`."""
    header = json.dumps({"key": key, "metadata": artifact.metadata}).encode()
    body = _PREFIX.pack(_MAGIC, SCHEMA, len(header), len(artifact.payload)) + header + artifact.payload
    return body + _digest(body)


def decode(content: bytes, key: str) -> Artifact:
    """The artifact in a file's `content`.

    Raises
    ------
    ValueError
        If the content is anything but a whole, unaltered file for this very key; the message says which.
    """
    found, artifact = decode_any(content)
    if found != key:
        raise ValueError("it holds another key")
    return artifact


def decode_any(content: bytes) -> tuple[str, Artifact]:
    """The key and the artifact in a file's `content`; ValueError if it is not a whole, unaltered file."""
    if len(content) < _PREFIX.size + _DIGEST_BYTES:
        raise ValueError("it is truncated")
    magic, schema, header_bytes, payload_bytes = _PREFIX.unpack_from(content)
    if magic != _MAGIC:
        raise ValueError("it is no mathfuse artifact")
    if schema != SCHEMA:
        raise ValueError(f"its schema is {schema}, not {SCHEMA}")
    payload_at = _PREFIX.size + header_bytes
    end = payload_at + payload_bytes
    if len(content) != end + _DIGEST_BYTES:
        raise ValueError(f"it has {len(content)} bytes, not {end + _DIGEST_BYTES}")
    if _digest(content[:end]) != content[end:]:
        raise ValueError("its checksum differs")
    try:
        header = json.loads(content[_PREFIX.size : payload_at])
        return header["key"], Artifact(content[payload_at:end], {**header["metadata"]})
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"its header is malformed ({type(error).__name__})") from None


class Store:
    """Artifacts by key in one folder, at most `limit_bytes` of them; safe for many threads and processes.

    Parameters
    ----------
    path
        The folder; made with mode 0700 at the first write. One that belongs to another user, or that others may write,
        is not used.
    limit_bytes
        Cap on the total size of the files. The least recently used go first.
    """

    def __init__(self, path: str | os.PathLike[str], limit_bytes: int) -> None:
        self.path = Path(path)
        self.limit_bytes = limit_bytes
        self._room = -1  # bytes that may still be written before the folder is looked through again
        self._patience_s = LOCK_TIMEOUT_S

    def get(self, key: str) -> Artifact | None:
        """The artifact kept under `key`, or None."""
        try:
            self._folder(create=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._unusable(error)
            return None
        file = self._file(key, _ENTRY)
        try:
            artifact = decode(_read_private(file), key)
            note({key: artifact})
            return artifact
        except FileNotFoundError:
            return None
        except (OSError, ValueError, MemoryError) as error:
            self._warn_once("entry", "cache entry %s is not used and will be rebuilt: %s", file, error)
            return None

    def put(self, key: str, artifact: Artifact) -> None:
        """Keep `artifact` under `key`; where that fails, a logged line is all that happens."""
        content = encode(key, artifact)
        if len(content) > self.limit_bytes:
            message = "an artifact of %d bytes is not kept: the cache may hold %d bytes"
            self._warn_once("limit", message, len(content), self.limit_bytes)
            return
        try:
            self._folder(create=True)
            if self._room < len(content):
                self._room = self._make_room(len(content))
            self._write(self._file(key, _ENTRY), content)
            self._room -= len(content)
        except OSError as error:
            self._unusable(error)

    def get_or_make(self, key: str, make: Callable[[], Artifact], label: str = "artifact") -> Artifact:
        """The artifact kept under `key`, else `make()`, which is then kept.

        While one process makes a key, others wait for it and read; no more than `LOCK_TIMEOUT_S` seconds, and only once
        per process if that was in vain. Makes are logged at INFO with their milliseconds, hits at DEBUG; `label` names
        the artifact there. What `make` raises is passed on.
        """
        artifact = self.get(key)
        if artifact is None:
            with self._lock(key):
                artifact = self.get(key)
                if artifact is None:
                    return self._make(key, make, label)
        logger.debug("cache hit: %s [%s]", label, _name(key)[:12])
        return artifact

    def info(self) -> CacheInfo:
        """What the store holds now."""
        sizes = [status.st_size for file, status in self._files() if file.endswith(_ENTRY)]
        return CacheInfo(self.path, len(sizes), sum(sizes), self.limit_bytes, self._why_unusable())

    def clear(self) -> int:
        """Remove everything that a store wrote here, and nothing else; the number of entries removed."""
        return sum(_remove(file) and file.endswith(_ENTRY) for file, _ in list(self._files()))

    def _make(self, key: str, make: Callable[[], Artifact], label: str) -> Artifact:
        start = time.perf_counter()
        artifact = make()
        note({key: artifact})
        logger.info("compiled %s [%s] in %.1f ms", label, _name(key)[:12], 1e3 * (time.perf_counter() - start))
        self.put(key, artifact)
        return artifact

    def _file(self, key: str, suffix: str) -> str:
        return os.path.join(self.path, _name(key) + suffix)

    def _folder(self, create: bool) -> None:
        """Raise OSError unless the store's folder is there and private."""
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            if not create:
                raise
            os.makedirs(self.path, mode=0o700, exist_ok=True)
            status = os.stat(self.path)
        if not stat.S_ISDIR(status.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, "it is not a folder")
        if trouble := _trouble(status):
            raise PermissionError(errno.EPERM, trouble)

    def _why_unusable(self) -> str:
        """Why nothing can be written here, or nothing; the folder itself is not made."""
        existing = next(path for path in (self.path, *self.path.parents) if os.path.exists(path))
        try:
            if existing == self.path:
                self._folder(create=False)
            with tempfile.TemporaryDirectory(dir=existing):
                return ""
        except OSError as error:
            return error.strerror or str(error)

    @contextmanager
    def _lock(self, key: str) -> Iterator[None]:
        """Hold the key's lock if it can be had, else go on without: the worst is an artifact made twice."""
        import filelock  # only a process that compiles needs it

        lock = filelock.FileLock(self._file(key, _LOCK), mode=0o600)
        try:
            self._folder(create=True)
            lock.acquire(timeout=self._patience_s, poll_interval=0.01)
        except filelock.Timeout:
            self._patience_s = 0.0
            self._warn_once("lock", "cache lock %s stays taken; compiling without waiting for it", lock.lock_file)
        except OSError as error:
            self._unusable(error)
        except RuntimeError as error:  # no flock on this file system, or this thread already holds the lock
            self._warn_once("lock", "cache lock %s cannot be taken; compiling without it: %s", lock.lock_file, error)
        try:
            yield
        finally:
            if lock.is_locked:
                _remove(lock.lock_file)  # while it is held: whoever waits opens the name anew
                lock.release()

    def _write(self, file: str, content: bytes) -> None:
        descriptor, temporary = tempfile.mkstemp(prefix=Path(file).stem + ".", suffix=_TEMPORARY, dir=self.path)
        try:
            with open(descriptor, "wb") as stream:
                stream.write(content)
            os.replace(temporary, file)
        except BaseException:
            _remove(temporary)
            raise

    def _files(self) -> Iterator[tuple[str, os.stat_result]]:
        """The files that a store wrote in this folder, if the folder is to be trusted."""
        try:
            self._folder(create=False)
            with os.scandir(self.path) as items:
                for item in items:
                    if _OURS.fullmatch(item.name):
                        with suppress(OSError):  # another process was faster
                            yield item.path, item.stat(follow_symlinks=False)
        except FileNotFoundError:
            return
        except OSError as error:
            self._unusable(error)

    def _make_room(self, needed: int) -> int:
        """Sweep leftovers and, if `needed` more bytes break the cap, all but the last used three quarters of it.

        Returns the bytes that may be written before the next look: never more than fit, and little enough that many
        processes, none of which sees the others' writes, stay near the cap.
        """
        stale = time.time() - STALE_AFTER_S
        entries = []
        for file, status in self._files():
            if file.endswith(_ENTRY):
                entries.append((status.st_mtime_ns, file, status.st_size))
            elif status.st_mtime < stale:
                _remove(file)
        total = sum(size for *_, size in entries)
        if total + needed > self.limit_bytes:
            for _, file, size in sorted(entries):
                if total <= max(0, self.limit_bytes * 3 // 4 - needed):
                    break
                _remove(file)
                total -= size
        return max(needed, min(self.limit_bytes - total, self.limit_bytes // 8))

    def _unusable(self, error: OSError) -> None:
        self._warn_once(error.errno, f"cache %s: %s; {NOT_KEPT}", self.path, error.strerror or error)

    def _warn_once(self, cause: object, message: str, *args: object) -> None:
        mark = object()
        if _warned.setdefault((str(self.path), cause), mark) is mark:  # atomic: one line from many threads, too
            logger.warning(message, *args)


def default_store() -> Store:
    """The store in the user's cache folder: one per process, a new one when the settings change."""
    return _store(settings.cache_dir(), settings.cache_limit_bytes())


@functools.lru_cache(maxsize=1)
def _store(folder: Path, limit_bytes: int) -> Store:
    return Store(folder / "artifacts", limit_bytes)


def _name(key: str) -> str:
    return hashlib.blake2b(f"{SCHEMA}:{key}".encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest()


def _trouble(status: os.stat_result) -> str:
    """Why a file or folder with this status is not to be trusted, or nothing."""
    if os.name != "posix":
        return ""
    if status.st_uid != os.geteuid():
        return f"it belongs to user {status.st_uid}"
    return "others may write it" if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) else ""


def _read_private(file: str) -> bytes:
    """The content of a regular file of this user, marked as used now; OSError for anything else."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with open(os.open(file, flags), "rb") as stream:
        status = os.fstat(stream.fileno())
        if trouble := "it is not a regular file" if not stat.S_ISREG(status.st_mode) else _trouble(status):
            raise PermissionError(errno.EPERM, trouble)
        with suppress(OSError):
            os.utime(file)  # the order of eviction; access times are not kept on most mounts
        return stream.read()


def _remove(file: str) -> bool:
    try:
        os.unlink(file)
    except OSError:
        return False
    return True
