"""What an engine needs to run on one stream: cuFFT plans, memory, and parameters with the addresses filled in."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mathfuse.fusion.compiler.cuda.artifacts import Compiled
from mathfuse.fusion.compiler.cuda.kernels import ElementwiseKernel
from mathfuse.fusion.compiler.cuda.table import THREADS, VALUES, table_parameters
from mathfuse.fusion.elementwise.layouts import MOST_ALIGNED
from mathfuse.fusion.transforms.cuda.blocks import BlockTransform
from mathfuse.fusion.transforms.cuda.code import Code
from mathfuse.fusion.transforms.cuda.program import Buffer, Map, Program, Transform
from mathfuse.runtime.cuda import cufft, driver
from mathfuse.runtime.cuda.frameworks import Framework, lacking_memory
from mathfuse.runtime.cuda.memory import PoolArray
from mathfuse.runtime.cuda.recording import record

GRAIN = 256  # bytes: what allocators align to, and enough for any access
PRETENDED = 1 << 40, 1 << 41  # addresses of input and result while no other are known; nothing lies there

Run = Callable[[list[int]], None]  # given the addresses of the buffers: x, out, and the rooms


@dataclass(frozen=True)
class Parts:
    """What all lanes of an engine share: the program, the code of each map in order, and loaded kernels."""

    program: Program
    codes: Sequence[Code]
    kernels: dict[Map, driver.Kernel]
    writer: driver.Kernel | None  # of tables


@dataclass(frozen=True)
class Table:
    """A callback's parameters in device memory, and the launches that write them there."""

    address: int
    block: np.ndarray
    slots: Sequence[tuple[int, int]]  # (slot, number of the buffer whose address it holds)
    launches: Sequence[driver.Launch]

    def point(self, addresses: list[int]) -> bool:
        """Put addresses into the block; whether one is new."""
        new = [(slot, number) for slot, number in self.slots if self.block[slot] != addresses[number]]
        for slot, number in new:
            self.block[slot] = addresses[number]
        return bool(new)

    def write(self, stream: int) -> None:
        for number, launch in enumerate(self.launches):
            part = self.block[VALUES * number : VALUES * (number + 1)]
            launch.parameters[2 : 2 + part.size] = part
            launch(stream)


class Lane:
    """One stream's own plans and memory, used under its lock; the stream's order protects the rest.

    Parameters
    ----------
    parts
        What runs.
    framework, device, stream
        Whose allocator the memory comes from, and where it is used. The caller holds the device guard.

    Attributes
    ----------
    lock : threading.Lock
    fits : callable
        Whether the lane can be used as things are.
    work_bytes : list of int
        The work area of each transform.
    workspace_bytes : int
        All device memory of the lane.
    """

    def __init__(self, parts: Parts, framework: Framework, device: int, stream: int) -> None:
        self.lock, self.fits, self.stream = threading.Lock(), driver.fitting(device, stream), stream
        self._framework, self._device, self._memory = framework, device, list[Any]()
        program = parts.program
        self._alone = len(program.steps) == 1
        self._numbers = {"x": 0, "out": 1, **{room.name: 2 + k for k, room in enumerate(program.rooms)}}
        tables = self._make_tables(parts)
        self._tables = list(tables.values())
        self._pointing = [table for table in self._tables if table.slots]
        transforms = {step: self._planned(step, parts, tables) for step in program.transforms if not step.block}
        self.work_bytes = [transform.work_bytes for transform in transforms.values()]
        places, room_bytes = pieces([room.layout.nbytes for room in program.rooms])
        start = self._allocate(room_bytes + max(self.work_bytes, default=0))
        self._addresses = [*PRETENDED, *(start + place for place in places)]
        blocks = {map_: table.block for map_, table in tables.items()}
        self._runs: list[Run] = []
        self._only: Callable[[int, int], None] | None = None  # a recorded kernel that is the whole program
        for step in program.steps:
            if isinstance(step, Map):
                launch = self._launch(step, parts)
                blocks[step] = launch.parameters
                self._runs.append(self._kernel(launch, _code(parts, step)))
            elif step.block:
                self._runs.append(self._blocks_of(step, parts, tables))
            else:
                transform = transforms[step]
                if transform.work_bytes:  # else it may be where the result begins, which cuFFT takes ill
                    transform.set_work_area(start + room_bytes)
                transform.set_stream(stream)
                self._runs.append(self._transform(transform, step))
        self._pooled = [array.memory for array, _ in self._memory if isinstance(array, PoolArray)]
        if self._pooled:
            self._only = None
        self._blocks = [blocks[code.map] for code in parts.codes]
        self._values: Sequence[np.ndarray] | None = None
        self._stale = True  # whether the tables on the device are not what they should be

    # --- runs --------------------------------------------------------------------------------------------------------

    def run(self, values: Sequence[np.ndarray], x: int, out: int) -> None:
        """Queue the program with these parameters, a block a code; the caller holds the lock and the device guard."""
        if self._only and values is self._values and not self._stale and x != out:
            self._only(x, out)
            return
        addresses = self._addresses
        addresses[0], addresses[1] = x, out
        if values is not self._values:
            for block, value in zip(self._blocks, values):
                block[:] = value
            self._values, self._stale = values, True
        for table in self._pointing:
            self._stale |= table.point(addresses)
        if self._stale:
            for table in self._tables:
                table.write(self.stream)
            self._stale = False
        for run in self._runs:
            run(addresses)
        for memory in self._pooled:
            memory.used(self.stream)

    # --- construction ------------------------------------------------------------------------------------------------

    @property
    def workspace_bytes(self) -> int:
        return sum(nbytes for _, nbytes in self._memory)

    def _allocate(self, nbytes: int) -> int:
        if not nbytes:
            return 0
        with lacking_memory(nbytes):
            array, address = self._framework.allocator((nbytes,), np.dtype(np.uint8), self._device)()
        self._memory.append((array, nbytes))
        return address

    def _make_tables(self, parts: Parts) -> dict[Map, Table]:
        callbacks = [code for code in parts.codes if isinstance(code.compiled, Compiled)]
        places, nbytes = pieces([8 * code.unit.layout.size for code in callbacks])
        start, tables = self._allocate(nbytes), {}
        for code, place in zip(callbacks, places):
            assert parts.writer is not None
            block = np.zeros(code.unit.layout.size, np.int64)
            launches = [
                driver.Launch(parts.writer, 1, THREADS, each) for each in table_parameters(start + place, block)
            ]
            tables[code.map] = Table(start + place, block, self._slots(code), launches)
        return tables

    def _planned(self, step: Transform, parts: Parts, tables: dict[Map, Table]) -> cufft.Transform:
        return cufft.Transform(step.call, _hooked(step, parts, tables), self._device)

    def _blocks_of(self, step: Transform, parts: Parts, tables: dict[Map, Table]) -> Run:
        transform = BlockTransform(step, _hooked(step, parts, tables), self._device)
        transform.set_stream(self.stream)
        source, target, run = self._numbers[step.source.name], self._numbers[step.target.name], transform.run
        if (source, target) == (0, 1) and self._alone and not self._pointing:
            self._only = run
        return lambda addresses: run(addresses[source], addresses[target])

    def _launch(self, step: Map, parts: Parts) -> driver.Launch:
        code = _code(parts, step)
        assert isinstance(code.compiled, ElementwiseKernel)
        grid = code.compiled.grid(step.target.layout.size, driver.multiprocessors(self._device))
        return driver.Launch(parts.kernels[step], *grid, np.zeros(code.unit.layout.size, np.int64))

    def _kernel(self, launch: driver.Launch, code: Code) -> Run:
        parameters, slots, stream = launch.parameters, self._slots(code), self.stream

        def run(addresses: list[int]) -> None:
            for slot, number in slots:
                parameters[slot] = addresses[number]
            launch(stream)

        return run

    def _slots(self, code: Code) -> list[tuple[int, int]]:
        return [(slot, self._numbers[name]) for slot, name in code.slots()]

    def _transform(self, transform: cufft.Transform, step: Transform) -> Run:
        """A call of cuFFT, by its recorded kernel where there is one."""
        source, target, forward = self._numbers[step.source.name], self._numbers[step.target.name], step.forward

        def call(source: int, target: int, stream: int) -> None:
            transform.set_stream(stream)
            try:
                transform.run(source, target, forward)
            finally:
                transform.set_stream(self.stream)

        if step.load and not step.load.direct and source < len(PRETENDED):
            # The callback knows where to read, but cuFFT wants an aligned address all the same.
            return lambda addresses: transform.run(addresses[source] & -MOST_ALIGNED, addresses[target], forward)
        replay = record(call, self._pretended(step.source), self._pretended(step.target), self.stream)
        if replay is None:
            return lambda addresses: transform.run(addresses[source], addresses[target], forward)
        if (source, target) == (0, 1) and self._alone and not self._pointing:
            self._only = replay

        def run(addresses: list[int]) -> None:
            if addresses[source] == addresses[target] and source != target:
                transform.run(addresses[source], addresses[target], forward)  # in place cuFFT may take another kernel
            else:
                replay(addresses[source], addresses[target])

        return run

    def _pretended(self, buffer: Buffer) -> int:
        """An address that is aligned as that of a buffer will be."""
        number = self._numbers[buffer.name]
        return self._addresses[number] + (buffer.layout.alignment % MOST_ALIGNED if number < len(PRETENDED) else 0)


def _hooked(step: Transform, parts: Parts, tables: dict[Map, Table]) -> list[cufft.Hook]:
    """The callbacks of a transform, with the addresses of their parameters."""
    hooks = []
    for map_ in (hook.map for hook in step.hooks):
        code = _code(parts, map_)
        assert isinstance(code.compiled, Compiled)
        assert code.unit.dtype is not None
        side: Any = code.unit.side
        hooks.append(cufft.Hook(side, code.unit.dtype, code.compiled.ltoir, tables[map_].address))
    return hooks


def _code(parts: Parts, map_: Map) -> Code:
    return next(code for code in parts.codes if code.map == map_)


def pieces(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Where pieces of these sizes begin in one piece of memory, and the bytes of it."""
    ends = [0]
    for size in sizes:
        ends.append(ends[-1] + math.ceil(size / GRAIN) * GRAIN)
    return ends[:-1], ends[-1]
