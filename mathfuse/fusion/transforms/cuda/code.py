"""The machine code of a program's maps, and the blocks of parameters that they run with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mathfuse.fusion.compiler.cuda.artifacts import Compiled
from mathfuse.fusion.compiler.cuda.geometry import Geometry
from mathfuse.fusion.compiler.cuda.kernels import ElementwiseKernel
from mathfuse.fusion.compiler.cuda.tiling import vector_width
from mathfuse.fusion.compiler.cuda.units import Unit
from mathfuse.fusion.compiler.parameters import Writer
from mathfuse.fusion.compiler.signature import Signature, fixed
from mathfuse.fusion.transforms.cuda.layouts import Layout, dense
from mathfuse.fusion.transforms.cuda.program import Hook, Map, Program, Transform
from mathfuse.fusion.transforms.kinds import Shape
from mathfuse.fusion.transforms.pipeline import Function, Pipeline, Role


@dataclass(frozen=True)
class Code:
    """A map's unit and what it was compiled to: a kernel of its own, or a callback of cuFFT."""

    map: Map
    unit: Unit
    compiled: ElementwiseKernel | Compiled

    def block(self, functions: Mapping[Role, Function]) -> np.ndarray:
        """The parameters but for the addresses of input, result and rooms."""
        extents = self.map.target.layout.shape
        if isinstance(self.compiled, ElementwiseKernel):
            writer = self.compiled.writer(extents)
            writer.integers("source_strides", *self.map.source.layout.strides)
            writer.integers("destination_strides", *self.map.target.layout.strides)
            if self.map.padded:
                writer.integers("limits", *self.map.source.layout.shape)
        else:
            writer = Writer(self.unit.layout, self.compiled.weak_bits)
        if "scale" in writer.layout.slots:
            writer.real("scale", self.map.scale, self.unit.scale_bits)
        function = functions[self.map.role] if self.map.role else None
        writer.integers("shape", *(function.shape if function else extents))
        if function:
            _fill(writer, self.unit.signature, function)
        return writer.block

    def slots(self) -> list[tuple[int, str]]:
        """Slots that hold addresses, each with the buffer whose address it is."""
        places = {
            "source_block": self.map.source.name,
            "destination_block": self.map.target.name,
            "origin": (self.map.source if self.unit.side == "prolog" else self.map.target).name,
            "source.pointer": "x",
        }
        slots = self.unit.layout.slots
        return [(slots[name], buffer) for name, buffer in places.items() if name in slots]


def _fill(writer: Writer, signature: Signature, function: Function) -> None:
    if signature.source:
        writer.operand("source", function.source)
    for name, kind in signature.operands:
        writer.operand(name, function.operands[name] if kind.is_scalar else function.arrays[name].view)


def units_of(program: Program, pipeline: Pipeline, arch: str) -> list[tuple[Map, Unit]]:
    """Every map of a program, in the order of the steps, with what is to be compiled for it."""
    found: list[tuple[Map, Unit]] = []
    for step in program.steps:
        if isinstance(step, Map):
            found.append((step, _kernel(step, pipeline, arch)))
            continue
        found += [(step.load.map, _callback(step, step.load, "prolog", pipeline, arch))] if step.load else []
        found += [(step.store.map, _callback(step, step.store, "epilog", pipeline, arch))] if step.store else []
    return found


def compiled(map_: Map, unit: Unit) -> Code:
    return Code(map_, unit, ElementwiseKernel(unit) if unit.pipeline == "elementwise" else Compiled(unit))


def _kernel(step: Map, pipeline: Pipeline, arch: str) -> Unit:
    source, target = step.source.layout, step.target.layout
    order = target.order()
    flat = not step.padded and _is_dense(source, order) and _is_dense(target, order)
    vector = vector_width(source.dtype.itemsize, target.dtype.itemsize) if flat else 1
    while any(layout.alignment < vector * layout.dtype.itemsize for layout in (source, target)) and vector > 1:
        vector //= 2
    return Unit(
        pipeline="elementwise",
        signature=_signature(step.role, pipeline, source.dtype, len(target.shape)),
        dtype=target.dtype,
        arch=arch,
        order=order,
        wide=target.size >= 1 << 31,
        flat=flat,
        padded=step.padded,
        scale=_scale(step),
        in_place=step.source.name == step.target.name,
        vector=vector,
        whole_rows=target.shape[order[-1]] % vector == 0,
    )


def _callback(step: Transform, hook: Hook, side: str, pipeline: Pipeline, arch: str) -> Unit:
    load, source, target = side == "prolog", hook.map.source.layout, hook.map.target.layout
    geometry = Geometry(
        extents=target.shape,
        strides=hook.side.strides,
        address=None if hook.direct else (source if load else target).strides,
        limits=source.shape if hook.map.padded else None,
        scale=_scale(hook.map),
        invariant=load and not hook.direct,
    )
    return Unit(
        pipeline="fft",
        signature=_signature(hook.map.role, pipeline, source.dtype, len(target.shape), constant=True),
        dtype=target.dtype if load else source.dtype,
        arch=arch,
        side=side,
        geometry=geometry,
        stored_dtype=None if load else target.dtype,
    )


def _signature(role: Role | None, pipeline: Pipeline, dtype: np.dtype, ndim: int, constant: bool = False) -> Signature:
    """The signature of a map's callback; `constant` makes the extents of arrays in C order constants of the code."""
    if role is None:
        return Signature(None, dtype, ndim, ())
    function = pipeline.functions[role]
    values = _values(function)
    found = Signature.of(function.callback, dtype, ndim, function.axes, values, function.source)
    if not constant:
        return found
    operands = tuple((name, kind if kind.is_scalar else fixed(kind, values[name])) for name, kind in found.operands)
    source = found.source and fixed(found.source, function.source)
    return replace(found, operands=operands, source=source)


def _values(function: Function) -> dict[str, Any]:
    """Operands by name, captured arrays as they are on the GPU."""
    return {**function.operands, **{name: array.view for name, array in function.arrays.items()}}


def _scale(map_: Map) -> str | None:
    return None if map_.scale == 1 else "after" if map_.scale_after else "before"


def _is_dense(layout: Layout, order: Shape) -> bool:
    wanted = dense(layout.shape, layout.dtype, order).strides
    return all(n == 1 or have == want for n, have, want in zip(layout.shape, layout.strides, wanted))
