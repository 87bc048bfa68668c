"""CUDA's driver: what it is asked for, its errors, the devices, and which of them a thread is on.

Numbers are those of cuda.h. Streams are handles: 0 is the legacy default stream.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import byref, c_int, c_size_t, c_ulonglong, c_void_p
from types import SimpleNamespace
from typing import Any

from mathfuse.runtime.cuda.prototypes import bind
from mathfuse.runtime.errors import MathFuseError, PlanError, ToolchainError

LIBRARY = "libcuda.so.1"
EXECUTION = 'take execution="cpu"'

PROTOTYPES = {
    "cuInit": "u",
    "cuGetErrorName": "i*",
    "cuGetErrorString": "i*",
    "cuDeviceGetCount": "*",
    "cuDeviceGetName": "*ii",
    "cuDeviceGetAttribute": "*ii",
    "cuDevicePrimaryCtxRetain": "*i",
    "cuCtxGetCurrent": "*",
    "cuCtxGetDevice": "*",
    "cuCtxPushCurrent_v2": "p",
    "cuCtxPopCurrent_v2": "*",
    "cuModuleLoadData": "*p",
    "cuModuleUnload": "p",
    "cuModuleGetFunction": "*ps",
    "cuFuncGetAttribute": "*ip",
    "cuFuncSetAttribute": "pii",
    "cuLaunchKernelEx": "*pp*",
    "cuStreamIsCapturing": "p*",
    "cuStreamGetCaptureInfo": "p**",
    "cuStreamCreate": "*u",
    "cuStreamDestroy_v2": "p",
    "cuStreamBeginCapture_v2": "pi",
    "cuStreamEndCapture": "p*",
    "cuGraphDestroy": "p",
    "cuGraphGetNodes": "p**",
    "cuGraphNodeGetType": "p*",
    "cuGraphKernelNodeGetParams_v2": "p*",
    "cuGraphKernelNodeGetAttribute": "pi*",
    "cuKernelGetFunction": "*p",
    "cuFuncGetParamInfo": "pn**",
    "cuThreadExchangeStreamCaptureMode": "*",
    "cuStreamSynchronize": "p",
    "cuStreamWaitEvent": "ppu",
    "cuEventCreate": "*u",
    "cuEventDestroy_v2": "p",
    "cuEventRecord": "pp",
    "cuEventQuery": "p",
    "cuEventSynchronize": "p",
    "cuEventElapsedTime": "*pp",
    "cuMemAllocAsync": "*np",
    "cuMemFreeAsync": "dp",
    "cuMemcpyHtoDAsync_v2": "dpnp",
    "cuMemcpyDtoHAsync_v2": "pdnp",
    "cuMemGetInfo_v2": "**",
    "cuPointerGetAttribute": "*id",
}

# CUdevice_attribute
MULTIPROCESSOR_COUNT, L2_CACHE_SIZE, CAPABILITY_MAJOR, CAPABILITY_MINOR = 16, 38, 75, 76
MEMORY_CLOCK_RATE, MEMORY_BUS_WIDTH = 36, 37
# CUresult
OUT_OF_MEMORY, NOT_READY, STREAM_CAPTURE_IMPLICIT = 2, 600, 906
# CUstreamCaptureMode, CUstreamCaptureStatus
CAPTURE_RELAXED, CAPTURE_STATUS_NONE = 2, 0

# Architectures whose own instructions need the name with an a.
VARIANTS = {"sm_90": "sm_90a", "sm_100": "sm_100a", "sm_103": "sm_103a", "sm_120": "sm_120a", "sm_121": "sm_121a"}


# --- the library and its errors ---------------------------------------------------------------------------------------


@functools.cache
def library() -> SimpleNamespace:
    """The driver's functions, once it is initialised.

    Raises
    ------
    ToolchainError
        There is no driver, or it finds no GPU.
    """
    functions, reason = _loaded()
    if functions is None:
        raise ToolchainError(f"no GPU can be used: {reason}; {EXECUTION}")
    return functions


@functools.cache
def why_unavailable() -> str:
    """The empty string where a GPU can be used, else the reason."""
    return _loaded()[1]


@functools.cache
def _loaded() -> tuple[SimpleNamespace | None, str]:
    try:
        functions = bind(ctypes.CDLL(LIBRARY), PROTOTYPES)
    except OSError as error:
        return None, f"NVIDIA's driver was not found ({error})"
    except AttributeError as error:
        return None, f"NVIDIA's driver is too old; CUDA 12 needs 525 or newer ({error})"
    if status := functions.cuInit(0):
        return None, f"NVIDIA's driver does not start ({_described(functions, status)})"
    count = c_int()
    if status := functions.cuDeviceGetCount(byref(count)):
        return None, f"NVIDIA's driver does not count its devices ({_described(functions, status)})"
    return (functions, "") if count.value else (None, "NVIDIA's driver finds no device")


def check(status: int, function: str, nbytes: int | None = None) -> None:
    """Raise what `status` means, unless it is success."""
    if status:
        raise failure(_described(library(), status), status, function, nbytes)


def failure(described: str, status: int, function: str, nbytes: int | None = None) -> MathFuseError:
    """The error that a status of the driver means; `nbytes` is what was wanted where memory ran out."""
    if status == OUT_OF_MEMORY:
        wanted = f"{nbytes:,} bytes were wanted" if nbytes is not None else "more was wanted than is free"
        return PlanError(
            f"the GPU's memory does not suffice: {wanted} ({function}: {described}); the process stays usable: "
            "free arrays, or compute in smaller pieces"
        )
    return ToolchainError(f"CUDA's driver failed ({function}: {described})")


def _described(functions: SimpleNamespace, status: int) -> str:
    """`CUDA_ERROR_INVALID_VALUE: invalid argument`, as far as the driver knows."""
    words = []
    for ask in (functions.cuGetErrorName, functions.cuGetErrorString):
        text = ctypes.c_char_p()
        if not ask(status, byref(text)) and text.value:
            words.append(text.value.decode())
    return ": ".join(words) or f"status {status}"


# --- devices ----------------------------------------------------------------------------------------------------------


def device_count() -> int:
    """The number of GPUs; 0 where none can be used."""
    if why_unavailable():
        return 0
    count = c_int()
    check(library().cuDeviceGetCount(byref(count)), "cuDeviceGetCount")
    return count.value


@functools.cache
def architecture(device: int) -> str:
    """Such as ``"sm_80"`` or ``"sm_90a"``."""
    name = f"sm_{_attribute(CAPABILITY_MAJOR, device)}{_attribute(CAPABILITY_MINOR, device)}"
    return VARIANTS.get(name, name)


@functools.cache
def multiprocessors(device: int) -> int:
    """Streaming multiprocessors of a GPU."""
    return _attribute(MULTIPROCESSOR_COUNT, device)


@functools.cache
def l2_bytes(device: int) -> int:
    """Size of a GPU's L2 cache."""
    return _attribute(L2_CACHE_SIZE, device)


@functools.cache
def memory_bandwidth(device: int) -> float:
    """The highest rate of a GPU's memory in bytes a second, by clock and width; 0 where the driver does not tell."""
    kilohertz, bits = (_attribute(number, device) for number in (MEMORY_CLOCK_RATE, MEMORY_BUS_WIDTH))
    return 2 * 1e3 * kilohertz * bits / 8  # two transfers a clock


@functools.cache
def name(device: int) -> str:
    """Such as ``"NVIDIA H200"``."""
    text = ctypes.create_string_buffer(256)
    check(library().cuDeviceGetName(text, len(text), device), "cuDeviceGetName")
    return text.value.decode()


def _attribute(number: int, device: int) -> int:
    value = c_int()
    check(library().cuDeviceGetAttribute(byref(value), number, device), "cuDeviceGetAttribute")
    return value.value


def memory_info(device: int) -> tuple[int, int]:
    """Free and total bytes of a GPU's memory."""
    free, total = c_size_t(), c_size_t()
    with device_guard(device):
        check(library().cuMemGetInfo_v2(byref(free), byref(total)), "cuMemGetInfo")
    return free.value, total.value


def current_device() -> int:
    """The device of the thread's current context; 0 where it has none, as CUDA's runtime has it."""
    device = c_int()
    return 0 if library().cuCtxGetDevice(byref(device)) else device.value


@functools.cache
def context(device: int) -> int:
    """A device's primary context, the one that frameworks share; kept until the process ends."""
    handle = c_void_p()
    check(library().cuDevicePrimaryCtxRetain(byref(handle), device), "cuDevicePrimaryCtxRetain")
    assert handle.value is not None
    return handle.value


class _Current(threading.local):
    """Where the driver writes a thread's current context: asked for at each call, so the place is made once."""

    def __init__(self) -> None:
        self.ask = library().cuCtxGetCurrent
        self.context = c_void_p()
        self.place = byref(self.context)


_current = functools.cache(_Current)  # made at the first guard, since it needs the driver


class device_guard:
    """Make a device's primary context the thread's current one within a `with` block, and the former one after it.

    Parameters
    ----------
    device
        Its ordinal.
    """

    __slots__ = ("_context", "_pushed")

    def __init__(self, device: int) -> None:
        self._context = context(device)
        self._pushed = False

    def __enter__(self) -> None:
        current = _current()
        if status := current.ask(current.place):
            check(status, "cuCtxGetCurrent")
        if current.context.value != self._context:
            check(library().cuCtxPushCurrent_v2(self._context), "cuCtxPushCurrent")
            self._pushed = True

    def __exit__(self, *exception: object) -> None:
        if self._pushed:
            self._pushed = False
            check(library().cuCtxPopCurrent_v2(byref(c_void_p())), "cuCtxPopCurrent")


def fitting(device: int, stream: int) -> Callable[[], bool]:
    """Whether work can be queued on a stream as things are: this thread is on its device, and no graph is captured.

    It is asked by two prepared calls that keep Python's lock, .6 µs in all; one thread at a time may ask.
    """
    functions, wanted, handle, current, capture = _quick(), context(device), c_void_p(stream), c_void_p(), c_int()
    ask, ask_capture = functions.cuCtxGetCurrent, functions.cuStreamIsCapturing
    place, capture_place = byref(current), byref(capture)

    def fits() -> bool:
        return not (ask(place) or current.value != wanted or ask_capture(handle, capture_place) or capture.value)

    return fits


@functools.cache
def _quick() -> Any:
    """The driver's library, called without releasing Python's lock: for what takes no time."""
    library()
    return ctypes.PyDLL(LIBRARY)


# --- streams under capture --------------------------------------------------------------------------------------------


def is_capturing(stream: int) -> bool:
    """Whether what is put on `stream` goes into a CUDA graph; the caller holds the device guard."""
    return _capture(stream) == (0, True)


def capture_of(stream: int) -> int:
    """The number of the capture that `stream` takes part in, another one for each; 0 of none."""
    if not is_capturing(stream):
        return 0
    status, number = c_int(), c_ulonglong()
    check(library().cuStreamGetCaptureInfo(stream, byref(status), byref(number)), "cuStreamGetCaptureInfo")
    return number.value


def meets_capture(stream: int) -> bool:
    """Whether putting anything on `stream` goes into a CUDA graph, or would spoil one that another stream captures."""
    return _capture(stream) != (0, False)


def _capture(stream: int) -> tuple[int, bool]:
    found = c_int()
    status = library().cuStreamIsCapturing(stream, byref(found))
    if status != STREAM_CAPTURE_IMPLICIT:  # another stream captures, which the legacy default stream may not meet
        check(status, "cuStreamIsCapturing")
    return status, found.value != CAPTURE_STATUS_NONE


@contextmanager
def relaxed_capture() -> Iterator[None]:
    """Allow this thread calls that are no part of any stream, such as loading code, while a stream is captured."""
    exchange, mode = library().cuThreadExchangeStreamCaptureMode, c_int(CAPTURE_RELAXED)
    check(exchange(byref(mode)), "cuThreadExchangeStreamCaptureMode")
    try:
        yield
    finally:
        exchange(byref(mode))
