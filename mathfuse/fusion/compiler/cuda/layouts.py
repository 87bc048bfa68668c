"""What precedes the callback's own slots in the parameter block of each GPU pipeline."""

from __future__ import annotations

from mathfuse.fusion.compiler.cuda import division
from mathfuse.fusion.compiler.cuda.geometry import Geometry
from mathfuse.fusion.compiler.parameters import Layout
from mathfuse.fusion.compiler.signature import Signature
from mathfuse.runtime.errors import UnsupportedError

MOST_SLOTS = 500  # parameters by value end at 4096 bytes (CUDA C++ Programming Guide, "Kernel parameters", sm_80)


def transform_layout(signature: Signature, geometry: Geometry | None) -> Layout:
    """A cuFFT callback: where its data begin and the scale; without a constant geometry what decodes an offset."""
    layout = Layout()
    if geometry is None:
        division.reserve(layout, signature.ndim)
    else:
        if geometry.address is not None:
            layout.add("origin")
        if geometry.scale:
            layout.add("scale")
    return layout.add_signature(signature)


def product_layout(signature: Signature) -> Layout:
    return Layout().add_signature(signature)


def elementwise_layout(signature: Signature, padded: bool, scale: str | None) -> Layout:
    """A kernel of its own: how many elements, what decodes their numbers, and both arrays."""
    layout = Layout()
    layout.add("count")
    division.reserve(layout, signature.ndim)
    for name, count in (
        ("source_block", 1),
        ("destination_block", 1),
        ("source_strides", signature.ndim),
        ("destination_strides", signature.ndim),
        ("limits", signature.ndim if padded else 0),
        ("scale", 1 if scale else 0),
    ):
        if count:
            layout.add(name, count)
    layout.add_signature(signature)
    if layout.size > MOST_SLOTS:
        fit = sum(layout.end(name, kind) <= MOST_SLOTS for name, kind in signature.operands)
        raise UnsupportedError(
            f"{signature.callback!r} has {len(signature.operands)} operands, and {fit} of their kind fit into the "
            "parameters of a kernel; stack arrays of equal shapes into one operand"
        )
    return layout
