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
from mathfuse.runtime.cuda.streams import Event, stream_wait, synchronize
from mathfuse.runtime.dtypes import described
from mathfuse.runtime.errors import PlanError

# CUpointer_attribute, CUmemorytype
MEMORY_TYPE, DEVICE_ORDINAL, HOST_MEMORY = 2, 9, 1
LEGACY = 0  # the default stream that waits for all others
LEGACY_HANDLES = (LEGACY, 1)


class Memory:
    """Bytes on a device. When the object is collected, they are freed behind every use that was told of.

    Streams may be gone by then, and to name one that is would crash; the default stream always is there.

    Attributes
    ----------
    pointer : int
        Device address; 0 of no bytes.
    nbytes, device, stream : int
    """

    def __init__(self, pointer: int, nbytes: int, device: int, stream: int) -> None:
        self.pointer, self.nbytes, self.device, self.stream = pointer, nbytes, device, stream
        self._uses: dict[int, Event] = {}  # the last one on each stream
        if pointer:
            self._finalizer = weakref.finalize(self, _free, pointer, device, self._uses)
            self._finalizer.atexit = False  # the driver takes everything back, and may be gone by then

    def used(self, stream: int) -> None:
        """Tell that what is on `stream` now uses the memory; the caller holds the device guard.

        The default stream, behind which it is freed, need not be told of; nor graphs, with which it is held.
        """
        if stream in LEGACY_HANDLES or not self.pointer or meets_capture(stream):
            return
        event = self._uses.get(stream)
        if event is None:
            event = self._uses[stream] = Event(self.device, timing=False)
        event.record(stream)


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
        made = Memory(place.value, nbytes, device, stream)
        made.used(stream)
    return made


# What was collected while the default stream could not be used, since another one was captured that waits for it.
_waiting: list[tuple[int, int, dict[int, Event]]] = []
_lock = threading.RLock()  # a collection may strike while the lock is held


def _free(pointer: int, device: int, uses: dict[int, Event]) -> None:
    with device_guard(device), relaxed_capture():
        if meets_capture(LEGACY):
            with _lock:
                _waiting.append((pointer, device, uses))
            return
        for use in uses.values():
            if not use.is_past():
                stream_wait(LEGACY, use)
        library().cuMemFreeAsync(pointer, LEGACY)


def _free_what_waits() -> None:
    with _lock:
        waiting, _waiting[:] = _waiting[:], []
    for freed in waiting:
        _free(*freed)


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
        return {"shape": self.shape, **described(self.dtype), "data": data, "version": 3, "stream": stream}
