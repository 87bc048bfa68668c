"""The driver's table, errors, contexts, kernels, streams and memory, without a GPU; `test_gpu.py` has the real ones."""

from __future__ import annotations

import gc
import re
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from mathfuse.runtime.cuda import devices, memory
from mathfuse.runtime.cuda.driver import Event, Launch, load_kernel, stream_handle, stream_wait, synchronize
from mathfuse.runtime.errors import PlanError, ToolchainError

from . import fakes

# --- the library ------------------------------------------------------------------------------------------------------


@pytest.fixture
def fresh():
    """The driver is looked for anew."""
    caches = (*fakes.CACHES, devices._loaded)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


@pytest.mark.parametrize(
    ("load", "reason"),
    [
        (OSError("libcuda.so.1: no such file"), "driver was not found .*no such file"),
        (SimpleNamespace(), "driver is too old"),
        ({"cuInit": lambda flags: 3}, "does not start .status 3"),
        ({"cuDeviceGetCount": lambda place: 100}, "does not count its devices .status 100"),
        ({"cuDeviceGetCount": lambda place: 0}, "finds no device"),
    ],
)
def test_a_machine_without_a_gpu_says_why(monkeypatch, fresh, load, reason):
    def loaded(name):
        if isinstance(load, Exception):
            raise load
        return SimpleNamespace()

    def bound(library, table):
        if isinstance(load, SimpleNamespace):
            raise AttributeError("cuMemAllocAsync")
        return SimpleNamespace(**{**vars(fakes.Driver().functions()), **load})

    monkeypatch.setattr(devices.ctypes, "CDLL", loaded)
    monkeypatch.setattr(devices, "bind", bound)
    assert re.search(reason, devices.why_unavailable())
    assert devices.device_count() == 0
    with pytest.raises(ToolchainError, match=rf'no GPU can be used: .*{reason}.*; take execution="cpu"'):
        devices.memory_info(0)


def test_devices_tell_what_they_are(driver):
    assert devices.why_unavailable() == ""
    assert devices.device_count() == 2
    assert devices.architecture(1) == "sm_90a"
    assert (devices.multiprocessors(0), devices.l2_bytes(0), devices.name(0)) == (132, 50 << 20, "Fake GPU")
    assert devices.memory_info(1) == (3, 4)


def test_errors_name_the_function_and_what_the_driver_says(driver):
    with pytest.raises(ToolchainError, match=r"cuSomething: CUDA_ERROR_INVALID_VALUE: invalid argument"):
        devices.check(1, "cuSomething")
    with pytest.raises(ToolchainError, match=r"cuSomething: status 12345"):
        devices.check(12345, "cuSomething")
    with pytest.raises(PlanError, match=r"more was wanted than is free .*process stays usable"):
        devices.check(2, "cuSomething")
    devices.check(0, "cuSomething")


# --- contexts ---------------------------------------------------------------------------------------------------------


def test_the_guard_pushes_only_where_it_must_and_restores(driver):
    with devices.device_guard(1):
        assert devices.current_device() == 1
        with devices.device_guard(1):
            assert len(driver.contexts.stack) == 1
        with devices.device_guard(0):
            assert driver.contexts.stack == [fakes.CONTEXT + 1, fakes.CONTEXT]
        assert devices.current_device() == 1
    assert driver.contexts.stack == []
    with pytest.raises(ValueError, match="inside"), devices.device_guard(0):
        raise ValueError("inside")
    assert driver.contexts.stack == []
    with pytest.raises(ToolchainError, match="cuDevicePrimaryCtxRetain"):
        devices.device_guard(7)


def test_each_thread_has_a_context_of_its_own(driver):
    seen = []

    def work():
        seen.append(devices.current_device())
        with devices.device_guard(1):
            seen.append(devices.current_device())

    with devices.device_guard(0):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert devices.current_device() == 0
    assert seen == [0, 1]


# --- kernels ----------------------------------------------------------------------------------------------------------


def test_kernels_are_loaded_asked_launched_and_unloaded(driver):
    kernel = load_kernel(b"cubin", "main", 1)
    assert (kernel.registers, kernel.local_bytes, kernel.max_threads, kernel.device) == (32, 16, 1024, 1)
    parameters = np.arange(3)
    launch = Launch(kernel, 5, 128, parameters, shared_bytes=64)
    for stream in (0, 11, 11):
        launch(stream)
    seen = driver.named("cuLaunchKernelEx")
    configurations = [arguments[0]._obj for arguments in seen]
    assert [c.hStream for c in configurations] == [None, 11, 11]
    assert configurations[1] is configurations[2]
    first = configurations[1]
    assert (first.gridDimX, first.gridDimY, first.blockDimX, first.blockDimZ) == (5, 1, 128, 1)
    assert (first.sharedMemBytes, first.numAttrs) == (64, 0)
    assert seen[0][1].value == 78
    for stream in range(200):  # streams come and go
        launch(stream)
    assert len(launch._configurations) <= 64
    with pytest.raises(PlanError, match="C-contiguous array of int64"):
        Launch(kernel, 1, 1, np.zeros(4, np.int32))
    with pytest.raises(PlanError, match="C-contiguous array of int64"):
        Launch(kernel, 1, 1, np.zeros(4, np.int64)[::2])
    assert driver.named("cuModuleUnload") == []
    del kernel, launch
    gc.collect()
    assert driver.named("cuModuleUnload") == [(77,)]


def test_code_that_does_not_load_is_an_error(driver):
    with pytest.raises(ToolchainError, match=r"cuModuleLoadData: CUDA_ERROR_INVALID_VALUE"):
        load_kernel(b"bad", "main", 0)
    with pytest.raises(ToolchainError, match="cuModuleGetFunction missing"):
        load_kernel(b"cubin", "missing", 0)
    assert len(driver.named("cuModuleUnload")) == 1


# --- streams ----------------------------------------------------------------------------------------------------------


def test_capture_is_seen_and_the_legacy_stream_stays_out_of_it(driver):
    driver.capturing.add(5)
    with devices.device_guard(0):
        assert [devices.is_capturing(stream) for stream in (5, 6, 0)] == [True, False, False]
        assert [devices.meets_capture(stream) for stream in (5, 6, 0)] == [True, False, True]
    modes = []
    driver.cuThreadExchangeStreamCaptureMode = lambda place: modes.append(place._obj.value) or 0
    devices.library().cuThreadExchangeStreamCaptureMode = driver.cuThreadExchangeStreamCaptureMode
    with devices.relaxed_capture():
        assert modes == [2]
    assert len(modes) == 2


def test_events_are_of_a_device_and_destroyed(driver):
    first, second = Event(1), Event(1, timing=False)
    assert [flags for _, flags in driver.named("cuEventCreate")] == [0, 2]
    first.record(3)
    stream_wait(4, first)
    synchronize(4)
    assert driver.named("cuEventRecord") == [(first.handle, 3)]
    assert driver.named("cuStreamWaitEvent") == [(4, first.handle, 0)]
    assert second.elapsed_ms(first) == 1.5
    assert second.is_past()
    devices.library().cuEventQuery = lambda event: 600
    assert not second.is_past()
    handle = first.handle
    del first
    gc.collect()
    assert (handle,) in driver.named("cuEventDestroy_v2")


class Protocol:
    def __init__(self, answer):
        self.answer = answer

    def __cuda_stream__(self):
        return self.answer


class Number:
    def __int__(self):
        return 12


@pytest.mark.parametrize(
    ("stream", "handle"),
    [
        *((0, 0), (1, 1), (140737488355328, 140737488355328)),
        (Protocol((0, 9)), 9),
        (SimpleNamespace(__cuda_stream__=(0, 10)), 10),
        (SimpleNamespace(ptr=8), 8),
        (SimpleNamespace(ptr=0), 0),
        (SimpleNamespace(cuda_stream=7), 7),
        (SimpleNamespace(handle=devices.c_void_p(6)), 6),
        (SimpleNamespace(handle=devices.c_void_p(None)), 0),
        (SimpleNamespace(handle=Number()), 12),
        (SimpleNamespace(handle=0), 0),
    ],
)
def test_streams_of_every_kind_have_a_handle(stream, handle):
    assert stream_handle(stream) == handle


@pytest.mark.parametrize(
    "stream", [True, -1, 1.0, "0", None, object(), Protocol((1, 9)), SimpleNamespace(handle="x"), np.int64(3)]
)
def test_what_is_no_stream_is_refused(stream):
    with pytest.raises(PlanError, match="is no stream: pass None, a handle"):
        stream_handle(stream)


# --- memory -----------------------------------------------------------------------------------------------------------


def test_memory_is_freed_on_the_default_stream_behind_its_uses(driver):
    block = memory.allocate(100, 1, 6)
    pointer = block.pointer
    assert driver.device_of[pointer] == 1
    assert driver.named("cuMemAllocAsync")[0][1:] == (100, 6)
    with devices.device_guard(1):
        for stream in (0, 1, 7, 6):
            block.used(stream)
    events = dict(map(reversed, driver.named("cuEventRecord")))
    assert set(events) == {6, 7}  # the default stream needs no event
    driver.pending.add(events[7])
    driver.calls.clear()
    del block
    gc.collect()
    assert driver.named("cuStreamWaitEvent") == [(0, events[7], 0)]
    assert driver.named("cuMemFreeAsync") == [(pointer, 0)]
    assert not driver.named("cuStreamIsCapturing") or {s for s, _ in driver.named("cuStreamIsCapturing")} == {0}
    assert driver.contexts.stack == []


def test_no_bytes_need_no_memory(driver):
    assert memory.allocate(0, 0, 0).pointer == 0
    memory.copy_in(0, np.zeros(0), 0)
    memory.copy_out(np.zeros(0), 0, 0)
    assert {name for name, _ in driver.calls} <= {"cuMemAllocAsync"}


def test_too_much_memory_is_a_plan_error_that_says_how_much(driver):
    with pytest.raises(PlanError, match=r"1,099,511,627,776 bytes were wanted .*out of memory.*process stays usable"):
        memory.allocate(1 << 40, 0, 0)


def test_under_capture_nothing_is_allocated_and_nothing_freed(driver):
    block = memory.allocate(8, 0, 5)
    driver.capturing.add(5)
    for stream in (5, 0):
        with pytest.raises(PlanError, match="while a CUDA graph is captured: give out="):
            memory.allocate(8, 0, stream)
    del block
    gc.collect()
    assert driver.named("cuMemFreeAsync") == []
    memory.allocate(8, 0, 6)  # another stream: the block still waits
    driver.capturing.clear()
    kept = memory.allocate(8, 0, 6)
    assert len(driver.named("cuMemFreeAsync")) == 2
    assert list(driver.blocks) == [kept.pointer]


def test_page_locked_memory_is_waited_for(driver):
    block = memory.allocate(24, 0, 5)
    values, back = np.arange(3.0), np.empty(3)
    memory.copy_in(block.pointer, values, 5)
    assert driver.named("cuStreamSynchronize") == []
    driver.page_locked.add(values.ctypes.data)
    memory.copy_in(block.pointer, values, 5)
    assert driver.named("cuStreamSynchronize") == [(5,)]
    memory.copy_out(back, block.pointer, 5)
    np.testing.assert_array_equal(back, values)
    assert len(driver.named("cuStreamSynchronize")) == 2
