"""A program compiled for a GPU: shared by all plans of the same problem, with a lane for each stream it runs on."""

from __future__ import annotations

import functools
import threading
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np

from mathfuse.fusion.compiler.cuda.kernels import ElementwiseKernel
from mathfuse.fusion.compiler.cuda.table import NAME, table_kernel
from mathfuse.fusion.elementwise.kernels import loaded
from mathfuse.fusion.transforms.cuda.code import Code, compiled, units_of
from mathfuse.fusion.transforms.cuda.lanes import Lane, Parts
from mathfuse.fusion.transforms.cuda.program import Program
from mathfuse.fusion.transforms.pipeline import Pipeline
from mathfuse.runtime.cuda import driver
from mathfuse.runtime.cuda.frameworks import Framework

MOST_LANES = 16  # streams at once; the one that was not used for the longest time makes room

Values = Sequence[np.ndarray]  # the parameters of each code


class Engine:
    """A program with its code.

    Attributes
    ----------
    program : Program
    workspace_bytes : int
        Device memory of one lane.
    """

    def __init__(self, program: Program, codes: list[Code], framework: Framework, device: int) -> None:
        self.program, self.framework, self.device = program, framework, device
        kernels = {c.map: loaded(c.compiled, device) for c in codes if isinstance(c.compiled, ElementwiseKernel)}
        self._parts = Parts(program, codes, kernels, _writer(device) if program.hooks else None)
        self._lanes: OrderedDict[tuple[int, bool], Lane] = OrderedDict()
        self._lock = threading.Lock()
        self.workspace_bytes = 0

    def values(self, pipeline: Pipeline) -> Values:
        """The parameters of a pipeline's operands; a new list for each, which lanes tell apart by identity."""
        return [code.block(pipeline.functions) for code in self._parts.codes]

    def run(self, values: Values, x: int, out: int, stream: int) -> None:
        """Queue the program on `stream`, current in the framework."""
        lane = self._lanes.get((stream, False))
        if lane is not None:
            with lane.lock:
                if lane.fits():
                    lane.run(values, x, out)
                    return
        self._run_elsewhere(values, x, out, stream)

    def _run_elsewhere(self, values: Values, x: int, out: int, stream: int) -> None:
        """On another device than the current one, on a new stream, or into a graph.

        What is captured has a lane of its own, so that replays meet no other run in its memory.
        """
        with driver.device_guard(self.device):
            capture = driver.capture_of(stream)
            lane = self.lane(stream, capture != 0)
            with lane.lock:
                lane.begin(capture)
                lane.run(values, x, out)

    def lane(self, stream: int, capturing: bool = False) -> Lane:
        """The lane of a stream, made if there is none yet."""
        with self._lock:
            lane = self._lanes.get((stream, capturing))
            if lane is None:
                with driver.relaxed_capture():
                    lane = Lane(self._parts, self.framework, self.device, stream)
                self._lanes[stream, capturing] = lane
                self.workspace_bytes = lane.workspace_bytes
                if len(self._lanes) > MOST_LANES:
                    idle = next((key for key in self._lanes if not key[1] and key != (stream, capturing)), None)
                    if idle is not None:
                        del self._lanes[idle]
            return lane


_engines: weakref.WeakValueDictionary[Any, Engine] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def engine(program: Program, pipeline: Pipeline, framework: Framework, device: int) -> Engine:
    """The engine of a program and the code of a pipeline's callbacks: one that lives, or a new one."""
    units = units_of(program, pipeline, driver.architecture(device))
    key = program, tuple(unit.key() for _, unit in units), framework, device
    with _lock:
        found = _engines.get(key)
    if found is None:
        made = Engine(program, [compiled(map_, unit) for map_, unit in units], framework, device)
        with _lock:
            found = _engines.setdefault(key, made)
    return found


@functools.cache
def _writer(device: int) -> driver.Kernel:
    """The kernel that writes tables."""
    return driver.load_kernel(table_kernel(driver.architecture(device)), NAME, device)
