"""What differs between the frameworks that hold arrays on a GPU: streams, allocation, and how results are given back.

A framework is touched only if the program imported it; for arrays of other libraries memory comes from CuPy or PyTorch
where one is installed.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
import threading
from collections import deque
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt

from mathfuse.runtime.cuda.devices import current_device, device_guard
from mathfuse.runtime.cuda.memory import PoolArray, copy_out, device_of
from mathfuse.runtime.cuda.streams import Event, stream_wait
from mathfuse.runtime.errors import ToolchainError

Allocator = Callable[[], tuple[Any, int]]
_NO_KEY = (RuntimeError, AttributeError, TypeError)  # of arrays that `as_device` refuses


class Framework:
    """How arrays of one framework are met; the base serves those that ask for nothing."""

    name: str

    def current_stream(self, device: int) -> int:
        """The stream on which the framework works now in this thread."""
        raise AssertionError("a framework supplies current_stream")

    def allocator(self, shape: tuple[int, ...], dtype: np.dtype[Any], device: int) -> Allocator:
        """What makes new C-contiguous arrays and tells their addresses; the caller holds the device guard."""
        raise AssertionError("a framework supplies allocator")

    def on_stream(self, stream: int, device: int) -> AbstractContextManager[Any]:
        """A context in which `stream` is current, and allocations belong to it; the caller holds the device guard."""
        raise AssertionError("a framework supplies on_stream")

    def pointer(self, array: Any) -> int:
        """The address of an array's first element."""
        raise AssertionError("a framework supplies pointer")

    def layout_key(self, array: Any) -> Hashable:
        """What `as_device` answers but for the address, of which only the alignment counts; equal: the same answer."""
        raise AssertionError("a framework supplies layout_key")

    def ready(self, array: Any, stream: int) -> None:
        """Have `stream` wait for what still writes the array elsewhere, where that is known."""

    def record(self, array: Any, stream: int) -> None:
        """Keep the memory of an array from reuse until `stream` is past what it holds now."""

    def hand_over(self, array: Any, stream: int = 0) -> Any:
        """What a caller is given for an array of `allocator`, written on `stream`."""
        return array


class Cupy(Framework):
    name = "cupy"

    @functools.cached_property
    def _library(self) -> Any:
        import cupy

        return cupy

    @functools.cached_property
    def _current(self) -> Callable[[int], Any]:
        return self._library.cuda.get_current_stream

    def current_stream(self, device: int) -> int:
        return self._current(device).ptr

    def allocator(self, shape: tuple[int, ...], dtype: np.dtype[Any], device: int) -> Allocator:
        make = functools.partial(self._library.ndarray, shape, dtype)

        def allocate() -> tuple[Any, int]:
            array = make()
            return array, array.data.ptr

        return allocate

    def on_stream(self, stream: int, device: int) -> AbstractContextManager[Any]:
        if stream == self.current_stream(device):
            return nullcontext()
        return self._library.cuda.ExternalStream(stream, device)

    def pointer(self, array: Any) -> int:
        return array.data.ptr

    def layout_key(self, array: Any) -> Hashable:
        data = array.data
        return type(array), array.shape, array.strides, array.dtype, data.device_id, data.ptr & 15


class Torch(Framework):
    name = "torch"

    @functools.cached_property
    def _library(self) -> Any:
        import torch

        return torch

    @functools.cached_property
    def current_stream(self) -> Callable[[int], int]:
        torch = self._library
        fast = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        return fast or (lambda device: torch.cuda.current_stream(device).cuda_stream)

    def allocator(self, shape: tuple[int, ...], dtype: np.dtype[Any], device: int) -> Allocator:
        torch = self._library
        place = torch.device("cuda", device)
        make = functools.partial(torch.empty, shape, dtype=getattr(torch, dtype.name), device=place)

        def allocate() -> tuple[Any, int]:
            array = make()
            return array, array.data_ptr()

        return allocate

    def on_stream(self, stream: int, device: int) -> AbstractContextManager[Any]:
        if stream == self.current_stream(device):
            return nullcontext()
        return self._library.cuda.stream(self._stream(stream, device))

    def pointer(self, array: Any) -> int:
        return array.data_ptr()

    def layout_key(self, array: Any) -> Hashable:
        try:
            return (
                *(type(array), array.shape, array.stride(), array.dtype, array.get_device(), array.data_ptr() & 15),
                *(array.is_conj(), array.is_neg(), array.requires_grad),
            )
        except _NO_KEY:  # sparse and nested tensors, tracers
            return object()

    def record(self, array: Any, stream: int) -> None:
        array.record_stream(self._stream(stream, array.get_device()))

    def _stream(self, stream: int, device: int) -> Any:
        cuda = self._library.cuda
        return cuda.default_stream(device) if stream in (0, 1) else cuda.ExternalStream(stream, device)


class Pool(Framework):
    """The driver's own pool; streams are those of `on_stream`, else the legacy default stream."""

    name = "pool"

    def __init__(self) -> None:
        self._streams = threading.local()

    def current_stream(self, device: int) -> int:
        return getattr(self._streams, "current", {}).get(device, 0)

    def allocator(self, shape: tuple[int, ...], dtype: np.dtype[Any], device: int) -> Allocator:
        def allocate() -> tuple[PoolArray, int]:
            array = PoolArray(shape, dtype, device, self.current_stream(device))
            return array, array.pointer

        return allocate

    @contextmanager
    def _with_current(self, streams: dict[int, int]) -> Any:
        before = getattr(self._streams, "current", {})
        self._streams.current = {**before, **streams}
        try:
            yield
        finally:
            self._streams.current = before

    def on_stream(self, stream: int, device: int) -> AbstractContextManager[Any]:
        return nullcontext() if stream == self.current_stream(device) else self._with_current({device: stream})

    def pointer(self, array: Any) -> int:
        return array.pointer

    def layout_key(self, array: Any) -> Hashable:
        return type(array), array.shape, array.dtype, array.memory.device, array.pointer & 15


class Host(Pool):
    """NumPy arrays that are copied to the GPU and back."""

    name = "numpy"

    def layout_key(self, array: Any) -> Hashable:
        return type(array), array.shape, array.strides, array.dtype, array.ctypes.data & 15

    def pointer(self, array: Any) -> int:
        return array.pointer if isinstance(array, PoolArray) else array.ctypes.data

    def hand_over(self, array: Any, stream: int = 0) -> npt.NDArray[Any]:
        result = np.empty(array.shape, array.dtype)
        with device_guard(array.memory.device):
            copy_out(result, array.pointer, stream)
        return result


class Exchange(Framework):
    """Arrays of other libraries, by their interfaces; memory for results is CuPy's, else PyTorch's, else the driver's.

    Parameters
    ----------
    name
        The library.
    deliver
        Makes a result the library's own array; by default it is given as its memory's framework has it.
    """

    def __init__(self, name: str = "exchange", deliver: Callable[[Any, Framework], Any] | None = None) -> None:
        self.name, self._deliver = name, deliver
        self._held: deque[tuple[Event, Any]] = deque()

    @functools.cached_property
    def memory(self) -> Framework:
        """Whose memory results have."""
        for name, framework in (("cupy", CUPY), ("torch", TORCH)):
            if name in sys.modules or importlib.util.find_spec(name):
                return framework
        return POOL

    def current_stream(self, device: int) -> int:
        return self.memory.current_stream(device)

    def allocator(self, shape: tuple[int, ...], dtype: np.dtype[Any], device: int) -> Allocator:
        return self.memory.allocator(shape, dtype, device)

    def on_stream(self, stream: int, device: int) -> AbstractContextManager[Any]:
        return self.memory.on_stream(stream, device)

    def pointer(self, array: Any) -> int:
        return array.__cuda_array_interface__["data"][0] or 0

    def layout_key(self, array: Any) -> Hashable:
        try:
            interface = array.__cuda_array_interface__
        except _NO_KEY:
            return object()
        pointer, readonly = interface["data"]
        strides, pointer = interface.get("strides"), pointer or 0
        place = device_of(pointer) if pointer else None
        return type(array), tuple(interface["shape"]), strides, interface["typestr"], readonly, place, pointer & 15

    def ready(self, array: Any, stream: int) -> None:
        if hasattr(array, "__dlpack__"):
            array.__dlpack__(stream=stream or 1)  # by the protocol, its stream waits for the array; 1 is stream 0
            return
        producer = array.__cuda_array_interface__.get("stream")
        if producer is not None and (producer, stream) not in ((1, 0), (stream, stream)):
            event = Event(current_device(), timing=False)
            event.record(producer)
            stream_wait(stream, event)

    def record(self, array: Any, stream: int) -> None:
        while self._held and self._held[0][0].is_past():
            self._held.popleft()
        event = Event(current_device(), timing=False)
        event.record(stream)
        self._held.append((event, array))

    def hand_over(self, array: Any, stream: int = 0) -> Any:
        return self._deliver(array, self.memory) if self._deliver else array


def _as_jax(array: Any, memory: Framework) -> Any:
    """Through DLPack, which has JAX wait for the stream that is current in CuPy or PyTorch."""
    if memory is POOL:
        raise ToolchainError('results for JAX need memory of CuPy or PyTorch: pip install "mathfuse[cu13]" (or [cu12])')
    jax = sys.modules["jax"]
    return jax.dlpack.from_dlpack(array)


def _as_numba(array: Any, memory: Framework) -> Any:
    from numba import cuda

    return cuda.as_cuda_array(array)


CUPY = Cupy()
TORCH = Torch()
POOL = Pool()
HOST = Host()
EXCHANGE = Exchange()
JAX = Exchange("jax", _as_jax)
NUMBA = Exchange("numba", _as_numba)
