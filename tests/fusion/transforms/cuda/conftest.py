"""A GPU for transforms, played by this processor."""

from __future__ import annotations

import gc
import weakref

import pytest

import mathfuse as mf
from mathfuse.fusion.transforms.cuda import choice, code, engine, lanes
from mathfuse.runtime.cuda import cufft, devices
from mathfuse.runtime.cuda.frameworks import EXCHANGE, POOL
from tests.runtime.cuda import fakes

from . import played


@pytest.fixture
def gpu(monkeypatch):
    """The space whose arrays are on the GPU that is played."""
    mf.clear_plans()
    gc.collect()  # what a real GPU holds is not for the driver that is played
    fake = fakes.Driver()
    functions = fake.functions()
    monkeypatch.setattr(devices, "_loaded", lambda: (functions, ""))
    for cache in fakes.CACHES:
        cache.cache_clear()
    monkeypatch.setitem(EXCHANGE.__dict__, "memory", POOL)
    monkeypatch.setattr(lanes.driver, "fitting", lambda *_: lambda: True)
    monkeypatch.setattr(code, "ElementwiseKernel", played.Kernel)
    monkeypatch.setattr(code, "Compiled", played.Callback)
    monkeypatch.setattr(engine, "_engines", weakref.WeakValueDictionary())
    monkeypatch.setattr(engine, "loaded", lambda kernel, device: kernel)
    monkeypatch.setattr(engine, "_writer", lambda device: played.WRITER)
    monkeypatch.setattr(lanes.driver, "Launch", played.Launch)
    monkeypatch.setattr(lanes, "BlockTransform", played.BlockTransform)
    monkeypatch.setattr(lanes, "record", lambda *_: None)
    monkeypatch.setattr(cufft, "Transform", played.Transform)
    monkeypatch.setattr(cufft, "version", lambda: (12, 0, 0))
    monkeypatch.setattr(choice, "_slowed", lambda *_: frozenset())
    yield played.PLAYED
    mf.clear_plans()
    gc.collect()  # what is freed is freed by this driver
    for cache in fakes.CACHES:
        cache.cache_clear()
