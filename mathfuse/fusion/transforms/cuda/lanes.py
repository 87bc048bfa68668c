"""What an engine needs to run on one stream: cuFFT plans, memory, and parameters with the addresses filled in."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from mathfuse.fusion.compiler.cuda.artifacts import Compiled
from mathfuse.fusion.compiler.cuda.kernels import ElementwiseKernel
from mathfuse.fusion.compiler.cuda.table import NAME, THREADS, VALUES, table_kernel, table_parameters
from mathfuse.fusion.transforms.cuda.code import Code
from mathfuse.fusion.transforms.cuda.layouts import MOST_ALIGNED
from mathfuse.fusion.transforms.cuda.program import Buffer, Program, Transform
from mathfuse.runtime.cuda import cufft, driver
from mathfuse.runtime.cuda.frameworks import Framework
from mathfuse.runtime.cuda.kernels import Kernel
from mathfuse.runtime.cuda.recording import record

GRAIN = 256  # bytes: what allocators align to, and enough for any access
PRETENDED = 1 << 40, 1 << 41  # addresses of input and result while no other are known; nothing lies there
Step = Callable[[list[int]], None]  # given the addresses of the buffers: x, out, and the rooms


@dataclass(frozen=True)
class Table:
    """A callback's parameters in device memory, and the launches that write them there."""

    block: np.ndarray
    slots: tuple[tuple[int, int], ...]  # (slot, number of the buffer whose address it holds)
    launches: tuple[driver.Launch, ...]

    def write(self, stream: int) -> None:
        for number, launch in enumerate(self.launches):
            part = self.block[VALUES * number : VALUES * (number + 1)]
            launch.parameters[2 : 2 + part.size] = part
            launch(stream)


class Lane:
    """One stream's own plans and memory, used under its lock; the stream's order protects the rest.

    Parameters
    ----------
    program, codes
        What runs: a code for each map, in the order of the steps.
    kernels
        The loaded kernel of each code that is one.
    framework, device, stream
        Whose allocator the memory comes from, and where it is used. The caller holds the device guard.
    """

    def __init__(
        self,
        program: Program,
        codes: Sequence[Code],
        kernels: Sequence[Kernel | None],
        framework: Framework,
        device: int,
        stream: int,
    ) -> None:
        self.lock = threading.Lock()
        self.stream, self.fits = stream, driver.Fit(device, stream)
        self._values: Sequence[np.ndarray] | None = None
        numbers = {"x": 0, "out": 1, **{room.name: 2 + k for k, room in enumerate(program.rooms)}}
        multiprocessors = driver.multiprocessors(device)
        hooked = [code for code, kernel in zip(codes, kernels) if kernel is None]
        tables, table_bytes = _places([8 * code.unit.layout.size for code in hooked])
        self._memory = [framework.allocator((max(table_bytes, 1),), np.dtype(np.uint8), device)()]
        self._blocks: list[np.ndarray] = []  # one a code, in order
        self._tables: list[Table] = []
        self._steps: list[Any] = []
        writer = driver.load_kernel(table_kernel(driver.architecture(device)), NAME, device) if hooked else None
        infos = {}
        for code, place in zip(hooked, tables):
            block = np.zeros(max(1, code.unit.layout.size), np.int64)
            infos[id(code)] = self._memory[0][1] + place
            assert writer is not None
            launches = [driver.Launch(writer, 1, THREADS, p) for p in table_parameters(infos[id(code)], block)]
            slots = tuple((slot, numbers[name]) for slot, name in code.slots())
            self._tables.append(Table(block, slots, tuple(launches)))
        remaining, transforms = list(zip(codes, kernels)), []
        written = iter(self._tables)
        for step in program.steps:
            if isinstance(step, Transform):
                hooks = []
                for hook in (step.load, step.store):
                    if hook:
                        code, _ = remaining.pop(0)
                        assert isinstance(code.compiled, Compiled) and code.unit.dtype is not None
                        side: Literal["prolog", "epilog"] = "prolog" if hook is step.load else "epilog"
                        hooks.append(cufft.Hook(side, code.unit.dtype, code.compiled.ltoir, infos[id(code)]))
                        self._blocks.append(next(written).block)
                transform = cufft.Transform(step.call, hooks, device)
                transforms.append((transform, step))
                self._steps.append(None)  # made below, when its work area is known
            else:
                code, kernel = remaining.pop(0)
                assert isinstance(code.compiled, ElementwiseKernel) and kernel is not None
                count = step.target.layout.size
                block = np.zeros(code.unit.layout.size, np.int64)
                launch = driver.Launch(kernel, *code.compiled.grid(count, multiprocessors), block)
                self._blocks.append(block)
                self._steps.append(_launch(launch, [(slot, numbers[name]) for slot, name in code.slots()], stream))
        self.work_bytes = [transform.work_bytes for transform, _ in transforms]
        rooms, room_bytes = _places([room.layout.nbytes for room in program.rooms])
        work_bytes = max(self.work_bytes, default=0)
        self.workspace_bytes = table_bytes + room_bytes + work_bytes
        self._memory.append(framework.allocator((max(room_bytes + work_bytes, 1),), np.dtype(np.uint8), device)())
        start = self._memory[1][1]
        self._addresses = [*PRETENDED, *(start + place for place in rooms)]
        places = [k for k, step in enumerate(self._steps) if step is None]
        for k, (transform, step) in zip(places, transforms):
            if transform.work_bytes:
                transform.set_work_area(start + room_bytes)
            self._steps[k] = self._transform(transform, step, numbers)
        self._capture = 0
        self._stale = True  # whether what the tables hold on the device is not what they should

    def _transform(self, transform: cufft.Transform, step: Transform, numbers: dict[str, int]) -> Step:
        """A call of cuFFT, by its recorded kernels where there is a recording."""
        source, target, forward = numbers[step.source.name], numbers[step.target.name], step.forward

        def call(source: int, target: int, stream: int) -> None:
            transform.set_stream(stream)
            transform.run(source, target, forward)

        def pretended(number: int, buffer: Buffer) -> int:
            return self._addresses[number] + (buffer.layout.alignment % MOST_ALIGNED if number < 2 else 0)

        recording = record(call, pretended(source, step.source), pretended(target, step.target), self.stream)
        transform.set_stream(self.stream)
        if recording is None:
            return lambda addresses: transform.run(addresses[source], addresses[target], forward)
        replay = recording.run

        def run(addresses: list[int]) -> None:
            if addresses[source] == addresses[target] and source != target:
                transform.run(addresses[source], addresses[target], forward)  # in place cuFFT may take other kernels
            else:
                replay(addresses[source], addresses[target])

        return run

    def run(self, values: Sequence[np.ndarray], x: int, out: int) -> None:
        """Queue the program with these blocks of parameters; the caller holds the lock and the device guard."""
        addresses = self._addresses
        addresses[0], addresses[1] = x, out
        if values is not self._values:
            for block, value in zip(self._blocks, values):
                block[:] = value
            self._values, self._stale = values, True
        for table in self._tables:
            for slot, number in table.slots:
                if table.block[slot] != addresses[number]:
                    table.block[slot] = addresses[number]
                    self._stale = True
        if self._stale:
            self.write_tables()
        for step in self._steps:
            step(addresses)

    def write_tables(self) -> None:
        for table in self._tables:
            table.write(self.stream)
        self._stale = False

    def begin(self, capture: int) -> None:
        """Take part in a capture, by its number: a graph that is replayed later must begin with writing the tables."""
        self._stale |= capture != self._capture
        self._capture = capture


def _launch(launch: driver.Launch, slots: list[tuple[int, int]], stream: int) -> Step:
    parameters = launch.parameters

    def step(addresses: list[int]) -> None:
        for slot, number in slots:
            parameters[slot] = addresses[number]
        launch(stream)

    return step


def _places(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Where pieces of these sizes begin in one piece of memory, and the bytes of it."""
    ends = [0]
    for size in sizes:
        ends.append(ends[-1] + math.ceil(size / GRAIN) * GRAIN)
    return ends[:-1], ends[-1]
