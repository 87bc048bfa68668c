"""Writes a callback's parameter block to device memory in stream order, from values that are kernel parameters.

A captured CUDA graph so keeps the operands of its capture, and no host memory has to outlive the launch.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mathfuse.fusion.compiler.cuda.sources import cubin_of

NAME, THREADS, VALUES = "mathfuse_write_table", 128, 480
SOURCE = f"""
struct Block {{ long long destination, count, values[{VALUES}]; }};

extern "C" __global__ void __launch_bounds__({THREADS}) {NAME}(const __grid_constant__ Block block)
{{
    for (int k = threadIdx.x; k < block.count; k += blockDim.x) ((long long*)block.destination)[k] = block.values[k];
}}
"""


def table_kernel(arch: str) -> bytes:
    """The cubin of the kernel ``NAME``: one block of ``THREADS`` threads, one parameter by value."""
    return cubin_of(NAME, SOURCE, arch)


def table_parameters(pointer: int, block: np.ndarray) -> Iterator[np.ndarray]:
    """The parameter of every launch that it takes to write ``block`` (int64) to device memory at ``pointer``."""
    for first in range(0, block.size, VALUES):
        part = block[first : first + VALUES]
        parameters = np.zeros(2 + VALUES, np.int64)
        parameters[:2] = pointer + 8 * first, part.size
        parameters[2 : 2 + part.size] = part
        yield parameters
