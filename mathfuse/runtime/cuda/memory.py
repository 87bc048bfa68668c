"""Memory of a GPU from the driver's own pool, and copies between it and NumPy arrays."""

from __future__ import annotations

import math
import threading
import weakref
from ctypes import byref, c_int, c_ulonglong
from typing import Any

import numpy as np
import numpy.typing as npt

from mathfuse.runtime.cuda.devices import check, device_guard, library, meets_capture, relaxed_capture
from mathfuse.runtime.cuda.streams import synchronize
from mathfuse.runtime.errors import PlanError, ToolchainError

# CUpointer_attribute, CUmemorytype
MEMORY_TYPE, DEVICE_ORDINAL, HOST_MEMORY = 2, 9, 1
LEGACY = 0  # the default stream that waits for all others


class Memory:
    """Bytes on a device. When the object is collected, they are freed behind what is then on their stream.

    Attributes
    ----------
    pointer : int
        Device address; 0 of no bytes.
    nbytes, device, stream : int
    """

    def __init__(self, pointer: int, nbytes: int, device: int, stream: int) -> None:
        self.pointer, self.nbytes, self.device, self.stream = pointer, nbytes, device, stream
        if pointer:
            self._finalizer = weakref.finalize(self, _free, pointer, device, stream)
            self._finalizer.atexit = False  # the driver takes everything back, and may be gone by then


def allocate(nbytes: int, device: int, stream: int) -> Memory:
    """Memory that belongs to `stream`: what is put there next may use it.

    Raises
    ------
    PlanError
        The GPU's memory does not suffice, or the stream is being captured.
    """
    if nbytes == 0:
        return Memory(0, 0, device, stream)
    with device_guard(device):
        if meets_capture(stream):
            raise PlanError(
                "memory cannot be allocated while a CUDA graph is captured: give out=, or capture with arrays of "
                "CuPy or PyTorch, whose pools follow a capture"
            )
        if _waiting:
            _free_what_waits()
        place = c_ulonglong()
        check(library().cuMemAllocAsync(byref(place), nbytes, stream), "cuMemAllocAsync", nbytes)
    return Memory(place.value, nbytes, device, stream)


# What was collected while its stream was captured: freeing it there would have become a node of the graph.
_waiting: list[tuple[int, int, int]] = []
_lock = threading.RLock()  # a collection may strike while the lock is held


def _free(pointer: int, device: int, stream: int) -> None:
    with device_guard(device), relaxed_capture():
        try:
            waits = meets_capture(stream)
        except ToolchainError:  # the stream is no more
            stream, waits = LEGACY, meets_capture(LEGACY)
        if waits:
            with _lock:
                _waiting.append((pointer, device, stream))
        else:
            library().cuMemFreeAsync(pointer, stream)


def _free_what_waits() -> None:
    with _lock:
        waiting, _waiting[:] = _waiting[:], []
    for pointer, device, stream in waiting:
        _free(pointer, device, stream)


def copy_in(pointer: int, array: npt.NDArray[Any], stream: int) -> None:
    """Copy a C-contiguous array to device address `pointer`; the caller holds the device guard.

    When it returns, the array may change: the driver has read it, but for page-locked memory, which is waited for.
    """
    if array.nbytes:
        address = array.ctypes.data
        check(library().cuMemcpyHtoDAsync_v2(pointer, address, array.nbytes, stream), "cuMemcpyHtoDAsync")
        if _is_page_locked(address):
            synchronize(stream)


def copy_out(array: npt.NDArray[Any], pointer: int, stream: int) -> None:
    """Copy from device address `pointer` into a C-contiguous array and wait; the caller holds the device guard."""
    if array.nbytes:
        check(library().cuMemcpyDtoHAsync_v2(array.ctypes.data, pointer, array.nbytes, stream), "cuMemcpyDtoHAsync")
        synchronize(stream)


def device_of(pointer: int) -> int | None:
    """The device on which an address lies; None where CUDA does not know the address."""
    device = c_int()
    return None if library().cuPointerGetAttribute(byref(device), DEVICE_ORDINAL, pointer) else device.value


def _is_page_locked(address: int) -> bool:
    kind = c_int()
    status = library().cuPointerGetAttribute(byref(kind), MEMORY_TYPE, address)
    return not status and kind.value == HOST_MEMORY


class PoolArray:
    """A C-contiguous array in memory of the driver's pool, which other libraries read by its interface."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], device: int, stream: int) -> None:
        self.memory = allocate(math.prod(shape) * dtype.itemsize, device, stream)
        self.shape, self.dtype, self.pointer = shape, dtype, self.memory.pointer

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        # Streams of the interface are never 0: 1 is the legacy default stream.
        stream, data = self.memory.stream or 1, (self.pointer, False)
        return {"shape": self.shape, "typestr": self.dtype.str, "data": data, "version": 3, "stream": stream}
