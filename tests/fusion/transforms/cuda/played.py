"""A GPU that this processor plays: the fake driver's memory, kernels run thread after thread, cuFFT by NumPy.

cuFFT finds elements by the formula of its advanced data layout and calls callbacks with offsets, as documented.
"""

from __future__ import annotations

import ctypes
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from mathfuse.fusion.compiler.analysis import Analysis
from mathfuse.fusion.compiler.cuda.artifacts import Compiled
from mathfuse.fusion.compiler.cuda.kernels import ElementwiseKernel
from mathfuse.fusion.transforms.cuda.blocks import SOURCE, TARGET, kernel_of, parameters
from mathfuse.runtime.cuda.arrays import as_device
from mathfuse.runtime.dtypes import named
from mathfuse.runtime.errors import UnsupportedError
from tests.fusion.compiler.cuda import emulator, threads
from tests.runtime.cuda.fakes import Interface
from tests.spaces import Space, memory_of

WRITER = SimpleNamespace(unit=None)  # the kernel that writes tables


def at(pointer: int, shape: tuple[int, ...], dtype: Any, strides: tuple[int, ...] | None = None) -> np.ndarray:
    """Memory at an address, with strides in elements."""
    dtype = np.dtype(dtype)
    strides = strides or tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))
    count = 1 + sum(s * (n - 1) for s, n in zip(strides, shape)) if 0 not in shape else 0
    raw = np.frombuffer((ctypes.c_char * (count * dtype.itemsize)).from_address(pointer), dtype)
    return as_strided(raw, shape, [s * dtype.itemsize for s in strides])


class Kernel(ElementwiseKernel):
    """Without machine code for a GPU."""

    def __init__(self, unit: Any) -> None:
        metadata = unit.lower()[1]
        Analysis.__init__(self, metadata)
        self.unit, self.name, self.layout, self.tile = unit, unit.name, unit.layout, metadata["tile"]


class Callback(Compiled):
    """In the place of LTO-IR, what it would be made of."""

    def __init__(self, unit: Any) -> None:
        self.unit = self.ltoir = unit  # type: ignore[assignment]
        self.metadata = unit.lower()[1]
        self.result_dtype, self.weak_bits = named(self.metadata["result_dtype"]), int(self.metadata["weak_bits"])


class Launch:
    """Runs at once."""

    def __init__(self, kernel: Any, grid: int, block: int, parameters: np.ndarray) -> None:
        self.parameters, self.grid = parameters, grid
        self.run = emulator.kernel(kernel.unit) if kernel.unit else self.write

    def __call__(self, stream: int) -> None:
        self.run(self.parameters, self.grid)

    def write(self, parameters: np.ndarray, grid: int) -> None:
        pointer, count = parameters[:2]
        at(int(pointer), (int(count),), np.int64)[...] = parameters[2 : 2 + count]


class Transform:
    """cuFFT by NumPy; it writes over the input of complex-to-real transforms of several axes."""

    work_bytes = 64

    def __init__(self, call: Any, hooks: Any = (), device: int = 0) -> None:
        if any(n > 1 << 20 for n in call.lengths):
            raise UnsupportedError("too long to be played")
        self.call, self.hooks = call, {hook.side: (emulator.callback(hook.ltoir), hook) for hook in hooks}

    def set_stream(self, stream: int) -> None:
        self.stream = stream

    def set_work_area(self, pointer: int) -> None:
        at(pointer, (self.work_bytes,), np.uint8)[...] = 0xFF

    def _side(self, real: bool, view: Any) -> tuple[np.dtype, tuple[int, ...], tuple[int, ...]]:
        call = self.call
        whole = real or call.family == "c2c"
        lengths = call.lengths if whole else (*call.lengths[:-1], call.lengths[-1] // 2 + 1)
        steps = [view.stride]
        for n in reversed(view.embed[1:]):
            steps.insert(0, steps[0] * n)
        dtype = np.dtype(("f4", "f8")[call.double] if real else ("c8", "c16")[call.double])
        return dtype, (call.batch, *lengths), (view.distance, *steps)

    def run(self, source: int, target: int, forward: bool) -> None:
        call = self.call
        dtype, shape, strides = self._side(call.family == "r2c", call.input)
        assert "prolog" in self.hooks or source % (2 * dtype.itemsize if dtype.kind == "f" else dtype.itemsize) == 0
        if "prolog" in self.hooks:
            x = self._loaded(source, dtype, shape, strides)
        else:
            x = at(source, shape, dtype, strides).copy()
            if call.family == "c2r" and len(call.lengths) > 1:
                at(source, shape, dtype, strides)[...] = np.nan
        axes, norm = tuple(range(1, len(shape))), "backward" if forward else "forward"
        if call.family == "c2c":
            y = (np.fft.fftn if forward else np.fft.ifftn)(x, axes=axes, norm=norm)
        else:
            y = (np.fft.rfftn if forward else np.fft.irfftn)(x, call.lengths, axes, norm=norm)
        dtype, shape, strides = self._side(call.family == "c2r", call.output)
        assert y.shape == shape
        if "epilog" in self.hooks:
            self._store(target, y.astype(dtype), strides)
        else:
            at(target, shape, dtype, strides)[...] = y

    def _loaded(self, source: int, dtype: np.dtype, shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
        (load, hook), found = self.hooks["prolog"], np.zeros(shape, dtype)
        block = at(hook.info, (hook.ltoir.layout.size,), np.int64)
        assert hook.dtype == dtype
        value = np.zeros(1, dtype)
        for index in np.ndindex(shape):
            load(source, sum(i * s for i, s in zip(index, strides)), value, block)
            found[index] = value[0]
        return found

    def _store(self, target: int, y: np.ndarray, strides: tuple[int, ...]) -> None:
        store, hook = self.hooks["epilog"]
        assert hook.dtype == y.dtype
        block = at(hook.info, (hook.ltoir.layout.size,), np.int64)
        for index in np.ndindex(y.shape):
            store(target, sum(i * s for i, s in zip(index, strides)), y[index].reshape(1), block)


class BlockTransform:
    """An own kernel, every thread of a block run by one of this processor."""

    def __init__(self, step: Any, hooks: Any, device: int) -> None:
        kernel = kernel_of(step, [hook.side for hook in hooks], "sm_90a")
        self.launch = threads.kernel(kernel, [hook.ltoir.lower()[0] for hook in hooks])
        self.parameters, self.blocks = parameters(step, hooks), kernel.blocks(step.call.batch)

    def set_stream(self, stream: int) -> None:
        self.stream = stream

    def run(self, source: int, target: int) -> None:
        self.parameters[SOURCE], self.parameters[TARGET] = source, target
        self.launch(self.parameters, self.blocks)


class PlayedSpace(Space):
    """Arrays that pose as those of a GPU."""

    name = "played GPU"

    def choices(self, strategy: str | None) -> dict[str, Any]:
        return {"strategy": strategy}

    def array(self, x: np.ndarray, offset: int = 0) -> Any:
        return Interface(memory_of(x, offset)[1])

    def numpy(self, array: Any) -> np.ndarray:
        found = as_device(array)
        low = found.bounds[0]
        raw = at(low, (found.bounds[1] - low,), np.uint8).copy()
        return np.ndarray(found.shape, found.dtype, raw, found.pointer - low, found.strides)


PLAYED = PlayedSpace()
