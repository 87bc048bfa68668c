"""What a plan computes, in plain data: transforms, callbacks, shapes and dtypes. A strategy runs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from mathfuse.epilogs.ready_made import half
from mathfuse.fusion.elementwise.functions import Function, Held
from mathfuse.fusion.transforms.kinds import Problem, Shape, complex_of, real_of
from mathfuse.runtime.dtypes import HALF

__all__ = ["Function", "Held", "Pipeline", "Role"]

Role = Literal["prolog", "transfer", "epilog"]


@dataclass(frozen=True)
class Pipeline:
    """One transform, or a transform and its inverse with the role "transfer" between them.

    Parameters
    ----------
    problems
        The transforms in order.
    functions
        Callbacks by their role.
    computed
        dtype of what is transformed: the input's or the prolog's, in 32 or 64 bits.
    out_dtype
        dtype of the result.
    """

    problems: tuple[Problem, ...]
    functions: Mapping[Role, Function]
    computed: np.dtype
    out_dtype: np.dtype

    @property
    def axes(self) -> Shape:
        return self.problems[0].axes

    @property
    def real_axis(self) -> int:
        """The axis that a half spectrum halves."""
        return self.axes[-1]

    @property
    def spectrum_shape(self) -> Shape:
        return self.problems[0].spectrum_shape

    @property
    def spectrum_dtype(self) -> np.dtype:
        return complex_of(self.computed)

    @property
    def out_shape(self) -> Shape:
        return self.problems[-1].out_shape

    @property
    def halved(self) -> bool:
        """Whether the spectrum has half of the real axis, and the result, real, all of it."""
        return self.problems[-1].kind.family == "c2r"

    @property
    def transformed(self) -> np.dtype:
        """dtype of the result before its epilog."""
        return real_of(self.computed) if self.halved else self.spectrum_dtype

    @property
    def narrows(self) -> bool:
        """Whether the epilog does nothing but round to half precision."""
        if self.out_dtype not in HALF:
            return False
        functions = [link.function for link in self.functions["epilog"].callback.links]
        return functions == [link.function for link in half.links]
