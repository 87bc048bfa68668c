"""Places where a test's arrays may be: one test body runs on NumPy arrays and on those of a GPU.

@everywhere
def test_something(space):
    x = np.arange(12.0).reshape(3, 4)                      # content and layout, said in NumPy
    found = mf.fft.fft(space.array(x), **space.cheap)      # the same in the space
    np.testing.assert_allclose(space.numpy(found), np.fft.fft(x))
"""

from __future__ import annotations

import functools
import gc
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mathfuse.runtime.dtypes import COMPLEX32

CYCLES = 20_000_000  # of a GPU's clock
_SPIN = """extern "C" __global__ void spin(long long n) { long long t = clock64(); while (clock64() - t < n); }"""
GAP = 0xFF  # what lies between the elements of arrays with gaps: NaN, as floating-point numbers


class Space:
    """NumPy arrays on the CPU; what other spaces have in common."""

    name = "numpy"

    def choices(self, strategy: str | None) -> dict[str, Any]:
        """What `plan` is told so that it takes a strategy, where the space has several."""
        return {}

    @property
    def cheap(self) -> dict[str, Any]:
        """The choices for the strategy that plans the fastest: for tests with many small problems."""
        return self.choices("sequence")

    def why_not(self, x: np.ndarray) -> str:
        """Why an array of the space cannot have the layout of `x`; empty where it can."""
        return ""

    def array(self, x: np.ndarray, offset: int = 0) -> Any:
        """An array of the space with the content and the strides of `x`, `offset` elements off its alignment."""
        return x if offset == 0 else memory_of(x, offset)[1]

    def numpy(self, array: Any) -> np.ndarray:
        """The content of an array of the space."""
        return array

    def has(self, array: Any) -> bool:
        """Whether it is an array of the space."""
        return isinstance(array, np.ndarray)

    def viewed(self, array: Any, dtype: Any) -> Any:
        """The same memory as elements of another dtype."""
        return array.view(dtype)

    def need(self, x: np.ndarray) -> None:
        """Skip the test where there is no such layout."""
        if reason := self.why_not(x):
            pytest.skip(reason)

    def __repr__(self) -> str:
        return self.name


class HostSpace(Space):
    """NumPy arrays that are copied to the GPU and back."""

    name = "numpy on a GPU"

    def choices(self, strategy: str | None) -> dict[str, Any]:
        return {"execution": "cuda", "strategy": strategy}


class CupySpace(Space):
    name = "cupy"

    def choices(self, strategy: str | None) -> dict[str, Any]:
        return {"strategy": strategy}

    @property
    def library(self) -> Any:
        return pytest.importorskip("cupy")

    def why_not(self, x: np.ndarray) -> str:
        return _why_not_on_a_gpu(x)

    def array(self, x: np.ndarray, offset: int = 0) -> Any:
        raw, view = memory_of(x, offset)
        memory = self.library.asarray(raw)
        pointer = memory.data + (view.ctypes.data - raw.ctypes.data)
        return self.library.ndarray(x.shape, x.dtype, pointer, x.strides if x.size else None)

    def numpy(self, array: Any) -> np.ndarray:
        """Copied as bytes, gaps too, so that no kernel of CuPy's is compiled for it."""
        low, span = _span(array.shape, array.strides, array.dtype.itemsize)
        with array.device:
            raw = self.library.ndarray((span,), np.uint8, array.data + low).get()
        return np.ndarray(array.shape, array.dtype, raw, -low, array.strides)

    def has(self, array: Any) -> bool:
        return isinstance(array, self.library.ndarray)

    # --- what only GPUs have

    def stream(self) -> Any:
        """A stream that does not wait for the default one."""
        return self.library.cuda.Stream(non_blocking=True)

    def on(self, stream: Any) -> Any:
        """A context in which it is the current stream."""
        return stream

    def handle(self, stream: Any) -> int:
        return stream.ptr

    def synchronize(self) -> None:
        self.library.cuda.Device().synchronize()

    def delay(self, stream: Any) -> None:
        """Some ten milliseconds in which the stream gets no further."""
        with stream:
            self._spin((1,), (1,), (np.int64(CYCLES),))

    @functools.cached_property
    def _spin(self) -> Any:
        return self.library.RawKernel(_SPIN, "spin")

    def capture(self, run: Callable[[], Any]) -> Callable[[], None]:
        """What replays, and waits for, the graph that `run` puts on the current stream."""
        stream = self.stream()
        self.synchronize()
        with stream:
            stream.begin_capture()
            try:
                run()
            finally:
                graph = stream.end_capture()

        def replay() -> None:
            graph.launch(stream)
            stream.synchronize()

        return replay

    def used_bytes(self) -> int:
        """Of device memory that arrays and plans of this process hold in the framework's pool."""
        gc.collect()
        self.synchronize()
        return self.library.get_default_memory_pool().used_bytes()

    def give_back(self) -> None:
        """Free what the pool holds and nobody uses."""
        gc.collect()
        self.synchronize()
        self.library.get_default_memory_pool().free_all_blocks()

    def device_of(self, array: Any) -> int:
        return array.device.id

    def at(self, device: int) -> Any:
        """A context in which it is the current GPU."""
        return self.library.cuda.Device(device)


class TorchSpace(CupySpace):
    name = "torch"
    device = "cuda"

    @property
    def library(self) -> Any:
        torch = pytest.importorskip("torch")
        if self.device == "cuda" and not torch.cuda.is_available():
            pytest.skip("this PyTorch has no CUDA")
        return torch

    def why_not(self, x: np.ndarray) -> str:
        negative = any(stride < 0 for stride in x.strides)
        return "PyTorch has no negative strides" if negative else _why_not_on_a_gpu(x)

    def array(self, x: np.ndarray, offset: int = 0) -> Any:
        raw, _ = memory_of(x, offset)
        typed = raw[: len(raw) // x.itemsize * x.itemsize].view(np.float16 if x.dtype == COMPLEX32 else x.dtype)
        memory = self.library.from_numpy(typed).to(self.device)
        memory = memory.view(self.library.complex32) if x.dtype == COMPLEX32 else memory
        return (
            memory.as_strided(x.shape, [s // x.itemsize for s in x.strides], offset)
            if x.size
            else memory[:0].reshape(x.shape)
        )

    def numpy(self, array: Any) -> np.ndarray:
        here = array.resolve_conj().resolve_neg().cpu()
        if here.dtype is self.library.complex32:
            return self.library.view_as_real(here).numpy().view(COMPLEX32)[..., 0]
        return here.numpy()

    def has(self, array: Any) -> bool:
        return isinstance(array, self.library.Tensor) and array.device.type == self.device

    def viewed(self, array: Any, dtype: Any) -> Any:
        return array.view(getattr(self.library, np.dtype(dtype).name))

    def stream(self) -> Any:
        return self.library.cuda.Stream()

    def on(self, stream: Any) -> Any:
        return self.library.cuda.stream(stream)

    def handle(self, stream: Any) -> int:
        return stream.cuda_stream

    def synchronize(self) -> None:
        self.library.cuda.synchronize()

    def delay(self, stream: Any) -> None:
        with self.on(stream):
            self.library.cuda._sleep(CYCLES)

    def capture(self, run: Callable[[], Any]) -> Callable[[], None]:
        cuda = self.library.cuda
        graph = cuda.CUDAGraph()
        cuda.synchronize()
        with cuda.graph(graph):
            run()

        def replay() -> None:
            graph.replay()
            cuda.synchronize()

        return replay

    def used_bytes(self) -> int:
        gc.collect()
        self.synchronize()
        return self.library.cuda.memory_allocated()

    def give_back(self) -> None:
        gc.collect()
        self.synchronize()
        self.library.cuda.empty_cache()

    def device_of(self, array: Any) -> int:
        return array.get_device()

    def at(self, device: int) -> Any:
        return self.library.cuda.device(device)


NUMPY, HOST, CUPY, TORCH = Space(), HostSpace(), CupySpace(), TorchSpace()
_ON_GPU = [pytest.param(space, id=space.name, marks=pytest.mark.gpu) for space in (CUPY, TORCH)]

everywhere = pytest.mark.parametrize("space", [pytest.param(NUMPY, id="numpy"), *_ON_GPU])
on_gpu = pytest.mark.parametrize("space", _ON_GPU)


def _why_not_on_a_gpu(x: np.ndarray) -> str:
    if not x.dtype.isnative:
        return "a GPU's arrays are in native byte order"
    aligned = not any(s % x.itemsize for s, n in zip(x.strides, x.shape) if n > 1)
    return "" if aligned and x.flags.aligned else "elements at odd addresses have a test of their own"


def _span(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> tuple[int, int]:
    """The lowest byte, from the element with index 0 everywhere, and how many there are."""
    if 0 in shape:
        return 0, 0
    reach = [stride * (extent - 1) for stride, extent in zip(strides, shape)]
    low = sum(r for r in reach if r < 0)
    return low, sum(r for r in reach if r > 0) - low + itemsize


def memory_of(x: np.ndarray, offset: int) -> tuple[np.ndarray, np.ndarray]:
    """Bytes, and in them a view of the content and the strides of `x`, `offset` elements behind the beginning."""
    low, span = _span(x.shape, x.strides, x.itemsize)
    raw = np.full(max(span + offset * x.itemsize, x.itemsize), GAP, np.uint8)
    view: np.ndarray = np.ndarray(x.shape, x.dtype, raw, offset * x.itemsize - low, x.strides if x.size else None)
    view[...] = x
    return raw, view


def half_spectrum(
    x: np.ndarray, axes: tuple[int, ...], lengths: tuple[int, ...], symmetric: bool = False
) -> np.ndarray:
    """`x` with what the half spectrum of real data cannot have taken out of it, whatever is cut or padded later.

    The real axis is the last of `axes`; `lengths` are those of the result. In the planes of zero and of the highest
    frequency, which are their own mirror images, one real number is left; if `symmetric`, what is their mirror image.
    cuFFT leaves the rest undefined (its documentation, "Complex-to-real"), SciPy drops it.
    """
    x, real, n = x.copy(), axes[-1], lengths[-1]
    other = dict(zip(axes[:-1], lengths[:-1]))
    for k in {0, n // 2} if n % 2 == 0 else {0}:
        if k >= x.shape[real]:
            continue
        index = np.indices(x.shape, sparse=True)
        at = [slice(None)] * x.ndim
        at[real] = slice(k, k + 1)
        plane = x[tuple(at)]
        shape = plane.shape
        index = np.indices(shape)
        mirror = [-index[a] % other[a] if a in other else index[a] for a in range(x.ndim)]
        inside = np.ones(shape, bool)
        for a in other:
            inside &= (mirror[a] < min(shape[a], other[a])) & (index[a] < other[a])
        rank = np.ravel_multi_index(tuple(index), shape) if plane.size else np.zeros(shape, int)
        reached = np.ravel_multi_index(tuple(np.where(inside, m, 0) for m in mirror), shape) if plane.size else rank
        kept = inside & ((rank == reached) if not symmetric else True)
        if not symmetric:
            for a in other:
                kept &= index[a] == 0
        image = plane.ravel()[reached].conj()
        value = np.where(rank < reached, plane, np.where(rank == reached, plane.real.astype(x.dtype), image))
        x[tuple(at)] = np.where(kept, value, np.zeros((), x.dtype))
    return x


def lines(count: int) -> float:
    """How rounding grows with the length of a transform."""
    return 1 + math.log2(count + 1)
