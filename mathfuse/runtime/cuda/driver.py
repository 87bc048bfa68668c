"""Everything that plans ask of CUDA's driver, under one name."""

from mathfuse.runtime.cuda.devices import (
    architecture,
    capture_of,
    current_device,
    device_count,
    device_guard,
    fitting,
    is_capturing,
    l2_bytes,
    memory_bandwidth,
    memory_info,
    multiprocessors,
    name,
    relaxed_capture,
    why_unavailable,
)
from mathfuse.runtime.cuda.kernels import Kernel, Launch, load_kernel
from mathfuse.runtime.cuda.memory import Memory, allocate, copy_in, copy_out, device_of
from mathfuse.runtime.cuda.streams import Event, stream_handle, stream_wait, synchronize

__all__ = [
    "Event",
    "Kernel",
    "Launch",
    "Memory",
    "allocate",
    "architecture",
    "capture_of",
    "copy_in",
    "copy_out",
    "current_device",
    "device_count",
    "device_guard",
    "device_of",
    "fitting",
    "is_capturing",
    "l2_bytes",
    "load_kernel",
    "memory_bandwidth",
    "memory_info",
    "multiprocessors",
    "name",
    "relaxed_capture",
    "stream_handle",
    "stream_wait",
    "synchronize",
    "why_unavailable",
]
