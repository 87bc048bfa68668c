"""A GPU that is played by this processor: the fake driver's memory, and kernels run thread after thread."""

from __future__ import annotations

import gc
from typing import ClassVar

import pytest

from mathfuse.fusion.compiler.analysis import Analysis
from mathfuse.fusion.compiler.cuda.kernels import ElementwiseKernel
from mathfuse.fusion.elementwise import cuda
from mathfuse.runtime.cuda import devices
from mathfuse.runtime.cuda.frameworks import EXCHANGE, POOL
from tests.fusion.compiler.cuda import emulator
from tests.runtime.cuda import fakes


class Kernel(ElementwiseKernel):
    """Without machine code for a GPU."""

    def __init__(self, unit):
        metadata = unit.lower()[1]
        Analysis.__init__(self, metadata)
        self.unit, self.name, self.layout, self.tile = unit, unit.name, unit.layout, metadata["tile"]


class Launch:
    """Runs at once; `launched` has the streams of all launches."""

    launched: ClassVar[list[int]] = []

    def __init__(self, kernel, grid, block, parameters):
        self.parameters, self.grid = parameters, grid
        self.run = emulator.kernel(kernel.unit)

    def __call__(self, stream):
        Launch.launched.append(stream)
        self.run(self.parameters, self.grid)


@pytest.fixture
def driver(monkeypatch):
    """The fake driver with two devices."""
    fake = fakes.Driver()
    functions = fake.functions()
    monkeypatch.setattr(devices, "_loaded", lambda: (functions, ""))
    for cache in fakes.CACHES:
        cache.cache_clear()
    yield fake
    EXCHANGE.release()
    gc.collect()  # what is freed is freed by this driver
    for cache in fakes.CACHES:
        cache.cache_clear()


@pytest.fixture
def launches(driver, monkeypatch):
    """A GPU to compute on; gives the streams of the launches."""
    monkeypatch.setitem(EXCHANGE.__dict__, "memory", POOL)
    monkeypatch.setattr(cuda, "ElementwiseKernel", Kernel)
    monkeypatch.setattr(cuda, "loaded", lambda kernel, device: kernel)
    monkeypatch.setattr(cuda.driver, "Launch", Launch)
    monkeypatch.setattr(cuda, "_prepared", {})
    monkeypatch.setattr(Launch, "launched", [])
    return Launch.launched
