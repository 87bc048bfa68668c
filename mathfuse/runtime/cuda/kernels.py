"""Compiled kernels: loaded once, launched by one prepared call."""

from __future__ import annotations

import ctypes
import weakref
from ctypes import byref, c_int, c_uint, c_void_p

import numpy as np
import numpy.typing as npt

from mathfuse.runtime.cuda.devices import check, device_guard, library, relaxed_capture
from mathfuse.runtime.errors import PlanError

# CUfunction_attribute
MAX_THREADS_PER_BLOCK, LOCAL_SIZE_BYTES, NUM_REGS, MAX_DYNAMIC_SHARED_SIZE_BYTES = 0, 3, 4, 8
SHARED_UNASKED = 48 << 10  # bytes of dynamic shared memory that a block may have unasked
_CONFIGURATIONS = 64  # streams remembered a launch


class Configuration(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [
        *((f"{part}Dim{axis}", c_uint) for part in ("grid", "block") for axis in "XYZ"),
        ("sharedMemBytes", c_uint),
        ("hStream", c_void_p),
        ("attrs", c_void_p),
        ("numAttrs", c_uint),
    ]


class Kernel:
    """A kernel on a device; its code stays loaded as long as this object lives.

    Attributes
    ----------
    handle : int
        CUfunction.
    device : int
    registers, local_bytes : int
        Of one thread.
    max_threads : int
        That a block may have.
    """

    def __init__(self, module: int, handle: int, device: int) -> None:
        self.handle, self.device = handle, device
        self._finalizer = weakref.finalize(self, _unload, module, device)
        self._finalizer.atexit = False  # the driver takes everything back, and may be gone by then
        self.registers = _attribute(NUM_REGS, handle)
        self.local_bytes = _attribute(LOCAL_SIZE_BYTES, handle)
        self.max_threads = _attribute(MAX_THREADS_PER_BLOCK, handle)


def load_kernel(cubin: bytes, name: str, device: int) -> Kernel:
    """The kernel `name` of a cubin, on a device.

    Raises
    ------
    ToolchainError
        The cubin is for another architecture or has no such kernel.
    """
    module, function = c_void_p(), c_void_p()
    with device_guard(device), relaxed_capture():
        check(library().cuModuleLoadData(byref(module), cubin), "cuModuleLoadData")
        assert module.value is not None
        try:
            check(library().cuModuleGetFunction(byref(function), module, name.encode()), f"cuModuleGetFunction {name}")
        except Exception:
            library().cuModuleUnload(module)
            raise
        assert function.value is not None
        return Kernel(module.value, function.value, device)


class Launch:
    """A kernel with its grid and its one parameter, an array of int64 that is passed by value.

    Parameters
    ----------
    kernel
    grid, block
        Blocks, and threads of one.
    parameters
        C-contiguous int64. Each launch passes what it holds then; the array itself is kept.
    shared_bytes
        Dynamic shared memory of a block.
    """

    def __init__(
        self, kernel: Kernel, grid: int, block: int, parameters: npt.NDArray[np.int64], shared_bytes: int = 0
    ) -> None:
        if parameters.dtype != np.int64 or not parameters.flags.c_contiguous:
            raise PlanError("a kernel's parameters are a C-contiguous array of int64")
        self.kernel, self.grid, self.block, self.parameters = kernel, grid, block, parameters
        self._shape = (grid, 1, 1, block, 1, 1, shared_bytes)
        self._places = (c_void_p * 1)(parameters.ctypes.data)
        self._configurations: dict[int, tuple[object, Configuration]] = {}
        if shared_bytes > SHARED_UNASKED:
            status = library().cuFuncSetAttribute(kernel.handle, MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_bytes)
            check(status, "cuFuncSetAttribute")
        self._launch = library().cuLaunchKernelEx
        self._handle, self._arguments = c_void_p(kernel.handle), ctypes.cast(self._places, c_void_p)

    def __call__(self, stream: int) -> None:
        """Launch on `stream`; the caller holds the device guard."""
        found = self._configurations.get(stream) or self._configured(stream)
        if status := self._launch(found[0], self._handle, self._arguments, None):
            check(status, "cuLaunchKernelEx")

    def _configured(self, stream: int) -> tuple[object, Configuration]:
        configuration = Configuration(*self._shape, stream)
        if len(self._configurations) >= _CONFIGURATIONS:
            self._configurations.clear()
        return self._configurations.setdefault(stream, (byref(configuration), configuration))


def _unload(module: int, device: int) -> None:
    with device_guard(device), relaxed_capture():
        library().cuModuleUnload(module)


def _attribute(number: int, function: int) -> int:
    value = c_int()
    check(library().cuFuncGetAttribute(byref(value), number, function), "cuFuncGetAttribute")
    return value.value
