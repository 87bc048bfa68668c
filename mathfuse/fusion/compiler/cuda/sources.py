"""Kernels of our own in CUDA C++, compiled once for an architecture."""

from __future__ import annotations

from mathfuse.fusion.compiler.cuda import toolchain
from mathfuse.fusion.compiler.key import library_digest
from mathfuse.runtime.cache import Artifact, default_store


def cubin_of(name: str, source: str, arch: str) -> bytes:
    """The machine code of the kernel `name`; `source` is part of the library, and so of the key."""

    def make() -> Artifact:
        cubin, _ = toolchain.link([toolchain.nvrtc(source, arch)], arch)
        return Artifact(cubin, {})

    key = f"cuda source {name}; arch={arch}; target={toolchain.identity()}; library={library_digest()}"
    return default_store().get_or_make(key, make, f"{name} for {arch}").payload
