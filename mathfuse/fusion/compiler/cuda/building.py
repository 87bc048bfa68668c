"""Which builder makes the code of which pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mathfuse.fusion.compiler.cuda.callbacks import (
    build_product_callback,
    build_transfer_callback,
    build_transform_callback,
)
from mathfuse.fusion.compiler.cuda.elementwise import build_elementwise_kernel
from mathfuse.runtime.dtypes import dtype_name

if TYPE_CHECKING:
    from mathfuse.fusion.compiler.cuda.units import Unit
    from mathfuse.fusion.compiler.lowering import Lowering


def build(lowering: Lowering, unit: Unit) -> dict[str, Any]:
    """Builds the function of ``unit``; gives the dtype stored, and of a kernel how many elements a block takes."""
    if unit.pipeline == "elementwise":
        stored, tile = build_elementwise_kernel(lowering, unit)
        return {"result_dtype": dtype_name(stored), "tile": tile}
    make = {"matmul": build_product_callback, "transfer": build_transfer_callback}
    place = unit.side if unit.pipeline == "fft" else unit.pipeline
    return {"result_dtype": dtype_name(make.get(place, build_transform_callback)(lowering, unit))}
