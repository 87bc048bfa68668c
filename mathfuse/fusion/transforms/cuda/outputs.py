"""Outputs that users give: checked once an address and layout, and how the result gets there."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from mathfuse.fusion.elementwise.layouts import Layout
from mathfuse.fusion.transforms import binding
from mathfuse.fusion.transforms.cuda.engine import Engine, Values, engine
from mathfuse.fusion.transforms.cuda.program import Buffer, Fuse, Map, Program
from mathfuse.fusion.transforms.pipeline import Pipeline
from mathfuse.runtime import arrays
from mathfuse.runtime.cuda.arrays import DeviceArray, as_device_output
from mathfuse.runtime.errors import PlanError

MOST_KNOWN = 64
_UNKNOWN: Any = object()


@dataclass(frozen=True)
class Ready:
    """An engine with its parameters; `copy` takes the result to where it cannot be computed."""

    engine: Engine
    values: Values
    copy: Ready | None = None


class Outputs:
    """How results get to outputs of a pipeline with the input `x`.

    Parameters
    ----------
    usual, usual_layout
        What serves new arrays.
    made_for
        Gives what serves another layout.
    in_place
        Whether the result may replace the input.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        x: DeviceArray,
        usual: Ready | None,
        usual_layout: Layout,
        made_for: Callable[[Layout], Ready],
        in_place: bool,
    ) -> None:
        self._pipeline, self._x, self._in_place = pipeline, x, in_place
        self._usual, self._usual_layout, self._made_for = usual, usual_layout, made_for
        self._known: dict[Hashable, Ready | None] = {}

    def find(self, out: Any, x: DeviceArray) -> tuple[Ready | None, int]:
        """What computes into `out` from `x`, and the address; None where there is nothing to compute.

        Raises
        ------
        PlanError, UnsupportedError
            If it does not fit, or overlaps what is read.
        """
        framework = self._x.framework
        try:
            address = framework.pointer(out)
            key = framework.layout_key(out), address, x.pointer
        except (AttributeError, RuntimeError, TypeError):  # an array of another library, or none at all
            return self._checked(out, x), as_device_output(out).pointer
        ready = self._known.get(key, _UNKNOWN)
        if ready is not _UNKNOWN:
            framework.written(out)
            return ready, address
        ready = self._checked(out, x)
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        self._known[key] = ready
        return ready, address

    def engines(self) -> list[Engine]:
        """Those of the outputs that were given."""
        return [ready.engine for ready in tuple(self._known.values()) if ready]

    def _checked(self, out: Any, x: DeviceArray) -> Ready | None:
        view = as_device_output(out)
        if view.framework is not x.framework:
            raise PlanError(
                f"out is an array of {view.framework.name}, and x one of {x.framework.name}: give one of that"
            )
        if view.device != x.device:
            raise PlanError(f"out is on GPU {view.device}, the plan on GPU {x.device}")
        binding.check_output(view, self._pipeline.out_shape, self._pipeline.out_dtype)
        binding.check_overlap(view, x, self._in_place)
        shared = binding.shares_operand(view, self._pipeline.functions)
        if self._usual is None:
            return None
        layout = Layout.of(view)
        ready = self._usual if layout == self._usual_layout else self._made_for(layout)
        if shared or (arrays.overlaps(view, x) and not ready.engine.program.in_place):
            return Ready(self._usual.engine, self._usual.values, self._copy(layout))
        return ready

    def _copy(self, layout: Layout) -> Ready:
        step = Map(None, Buffer("x", self._usual_layout), Buffer("out", layout))
        copier = engine(Program(Fuse(), (step,), ()), self._pipeline, self._x.framework, self._x.device)
        return Ready(copier, copier.values(self._pipeline))
