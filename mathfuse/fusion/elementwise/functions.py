"""A bound callback in its place: what it is applied to, in plain data, and how it touches its operands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from mathfuse.epilogs.values import Constant
from mathfuse.fusion.elementwise.layouts import Shape

if TYPE_CHECKING:
    from mathfuse.epilogs import Callback
    from mathfuse.fusion.compiler.analysis import Analysis
    from mathfuse.fusion.compiler.cpu.kernels import CpuKernel
    from mathfuse.fusion.compiler.cpu.spec import ElementwiseSpec


class Held(Protocol):
    """An array as an execution space reads it."""

    @property
    def view(self) -> Any:
        """What has its shape, dtype and strides: a NumPy array, or a description of device memory."""

    @property
    def copied(self) -> bool:
        """Whether it is a copy, which later changes of the user's array do not reach."""


@dataclass(frozen=True)
class Function:
    """A bound callback in its place in a pipeline.

    Parameters
    ----------
    callback
        With every operand bound.
    value_dtype, result_dtype
        What it reads and what is stored; None stores what it returns.
    extents, shape, axes
        The extents of its index space, the logical ones that it sees as `shape`, and the transform axes.
    operands, arrays
        Bound scalars and arrays as the execution space reads them, by name; and all arrays, captured ones too.
    source
        The whole input, for a prolog.
    assigned, own
        Names of the operands that it writes to, and of those that it reads at the element's own index only.
    """

    callback: Callback
    value_dtype: np.dtype
    result_dtype: np.dtype | None
    extents: Shape
    shape: Shape
    axes: Shape
    operands: Mapping[str, Any]
    arrays: Mapping[str, Held]
    source: Any = None
    assigned: frozenset[str] = frozenset()
    own: frozenset[str] = frozenset()

    @property
    def stored(self) -> np.dtype:
        """The result dtype, once it is known."""
        assert self.result_dtype is not None
        return self.result_dtype

    @property
    def values(self) -> dict[str, Any]:
        """Operands by name, and captured arrays as the execution space reads them."""
        return {**self.operands, **{name: array.view for name, array in self.arrays.items()}}

    @property
    def reads_source(self) -> bool:
        """Whether it reads elements of the input other than its own."""
        return any("source" in link.reserved for link in self.callback.links)

    def reads_across(self, axis: int) -> bool:
        """Whether elements along an axis of its index space are no neighbours in an array, which is no constant."""
        below = axis - len(self.extents)
        bound = self.callback.bound
        views = [array.view for name, array in self.arrays.items() if not isinstance(bound.get(name), Constant)]
        return any(lies_across(view, below) for view in views)

    def analysis(self) -> Analysis:
        """The dtype of its result and how it reads its operands, before any code is made."""
        from mathfuse.fusion.compiler.cpu.kernels import analyse  # LLVM: only plans with callbacks pay for it

        return analyse(self._spec(tuple(range(len(self.extents)))))

    def kernel(self, order: Shape, unit_stride: tuple[bool, bool], in_place: bool) -> CpuKernel:
        """The compiled CPU kernel for blocks of one memory layout."""
        from mathfuse.fusion.compiler.cpu.kernels import elementwise

        return elementwise(self._spec(order, unit_stride, in_place))

    def _spec(
        self, order: Shape, unit_stride: tuple[bool, bool] = (False, False), in_place: bool = False
    ) -> ElementwiseSpec:
        from mathfuse.fusion.compiler.cpu.spec import ElementwiseSpec

        return ElementwiseSpec(
            callback=self.callback,
            value_dtype=self.value_dtype,
            result_dtype=self.result_dtype,
            ndim=len(self.shape),
            axes=self.axes,
            operands=self.operands,
            order=order,
            unit_stride=unit_stride,
            in_place=in_place,
            source=self.source,
        )


def lies_across(array: Any, axis: int) -> bool:
    """Whether elements along an axis, counted from the last, are no neighbours in memory."""
    there = -axis <= array.ndim and array.shape[axis] > 1
    return there and array.strides[axis] not in (0, array.dtype.itemsize)
