"""cuFFT: a table of its C functions, and transforms with callbacks set while their plans are made.

Numbers are those of cufft.h and cufftXt.h.
"""

from __future__ import annotations

import ctypes
import functools
import weakref
from collections.abc import Sequence
from ctypes import byref, c_int, c_longlong, c_size_t, c_void_p
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np

from mathfuse.runtime.cuda.devices import device_guard, relaxed_capture
from mathfuse.runtime.cuda.prototypes import bind
from mathfuse.runtime.errors import MathFuseError, PlanError, ToolchainError, UnsupportedError

EXTRAS = 'pip install "mathfuse[cu13]" (or [cu12])'

PROTOTYPES = {
    "cufftCreate": "*",
    "cufftDestroy": "i",
    "cufftGetVersion": "*",
    "cufftSetAutoAllocation": "ii",
    "cufftMakePlanMany64": "iippllpllil*",
    "cufftSetStream": "ip",
    "cufftSetWorkArea": "ip",
    "cufftXtExec": "ippi",
}
# CUDA 12 has the function under a name with a version, CUDA 13 under the plain one.
SET_CALLBACK = ("cufftXtSetJITCallback", "__cufftXtSetJITCallback_12_7")
SET_CALLBACK_PROTOTYPE = "ispni*"

# cufftResult
RESULTS = {
    1: "CUFFT_INVALID_PLAN",
    2: "CUFFT_ALLOC_FAILED",
    3: "CUFFT_INVALID_TYPE",
    4: "CUFFT_INVALID_VALUE",
    5: "CUFFT_INTERNAL_ERROR",
    6: "CUFFT_EXEC_FAILED",
    7: "CUFFT_SETUP_FAILED",
    8: "CUFFT_INVALID_SIZE",
    9: "CUFFT_UNALIGNED_DATA",
    10: "CUFFT_INCOMPLETE_PARAMETER_LIST",
    11: "CUFFT_INVALID_DEVICE",
    12: "CUFFT_PARSE_ERROR",
    13: "CUFFT_NO_WORKSPACE",
    14: "CUFFT_NOT_IMPLEMENTED",
    15: "CUFFT_LICENSE_ERROR",
    16: "CUFFT_NOT_SUPPORTED",
    17: "CUFFT_MISSING_DEPENDENCY",
    18: "CUFFT_NVRTC_FAILURE",
    19: "CUFFT_NVJITLINK_FAILURE",
    20: "CUFFT_NVSHMEM_FAILURE",
}
# cufftType by family and whether it is double.
TYPES = {
    ("c2c", False): 0x29,  # CUFFT_C2C
    ("r2c", False): 0x2A,  # CUFFT_R2C
    ("c2r", False): 0x2C,  # CUFFT_C2R
    ("c2c", True): 0x69,  # CUFFT_Z2Z
    ("r2c", True): 0x6A,  # CUFFT_D2Z
    ("c2r", True): 0x6C,  # CUFFT_Z2D
}
# cufftXtCallbackType by side and element.
CALLBACKS = {
    ("prolog", "complex64"): 0,  # CUFFT_CB_LD_COMPLEX
    ("prolog", "complex128"): 1,  # CUFFT_CB_LD_COMPLEX_DOUBLE
    ("prolog", "float32"): 2,  # CUFFT_CB_LD_REAL
    ("prolog", "float64"): 3,  # CUFFT_CB_LD_REAL_DOUBLE
    ("epilog", "complex64"): 4,  # CUFFT_CB_ST_COMPLEX
    ("epilog", "complex128"): 5,  # CUFFT_CB_ST_COMPLEX_DOUBLE
    ("epilog", "float32"): 6,  # CUFFT_CB_ST_REAL
    ("epilog", "float64"): 7,  # CUFFT_CB_ST_REAL_DOUBLE
}
FORWARD, INVERSE = -1, 1


@dataclass(frozen=True)
class View:
    """One side of a transform in memory, counted in elements.

    Element (b, i, j, k) of batch b lies at ``b * distance + ((i * embed[1] + j) * embed[2] + k) * stride``; of
    ``embed`` the first counts for nothing.
    """

    embed: tuple[int, ...]
    stride: int
    distance: int


@dataclass(frozen=True)
class Call:
    """What `cufftMakePlanMany64` is told.

    Attributes
    ----------
    family : {"c2c", "r2c", "c2r"}
    double : bool
        Whether in float64 precision.
    lengths : tuple of int
        One to three, outermost first; those of the real side.
    batch : int
    input, output : View
    """

    family: Literal["c2c", "r2c", "c2r"]
    double: bool
    lengths: tuple[int, ...]
    batch: int
    input: View
    output: View


@dataclass(frozen=True)
class Hook:
    """An LTO callback of a transform.

    Attributes
    ----------
    side : {"prolog", "epilog"}
    dtype : numpy.dtype
        What the transform loads or stores.
    ltoir : bytes
    info : int
        Device address of the parameter block that the callback is given.
    """

    side: Literal["prolog", "epilog"]
    dtype: np.dtype[Any]
    ltoir: bytes
    info: int


class Transform:
    """A cuFFT plan that runs on one stream at a time, in memory that its user supplies.

    Parameters
    ----------
    call
        Lengths, batch and views.
    hooks
        At most one a side.
    device
        Ordinal of the GPU, which need not be the current one.

    Attributes
    ----------
    work_bytes : int
        Size of the work area that `set_work_area` must be given before `run`; 0: none is needed.

    Raises
    ------
    PlanError
        The GPU's memory does not suffice.
    UnsupportedError
        cuFFT does not do such a transform.
    ToolchainError
        cuFFT is missing, or anything else that goes wrong in it.
    """

    def __init__(self, call: Call, hooks: Sequence[Hook] = (), device: int = 0) -> None:
        self._library = library()
        self.call, self.device = call, device
        with device_guard(device), relaxed_capture():
            handle = c_int()
            check(self._library.cufftCreate(byref(handle)), "cufftCreate")
            self._handle = handle.value
            self._finalizer = weakref.finalize(self, _destroy, self._library, handle.value, device)
            self._finalizer.atexit = False  # the driver takes everything back, and may be gone by then
            try:
                self.work_bytes = self._make(call, hooks)
            except MathFuseError:
                self.destroy()
                raise
        self._execute = functools.partial(self._library.cufftXtExec, handle)

    def _make(self, call: Call, hooks: Sequence[Hook]) -> int:
        handle, rank = self._handle, len(call.lengths)
        check(self._library.cufftSetAutoAllocation(handle, 0), "cufftSetAutoAllocation")
        places = [c_void_p(hook.info) for hook in hooks]
        for hook, place in zip(hooks, places, strict=True):
            number = CALLBACKS[hook.side, str(hook.dtype)]
            # The bytes are read when the plan is made, and `hooks` holds them until then.
            status = self._library.set_callback(handle, None, hook.ltoir, len(hook.ltoir), number, byref(place))
            check(status, "cufftXtSetJITCallback")
        numbers = c_longlong * rank
        lengths, inside, outside = numbers(*call.lengths), numbers(*call.input.embed), numbers(*call.output.embed)
        work = c_size_t()
        status = self._library.cufftMakePlanMany64(
            *(handle, rank, byref(lengths)),
            *(byref(inside), call.input.stride, call.input.distance),
            *(byref(outside), call.output.stride, call.output.distance),
            *(TYPES[call.family, call.double], call.batch, byref(work)),
        )
        check(status, "cufftMakePlanMany64", call)
        return work.value

    def set_stream(self, stream: int) -> None:
        """Have the next runs on `stream`, a handle of the transform's device."""
        check(self._library.cufftSetStream(self._handle, stream), "cufftSetStream")

    def set_work_area(self, pointer: int) -> None:
        """Device address of `work_bytes` bytes that the next runs use."""
        check(self._library.cufftSetWorkArea(self._handle, pointer), "cufftSetWorkArea")

    def run(self, source: int, target: int, forward: bool) -> None:
        """Transform from device address `source` to `target`; the caller holds the device guard."""
        if status := self._execute(source, target, FORWARD if forward else INVERSE):
            raise failure(status, "cufftXtExec", self.call)

    def destroy(self) -> None:
        """Give the plan back to cuFFT; a second time does no harm."""
        self._finalizer()


def _destroy(functions: SimpleNamespace, handle: int, device: int) -> None:
    with device_guard(device), relaxed_capture():
        functions.cufftDestroy(handle)


def version() -> tuple[int, int, int]:
    """cuFFT's version, such as (12, 0, 0)."""
    number = c_int()
    check(library().cufftGetVersion(byref(number)), "cufftGetVersion")
    return number.value // 1000, number.value // 100 % 10, number.value % 100


@functools.cache
def library() -> SimpleNamespace:
    """cuFFT's functions.

    Raises
    ------
    ToolchainError
        It is not installed, or too old for LTO callbacks.
    """
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        path = load_nvidia_dynamic_lib("cufft").abs_path
        loaded = ctypes.CDLL(path)
    except (ImportError, RuntimeError, OSError) as error:  # pathfinder's DynamicLibNotFoundError is a RuntimeError
        raise ToolchainError(f"cuFFT was not found: {EXTRAS} brings it ({error})") from error
    return table_of(loaded)


def table_of(loaded: Any) -> SimpleNamespace:
    """The functions of a loaded cuFFT."""
    try:
        functions = bind(loaded, PROTOTYPES, dict.fromkeys(SET_CALLBACK, SET_CALLBACK_PROTOTYPE))
    except AttributeError as error:
        raise ToolchainError(f"this cuFFT lacks a function: {EXTRAS} brings a newer one ({error})") from error
    setters = [function for name in SET_CALLBACK if (function := getattr(functions, name)) is not None]
    if not setters:
        raise ToolchainError(f"this cuFFT has no LTO callbacks, which came with CUDA 12.7: {EXTRAS} brings it")
    functions.set_callback = setters[0]
    return functions


def check(status: int, function: str, call: Call | None = None) -> None:
    """Raise what `status` means, unless it is success."""
    if status:
        raise failure(status, function, call)


def failure(status: int, function: str, call: Call | None = None) -> MathFuseError:
    """The error that a status of cuFFT means."""
    name = RESULTS.get(status, f"status {status}")
    what = f" for {call}" if call else ""
    if name == "CUFFT_ALLOC_FAILED":
        return PlanError(
            f"the GPU's memory does not suffice{what} ({function}: {name}); the process stays usable: "
            "free arrays or transform in smaller batches"
        )
    if name in ("CUFFT_INVALID_SIZE", "CUFFT_NOT_SUPPORTED", "CUFFT_NOT_IMPLEMENTED"):
        return UnsupportedError(
            f"cuFFT does not do this transform{what} ({function}: {name}); take other lengths, or execution='cpu'"
        )
    return ToolchainError(f"cuFFT failed{what} ({function}: {name})")
