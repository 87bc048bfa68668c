"""Elementwise kernels on a GPU, from the layouts of two arrays: what to compile, and the block that it runs with.

Pure functions of plain data; neither a GPU nor a driver is needed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mathfuse.fusion.compiler.cuda.kernels import ElementwiseKernel
from mathfuse.fusion.compiler.cuda.tiling import vector_width
from mathfuse.fusion.compiler.cuda.units import Unit
from mathfuse.fusion.compiler.parameters import Writer
from mathfuse.fusion.compiler.signature import Signature, fixed
from mathfuse.fusion.elementwise.functions import Function
from mathfuse.fusion.elementwise.layouts import Layout

WIDE = 1 << 31  # elements from which on they are counted in 64 bits


def signature_of(function: Function | None, dtype: np.dtype, ndim: int, constant: bool = False) -> Signature:
    """The signature of a callback on elements of `dtype`; None leaves them as they are.

    `constant` makes `shape` and the extents of arrays without gaps constants of the code.
    """
    if function is None:
        return Signature(None, dtype, ndim, ())
    values = function.values
    found = Signature.of(function.callback, dtype, ndim, function.axes, values, function.source)
    if not constant:
        return found
    operands = tuple((name, kind if kind.is_scalar else fixed(kind, values[name])) for name, kind in found.operands)
    source = found.source and fixed(found.source, function.source)
    return replace(found, operands=operands, source=source, shape=tuple(map(int, function.shape)))


def kernel_unit(
    signature: Signature,
    source: Layout,
    target: Layout,
    arch: str,
    *,
    padded: bool = False,
    scale: str | None = None,
    in_place: bool = False,
) -> Unit:
    """The kernel from one layout to another: flat and in vectors wherever both allow it.

    Parameters
    ----------
    padded, scale, in_place
        As in a :class:`~mathfuse.fusion.compiler.cuda.units.Unit`.
    """
    order = target.order()
    flat = not padded and source.is_dense(order) and target.is_dense(order)
    vector = vector_of(source, target) if flat else 1
    return Unit(
        pipeline="elementwise",
        signature=signature,
        dtype=target.dtype,
        arch=arch,
        order=order,
        wide=target.size >= WIDE,
        flat=flat,
        padded=padded,
        scale=scale,
        in_place=in_place,
        vector=vector,
        whole_rows=target.shape[order[-1]] % vector == 0,
    )


def vector_of(source: Layout, target: Layout) -> int:
    """Elements of one access, where both arrays are flat: as many as their alignments allow."""
    sides = (source, target)
    vector = vector_width(*(side.dtype.itemsize for side in sides))
    while vector > 1 and any(side.alignment < vector * side.dtype.itemsize for side in sides):
        vector //= 2
    return vector


def kernel_writer(
    kernel: ElementwiseKernel, source: Layout, target: Layout, function: Function | None, scale: float = 1.0
) -> Writer:
    """The parameters of a launch but for the addresses of source and target, which the caller fills in.

    Raises
    ------
    UnsupportedError
        If an operand is an array on a GPU without axes.
    """
    writer = kernel.writer(target.shape)
    writer.integers("source_strides", *source.strides)
    writer.integers("destination_strides", *target.strides)
    if kernel.unit.padded:
        writer.integers("limits", *source.shape)
    fill(writer, kernel.unit, function, target, scale)
    return writer


def fill(writer: Writer, unit: Unit, function: Function | None, target: Layout, scale: float = 1.0) -> None:
    """The slots that kernels and cuFFT's callbacks have in common: the scale, the logical extents, the operands."""
    if "scale" in writer.layout.slots:
        writer.real("scale", scale, unit.scale_bits)
    writer.integers("shape", *(function.shape if function else target.shape))
    if function is None:
        return
    if unit.signature.source:
        writer.operand("source", function.source)
    for name, _ in unit.signature.operands:
        writer.operand(name, function.values[name])
