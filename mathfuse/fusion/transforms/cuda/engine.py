"""A program compiled for a GPU: shared by all plans of the same problem, with a lane for each stream it runs on."""

from __future__ import annotations

import functools
import threading
import weakref
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mathfuse.fusion.compiler.cuda.kernels import ElementwiseKernel
from mathfuse.fusion.compiler.cuda.table import NAME, table_kernel
from mathfuse.fusion.elementwise.kernels import loaded
from mathfuse.fusion.transforms.cuda.code import Code, compiled, units_of
from mathfuse.fusion.transforms.cuda.lanes import Lane, Parts
from mathfuse.fusion.transforms.cuda.program import Program
from mathfuse.fusion.transforms.pipeline import Pipeline
from mathfuse.runtime.cache import Artifact
from mathfuse.runtime.cuda import driver, graphs
from mathfuse.runtime.cuda.frameworks import Framework
from mathfuse.runtime.notes import note, noting

MOST_LANES = 16  # streams at once; the one that was met first makes room
PER_THREAD = 2  # CU_STREAM_PER_THREAD: a stream of each thread under one handle


@dataclass(frozen=True, eq=False)
class Values:
    """The parameters of a pipeline's operands, a block for each code; lanes tell two apart by identity.

    `owners` are the arrays, or weak references to them, that the blocks hold the addresses of.
    """

    blocks: tuple[np.ndarray, ...]
    owners: tuple[Any, ...] = ()


class Engine:
    """A program with its code; it holds no array of a user.

    Attributes
    ----------
    program : Program
    artifacts : dict
        The compiled code it is made of, by the keys of the artifact store.
    """

    def __init__(self, program: Program, codes: list[Code], framework: Framework, device: int) -> None:
        self.program, self.framework, self.device = program, framework, device
        self.artifacts: dict[str, Artifact] = {}
        kernels = {c.map: loaded(c.compiled, device) for c in codes if isinstance(c.compiled, ElementwiseKernel)}
        codes = [code.without_callback() for code in codes]
        self._parts = Parts(program, codes, kernels, _writer(device) if program.hooks else None)
        self._lanes: OrderedDict[Hashable, Lane] = OrderedDict()  # by stream
        self._captures: weakref.WeakValueDictionary[tuple[int, int], Lane] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()

    def values(self, pipeline: Pipeline) -> Values:
        blocks = tuple(code.block(pipeline.functions) for code in self._parts.codes)
        arrays = [array.view for f in pipeline.functions.values() for array in f.arrays.values()]
        return Values(blocks, tuple(arrays))

    def run(self, values: Values, x: int, out: int, stream: int) -> None:
        """Queue the program on `stream`, current in the framework."""
        lane = self._lanes.get(stream if stream != PER_THREAD else _of_thread(stream))
        if lane is not None:
            with lane.lock:
                if lane.fits():
                    lane.run(values.blocks, x, out)
                    return
        self._run_elsewhere(values, x, out, stream)

    def _run_elsewhere(self, values: Values, x: int, out: int, stream: int) -> None:
        """On another device than the current one, on a new stream, or into a graph."""
        with driver.device_guard(self.device):
            capture = driver.capture_of(stream)
            lane = self._captured(stream, capture, values) if capture else self.lane(stream)
            with lane.lock:
                lane.run(values.blocks, x, out)

    def lane(self, stream: int) -> Lane:
        """The lane of a stream, made if there is none yet; the caller holds the device guard."""
        key = stream if stream != PER_THREAD else _of_thread(stream)
        with self._lock:
            lane = self._lanes.get(key)
            if lane is None:
                lane = self._lanes[key] = self._new_lane(stream)
                if len(self._lanes) > MOST_LANES:
                    self._lanes.popitem(last=False)
            return lane

    def _captured(self, stream: int, capture: int, values: Values) -> Lane:
        """The lane of a graph: replays meet no other run in its memory."""
        graphs.hold(values, *(owner() if isinstance(owner, weakref.ref) else owner for owner in values.owners))
        with self._lock:
            lane = self._captures.get((stream, capture))
            if lane is None:
                lane = self._captures[stream, capture] = self._new_lane(stream)
                graphs.hold(lane)
            return lane

    def _new_lane(self, stream: int) -> Lane:
        with driver.relaxed_capture(), noting() as found:
            lane = Lane(self._parts, self.framework, self.device, stream)
        self.artifacts |= found
        return lane

    @property
    def workspace_bytes(self) -> int:
        """Device memory of all lanes."""
        return sum(lane.workspace_bytes for lane in tuple(self._lanes.values()))

    @property
    def lane_bytes(self) -> int:
        """Device memory of one lane."""
        return max((lane.workspace_bytes for lane in tuple(self._lanes.values())), default=0)


_engines: weakref.WeakValueDictionary[Any, Engine] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def engine(program: Program, pipeline: Pipeline, framework: Framework, device: int) -> Engine:
    """The engine of a program and the code of a pipeline's callbacks: one that lives, or a new one."""
    units = units_of(program, pipeline, driver.architecture(device))
    key = program, tuple(unit.key() for _, unit in units), framework, device
    with _lock:
        found = _engines.get(key)
    if found is None:
        with noting() as artifacts:
            made = Engine(program, [compiled(map_, unit) for map_, unit in units], framework, device)
        made.artifacts |= artifacts
        with _lock:
            found = _engines.setdefault(key, made)
    note(found.artifacts)
    return found


def _of_thread(stream: int) -> Hashable:
    return stream, threading.get_ident()


@functools.cache
def _writer(device: int) -> driver.Kernel:
    """The kernel that writes tables."""
    return driver.load_kernel(table_kernel(driver.architecture(device)), NAME, device)
