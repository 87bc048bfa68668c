"""Code of kernels that transform in a block, with cuFFT's callbacks linked into both sides.

A kernel is code of its own, kept apart from the callbacks: a new one costs its own lowering and a link. It calls them
by cuFFT's prototypes, so that what cuFFT inlines serves here as well.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace

from mathfuse.fusion.compiler.cuda import toolchain
from mathfuse.fusion.compiler.cuda.blocks import NAME, UNBOUND, BlockKernel
from mathfuse.fusion.compiler.key import library_digest
from mathfuse.runtime.cache import Artifact, default_store

SPILLS, REGISTERS = re.compile(r"[1-9]\d* bytes spill stores"), re.compile(r"Used (\d+) registers")


def lower(kernel: BlockKernel) -> str:
    """The LLVM module as text."""
    from llvmlite import ir  # a plan that is known waits for no compiler

    from mathfuse.fusion.compiler.cuda.blockbody import Body
    from mathfuse.fusion.compiler.emit.target import CUDA

    module = ir.Module(name="mathfuse", context=ir.Context())
    module.triple, module.data_layout = CUDA.triple, CUDA.data_layout
    Body(kernel, module).build()
    return str(module)


def ltoir(kernel: BlockKernel) -> bytes:
    """The LTO-IR, from the disk cache where it is known."""

    def make() -> Artifact:
        return Artifact(toolchain.nvvm(lower(kernel), kernel.arch, lto=True, fastmath=True), {})

    return default_store().get_or_make(_key(kernel), make, f"{NAME} of {kernel.length}").payload


def link(kernel: BlockKernel, callbacks: Sequence[bytes]) -> tuple[bytes, str]:
    """The cubin with the LTO-IR of a kernel's callbacks, and the linker's report, from the disk cache if known.

    Few registers let a multiprocessor hold more threads; callbacks that do not get by with them have what they need,
    which the linker may find to be less without a bound than with a wide one.
    """

    def linked(slack: int) -> tuple[bytes, str]:
        return toolchain.link([ltoir(replace(kernel, slack=slack)), *callbacks], kernel.arch)

    def make() -> Artifact:
        cubin, report = linked(0)
        if SPILLS.search(report):
            cubin, report = min(map(linked, range(1, UNBOUND + 1)), key=lambda each: _needs(each[1]))
        return Artifact(cubin, {"report": report})

    inside = ", ".join(hashlib.sha256(each).hexdigest() for each in callbacks)
    found = default_store().get_or_make(f"{_key(kernel)}; inside={inside}", make, f"{NAME} of {kernel.length}")
    return found.payload, found.metadata["report"]


def _needs(report: str) -> tuple[bool, int]:
    """Whether registers are spilled to memory, and how many there are."""
    return bool(SPILLS.search(report)), max(map(int, REGISTERS.findall(report)))


def _key(kernel: BlockKernel) -> str:
    return f"{kernel!r}; target={toolchain.identity()}; library={library_digest()}"
