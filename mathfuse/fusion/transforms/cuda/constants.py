"""Copies of constant filter arrays, laid out as own kernels read them: lines of tiles along the line, not across it."""

from __future__ import annotations

from dataclasses import replace

from mathfuse.epilogs import Constant
from mathfuse.fusion.elementwise.functions import lies_across
from mathfuse.fusion.elementwise.layouts import Layout, dense
from mathfuse.fusion.transforms.cuda.engine import engine
from mathfuse.fusion.transforms.cuda.program import Buffer, Fuse, Map, Program
from mathfuse.fusion.transforms.pipeline import Pipeline
from mathfuse.runtime.cuda import driver
from mathfuse.runtime.cuda.arrays import DeviceArray
from mathfuse.runtime.cuda.frameworks import HOST, Framework
from mathfuse.runtime.cuda.memory import allocate


def turned_axis(program: Program) -> int | None:
    """The axis along which a filter's array is read in pieces of lines, so that it should be the innermost."""
    steps = (s for s in program.transforms if s.block and s.block.tiles != (1, 1) and not s.part)
    return next((step.transfer.axis for step in steps if step.transfer), None)


def arranged(pipeline: Pipeline, axis: int, framework: Framework, device: int) -> tuple[Pipeline, list[DeviceArray]]:
    """The pipeline with such copies of the constants in its transfer function, and these."""
    transfer = pipeline.functions["transfer"]
    below = axis - len(transfer.extents)
    copies = {
        name: constant.copies.get((below, device)) or _turned(constant, array.view, below, pipeline, framework, device)
        for name, array in transfer.arrays.items()
        for constant in [transfer.callback.bound.get(name)]
        if isinstance(constant, Constant) and lies_across(array.view, below)
    }
    arrays = {**transfer.arrays, **copies}
    operands = {name: copies.get(name, value) for name, value in transfer.operands.items()}
    functions = {**pipeline.functions, "transfer": replace(transfer, arrays=arrays, operands=operands)}
    return replace(pipeline, functions=functions), list(copies.values())


def _turned(
    constant: Constant, array: DeviceArray, axis: int, pipeline: Pipeline, framework: Framework, device: int
) -> DeviceArray:
    """A copy with `axis`, counted from the last, innermost; it lives as long as the constant."""
    inner = axis + array.ndim
    target = dense(array.shape, array.dtype, (*(a for a in range(array.ndim) if a != inner), inner))
    step = Map(None, Buffer("x", Layout.of(array)), Buffer("out", target))
    copier = engine(Program(Fuse(), (step,), ()), pipeline, framework, device)
    with driver.device_guard(device):
        stream = framework.current_stream(device)
        memory = allocate(target.nbytes, device, stream)
        copier.run(copier.values(pipeline), array.pointer, memory.pointer, stream)
        driver.synchronize(stream)  # plans run on other streams, too
    copy = DeviceArray(memory.pointer, array.shape, target.strides, array.dtype, device, HOST, memory)
    constant.copies[axis, device] = copy
    return copy
