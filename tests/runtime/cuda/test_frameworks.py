"""Frameworks without a GPU: the driver's pool, NumPy's way there and back, and arrays of other libraries."""

from __future__ import annotations

import gc
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from mathfuse.runtime.cuda import devices, frameworks
from mathfuse.runtime.cuda.arrays import as_device, upload
from mathfuse.runtime.cuda.frameworks import CUPY, EXCHANGE, HOST, JAX, NUMBA, POOL, TORCH, Exchange
from mathfuse.runtime.errors import ToolchainError

from .fakes import Interface

FLOAT = np.dtype("float32")


def test_the_pool_allocates_on_its_current_stream(driver):
    allocate = POOL.allocator((2, 3), FLOAT, 1)
    array, pointer = allocate()
    assert pointer == POOL.pointer(array)
    assert driver.named("cuMemAllocAsync")[-1][1:] == (24, 0)
    assert POOL.current_stream(1) == 0
    with POOL.on_stream(7, 1):
        assert POOL.current_stream(1) == 7
        assert POOL.current_stream(0) == 0
        with POOL.on_stream(8, 0):
            assert (POOL.current_stream(0), POOL.current_stream(1)) == (8, 7)
        with POOL.on_stream(7, 1):
            other, _ = allocate()
    assert POOL.current_stream(1) == 0
    assert other.memory.stream == 7
    assert other.__cuda_array_interface__["stream"] == 7
    assert array.__cuda_array_interface__["stream"] == 1
    device = as_device(array)
    assert (device.pointer, device.shape, device.dtype, device.device) == (pointer, (2, 3), FLOAT, 1)
    assert POOL.layout_key(array) == POOL.layout_key(other)
    assert POOL.hand_over(array) is array
    del array, other, device
    gc.collect()
    assert driver.blocks == {}


def test_results_of_numpy_come_down(driver):
    array, _ = HOST.allocator((3,), np.dtype("complex128"), 0)()
    up = upload(np.array([1, 2j, 3]), 0, 4)
    array.memory = up.owner
    array.pointer = up.pointer
    result = HOST.hand_over(array, 4)
    np.testing.assert_array_equal(result, [1, 2j, 3])
    assert driver.named("cuStreamSynchronize") == [(4,)]
    x = np.zeros((4, 6))
    assert HOST.layout_key(x) == HOST.layout_key(x[:, :])
    assert HOST.layout_key(x) != HOST.layout_key(x.T)
    assert HOST.pointer(x) == x.ctypes.data


def test_keys_of_interfaces(driver):
    x = np.zeros((4, 6), "float32")
    views = [x, x.T, x[1:], x[1:, 1:], x.view("int32")]
    keys = [EXCHANGE.layout_key(Interface(view)) for view in views]
    assert len({*keys, EXCHANGE.layout_key(Interface(x, readonly=True))}) == 6
    assert EXCHANGE.layout_key(Interface(x)) == keys[0]
    driver.device_of[x.ctypes.data] = 1
    assert EXCHANGE.layout_key(Interface(x)) != keys[0]
    assert EXCHANGE.pointer(Interface(x)) == x.ctypes.data
    assert EXCHANGE.layout_key(object()) != EXCHANGE.layout_key(object())


@pytest.mark.parametrize(
    ("producer", "stream", "waits"), [(None, 5, False), (5, 5, False), (1, 0, False), (1, 5, True), (7, 0, True)]
)
def test_the_stream_waits_for_a_producer_s(driver, producer, stream, waits):
    with devices.device_guard(1):
        EXCHANGE.ready(Interface(np.zeros(3), stream=producer), stream)
    assert [arguments[1] for arguments in driver.named("cuEventRecord")] == ([producer] if waits else [])
    assert [arguments[0] for arguments in driver.named("cuStreamWaitEvent")] == ([stream] if waits else [])


def test_arrays_are_held_until_the_stream_is_past(driver):
    exchange = Exchange()
    devices.library().cuEventQuery = lambda event: 600
    with devices.device_guard(0):
        exchange.record("a", 5)
        exchange.record("b", 5)
        assert [array for _, array in exchange._held] == ["a", "b"]
        devices.library().cuEventQuery = lambda event: 0
        exchange.record("c", 5)
        assert [array for _, array in exchange._held] == ["c"]
        driver.capturing.add(5)
        exchange.record("d", 5)
        assert [array for _, array in exchange._held] == ["c"]


@pytest.mark.parametrize(
    ("installed", "gpu", "memory"),
    [({"cupy", "torch"}, True, CUPY), ({"torch"}, True, TORCH), ({"torch"}, False, POOL), (set(), True, POOL)],
)
def test_memory_for_results_of_other_libraries(monkeypatch, installed, gpu, memory):
    monkeypatch.setattr(frameworks, "_is_installed", lambda name: name in installed)
    monkeypatch.setattr(TORCH, "has_gpu", lambda: gpu, raising=False)
    assert Exchange().memory is memory


def test_results_are_delivered_on_their_stream(driver, monkeypatch):
    seen = []
    exchange = Exchange("x", lambda array, stream: seen.append(POOL.current_stream(0)) or "theirs")
    monkeypatch.setitem(exchange.__dict__, "memory", POOL)
    array, _ = exchange.allocator((3,), FLOAT, 0)()
    with devices.device_guard(0):
        assert exchange.hand_over(array, 6) == "theirs"
        assert EXCHANGE.hand_over(array, 6) is array
        monkeypatch.setitem(JAX.__dict__, "memory", POOL)
        with pytest.raises(ToolchainError, match="results for JAX need memory of CuPy or PyTorch"):
            JAX.hand_over(array)
        calls = []
        numba = SimpleNamespace(as_cuda_array=lambda array, sync: calls.append(sync) or array)
        monkeypatch.setitem(sys.modules, "numba.cuda", numba)
        monkeypatch.setitem(NUMBA.__dict__, "memory", POOL)
        assert NUMBA.hand_over(array, 0) is array
        NUMBA.hand_over(array, 9)
        assert calls == [False, True]
    assert seen == [6]


def test_no_framework_is_imported():
    script = """
import sys
import mathfuse.runtime.cuda.arrays, mathfuse.runtime.cuda.cufft, mathfuse.runtime.cuda.driver
print(sorted({"torch", "jax", "cupy", "numba", "cuda"} & set(sys.modules)))
print(mathfuse.runtime.cuda.driver.why_unavailable() is not None)
"""
    assert subprocess.check_output([sys.executable, "-c", script], text=True) == "[]\nTrue\n"
