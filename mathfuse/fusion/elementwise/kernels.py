"""Elementwise kernels on a device: each is loaded once in a process."""

from __future__ import annotations

import threading
from collections import OrderedDict

from mathfuse.fusion.compiler.cuda.kernels import ElementwiseKernel
from mathfuse.runtime.cuda import driver

MOST_KERNELS = 256  # that stay loaded; the one that was not asked for the longest time makes room

_kernels: OrderedDict[tuple[str, int], driver.Kernel] = OrderedDict()
_lock = threading.Lock()


def loaded(kernel: ElementwiseKernel, device: int) -> driver.Kernel:
    """A compiled kernel on a device."""
    key = kernel.unit.key(), device
    with _lock:
        found = _kernels.get(key)
        if found is not None:
            _kernels.move_to_end(key)
            return found
    made = driver.load_kernel(kernel.cubin, kernel.name, device)
    with _lock:
        made = _kernels.setdefault(key, made)
        while len(_kernels) > MOST_KERNELS:
            _kernels.popitem(last=False)
    return made
