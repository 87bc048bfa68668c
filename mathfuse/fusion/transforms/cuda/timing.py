"""How long work takes on a GPU, without the time that the host needs to queue it."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Callable

import numpy as np

from mathfuse.fusion.compiler.cuda.hold import NAME, hold_kernel
from mathfuse.runtime.cuda import driver

AT_LEAST = 0.2  # milliseconds of one timing: as many runs as that takes
MOST_RUNS = 20
HOST_NANOSECONDS = 40_000  # to queue a run, at most


def milliseconds(run: Callable[[], None], device: int, stream: int, timings: int) -> float:
    """The median time of `run` on a stream, of so many timings; the caller holds the device guard."""
    held = np.zeros(1, np.int64)
    hold = driver.Launch(_hold(device), 1, 1, held)

    def time(count: int) -> float:
        begin, end = driver.Event(device), driver.Event(device)
        held[0] = (count + 1) * HOST_NANOSECONDS
        hold(stream)
        begin.record(stream)
        for _ in range(count):
            run()
        end.record(stream)
        end.synchronize()
        return end.elapsed_ms(begin) / count

    time(1)
    count = max(1, min(MOST_RUNS, math.ceil(AT_LEAST / time(2))))
    return statistics.median(time(count) for _ in range(timings))


@functools.cache
def _hold(device: int) -> driver.Kernel:
    return driver.load_kernel(hold_kernel(driver.architecture(device)), NAME, device)
