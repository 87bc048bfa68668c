"""The driver's own memory pool as a framework, and NumPy, whose arrays are copied there and back."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt

from mathfuse.runtime.cuda.devices import device_guard
from mathfuse.runtime.cuda.interface import Allocator, Framework
from mathfuse.runtime.cuda.memory import PoolArray, copy_out


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
