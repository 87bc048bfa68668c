"""Streams and events, by their handles."""

from __future__ import annotations

import weakref
from ctypes import byref, c_float, c_void_p
from typing import Any

from mathfuse.runtime.cuda.devices import NOT_READY, check, device_guard, library
from mathfuse.runtime.errors import PlanError

DISABLE_TIMING = 2  # CU_EVENT_DISABLE_TIMING


class Event:
    """A point in a stream of a device.

    Parameters
    ----------
    device
        Ordinal of the GPU.
    timing
        Whether `elapsed_ms` will be asked; without it an event costs less.
    """

    def __init__(self, device: int = 0, timing: bool = True) -> None:
        place = c_void_p()
        with device_guard(device):
            check(library().cuEventCreate(byref(place), 0 if timing else DISABLE_TIMING), "cuEventCreate")
        assert place.value is not None
        self.handle = place.value
        self._finalizer = weakref.finalize(self, library().cuEventDestroy_v2, self.handle)
        self._finalizer.atexit = False  # the driver takes everything back, and may be gone by then

    def record(self, stream: int) -> None:
        """Put the event behind all that is on `stream` now; the caller holds the device guard."""
        check(library().cuEventRecord(self.handle, stream), "cuEventRecord")

    def synchronize(self) -> None:
        """Wait until the stream is past the event."""
        check(library().cuEventSynchronize(self.handle), "cuEventSynchronize")

    def is_past(self) -> bool:
        """Whether the stream is past the event."""
        status = library().cuEventQuery(self.handle)
        if status == NOT_READY:
            return False
        check(status, "cuEventQuery")
        return True

    def elapsed_ms(self, since: Event) -> float:
        """Milliseconds from `since` to this event, both of them past."""
        time = c_float()
        check(library().cuEventElapsedTime(byref(time), since.handle, self.handle), "cuEventElapsedTime")
        return time.value


def synchronize(stream: int) -> None:
    """Wait for everything on `stream`; the caller holds the device guard."""
    check(library().cuStreamSynchronize(stream), "cuStreamSynchronize")


def stream_wait(stream: int, event: Event) -> None:
    """Have what is put on `stream` from now on wait for `event`; the caller holds the device guard."""
    check(library().cuStreamWaitEvent(stream, event.handle, 0), "cuStreamWaitEvent")


def stream_handle(stream: Any) -> int:
    """The handle of a stream of any framework.

    Parameters
    ----------
    stream
        An int, a stream of CuPy, PyTorch, cuda.core or Numba, or anything with ``__cuda_stream__``.

    Raises
    ------
    PlanError
        For anything else.
    """
    if type(stream) is int and stream >= 0:
        return stream
    for read in (_by_protocol, _by_attribute, _by_number):
        if (handle := read(stream)) is not None:
            return handle
    raise PlanError(
        f"{stream!r} is no stream: pass None, a handle, a stream of CuPy, PyTorch, Numba or cuda.core, "
        "or an object with __cuda_stream__"
    )


def _by_protocol(stream: Any) -> int | None:
    protocol = getattr(stream, "__cuda_stream__", None)  # a method; cuda.core's first version had a property
    answer = protocol() if callable(protocol) else protocol
    return int(answer[1]) if isinstance(answer, tuple) and len(answer) == 2 and answer[0] == 0 else None


def _by_attribute(stream: Any) -> int | None:
    """CuPy's `ptr`, PyTorch's `cuda_stream`."""
    found = (getattr(stream, attribute, None) for attribute in ("ptr", "cuda_stream"))
    return next((handle for handle in found if type(handle) is int), None)


def _by_number(stream: Any) -> int | None:
    """Numba's and cuda.core's `handle`, an int, something that `int` takes, or a c_void_p."""
    handle = getattr(stream, "handle", None)
    handle = getattr(handle, "value", handle) if isinstance(handle, c_void_p) else handle
    try:
        return None if handle is None and not hasattr(stream, "handle") else int(handle or 0)
    except (TypeError, ValueError):
        return None
