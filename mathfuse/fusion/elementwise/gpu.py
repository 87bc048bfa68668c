"""A GPU as the place where callbacks run: which one, whose arrays the results are, and arrays as addresses there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mathfuse.runtime import arrays
from mathfuse.runtime.arrays import HostArray
from mathfuse.runtime.cuda import driver
from mathfuse.runtime.cuda.arrays import DeviceArray, as_device, is_device_array, upload
from mathfuse.runtime.cuda.frameworks import HOST, Framework
from mathfuse.runtime.errors import PlanError, ToolchainError


@dataclass(frozen=True)
class Gpu:
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
    def of(cls, x: Any) -> Gpu:
        """Where `x` is, or may be copied to.

        Raises
        ------
        ToolchainError
            If there is no GPU.
        PlanError
            If `x` is in CPU memory and no NumPy array.
        """
        if reason := driver.why_unavailable():
            if is_device_array(x):
                raise ToolchainError(f"x is on a GPU, which cannot be used here: {reason}")
            raise ToolchainError(f'execution="cuda" needs a GPU: {reason}; leave it out, or use execution="cpu"')
        if not is_device_array(x):
            if arrays.framework_of(x) != "numpy":
                nearest = "move it there, as array.cuda() does, or use a NumPy array"
                raise PlanError(f'x is in CPU memory, and execution="cuda" copies NumPy arrays only: {nearest}')
            return cls(driver.current_device(), HOST)
        found = as_device(x, "x")
        return cls(found.device, found.framework)

    def read(self, array: Any, what: str, stream: int) -> DeviceArray | HostArray:
        """An array on this GPU: a host array is copied there on `stream`, or, without axes, read as a number."""
        if not is_device_array(array):
            host = arrays.as_host(array, what)
            return host if host.view.ndim == 0 else upload(array, self.device, stream, what)
        found = as_device(array, what)
        if found.device != self.device:
            raise PlanError(f"{what} is on GPU {found.device} and x on GPU {self.device}: copy it there")
        return found
