"""The driver, streams, memory and kernels of a real GPU."""

from __future__ import annotations

import ctypes
import gc
import threading

import numpy as np
import pytest

from mathfuse.runtime.cuda import devices
from mathfuse.runtime.cuda.arrays import download, upload
from mathfuse.runtime.cuda.driver import (
    Event,
    Launch,
    allocate,
    copy_in,
    copy_out,
    device_guard,
    is_capturing,
    load_kernel,
    memory_info,
    relaxed_capture,
    stream_handle,
    stream_wait,
    synchronize,
)
from mathfuse.runtime.errors import PlanError, ToolchainError

pytestmark = pytest.mark.gpu
RESERVED, USED = 5, 7  # CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, CU_MEMPOOL_ATTR_USED_MEM_CURRENT

SOURCE = """
struct Block { long long slots[4]; };
extern "C" __global__ void fill(Block b) {  // address, count, first value, step
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < b.slots[1]) ((long long*)b.slots[0])[i] = b.slots[2] + i * b.slots[3];
}
extern "C" __global__ void wait(Block b) {
    for (long long begin = clock64(); clock64() - begin < b.slots[0];) {}
}
"""


@pytest.fixture(scope="module")
def cubin():
    from cuda.core import Program, ProgramOptions

    return Program(SOURCE, "c++", ProgramOptions(arch=devices.architecture(0))).compile("cubin").code


@pytest.fixture(scope="module")
def cupy():
    return pytest.importorskip("cupy")


@pytest.fixture(autouse=True)
def guarded():
    with device_guard(0):
        yield


def block(*slots):
    return np.array([*slots, 0, 0, 0, 0][:4], np.int64)


def in_thread(work):
    seen = []
    thread = threading.Thread(target=lambda: seen.append(work()))
    thread.start()
    thread.join()
    return seen[0]


def test_the_device_tells_what_it_is():
    assert devices.why_unavailable() == ""
    assert devices.device_count() >= 1
    assert devices.architecture(0).startswith("sm_")
    assert devices.multiprocessors(0) > 10
    assert devices.l2_bytes(0) > 1 << 20
    assert "NVIDIA" in devices.name(0)
    free, total = memory_info(0)
    assert 0 < free <= total


def test_a_fresh_thread_gets_a_context_and_loses_it():
    def work():
        before = devices.current_device()
        with device_guard(0):
            block = allocate(1 << 20, 0, 0)
            synchronize(0)
        return before, bool(block.pointer)

    assert in_thread(work) == (0, True)


def test_launches_read_their_parameters_as_they_are_then(cubin):
    kernel = load_kernel(bytes(cubin), "fill", 0)
    assert kernel.registers > 0
    assert kernel.local_bytes == 0
    assert kernel.max_threads >= 256
    memory = allocate(8 * 1000, 0, 0)
    parameters = block(memory.pointer, 1000, 5, 3)
    launch, values = Launch(kernel, 8, 128, parameters), np.empty(1000, np.int64)
    for first in (5, 7):
        parameters[2] = first
        launch(0)
        parameters[2] = -1  # it was read when the kernel was launched
        copy_out(values, memory.pointer, 0)
        np.testing.assert_array_equal(values, first + 3 * np.arange(1000))


def test_code_for_nothing_is_refused(cubin):
    with pytest.raises(ToolchainError, match="cuModuleLoadData"):
        load_kernel(b"no cubin at all, but long enough to be looked at", "fill", 0)
    with pytest.raises(ToolchainError, match="cuModuleGetFunction missing"):
        load_kernel(bytes(cubin), "missing", 0)
    synchronize(0)


def test_events_order_streams_and_measure(cubin, cupy):
    slow = Launch(load_kernel(bytes(cubin), "wait", 0), 1, 1, block(20_000_000))
    fill = load_kernel(bytes(cubin), "fill", 0)
    first, second = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    memory = allocate(8, 0, first.ptr)
    begin, end, timeless = Event(0), Event(0), Event(0, timing=False)
    begin.record(first.ptr)
    slow(first.ptr)
    Launch(fill, 1, 1, block(memory.pointer, 1, 42, 0))(first.ptr)
    end.record(first.ptr)
    timeless.record(first.ptr)
    assert not timeless.is_past()
    stream_wait(second.ptr, timeless)
    value = np.zeros(1, np.int64)
    copy_out(value, memory.pointer, second.ptr)
    assert value == 42
    end.synchronize()
    assert timeless.is_past()
    assert 1 < end.elapsed_ms(begin) < 1000


def test_capture_is_seen(cubin, cupy):
    fill = load_kernel(bytes(cubin), "fill", 0)
    stream = cupy.cuda.Stream(non_blocking=True)
    memory, parameters = allocate(8, 0, 0), block(0, 1, 1, 0)
    parameters[0] = memory.pointer
    launch = Launch(fill, 1, 1, parameters)
    synchronize(0)
    lost = allocate(64, 0, stream.ptr)
    assert not is_capturing(stream.ptr)
    with stream:
        stream.begin_capture(cupy.cuda.runtime.streamCaptureModeGlobal)
        assert is_capturing(stream.ptr)
        assert not is_capturing(0)
        with pytest.raises(PlanError, match="while a CUDA graph is captured"):
            allocate(8, 0, stream.ptr)
        with relaxed_capture():  # loading code is no part of the stream
            other = load_kernel(bytes(cubin), "wait", 0)
        del lost, other  # freed behind the capture, which stays whole
        gc.collect()
        launch(stream.ptr)
        graph = stream.end_capture()
    parameters[2] = 99  # the graph keeps the operands of its capture
    graph.launch(stream)
    value = np.zeros(1, np.int64)
    copy_out(value, memory.pointer, stream.ptr)
    assert value == 1
    allocate(8, 0, 0)
    graph.launch(stream)
    synchronize(stream.ptr)


def test_memory_goes_back_to_the_pool_and_from_there_to_the_device():
    def pooled(attribute):
        """Bytes of this process; other processes may use the device, too."""
        cuda, pool, value = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
        assert cuda.cuDeviceGetDefaultMemPool(ctypes.byref(pool), 0) == 0
        assert cuda.cuMemPoolGetAttribute(pool, attribute, ctypes.byref(value)) == 0
        return value.value

    gc.collect()
    synchronize(0)
    before = pooled(USED)
    memory = allocate(1 << 30, 0, 0)
    synchronize(0)
    assert pooled(USED) - before == 1 << 30
    del memory
    gc.collect()
    synchronize(0)
    assert pooled(USED) == before
    assert pooled(RESERVED) < 1 << 30


def test_memory_outlives_its_stream(cubin, cupy):
    """What was told of delays the free; the handle of a stream that is gone is not touched."""
    slow, fill = (load_kernel(bytes(cubin), name, 0) for name in ("wait", "fill"))
    stream = cupy.cuda.Stream(non_blocking=True)
    memory = allocate(1 << 20, 0, stream.ptr)
    Launch(slow, 1, 1, block(2_000_000_000))(stream.ptr)
    memory.used(stream.ptr)
    use = memory._uses[stream.ptr]
    del stream
    gc.collect()
    cupy.cuda.Stream(non_blocking=True)  # may take its place
    del memory
    gc.collect()
    assert not use.is_past()
    other = allocate(1 << 20, 0, 0)
    Launch(fill, 1, 1, block(other.pointer, 1, 7, 0))(0)
    value = np.zeros(1, np.int64)
    copy_out(value, other.pointer, 0)
    assert value == 7
    assert use.is_past()  # the memory became free behind it


def test_too_much_memory_is_an_error_that_the_process_survives():
    _, total = memory_info(0)
    with pytest.raises(PlanError, match=f"{2 * total:,} bytes were wanted .*CUDA_ERROR_OUT_OF_MEMORY"):
        allocate(2 * total, 0, 0)
    memory, back = allocate(24, 0, 0), np.empty(3)
    copy_in(memory.pointer, np.arange(3.0), 0)
    copy_out(back, memory.pointer, 0)
    np.testing.assert_array_equal(back, np.arange(3.0))


@pytest.mark.parametrize(
    "x",
    [
        np.arange(24.0).reshape(4, 6),
        np.arange(24.0).reshape(4, 6).T,
        np.arange(24, dtype="complex64").reshape(4, 6)[::2, ::-1],
        np.broadcast_to(np.arange(5, dtype="uint8"), (3, 5)),
        np.array(3.5),
        np.zeros((3, 0)),
        np.random.default_rng(1).random((512, 1025)),
    ],
)
def test_arrays_go_there_and_back(x, cupy):
    own = cupy.cuda.Stream(non_blocking=True)  # it lives as long as its object
    for stream in (0, own.ptr):
        array = upload(x, 0, stream)
        np.testing.assert_array_equal(download(array, stream), x)


def test_page_locked_memory_may_change_after_the_copy(cupy):
    count = 1 << 24
    pinned = cupy.cuda.alloc_pinned_memory(4 * count)
    x = np.frombuffer(pinned, np.float32, count)
    x[:] = 1
    array = upload(x, 0, 0)
    x[:] = 2
    assert (download(array, 0) == 1).all()


def test_streams_of_every_library(cupy):
    stream = cupy.cuda.Stream(non_blocking=True)
    assert stream_handle(stream) == stream.ptr
    assert stream_handle(cupy.cuda.Stream.null) == 0
    assert stream_handle(cupy.cuda.ExternalStream(stream.ptr)) == stream.ptr


def test_streams_of_torch():
    torch = pytest.importorskip("torch")
    stream = torch.cuda.Stream()
    assert stream_handle(stream) == stream.cuda_stream
    assert stream_handle(torch.cuda.default_stream()) == 0


def test_streams_of_cuda_core():
    core = pytest.importorskip("cuda.core")
    device = core.Device(0)
    device.set_current()
    stream = device.create_stream()
    assert stream_handle(stream) == int(stream.handle)
    assert stream_handle(device.default_stream) in (0, 1, 2)


def test_streams_of_numba():
    cuda = pytest.importorskip("numba.cuda")
    stream = cuda.stream()
    assert stream_handle(stream) == int(stream)
    assert stream_handle(cuda.default_stream()) == 0
    assert stream_handle(cuda.legacy_default_stream()) == 1


@pytest.mark.multigpu
def test_the_guard_switches_devices_and_restores(cupy):
    torch = pytest.importorskip("torch")
    cupy.cuda.Device(0).use()
    assert devices.current_device() == 0
    with device_guard(1):
        assert devices.current_device() == 1
        assert cupy.cuda.runtime.getDevice() == 1
        assert torch.cuda.current_device() == 1
        assert cupy.zeros(3).device.id == 1
        with device_guard(0):
            assert cupy.cuda.runtime.getDevice() == 0
        assert cupy.cuda.runtime.getDevice() == 1
    assert cupy.cuda.runtime.getDevice() == 0
    assert torch.cuda.current_device() == 0


@pytest.mark.multigpu
def test_kernels_and_memory_of_another_device(cubin):
    kernel = load_kernel(bytes(cubin), "fill", 1)
    memory = allocate(80, 1, 0)
    from mathfuse.runtime.cuda.memory import device_of

    assert device_of(memory.pointer) == 1
    values = np.empty(10, np.int64)

    def work():
        with device_guard(1):
            Launch(kernel, 1, 32, block(memory.pointer, 10, 0, 1))(0)
            copy_out(values, memory.pointer, 0)
        return devices.current_device()

    assert in_thread(work) == 0
    np.testing.assert_array_equal(values, np.arange(10))
