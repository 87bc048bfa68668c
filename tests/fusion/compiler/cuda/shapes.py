"""Geometries and units of constant extents for the tests."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mathfuse.fusion.compiler.cuda.geometry import Geometry, Shape
from mathfuse.fusion.compiler.cuda.units import Unit
from mathfuse.fusion.compiler.signature import array_view, fixed


def dense(extents: Shape, **options: Any) -> Geometry:
    """The geometry of a C-contiguous view."""
    strides = [math.prod(extents[k + 1 :]) if extent > 1 else 0 for k, extent in enumerate(extents)]
    return Geometry(tuple(extents), tuple(strides), **options)


def with_extents(unit: Unit, operands: Mapping[str, Any]) -> Unit:
    """The unit for arrays of these shapes alone."""
    kinds = tuple(
        (name, kind if kind.is_scalar else fixed(kind, array_view(operands[name])))
        for name, kind in unit.signature.operands
    )
    return replace(unit, signature=replace(unit.signature, operands=kinds))
