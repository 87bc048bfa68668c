"""A GPU as an execution space of transforms."""

from __future__ import annotations

from typing import Any

from mathfuse.fusion.elementwise.binding import unwrapped
from mathfuse.fusion.elementwise.gpu import Gpu
from mathfuse.fusion.transforms.cuda.choice import Place
from mathfuse.fusion.transforms.cuda.prepared import CudaPrepared
from mathfuse.fusion.transforms.pipeline import Held, Pipeline
from mathfuse.fusion.transforms.spaces import Request
from mathfuse.runtime.arrays import as_output
from mathfuse.runtime.cuda import driver
from mathfuse.runtime.cuda.frameworks import HOST
from mathfuse.runtime.errors import PlanError


class CudaSpace:
    """The GPU that `x` is on; NumPy arrays are copied to the current one."""

    def __init__(self, x: Any) -> None:
        self._gpu = Gpu.of(x)

    def read(self, array: Any, what: str) -> Held:
        """An array on this GPU: a host array is copied there, now."""
        gpu = self._gpu
        stream = gpu.framework.current_stream(gpu.device)
        with driver.device_guard(gpu.device):
            found = gpu.read(array, what, stream)
            if found.view is not found or found.framework is HOST:
                driver.synchronize(stream)  # plans run on other streams, too
        return found

    def settle(self) -> None:
        """Wait for the current stream; what is captured is in order."""
        gpu = self._gpu
        stream = gpu.framework.current_stream(gpu.device)
        with driver.device_guard(gpu.device):
            if not driver.is_capturing(stream):
                driver.synchronize(stream)

    def prepare(self, pipeline: Pipeline, request: Request) -> CudaPrepared:
        gpu = self._gpu
        for function in pipeline.functions.values():
            for name in function.assigned:
                if function.arrays[name].view.framework is HOST and gpu.framework is not HOST:
                    raise PlanError(f"{function.callback} assigns to {name!r}, which must be on the GPU, as x is")
                if gpu.framework is HOST:
                    as_output(unwrapped(function.callback.bound[name]), repr(name))
        return CudaPrepared(Place(gpu.framework, gpu.device), pipeline, request)
