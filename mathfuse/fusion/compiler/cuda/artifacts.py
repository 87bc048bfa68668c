"""Callbacks as GPU code: LTO-IR with a pipeline's exact prototype, and what it becomes once it is linked.

Neither a GPU nor a driver is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from mathfuse.fusion.compiler.cuda import toolchain
from mathfuse.fusion.compiler.cuda.audit import Audit, audit
from mathfuse.fusion.compiler.cuda.units import Unit
from mathfuse.runtime.cache import Artifact, default_store
from mathfuse.runtime.dtypes import named

STAND_IN = """extern "C" __global__ void {kernel}(void* data, unsigned long long count, void* info)
{{
    extern __shared__ char shared[];
    unsigned long long thread = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
    {call}
}}
"""


class Compiled:
    """A callback compiled for a GPU pipeline.

    Attributes
    ----------
    ltoir : bytes
        LTO-IR with the pipeline's exact prototype, for nvJitLink (or cuFFT's ``cufftXtSetJITCallback``).
    result_dtype : numpy.dtype
        What is stored or handed on.
    ptx : str
        The callback as PTX.
    cubin : bytes
        The linked machine code of a kernel that calls the callback through its prototype.
    sass : str
        The same, disassembled.
    audit : Audit
        What it shows.
    """

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        label = f"{unit.label} for {unit.pipeline}, {unit.arch}"
        artifact = default_store().get_or_make(unit.key(), self._compile, label)
        self.ltoir, self.metadata = artifact.payload, artifact.metadata
        self.result_dtype = named(artifact.metadata["result_dtype"])
        self.weak_bits = int(artifact.metadata["weak_bits"])

    def _compile(self) -> Artifact:
        text, metadata = self.unit.lower()
        return Artifact(toolchain.nvvm(text, self.unit.arch, lto=True, fastmath=self.unit.fastmath), metadata)

    @cached_property
    def ptx(self) -> str:
        text, _ = self.unit.lower()
        return toolchain.nvvm(text, self.unit.arch, lto=False, fastmath=self.unit.fastmath).decode().strip("\0")

    @cached_property
    def _linked(self) -> Artifact:
        label = f"{self.unit.label} in a stand-in kernel"
        return default_store().get_or_make(f"{self.unit.key()}; linked", lambda: link_units([self]), label)

    @property
    def cubin(self) -> bytes:
        return self._linked.payload

    @cached_property
    def sass(self) -> str:
        return toolchain.disassemble(self.cubin)

    @cached_property
    def audit(self) -> Audit:
        return audit(self.sass, self._linked.metadata["log"])[kernel_of(self.unit)]

    def __repr__(self) -> str:
        unit = self.unit
        place = f"fft {unit.side}" if unit.pipeline == "fft" else unit.pipeline
        kind = f"{unit.signature.value_dtype} to {self.result_dtype}"
        size = f"{len(self.ltoir)} bytes of LTO-IR"
        return f"<Compiled {unit.label}: {place}, {kind}, {unit.arch}, {size}>"


# --- links ----------------------------------------------------------------------------------------------------------


def link_units(units: Sequence[Compiled]) -> Artifact:
    """Links callbacks of one architecture, each into a stand-in kernel that calls it through its C++ prototype."""
    arch = units[0].unit.arch
    parts = [compiled.ltoir for compiled in units]
    source = "\n".join(stand_in(compiled.unit, number) for number, compiled in enumerate(units))
    if source.strip():
        parts.append(toolchain.nvrtc(source, arch))
    cubin, log = toolchain.link(parts, arch)
    return Artifact(cubin, {"log": log})


def stand_in(unit: Unit, number: int = 0) -> str:
    """CUDA C++ of the kernel that stands in for the pipeline; an elementwise kernel needs none."""
    prototype = unit.prototype
    if prototype is None:
        return ""
    name, declaration = prototype.name, prototype.declaration
    if unit.symbol:
        name, declaration = unit.symbol, 'extern "C" ' + declaration
    kernel = STAND_IN.format(kernel=kernel_of(unit, number), call=prototype.stand_in.format(name=name))
    return f"{declaration.format(name=name)}\n{kernel}"


def kernel_of(unit: Unit, number: int = 0) -> str:
    """Name of the kernel to audit: the stand-in, or the elementwise kernel itself."""
    return f"stand_in_{number}" if unit.prototype else unit.name


def audit_all(units: Sequence[Unit]) -> dict[Unit, Audit]:
    """Audits callbacks of one architecture with one link and one disassembly; each needs a ``symbol`` of its own."""
    linked = link_units([Compiled(unit) for unit in units])
    found = audit(toolchain.disassemble(linked.payload), linked.metadata["log"])
    return {unit: found[kernel_of(unit, number)] for number, unit in enumerate(units)}
