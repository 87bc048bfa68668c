"""Callbacks as GPU code: LTO-IR with a pipeline's exact prototype, and what it becomes once it is linked. No GPU, no driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from mathfuse.epilogs import Callback
from mathfuse.runtime.cache import Artifact, default_store
from mathfuse.runtime.errors import PlanError, UnsupportedError

from . import toolchain
from .audit import Audit, audit
from .key import artifact_key
from .parameters import Layout
from .pipelines import (
    Prototype,
    build_elementwise_kernel,
    build_product_callback,
    build_transform_callback,
    cufft_prototype,
    elementwise_layout,
    matmul_prototype,
    product_layout,
    transform_layout,
)
from .signature import Signature
from .target import CUDA

PIPELINES = ("fft", "matmul", "elementwise")
ELEMENTWISE = "mathfuse_elementwise"

STAND_IN = """extern "C" __global__ void {kernel}(void* data, unsigned long long count, void* info)
{{
    extern __shared__ char shared[];
    unsigned long long thread = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
    {call}
}}
"""


@dataclass(frozen=True)
class Unit:
    """What to compile: a signature in a pipeline's place, for one architecture.

    Parameters
    ----------
    pipeline
        ``"fft"``, ``"matmul"`` or ``"elementwise"``.
    signature
        The callback and the types that it meets.
    dtype
        What the prototype prescribes: the element that a transform reads or writes, the compute type of a product, the result of an
        elementwise kernel (None: what the callback returns).
    arch
        GPU architecture, ``"sm_80"`` … ``"sm_120"``.
    side
        ``"prolog"`` or ``"epilog"`` of a transform.
    order
        Axes by falling storage stride, for decoding offsets.
    wide
        Offsets of 2^32 and more occur.
    symbol
        Name of the function where it is not the prototype's own (many callbacks in one cubin).
    """

    pipeline: str
    signature: Signature
    dtype: np.dtype | None
    arch: str
    side: str = "epilog"
    order: tuple[int, ...] = ()
    wide: bool = False
    symbol: str | None = None

    @property
    def prototype(self) -> Prototype | None:
        if self.pipeline == "elementwise":
            return None
        assert self.dtype is not None
        return cufft_prototype(self.side, self.dtype) if self.pipeline == "fft" else matmul_prototype(self.dtype)

    @property
    def layout(self) -> Layout:
        reserve = {"fft": transform_layout, "matmul": product_layout, "elementwise": elementwise_layout}[self.pipeline]
        return reserve(self.signature)

    @property
    def fastmath(self) -> bool:
        """libNVVM's options hold for a whole module: IEEE arithmetic where one link of a chain asks for it."""
        return self.signature.callback is None or all(link.fastmath for link in self.signature.callback.links)

    def lower(self) -> tuple[str, dict[str, Any]]:
        """The LLVM module as text, and what became known: the dtype stored, accesses, width of weak scalars."""
        from .lowering import Lowering, lower

        stored = [self.dtype]
        symbol = self.symbol or (self.prototype.symbol if self.prototype else ELEMENTWISE)

        def build(lowering: Lowering) -> None:
            if self.pipeline == "elementwise":
                stored[0] = build_elementwise_kernel(lowering, symbol, self.dtype, self.wide)
            elif self.pipeline == "matmul":
                assert self.dtype is not None
                build_product_callback(lowering, symbol, self.dtype)
            else:
                assert self.dtype is not None
                build_transform_callback(lowering, symbol, self.side, self.dtype, self.order, self.wide)

        module, facts = lower(self.signature, CUDA, self.layout, build)
        return str(module), {"result_dtype": str(stored[0]), **facts.metadata()}

    def key(self) -> str:
        options = {name: str(getattr(self, name)) for name in ("dtype", "arch", "side", "order", "wide", "symbol")}
        return artifact_key(f"cuda {self.pipeline}", self.signature, **options)


class Compiled:
    """A callback compiled for a GPU pipeline.

    Attributes
    ----------
    ltoir : bytes
        LTO-IR with the pipeline's exact prototype, for nvJitLink (or cuFFT's ``cufftXtSetJITCallback``).
    result_dtype : numpy.dtype
        What is stored or handed on.
    ptx, sass : str
        The callback as PTX; the linked machine code of a kernel that calls it through its prototype.
    audit : Audit
        What that machine code shows.
    """

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        artifact = default_store().get_or_make(
            unit.key(), self._compile, f"{unit.signature.callback!r} for {unit.arch}"
        )
        self.ltoir, self.metadata = artifact.payload, artifact.metadata
        self.result_dtype = np.dtype(artifact.metadata["result_dtype"])
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
        return default_store().get_or_make(
            f"{self.unit.key()}; linked", lambda: link_units([self]), "a stand-in kernel"
        )

    @property
    def cubin(self) -> bytes:
        """The linked machine code."""
        return self._linked.payload

    @cached_property
    def sass(self) -> str:
        return toolchain.disassemble(self.cubin)

    @cached_property
    def audit(self) -> Audit:
        (found,) = audit(self.sass, self._linked.metadata["log"]).values()
        return found

    def __repr__(self) -> str:
        unit = self.unit
        return f"<Compiled {unit.signature.callback!r} for {unit.pipeline} {unit.side}, {unit.dtype}, {unit.arch}: {len(self.ltoir)} bytes of LTO-IR>"


def link_units(units: Sequence[Compiled]) -> Artifact:
    """Links callbacks of one architecture, each with a stand-in kernel that calls it through the pipeline's C++ prototype."""
    arch = units[0].unit.arch
    parts = [compiled.ltoir for compiled in units]
    source = "\n".join(stand_in(compiled.unit, number) for number, compiled in enumerate(units))
    if source:
        parts.append(toolchain.nvrtc(source, arch))
    cubin, log = toolchain.link(parts, arch)
    return Artifact(cubin, {"log": log})


def stand_in(unit: Unit, number: int = 0) -> str:
    """CUDA C++ of the kernel that stands in for the pipeline; an elementwise kernel needs none."""
    prototype = unit.prototype
    if prototype is None:
        return ""
    name = prototype.name
    declaration = prototype.declaration
    if unit.symbol:
        name, declaration = unit.symbol, 'extern "C" ' + declaration
    kernel = STAND_IN.format(kernel=f"stand_in_{number}", call=prototype.stand_in.format(name=name))
    return f"{declaration.format(name=name)}\n{kernel}"


def audit_all(units: Sequence[Unit]) -> dict[Unit, Audit]:
    """Audits many callbacks of one architecture with one link and one disassembly."""
    compiled = [Compiled(unit) for unit in units]
    linked = link_units(compiled)
    found = audit(toolchain.disassemble(linked.payload), linked.metadata["log"])
    names = [f"stand_in_{n}" if unit.prototype else unit.symbol or ELEMENTWISE for n, unit in enumerate(units)]
    return {unit: found[name] for unit, name in zip(units, names)}


def compile(
    callback: Callback,
    pipeline: str = "fft",
    *,
    dtype: Any = "complex64",
    operands: Mapping[str, Any] | None = None,
    arch: str = "sm_90a",
    side: str | None = None,
    ndim: int | None = None,
    axes: Sequence[int] | None = None,
) -> Compiled:
    """Compiles a callback for a GPU pipeline, on any machine.

    Parameters
    ----------
    callback : Callback
        A prolog or an epilog. Operands may be bound or free.
    pipeline : {"fft", "matmul", "elementwise"}
        Where it runs: in a cuFFT transform, a matrix product, or a kernel of its own.
    dtype : dtype-like
        float32, float64, complex64 or complex128: the element type of the transform on the callback's side, the compute type of the
        product, the type of the elements read by an elementwise kernel.
    operands : mapping, optional
        Free operands by name: a value, or a type such as ``"float32[2]"`` (dtype and rank) or ``"float"``.
    arch : str
        GPU architecture: ``"sm_80"``, ``"sm_90a"``, ``"sm_100"``, ``"sm_120"`` …
    side : {"prolog", "epilog"}, optional
        Side of a transform; by default the callback's kind.
    ndim : int, optional
        Rank of the index space; by default the largest rank of an operand, and 2 for a product.
    axes : sequence of int, optional
        Transform axes; by default all (for a product the last two).

    Returns
    -------
    Compiled
        With ``.ltoir``, ``.ptx``, ``.sass`` and ``.audit``.

    Raises
    ------
    CallbackError
        The callback uses something that cannot run in a kernel.
    PlanError
        An operand is missing or unknown.
    ToolchainError
        A compiler library is missing, or the architecture is not one.
    """
    if pipeline not in PIPELINES:
        raise UnsupportedError(f"there is no pipeline {pipeline!r}; there are {', '.join(PIPELINES)}")
    unit = make_unit(callback, pipeline, dtype, operands or {}, toolchain.checked_arch(arch), side, ndim, axes)
    return Compiled(unit)


def make_unit(
    callback: Callback,
    pipeline: str,
    dtype: Any,
    operands: Mapping[str, Any],
    arch: str,
    side: str | None = None,
    ndim: int | None = None,
    axes: Sequence[int] | None = None,
    symbol: str | None = None,
) -> Unit:
    """The unit that :func:`compile` compiles: names checked, defaults filled in."""
    from mathfuse.runtime.arrays import dtype_of

    side = side or callback.kind
    callback = callback.as_kind(side)
    element = dtype_of(dtype)
    known = {**callback.bound, **operands}
    if unknown := [name for name in operands if name not in callback.operands]:
        raise PlanError(f"{callback!r} has no operand {unknown[0]!r}; it has {', '.join(callback.operands) or 'none'}")
    if missing := [name for name in callback.operands if name not in known]:
        raise PlanError(
            f'{callback!r}: operand {missing[0]!r} is not bound; give its value or its type, operands={{{missing[0]!r}: "float32[1]"}}'
        )
    types = {name: parse_operand(value) for name, value in known.items()}
    signature = Signature.of(callback, element, 1, (0,), types)
    ranks = [kind.ndim for _, kind in signature.operands]
    rank = ndim or max([2 if pipeline == "matmul" else 1, *ranks])
    if pipeline == "matmul" and rank > 3:
        raise UnsupportedError("a product's epilog sees at most one batch index; reshape the batch to one axis")
    default = range(max(0, rank - 2), rank) if pipeline == "matmul" else range(rank)
    chosen = tuple(a % rank for a in (axes if axes is not None else default))
    source = f"{element}[{rank}]" if any("source" in link.reserved for link in callback.links) else None
    signature = Signature(
        callback, element, rank, chosen, signature.operands, parse_operand(source) if source else None
    )
    prescribed = None if pipeline == "elementwise" else element
    return Unit(pipeline, signature, prescribed, arch, side, tuple(range(rank)), False, symbol)


def parse_operand(value: Any) -> Any:
    """``"float32[2]"`` (an array's dtype and rank) or ``"float"`` (a scalar's kind) as a type; any other value as it is."""
    from .signature import OperandType

    if not isinstance(value, str):
        return value
    name, bracket, rank = value.rstrip("]").partition("[")
    if not bracket:
        if name in ("bool", "int", "float", "complex"):
            return OperandType(name)
        raise PlanError(
            f"{value!r} is not a type of operand; write 'float32[1]' for an array (dtype, rank) or 'float' for a scalar"
        )
    from mathfuse.runtime.arrays import dtype_of

    if not rank.isdigit() or not int(rank):
        raise PlanError(f"{value!r}: the rank in brackets must be a positive number, as in 'float32[2]'")
    return OperandType(str(dtype_of(name)), int(rank), contiguous=True, readonly=False)
