"""Callbacks as GPU code: LTO-IR with a pipeline's exact prototype, and what it becomes once it is linked.

Neither a GPU nor a driver is needed.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from mathfuse.epilogs import Callback
from mathfuse.fusion.compiler.cuda import toolchain
from mathfuse.fusion.compiler.cuda.audit import Audit, audit
from mathfuse.fusion.compiler.cuda.pipelines import (
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
from mathfuse.fusion.compiler.emit.target import CUDA
from mathfuse.fusion.compiler.key import artifact_key
from mathfuse.fusion.compiler.parameters import Layout
from mathfuse.fusion.compiler.signature import OperandType, Signature
from mathfuse.runtime.arrays import dtype_of
from mathfuse.runtime.cache import Artifact, default_store
from mathfuse.runtime.errors import CallbackError, PlanError, UnsupportedError

PIPELINES = ("fft", "matmul", "elementwise")
SIDES = ("prolog", "epilog")
SCALARS = ("bool", "int", "float", "complex")
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
        What the prototype prescribes: the element that a transform reads or writes, the compute type of a product, the
        result of an elementwise kernel (None: what the callback returns).
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
        from mathfuse.fusion.compiler.lowering import Lowering, lower

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
        return artifact_key(f"cuda {self.pipeline}", self.signature, toolchain.identity(), **options)


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
        label = f"{unit.signature.callback!r} for {unit.pipeline}, {unit.arch}"
        artifact = default_store().get_or_make(unit.key(), self._compile, label)
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
        label = f"{self.unit.signature.callback!r} in a stand-in kernel"
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
        return f"<Compiled {unit.signature.callback!r}: {place}, {kind}, {unit.arch}, {size}>"


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
    return f"stand_in_{number}" if unit.prototype else unit.symbol or ELEMENTWISE


def audit_all(units: Sequence[Unit]) -> dict[Unit, Audit]:
    """Audits callbacks of one architecture with one link and one disassembly; each needs a ``symbol`` of its own."""
    linked = link_units([Compiled(unit) for unit in units])
    found = audit(toolchain.disassemble(linked.payload), linked.metadata["log"])
    return {unit: found[kernel_of(unit, number)] for number, unit in enumerate(units)}


# --- from what users say to a unit ----------------------------------------------------------------------------------


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
    """Compiles a callback for a GPU pipeline, on any machine: neither a GPU nor its driver is needed.

    Parameters
    ----------
    callback : Callback
        A prolog or an epilog. Its operands may be bound or free.
    pipeline : {"fft", "matmul", "elementwise"}
        Where it runs: in a cuFFT transform, on the results of a matrix product, or in a kernel of its own.
    dtype : dtype-like
        Of the elements that the callback gets: the transform's element type on the callback's side or the product's
        compute type (float32, float64, complex64, complex128); in an elementwise kernel any dtype of numbers.
    operands : mapping, optional
        Operands by name, as a value or as a type: ``"float32[2]"`` (dtype and rank) for an array, ``"int"``,
        ``"float"`` or ``"complex"`` for a scalar. Only types matter to the code.
    arch : str
        GPU architecture: ``"sm_80"``, ``"sm_90a"``, ``"sm_100"``, ``"sm_120"`` …
    side : {"prolog", "epilog"}, optional
        Side of a transform; by default the callback's kind.
    ndim : int, optional
        Rank of the index space; by default the largest rank of an operand, and at least 2 for a product.
    axes : sequence of int, optional
        Transform axes, negative ones from the end; by default all (for a product the last two).

    Returns
    -------
    Compiled
        With ``.ltoir``, ``.ptx``, ``.sass`` and ``.audit``; what is already in the cache is not compiled again.

    Raises
    ------
    CallbackError
        The callback uses something that cannot run in a kernel, or is none.
    PlanError
        An operand is missing, unknown or of no type; ``ndim`` and ``axes`` do not fit together.
    UnsupportedError
        There is no such pipeline, or it does not have that dtype or rank.
    ToolchainError
        A compiler library is missing or too old, or does not know the architecture.

    Examples
    --------
    >>> import mathfuse as mf
    >>> mf.compile(mf.gaussian(sigma=8.0), "fft", dtype="complex64", arch="sm_80").audit.calls
    0
    """
    return Compiled(make_unit(callback, pipeline, dtype, operands or {}, arch, side, ndim, axes))


def make_unit(
    callback: Any,
    pipeline: str,
    dtype: Any,
    operands: Mapping[str, Any],
    arch: str,
    side: str | None = None,
    ndim: int | None = None,
    axes: Sequence[int] | None = None,
    symbol: str | None = None,
) -> Unit:
    """The unit that :func:`compile` compiles: everything checked, defaults filled in."""
    if not isinstance(callback, Callback):
        name = getattr(callback, "__name__", repr(callback))
        raise CallbackError(f"{name} is not a callback; decorate the function with @mf.epilog or @mf.prolog")
    side = side or callback.kind
    for choice, known, what in ((pipeline, PIPELINES, "pipeline"), (side, SIDES, "side")):
        if choice not in known:
            raise UnsupportedError(f"there is no {what} {choice!r}; there are {', '.join(known)}")
    callback, element = callback.as_kind(side), dtype_of(dtype)
    signature = Signature.of(callback, element, 1, (0,), _operand_types(callback, operands))
    rank = _rank(pipeline, ndim, signature)
    source = any("source" in link.reserved for link in callback.links)
    signature = replace(
        signature,
        ndim=rank,
        axes=_axes(pipeline, axes, rank),
        source=operand_spec(f"{element}[{rank}]", "source") if source else None,
    )
    prescribed = None if pipeline == "elementwise" else element
    unit = Unit(pipeline, signature, prescribed, toolchain.checked_arch(arch), side, tuple(range(rank)), False, symbol)
    assert unit.prototype or pipeline == "elementwise"  # a pipeline without such elements says so
    return unit


def _rank(pipeline: str, ndim: int | None, signature: Signature) -> int:
    ranks = [kind.ndim for _, kind in signature.operands]
    rank = max([2 if pipeline == "matmul" else 1, *ranks]) if ndim is None else ndim
    if not isinstance(rank, int) or rank < 1:
        raise PlanError(f"ndim={ndim!r}: the rank of the index space is a positive integer")
    if pipeline == "matmul" and rank not in (2, 3):
        raise UnsupportedError(
            f"a product's index has a row, a column and at most one batch index, not {rank} of them; "
            "reshape the batch to one axis"
        )
    return rank


def _axes(pipeline: str, axes: Sequence[int] | None, rank: int) -> tuple[int, ...]:
    if axes is None:
        return tuple(range(rank - 2 if pipeline == "matmul" else 0, rank))
    try:
        chosen = tuple(operator.index(axis) for axis in axes)
    except TypeError:
        raise PlanError(f"axes={axes!r}: write a sequence of integers") from None
    if wrong := [axis for axis in chosen if not -rank <= axis < rank]:
        raise PlanError(f"axes={chosen}: there is no axis {wrong[0]} in an index of rank {rank}; give ndim, too")
    if len({axis % rank for axis in chosen}) < len(chosen):
        raise PlanError(f"axes={chosen} names an axis twice")
    return tuple(axis % rank for axis in chosen)


def _operand_types(callback: Callback, operands: Mapping[str, Any]) -> dict[str, Any]:
    """Operands by name, each a value that the callback accepts or a type."""
    if unknown := [name for name in operands if name not in callback.operands]:
        raise PlanError(f"{callback!r} has no operand {unknown[0]!r}; it has {', '.join(callback.operands) or 'none'}")
    types = {
        name: operand_spec(given, name)
        for name, given in operands.items()
        if isinstance(given, (str, type, np.dtype, OperandType))
    }
    bound = callback(**{name: given for name, given in operands.items() if name not in types}).bound
    if missing := [name for name in callback.operands if name not in types and name not in bound]:
        name = missing[0]
        raise PlanError(
            f"{callback!r}: operand {name!r} is not bound; give its value, or its type ('float' for a scalar, "
            f"'float32[1]' for an array): operands={{{name!r}: …}}, on the command line --operand {name}=…"
        )
    return {**bound, **types}


def operand_spec(spec: Any, name: str) -> OperandType:
    """``"float32[2]"`` (an array's dtype and rank) or ``"float"`` (a scalar's kind) as the type of operand ``name``."""
    if isinstance(spec, OperandType):
        return spec
    text = spec.__name__ if isinstance(spec, type) else str(spec)
    if text in SCALARS:
        return OperandType(text)
    match = re.fullmatch(r"(\w+)\[([1-9]\d*)\]", text)
    if not match:
        raise PlanError(
            f"{name}={text!r} is no type of operand; write 'float32[1]' for an array (dtype and rank, at least 1), "
            f"or {', '.join(map(repr, SCALARS))} for a scalar"
        )
    return OperandType(str(dtype_of(match[1], name)), int(match[2]), contiguous=True, readonly=False)
