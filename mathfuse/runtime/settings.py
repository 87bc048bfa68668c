"""What the environment decides: the cache's place and size, the number of threads, the size of a cache-hot block.

Every function reads its variable at each call, so that a change of `os.environ` counts at the next plan.
"""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path

from mathfuse.runtime.errors import UnsupportedError

MOST_WORKERS = 256  # more threads only cost
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def cache_dir() -> Path:
    """Folder of the artifact cache: `MATHFUSE_CACHE_DIR`, else the user's cache folder."""
    if chosen := os.environ.get("MATHFUSE_CACHE_DIR"):
        try:
            return Path(chosen).expanduser().absolute()
        except RuntimeError as error:  # ~nobody/cache
            raise UnsupportedError(f"environment variable MATHFUSE_CACHE_DIR: {chosen!r}: {error}") from None
    import platformdirs

    return platformdirs.user_cache_path("mathfuse", appauthor=False)


def cache_limit_bytes() -> int:
    """Size in bytes above which the cache drops its oldest entries: `MATHFUSE_CACHE_LIMIT`, else 512 MiB."""
    return _from_environment("MATHFUSE_CACHE_LIMIT") or 512 << 20


def plan_cache_bytes() -> int:
    """Bytes of GPU memory that kept plans hold at most: `MATHFUSE_PLAN_CACHE_LIMIT`, else 1 GiB."""
    return _from_environment("MATHFUSE_PLAN_CACHE_LIMIT") or 1 << 30


def workers(asked: int | None = None) -> int:
    """Threads that a CPU plan uses: those asked for, else `MATHFUSE_NUM_WORKERS`, else the CPUs of this process."""
    return min(int(asked or _from_environment("MATHFUSE_NUM_WORKERS") or _usable_cpus()), MOST_WORKERS)


def block_bytes() -> int:
    """Bytes that one thread works on while they are hot: `MATHFUSE_BLOCK_BYTES`, else half of a core's L2 cache."""
    return _from_environment("MATHFUSE_BLOCK_BYTES") or _half_l2()


def parse_size(text: str) -> int:
    """`"4096"`, `"64K"`, `"512M"` or `"2G"` as a positive number, in units of 1024.

    Raises
    ------
    ValueError
        If the text is none of these.
    """
    match = re.fullmatch(r"\s*([0-9]+)\s*([KMG]?)\s*", text.upper())
    if not match or int(match[1]) == 0:
        raise ValueError(f"{text!r} is not a positive whole number such as 4096, 64K, 512M or 2G")
    return int(match[1]) * _UNITS[match[2]]


def usable_cpus(affinity: int, quota: str) -> int:
    """CPUs under an affinity mask of `affinity` CPUs and a cgroup-v2 `cpu.max` text ("200000 100000", "max 100000")."""
    limit, _, period = quota.partition(" ")
    if not (limit.isdigit() and period.strip().isdigit()):
        return affinity
    return max(1, min(affinity, -(-int(limit) // int(period))))


def _from_environment(variable: str) -> int | None:
    text = os.environ.get(variable, "")
    try:
        return parse_size(text) if text.strip() else None
    except ValueError as error:
        raise UnsupportedError(f"environment variable {variable}: {error}") from None


@functools.cache
def _usable_cpus() -> int:
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return usable_cpus(affinity, _read("/sys/fs/cgroup/cpu.max"))


@functools.cache
def _half_l2() -> int:
    for cache in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        if _read(cache / "level") == "2" and (size := _read(cache / "size")):
            return parse_size(size) // 2
    return 1 << 20


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
