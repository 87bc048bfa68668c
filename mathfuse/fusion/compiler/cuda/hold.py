"""A kernel that holds a stream up: what is timed behind it is queued before it runs, and no host time is measured."""

from __future__ import annotations

from mathfuse.fusion.compiler.cuda.sources import cubin_of

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
    return cubin_of(NAME, SOURCE, arch)
