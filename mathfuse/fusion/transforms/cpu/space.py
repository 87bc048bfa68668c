"""The CPU as an execution space: arrays as NumPy views, and a prepared strategy with its outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mathfuse.fusion.plan import Explanation
from mathfuse.fusion.transforms import binding
from mathfuse.fusion.transforms.cpu.strategy import CpuStrategy, Tuning
from mathfuse.fusion.transforms.pipeline import Pipeline
from mathfuse.fusion.transforms.spaces import Request
from mathfuse.runtime import arrays, settings
from mathfuse.runtime.arrays import HostArray
from mathfuse.runtime.errors import PlanError


@dataclass(frozen=True)
class CpuPrepared:
    """A strategy, and what is needed to take outputs and to hand results over."""

    strategy: CpuStrategy
    title: str
    user_x: Any
    x: HostArray
    in_place: bool

    @property
    def explanation(self) -> Explanation:
        return self.strategy.explain(self.title)

    def run(self, out: Any, stream: Any) -> Any:
        if stream is not None:
            raise PlanError("stream=… is for plans on a GPU, and this one runs on the CPU")
        if self.x.copied:  # what cannot be read in place is read anew for each run
            self.x.view[...] = arrays.as_host(self.user_x, "x").view
        if out is None:
            return self.x.restore(self.strategy.run())
        pipeline = self.strategy.pipeline
        view = arrays.as_output(out)
        binding.check_output(view, pipeline.out_shape, pipeline.out_dtype)
        binding.check_overlap(view, self.x.view, self.in_place)
        if binding.shares_operand(view, pipeline.functions):
            view[...] = self.strategy.run()
        else:
            self.strategy.run(view)
        return out


class CpuSpace:
    def read(self, array: Any, what: str) -> HostArray:
        return arrays.as_host(array, what)

    def settle(self) -> None:
        """Nothing is queued."""

    def prepare(self, pipeline: Pipeline, request: Request) -> CpuPrepared:
        x, choices = request.x, request.choices
        assert isinstance(x, HostArray)
        arrays.check_result(pipeline.out_dtype, x.framework)
        tuning = Tuning(
            settings.workers(choices.workers), choices.block_bytes or settings.block_bytes(), choices.backend
        )
        strategy = CpuStrategy(pipeline, tuning, x.view)
        return CpuPrepared(strategy, request.title, request.user_x, x, request.in_place)
