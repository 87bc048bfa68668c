"""What precedes the callback's own slots in the parameter block of each GPU pipeline."""

from __future__ import annotations

from mathfuse.fusion.compiler.cuda import division
from mathfuse.fusion.compiler.cuda.geometry import Geometry
from mathfuse.fusion.compiler.parameters import Layout
from mathfuse.fusion.compiler.signature import Signature


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
    return layout.add_signature(signature)
