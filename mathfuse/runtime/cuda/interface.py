"""What plans ask of a framework that holds arrays on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

Allocator = Callable[[], tuple[Any, int]]


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

    def lies(self, array: Any) -> Hashable:
        """Where an array is and how it is laid out, found as fast as possible; equal of one array: nothing changed."""
        return self.pointer(array), self.layout_key(array)

    def refresh(self, copy: Any, array: Any) -> None:
        """Put what `array` holds now into the copy that stands for it."""
        raise AssertionError(f"{self.name} makes no copies")

    def ready(self, array: Any, stream: int) -> None:
        """Have `stream` wait for what still writes the array elsewhere, where that is known."""

    def written(self, array: Any) -> None:
        """Tell the framework that an array's memory changes."""

    def record(self, array: Any, stream: int) -> None:
        """Keep the memory of an array from reuse until `stream` is past what it holds now."""

    def hand_over(self, array: Any, stream: int = 0) -> Any:
        """What a caller is given for an array of `allocator`, written on `stream`."""
        return array
