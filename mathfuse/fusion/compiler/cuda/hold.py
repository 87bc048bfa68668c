"""A kernel that holds a stream up: what is timed behind it is queued before it runs, and no host time is measured."""

from __future__ import annotations

from mathfuse.fusion.compiler.cuda import toolchain
from mathfuse.fusion.compiler.key import library_digest
from mathfuse.runtime.cache import Artifact, default_store

NAME = "mathfuse_hold"
SOURCE = f"""
struct Block {{ long long nanoseconds; }};

extern "C" __global__ void {NAME}(const __grid_constant__ Block block)
{{
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    while ((long long)(now - start) < block.nanoseconds);
}}
"""


def hold_kernel(arch: str) -> bytes:
    """The cubin of the kernel ``NAME``: one thread, one parameter by value, the nanoseconds."""

    def make() -> Artifact:
        cubin, _ = toolchain.link([toolchain.nvrtc(SOURCE, arch)], arch)
        return Artifact(cubin, {})

    key = f"cuda hold; arch={arch}; target={toolchain.identity()}; library={library_digest()}"
    return default_store().get_or_make(key, make, f"the kernel that holds a stream up, for {arch}").payload
