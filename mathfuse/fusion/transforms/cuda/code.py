"""The machine code of a program's maps, and the blocks of parameters that they run with."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from mathfuse.fusion.compiler.cuda.artifacts import Compiled
from mathfuse.fusion.compiler.cuda.geometry import Geometry
from mathfuse.fusion.compiler.cuda.kernels import ElementwiseKernel
from mathfuse.fusion.compiler.cuda.units import Unit
from mathfuse.fusion.compiler.parameters import Writer
from mathfuse.fusion.elementwise.functions import Function
from mathfuse.fusion.elementwise.maps import fill, kernel_unit, kernel_writer, signature_of
from mathfuse.fusion.transforms.cuda.program import Hook, Map, Program
from mathfuse.fusion.transforms.pipeline import Pipeline, Role


@dataclass(frozen=True)
class Code:
    """A map's unit and what it was compiled to: a kernel of its own, or a callback of cuFFT."""

    map: Map
    unit: Unit
    compiled: ElementwiseKernel | Compiled

    def without_callback(self) -> Code:
        """The same, but for the callback, which owns users' arrays."""
        unit = replace(self.unit, signature=replace(self.unit.signature, callback=None))
        made = copy.copy(self.compiled)
        made.unit = unit
        return Code(self.map, unit, made)

    def block(self, functions: Mapping[Role, Function]) -> np.ndarray:
        """The parameters but for the addresses of input, result and rooms."""
        source, target, scale = self.map.source.layout, self.map.target.layout, self.map.scale
        function = functions[self.map.role] if self.map.role else None
        if isinstance(self.compiled, ElementwiseKernel):
            return kernel_writer(self.compiled, source, target, function, scale).block
        writer = Writer(self.unit.layout, self.compiled.weak_bits)
        fill(writer, self.unit, function, target, scale)
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


def units_of(program: Program, pipeline: Pipeline, arch: str) -> list[tuple[Map, Unit]]:
    """Every map of a program, in the order of the steps, with what is to be compiled for it."""
    found: list[tuple[Map, Unit]] = []
    for step in program.steps:
        if isinstance(step, Map):
            found.append((step, _kernel(step, pipeline, arch)))
            continue
        sides = (step.load, "prolog"), (step.transfer, "transfer"), (step.store, "epilog")
        found += [(hook.map, _callback(hook, side, pipeline, arch)) for hook, side in sides if hook]
    return found


def compiled(map_: Map, unit: Unit) -> Code:
    return Code(map_, unit, ElementwiseKernel(unit) if unit.pipeline == "elementwise" else Compiled(unit))


def _kernel(step: Map, pipeline: Pipeline, arch: str) -> Unit:
    source, target = step.source.layout, step.target.layout
    return kernel_unit(
        signature_of(_function(step, pipeline), source.dtype, len(target.shape)),
        source,
        target,
        arch,
        padded=step.padded,
        scale=_scale(step),
        in_place=step.source.name == step.target.name,
    )


def _callback(hook: Hook, side: str, pipeline: Pipeline, arch: str) -> Unit:
    load, source, target = side == "prolog", hook.map.source.layout, hook.map.target.layout
    inside, outside = (target, source) if load else (source, target)
    geometry = Geometry(
        extents=inside.shape,
        strides=hook.side.strides,
        address=None if hook.direct else outside.strides,
        limits=outside.shape if hook.map.padded else None,
        scale=_scale(hook.map),
        invariant=load and not hook.direct,
        axis=hook.axis,
    )
    return Unit(
        pipeline="fft",
        signature=signature_of(_function(hook.map, pipeline), source.dtype, len(target.shape), constant=True),
        dtype=target.dtype if load else source.dtype,
        arch=arch,
        side=side,
        geometry=geometry,
        stored_dtype=None if load else target.dtype,
    )


def _function(map_: Map, pipeline: Pipeline) -> Function | None:
    return pipeline.functions[map_.role] if map_.role else None


def _scale(map_: Map) -> str | None:
    return None if map_.scale == 1 else "after" if map_.scale_after else "before"
