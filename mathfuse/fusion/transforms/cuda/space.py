"""A GPU as an execution space: arrays as addresses, and what a plan runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mathfuse.fusion.transforms.cuda.choice import Place
from mathfuse.fusion.transforms.cuda.prepared import CudaPrepared
from mathfuse.fusion.transforms.pipeline import Pipeline
from mathfuse.fusion.transforms.spaces import Request
from mathfuse.runtime import arrays
from mathfuse.runtime.cuda import driver
from mathfuse.runtime.cuda.arrays import DeviceArray, as_device, is_device_array, upload
from mathfuse.runtime.cuda.frameworks import HOST, Framework
from mathfuse.runtime.errors import PlanError, ToolchainError


@dataclass(frozen=True)
class CudaSpace:
    """The GPU that an input is on; NumPy arrays are copied to the current one.

    Parameters
    ----------
    device
        Ordinal of the GPU.
    framework
        Whose arrays results are.
    """

    device: int
    framework: Framework

    @classmethod
    def of(cls, x: Any) -> CudaSpace:
        if reason := driver.why_unavailable():
            raise ToolchainError(f'execution="cuda" needs a GPU: {reason}; leave it out, or use execution="cpu"')
        if not is_device_array(x):
            if arrays.framework_of(x) != "numpy":
                nearest = "move it there, as array.cuda() does, or use a NumPy array"
                raise PlanError(f'x is in CPU memory, and execution="cuda" copies NumPy arrays only: {nearest}')
            return cls(driver.current_device(), HOST)
        found = as_device(x, "x")
        return cls(found.device, found.framework)

    def read(self, array: Any, what: str) -> DeviceArray:
        """An array on this GPU: a host array is copied there, now."""
        if not is_device_array(array):
            stream = self.framework.current_stream(self.device)
            with driver.device_guard(self.device):
                found = upload(array, self.device, stream, what)
                driver.synchronize(stream)  # plans run on other streams, too
            return found
        found = as_device(array, what)
        if found.device != self.device:
            raise PlanError(f"{what} is on GPU {found.device} and x on GPU {self.device}: copy it there")
        return found

    def prepare(self, pipeline: Pipeline, request: Request) -> CudaPrepared:
        for function in pipeline.functions.values():
            for name in function.assigned:
                if function.arrays[name].view.framework is HOST and self.framework is not HOST:
                    raise PlanError(f"{function.callback} assigns to {name!r}, which must be on the GPU, as x is")
        return CudaPrepared(Place(self.framework, self.device), pipeline, request)
