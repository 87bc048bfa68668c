"""A fake driver in the place of CUDA's, for tests that need no GPU."""

from __future__ import annotations

import gc

import pytest

from mathfuse.runtime.cuda import devices

from . import fakes


@pytest.fixture
def driver(monkeypatch):
    """The fake driver, with two devices."""
    fake = fakes.Driver()
    functions = fake.functions()
    monkeypatch.setattr(devices, "_loaded", lambda: (functions, ""))
    for cache in fakes.CACHES:
        cache.cache_clear()
    yield fake
    if any(fake.named(name) for name in ("cuMemAllocAsync", "cuModuleLoadData", "cuEventCreate")):
        gc.collect()  # what is freed is freed by this driver
    for cache in fakes.CACHES:
        cache.cache_clear()
