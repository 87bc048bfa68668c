"""What a plan computes, in plain data: passes, callbacks with what they see, shapes and dtypes. A strategy runs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mathfuse.fusion.transforms.kinds import Shape
from mathfuse.fusion.transforms.passes import Pass, Role

if TYPE_CHECKING:
    from mathfuse.epilogs import Callback
    from mathfuse.fusion.compiler.cpu.kernels import Analysis, CpuKernel
    from mathfuse.fusion.compiler.cpu.spec import ElementwiseSpec


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
    operands
        Scalars and host arrays, by name.
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
    source: np.ndarray | None = None
    assigned: frozenset[str] = frozenset()
    own: frozenset[str] = frozenset()

    @property
    def stored(self) -> np.dtype:
        """The result dtype, once it is known."""
        assert self.result_dtype is not None
        return self.result_dtype

    def analysis(self) -> Analysis:
        """The dtype of its result and how it reads its operands, before any code is made."""
        from mathfuse.fusion.compiler.cpu.kernels import analyse  # LLVM: only plans with callbacks pay for it

        return analyse(self._spec(tuple(range(len(self.extents)))))

    def kernel(self, order: Shape, unit_stride: tuple[bool, bool], in_place: bool) -> CpuKernel:
        """The compiled kernel for blocks of one memory layout."""
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


@dataclass(frozen=True)
class Tuning:
    """Threads, bytes of a hot box and, where it is not to be found by timing, the back end."""

    workers: int
    block_bytes: int
    backend: str | None = None


@dataclass(frozen=True)
class Call:
    """A whole transform as SciPy's function of any number of axes: what there is to do where no callback is."""

    name: str
    lengths: Shape
    axes: Shape
    norm: str | None


@dataclass(frozen=True)
class Pipeline:
    """Passes over memory; `halved` says that the spectrum has half of `real_axis` and the result, real, all of it."""

    passes: tuple[Pass, ...]
    functions: Mapping[Role, Function]
    spectrum_shape: Shape
    spectrum_dtype: np.dtype
    out_shape: Shape
    out_dtype: np.dtype
    real_axis: int
    halved: bool
    call: Call | None
    tuning: Tuning
