"""The FFT libraries of the CPU strategy, all with SciPy's functions, and the choice between them by timing."""

from __future__ import annotations

import functools
import importlib
import math
import time
from dataclasses import dataclass
from types import ModuleType

import numpy as np

from mathfuse.fusion.transforms.cpu.passes import Fft
from mathfuse.fusion.transforms.kinds import Problem, Shape, compute_dtype
from mathfuse.runtime.dtypes import widened
from mathfuse.runtime.errors import ToolchainError

BACKENDS = {"pocketfft": "scipy.fft", "mkl": "mkl_fft.interfaces.scipy_fft"}
INSTALL = {"mkl": "pip install 'mathfuse[cpu]'"}
REPEATS = 3


@dataclass(frozen=True)
class Backend:
    """A library chosen for one step, and the reason in words."""

    name: str
    reason: str

    def __call__(self, step: Fft, block: np.ndarray, axis: int, overwrite: bool) -> np.ndarray:
        """The transform of every line of `block`; in the block's own memory if `overwrite`, where that is possible."""
        unit_stride = block.strides[axis] == block.itemsize
        in_place = overwrite and self.in_place(step, block.shape[axis], block.dtype, unit_stride)
        return self._run(step, block, axis, in_place, 1)  # one thread: the boxes are what runs in parallel

    def in_place(self, step: Fft, extent: int, dtype: np.dtype, unit_stride: bool) -> bool:
        """Whether lines of `extent` elements can be transformed in their own memory."""
        fits = step.op in ("fft", "ifft") and dtype.kind == "c" and extent == step.length
        return fits and (unit_stride or self.name != "mkl")  # MKL 2026.2 errs in columns of 40 or 48 elements

    def whole(self, step: Fft, x: np.ndarray, axis: int, workers: int) -> np.ndarray:
        """The transform of every line of an array, by as many threads of the library's own."""
        return self._run(step, x, axis, False, workers)

    def call(self, problem: Problem, x: np.ndarray, workers: int) -> np.ndarray:
        """A transform along several axes, by as many threads of the library's own."""
        function = getattr(load(self.name), function_of(problem))
        return function(whole_strides(widened(x)), problem.lengths, problem.axes, problem.norm, False, workers)

    def _run(self, step: Fft, x: np.ndarray, axis: int, overwrite: bool, workers: int) -> np.ndarray:
        if self.name == "mkl":
            x = widened(x)
            x = x.astype(compute_dtype(x.dtype), copy=False)  # it refuses float16
            x = x.copy() if 0 in x.strides else x  # and strides of 0
        x = whole_strides(widened(x))
        return getattr(load(self.name), step.op)(x, step.length, axis, step.norm, overwrite, workers)


def function_of(problem: Problem) -> str:
    """SciPy's function of any number of axes for a problem."""
    return problem.kind.along_real_axis + "n"


def whole_strides(x: np.ndarray) -> np.ndarray:
    """`x`, copied where its strides are no multiples of an element: MKL rounds them, SciPy 1.18 refuses them."""
    return x.copy() if any(stride % x.itemsize for stride in x.strides) else x


@functools.cache
def load(name: str) -> ModuleType:
    """The module of a back end.

    Raises
    ------
    ToolchainError
        If it is not installed; the message says what to install.
    """
    try:
        return importlib.import_module(BACKENDS[name])
    except ImportError as error:
        raise ToolchainError(f"FFT back end {name!r} is not installed ({error}): {INSTALL[name]}") from None


@functools.cache
def installed() -> tuple[str, ...]:
    """The back ends of this environment."""
    found = []
    for name in BACKENDS:
        try:
            load(name)
        except ToolchainError:
            continue
        found.append(name)
    return tuple(found)


@functools.cache
def fastest(step: Fft, shape: Shape, axis: int, dtype: np.dtype, inside: bool = False) -> Backend:
    """The fastest back end for blocks of `shape`: timed once in a process where there is a choice.

    `inside` says that a block is a part of a larger array, to which the result goes back.
    """
    names = installed()
    if len(names) == 1:
        missing = "; ".join(f"{name}: {INSTALL[name]}" for name in BACKENDS if name not in names)
        return Backend(names[0], f"the only one installed ({missing})")
    seconds = {name: _time(Backend(name, ""), step, shape, axis, dtype, inside) for name in names}
    best = min(seconds, key=seconds.__getitem__)
    texts = {name: f"{1e6 * s:.0f} µs" if s < math.inf else "a wrong result" for name, s in seconds.items()}
    timed = ", ".join(f"{name} {text}" for name, text in texts.items())
    return Backend(best, f"timed on a block of {shape}: {timed}")


def _time(backend: Backend, step: Fft, shape: Shape, axis: int, dtype: np.dtype, inside: bool) -> float:
    """Seconds for a block, the best of a few runs; infinite if the result is not pocketfft's."""
    wider = (*shape[:-1], 4 * shape[-1]) if inside else shape
    block = np.random.default_rng(0).standard_normal(wider).astype(dtype)[..., : shape[-1]]
    right = Backend("pocketfft", "")(step, block, axis, overwrite=False)
    tolerance = 1e3 * np.finfo(right.dtype).eps * np.abs(right).max(initial=0)
    took = []
    for _ in range(REPEATS + 1):  # the first makes the library's own plan
        again = np.empty(wider, dtype)[..., : shape[-1]]
        again[...] = block
        start = time.perf_counter()
        found = backend(step, again, axis, overwrite=True)
        if inside and found.shape == again.shape and not np.may_share_memory(found, again):
            again[...] = found
        took.append(time.perf_counter() - start)
    return min(took[1:]) if np.allclose(found, right, 0, tolerance) else math.inf
