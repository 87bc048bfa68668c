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
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np

from mathfuse.runtime.arrays import check_result
from mathfuse.runtime.cuda import dlpack
from mathfuse.runtime.cuda.devices import current_device, meets_capture
from mathfuse.runtime.cuda.interface import Allocator, Framework
from mathfuse.runtime.cuda.memory import PoolArray, device_of
from mathfuse.runtime.cuda.pool import Host, Pool
from mathfuse.runtime.cuda.streams import Event, stream_wait
from mathfuse.runtime.dtypes import dtype_name
from mathfuse.runtime.errors import PlanError, ToolchainError

_NO_KEY = (RuntimeError, AttributeError, TypeError)  # of arrays that `as_device` refuses


@contextmanager
def lacking_memory(nbytes: int) -> Iterator[None]:
    """Turns what a framework raises where the GPU's memory does not suffice into a PlanError."""
    try:
        yield
    except Exception as error:
        if "out of memory" not in str(error).lower():
            raise
        raise PlanError(
            f"the GPU's memory does not suffice: {nbytes:,} bytes were wanted; the process stays usable: free arrays, "
            f"or compute in smaller pieces ({error})"
        ) from error


class _Foreign:
    """A stream by its handle, for CuPy."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle


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
        check_result(dtype, self.name)
        make, current = self._library.ndarray, self._library.cuda.runtime.getDevice

        def allocate() -> tuple[Any, int]:
            if current() != device:
                with self._library.cuda.Device(device):
                    array = make(shape, dtype)
            else:
                array = make(shape, dtype)
            return array, array.data.ptr

        return allocate

    def on_stream(self, stream: int, device: int) -> AbstractContextManager[Any]:
        if stream == self.current_stream(device):
            return nullcontext()
        cuda = self._library.cuda
        if hasattr(cuda.Stream, "from_external"):  # CuPy 14
            return cuda.Stream.from_external(_Foreign(stream))
        return cuda.ExternalStream(stream, device)

    def pointer(self, array: Any) -> int:
        return array.data.ptr

    def layout_key(self, array: Any) -> Hashable:
        data = array.data
        return type(array), array.shape, array.strides, array.dtype, data.device_id, data.ptr & 15

    def lies(self, array: Any) -> Hashable:
        return array.data.ptr, array.shape, array.strides, array.dtype

    def refresh(self, copy: Any, array: Any) -> None:
        copy[...] = array


class Torch(Framework):
    name = "torch"

    @functools.cached_property
    def _library(self) -> Any:
        import torch

        return torch

    def has_gpu(self) -> bool:
        """Whether this build of PyTorch works on GPUs."""
        return self._library.cuda.is_available()

    @functools.cached_property
    def current_stream(self) -> Callable[[int], int]:
        torch = self._library
        fast = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        return fast or (lambda device: torch.cuda.current_stream(device).cuda_stream)

    def allocator(self, shape: tuple[int, ...], dtype: np.dtype[Any], device: int) -> Allocator:
        torch = self._library
        make, place, order = torch.empty_like, torch.device("cuda", device), torch.contiguous_format
        # One element that poses as all of them: `empty_like` asks it for everything, in half the time of `empty`.
        pattern = torch.empty((), dtype=getattr(torch, dtype_name(dtype)), device=place).expand(shape)

        def allocate() -> tuple[Any, int]:
            array = make(pattern, memory_format=order)
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
                type(array),
                array.shape,
                array.stride(),
                array.dtype,
                array.get_device(),
                array.data_ptr() & 15,
                array.is_conj(),
                array.is_neg(),
                array.requires_grad,
            )
        except _NO_KEY:  # sparse and nested tensors, tracers
            return object()

    def lies(self, array: Any) -> Hashable:
        return array.data_ptr(), array.shape, array.stride(), array.requires_grad

    def refresh(self, copy: Any, array: Any) -> None:
        copy.copy_(array)

    def written(self, array: Any) -> None:
        if not array.is_inference():
            self._increment((array,))

    @functools.cached_property
    def _increment(self) -> Callable[[tuple[Any, ...]], None]:
        torch = self._library
        fast = getattr(torch._C, "_increment_version", None)
        return fast or (lambda arrays: torch.autograd.graph.increment_version(arrays[0]))

    def record(self, array: Any, stream: int) -> None:
        array.record_stream(self._stream(stream, array.get_device()))

    def _stream(self, stream: int, device: int) -> Any:
        cuda = self._library.cuda
        return cuda.default_stream(device) if stream in (0, 1) else cuda.ExternalStream(stream, device)


class Exchange(Framework):
    """Arrays of other libraries, by their interfaces; memory for results is CuPy's, else PyTorch's, else the driver's.

    Parameters
    ----------
    name
        The library.
    deliver
        Makes a result, written on a stream, the library's own array; by default it stays what its memory's framework
        has it be.
    """

    def __init__(self, name: str = "exchange", deliver: Callable[[Any, int], Any] | None = None) -> None:
        self.name, self._deliver = name, deliver
        self._held: deque[tuple[Event, Any]] = deque()
        self._lock = threading.Lock()

    @functools.cached_property
    def memory(self) -> Framework:
        """Whose memory results have."""
        if _is_installed("cupy"):
            return CUPY
        return TORCH if _is_installed("torch") and TORCH.has_gpu() else POOL

    def current_stream(self, device: int) -> int:
        return self.memory.current_stream(device)

    def allocator(self, shape: tuple[int, ...], dtype: np.dtype[Any], device: int) -> Allocator:
        check_result(dtype, self.name)
        return self.memory.allocator(shape, dtype, device)

    def on_stream(self, stream: int, device: int) -> AbstractContextManager[Any]:
        return self.memory.on_stream(stream, device)

    def pointer(self, array: Any) -> int:
        interface = getattr(array, "__cuda_array_interface__", None)
        return (interface["data"][0] or 0) if interface else dlpack.export(array).pointer

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
            array.__dlpack__(stream=stream or 1)  # the protocol has it wait for the array; 1 is stream 0
            return
        producer = array.__cuda_array_interface__.get("stream")
        if producer is not None and (producer, stream) not in ((1, 0), (stream, stream)):
            event = Event(current_device(), timing=False)
            event.record(producer)
            stream_wait(stream, event)

    def record(self, array: Any, stream: int) -> None:
        if meets_capture(stream):  # a graph's arrays are its owner's
            return
        event = Event(current_device(), timing=False)
        event.record(stream)
        self.release()
        with self._lock:
            self._held.append((event, array))

    def release(self) -> None:
        """Let go of the arrays that streams are past."""
        with self._lock:
            while self._held and self._held[0][0].is_past():
                self._held.popleft()

    def hand_over(self, array: Any, stream: int = 0) -> Any:
        if isinstance(array, PoolArray):
            array.memory.used(stream)
        if self._deliver is None:
            return array
        with self.on_stream(stream, current_device()):
            return self._deliver(array, stream)


def _is_installed(name: str) -> bool:
    return name in sys.modules or importlib.util.find_spec(name) is not None


def _as_jax(array: Any, stream: int) -> Any:
    """Through DLPack, which has JAX wait for the stream that is current in CuPy or PyTorch."""
    if not hasattr(array, "__dlpack__"):
        raise ToolchainError('results for JAX need memory of CuPy or PyTorch: pip install "mathfuse[cu13]" (or [cu12])')
    return sys.modules["jax"].dlpack.from_dlpack(array)


def _as_numba(array: Any, stream: int) -> Any:
    """Numba's arrays cannot have a stream wait; what follows on the legacy default stream (0, 1) needs no wait."""
    return sys.modules["numba.cuda"].as_cuda_array(array, sync=stream > 1)


CUPY = Cupy()
TORCH = Torch()
POOL = Pool()
HOST = Host()
EXCHANGE = Exchange()
JAX = Exchange("jax", _as_jax)
NUMBA = Exchange("numba", _as_numba)

__all__ = ["CUPY", "EXCHANGE", "HOST", "JAX", "NUMBA", "POOL", "TORCH", "Allocator", "Framework"]
