"""What a loop nest is made for: everything that its machine code depends on, and where its parameters stand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mathfuse.epilogs import Callback
from mathfuse.fusion.compiler.parameters import Layout
from mathfuse.fusion.compiler.signature import Signature


@dataclass(frozen=True)
class ElementwiseSpec:
    """A callback applied to every element of a block, ``destination[i] = callback(source[i])``.

    Parameters
    ----------
    callback
        Fully bound callback; None copies and converts.
    value_dtype, result_dtype
        dtypes of source and destination; ``result_dtype=None`` takes what the callback returns.
    ndim, axes
        Rank of the index space and the transform axes in it.
    operands
        Values (or :class:`~.parameters.OperandType`) by name; only their types count.
    order
        Loop order over the axes, innermost last.
    unit_stride
        Whether the innermost axis is contiguous in source and destination.
    in_place
        Source and destination are the same memory.
    source
        The whole input array (or its type) where the callback reads ``source``.
    """

    callback: Callback | None
    value_dtype: np.dtype
    result_dtype: np.dtype | None
    ndim: int
    axes: tuple[int, ...]
    operands: Mapping[str, Any] = field(default_factory=dict)
    order: tuple[int, ...] = ()
    unit_stride: tuple[bool, bool] = (False, False)
    in_place: bool = False
    source: Any = None

    def signature(self) -> Signature:
        """What the code depends on, captured arrays included."""
        return Signature.of(self.callback, self.value_dtype, self.ndim, self.axes, self.operands, self.source)


def loop_layout(signature: Signature) -> Layout:
    """Slots of the loop nest, before those of the callback."""
    layout = Layout()
    for name, count in (("source_block", 1), ("destination_block", 1)):
        layout.add(name, count)
    for name in ("extents", "source_strides", "destination_strides", "start"):
        layout.add(name, signature.ndim)
    return layout.add_signature(signature)
