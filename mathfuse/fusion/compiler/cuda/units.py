"""What to compile for a GPU: a callback in a pipeline's place, with everything else that its code depends on."""

from __future__ import annotations

import functools
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from mathfuse.fusion.compiler.analysis import Analysis
from mathfuse.fusion.compiler.cuda import toolchain
from mathfuse.fusion.compiler.cuda.geometry import Geometry
from mathfuse.fusion.compiler.cuda.layouts import elementwise_layout, product_layout, transform_layout
from mathfuse.fusion.compiler.cuda.prototypes import Prototype, cufft_prototype, matmul_prototype, transfer_prototype
from mathfuse.fusion.compiler.emit.scalars import precision_of
from mathfuse.fusion.compiler.key import artifact_key
from mathfuse.fusion.compiler.parameters import Layout
from mathfuse.fusion.compiler.signature import Signature
from mathfuse.runtime.cache import Artifact, default_store

PIPELINES = ("fft", "matmul", "elementwise")
SIDES, TRANSFER = ("prolog", "epilog"), "transfer"
ELEMENTWISE = "mathfuse_elementwise"


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
        ``"prolog"`` or ``"epilog"`` of a transform, or ``"transfer"``: between two of them in one kernel.
    order
        Axes by falling storage stride, for decoding offsets; in an elementwise kernel those of the destination.
    wide
        Offsets or counts of 2^31 and more occur.
    symbol
        Name of the function where it is not the prototype's own (many callbacks in one cubin).
    geometry
        The constant geometry of a transform's side; None decodes by what stands in the parameter block.
    stored_dtype
        What an epilog in a constant geometry stores; None: what it returns.
    flat
        Elementwise: source and destination are both dense in ``order``.
    padded
        Elementwise: the source ends at the slots ``limits``; outside the element is 0, the callback is not called.
    scale
        Elementwise: ``"before"`` or ``"after"``, as in a :class:`~.geometry.Geometry`.
    in_place
        Elementwise: the destination is the source.
    vector
        Elementwise and flat: how many elements an access may move (a power of two, at most 16 bytes on either side);
        the address of each array is a multiple of the bytes of such an access.
    whole_rows
        Elementwise: ``vector`` divides the extent of the last axis in ``order``.
    """

    pipeline: str
    signature: Signature
    dtype: np.dtype | None
    arch: str
    side: str = "epilog"
    order: tuple[int, ...] = ()
    wide: bool = False
    symbol: str | None = None
    geometry: Geometry | None = None
    stored_dtype: np.dtype | None = None
    flat: bool = False
    padded: bool = False
    scale: str | None = None
    in_place: bool = False
    vector: int = 1
    whole_rows: bool = False

    @property
    def prototype(self) -> Prototype | None:
        if self.pipeline == "elementwise":
            return None
        assert self.dtype is not None
        if self.pipeline == "matmul":
            return matmul_prototype(self.dtype)
        return transfer_prototype(self.dtype) if self.side == TRANSFER else cufft_prototype(self.side, self.dtype)

    @property
    def name(self) -> str:
        """Of the function: a callback's mangled name, or an elementwise kernel's."""
        return self.symbol or (self.prototype.symbol if self.prototype else ELEMENTWISE)

    @property
    def label(self) -> str:
        """What the log calls its callback."""
        return repr(self.signature.callback) if self.signature.callback else "a copy"

    @property
    def layout(self) -> Layout:
        """Where the slots of the parameter block stand."""
        if self.pipeline == "fft":
            return transform_layout(self.signature, self.geometry)
        if self.pipeline == "matmul":
            return product_layout(self.signature)
        return elementwise_layout(self.signature, self.padded, self.scale)

    @property
    def scale_bits(self) -> int:
        """Width of the float in the slot ``scale``."""
        element = self.dtype if self.pipeline == "fft" else self.signature.value_dtype
        assert element is not None
        return precision_of(element)

    @property
    def fastmath(self) -> bool:
        """libNVVM's options hold for a whole module: IEEE arithmetic where one link of a chain asks for it."""
        return self.signature.callback is None or all(link.fastmath for link in self.signature.callback.links)

    def lower(self) -> tuple[str, dict[str, Any]]:
        """The LLVM module as text, and what became known: the dtype stored, accesses, width of weak scalars."""
        from mathfuse.fusion.compiler.cuda.building import build
        from mathfuse.fusion.compiler.emit.target import CUDA
        from mathfuse.fusion.compiler.lowering import Lowering, lower

        found: dict[str, Any] = {}

        def build_in(lowering: Lowering) -> None:
            found.update(build(lowering, self))

        module, facts = lower(self.signature, CUDA, self.layout, build_in)
        return str(module), {**found, **facts.metadata()}

    def key(self) -> str:
        return artifact_key(f"cuda {self.pipeline}", self.signature, toolchain.identity(), **self._options())

    def _options(self) -> dict[str, str]:
        return {f.name: str(getattr(self, f.name)) for f in fields(self) if f.name not in ("pipeline", "signature")}


def analyse(unit: Unit) -> Analysis:
    """What compiling ``unit`` would find, without any machine code; from the disk cache where it is known.

    Raises
    ------
    CallbackError
        When the callback cannot run in a kernel, or returns complex where what is stored is real.
    """
    options = {name: str(getattr(unit, name)) for name in ("dtype", "side", "stored_dtype", "geometry", "scale")}
    key = artifact_key(f"cuda {unit.pipeline} analysis", unit.signature, "any", **options)
    make = functools.partial(_analysis, unit)
    return Analysis(default_store().get_or_make(key, make, f"{unit.label}: types").metadata)


def _analysis(unit: Unit) -> Artifact:
    return Artifact(b"", unit.lower()[1])
