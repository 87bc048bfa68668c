"""Arrays, streams and results of the frameworks on a real GPU."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import numpy as np
import pytest

from mathfuse.runtime.arrays import as_host, place, shape_of
from mathfuse.runtime.cuda.arrays import as_device, as_device_output, download, is_device_array
from mathfuse.runtime.cuda.driver import device_guard, synchronize
from mathfuse.runtime.cuda.frameworks import CUPY, EXCHANGE, HOST, JAX, NUMBA, POOL, TORCH
from mathfuse.runtime.dtypes import COMPLEX32
from mathfuse.runtime.errors import UnsupportedError

pytestmark = pytest.mark.gpu

NAMES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128".split()


@pytest.fixture(autouse=True)
def guarded():
    with device_guard(0):
        yield


@pytest.fixture
def cupy():
    return pytest.importorskip("cupy")


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.fixture
def jax():
    return pytest.importorskip("jax")


@pytest.fixture
def cuda():
    return pytest.importorskip("numba.cuda")


def check(array, x, framework, readonly=False):
    """A device array of `x` in some framework is what NumPy has."""
    assert is_device_array(array)
    assert place(array) == "cuda"
    assert shape_of(array) == x.shape
    found = as_device(array)
    assert (found.shape, found.dtype, found.device) == (x.shape, x.dtype, 0)
    assert (found.framework, found.readonly) == (framework, readonly)
    assert framework.pointer(array) == found.pointer or found.copied
    framework.ready(array, 0)
    np.testing.assert_array_equal(download(found, 0), x)
    assert framework.layout_key(array) == framework.layout_key(array)
    with pytest.raises(UnsupportedError, match='execution="cuda"'):
        as_host(array)
    return found


VIEWS = [lambda x: x, lambda x: x.T, lambda x: x[1:, ::2], lambda x: x[2:2], lambda x: x[None, :, None]]


@pytest.mark.parametrize("name", NAMES)
def test_cupy_arrays_of_every_dtype(cupy, name):
    x = (np.arange(24) % 2).astype(name).reshape(4, 6)
    for view in [*VIEWS, lambda x: x[::-1, ::-1], lambda x: x[0, 0, ...]]:
        found = check(view(cupy.asarray(x)), view(x), CUPY)
        assert found.strides == view(x).strides or found.size == 0


@pytest.mark.parametrize("name", NAMES)
def test_torch_tensors_of_every_dtype(torch, name):
    x = (np.arange(24) % 2).astype(name).reshape(4, 6)
    for view in VIEWS:
        check(view(torch.from_numpy(x).cuda()), view(x), TORCH)


# JAX has no other types of 64 bits, nor complex128, unless it is told to.
@pytest.mark.parametrize("name", [n for n in NAMES if n == "complex64" or not ("64" in n or n == "complex128")])
def test_jax_arrays_of_every_dtype(jax, name):
    x = (np.arange(24) % 2).astype(name).reshape(4, 6)
    check(jax.numpy.asarray(x), x, JAX, readonly=True)
    with pytest.raises(UnsupportedError, match="is read-only"):
        as_device_output(jax.numpy.asarray(x))


@pytest.mark.parametrize("name", ["int32", "float32", "complex64", "float64"])
def test_numba_arrays(cuda, name):
    x = np.arange(24).astype(name).reshape(4, 6)
    check(cuda.to_device(x), x, NUMBA)
    check(cuda.to_device(x)[1:, ::2], x[1:, ::2], NUMBA)


def test_anything_with_dlpack(cupy):
    class Only:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    x = np.arange(24.0).reshape(4, 6)[:, ::2]
    found = as_device(Only(cupy.asarray(x)))
    np.testing.assert_array_equal(download(found, 0), x)
    EXCHANGE.ready(Only(cupy.asarray(x)), 0)
    assert found.framework is EXCHANGE


def test_unaligned_cupy_arrays_are_refused(cupy):
    x = cupy.arange(9, dtype="float32")[1:].view("complex64")
    for read in (as_device, as_device_output):
        with pytest.raises(UnsupportedError, match="no multiples of 8 bytes"):
            read(x)


def test_lazy_bits_are_resolved(torch):
    z = torch.tensor([1 + 2j, 3 - 4j], device="cuda")
    for lazy in (z.conj(), z.conj().imag):
        found = as_device(lazy)
        assert found.copied
        np.testing.assert_array_equal(download(found, 0), lazy.resolve_conj().resolve_neg().cpu().numpy())
        assert TORCH.layout_key(lazy) != TORCH.layout_key(lazy.resolve_conj().resolve_neg())
        with pytest.raises(UnsupportedError, match="lazily conjugated"):
            as_device_output(lazy)


@pytest.mark.filterwarnings("ignore")
def test_complex32_is_read_and_made(torch):
    z = torch.arange(24.0, device="cuda").reshape(4, 6).to(torch.complex64).to(torch.complex32).T[::2]
    found = as_device(z)
    assert (found.dtype, found.shape, found.strides) == (COMPLEX32, (3, 4), (8, 24))
    np.testing.assert_array_equal(download(found, 0)["real"], z.real.cpu().numpy())
    array, pointer = TORCH.allocator((2, 3), COMPLEX32, 0)()
    assert (array.dtype, tuple(array.shape), array.data_ptr()) == (torch.complex32, (2, 3), pointer)


@pytest.mark.filterwarnings("ignore")
def test_tensors_that_are_refused(torch):
    weight = torch.nn.Parameter(torch.ones(2, device="cuda"))
    cases = {
        r"requires grad.*array\.detach\(\)": weight,
        r"bfloat16.*array\.float\(\)": torch.zeros(2, dtype=torch.bfloat16, device="cuda"),
        r"sparse_coo.*array\.to_dense\(\)": torch.zeros(2, device="cuda").to_sparse(),
        r"nested.*its parts": torch.nested.nested_tensor([torch.zeros(1), torch.zeros(2)], device="cuda"),
    }
    for message, tensor in cases.items():
        for take in (as_device, as_device_output):
            with pytest.raises(UnsupportedError, match=f"^image.*{message}"):
                take(tensor, "image")


def test_autograd_notices_outputs(torch):
    tensor = torch.zeros(3, device="cuda")
    as_device_output(tensor)
    assert tensor._version == 1
    with torch.inference_mode():
        as_device_output(torch.zeros(3, device="cuda"))
    with pytest.raises(UnsupportedError, match="same memory"):
        as_device_output(torch.zeros(1, device="cuda").expand(4))


@pytest.mark.filterwarnings("ignore")
def test_jax_arrays_that_are_refused(jax):
    deleted = jax.numpy.ones(3)
    deleted.delete()
    cases = {
        r"bfloat16.*array\.astype\('float32'\)": jax.numpy.ones(2, "bfloat16"),
        r"cannot be read": jax.random.key(0),
        r"cannot be read.*deleted": deleted,
    }
    for message, array in cases.items():
        with pytest.raises(UnsupportedError, match=rf"^x: .*{message}"):
            as_device(array, "x")
    with pytest.raises(UnsupportedError, match=r"inside jax\.jit"):
        jax.jit(lambda x: as_host(x, "x").view)(jax.numpy.ones(3))


@pytest.mark.parametrize("name", ["cupy", "torch", "pool"])
def test_allocators_give_contiguous_arrays(name):
    framework = {"cupy": CUPY, "torch": TORCH, "pool": POOL}[name]
    if name != "pool":
        pytest.importorskip(name)
    for shape, dtype in [((3, 4), "complex64"), ((), "float32"), ((0, 5), "uint8"), ((7,), "bool")]:
        array, pointer = framework.allocator(shape, np.dtype(dtype), 0)()
        found = as_device(array)
        assert found.pointer == pointer == framework.pointer(array)
        assert (found.shape, found.dtype, found.device, found.contiguous) == (shape, np.dtype(dtype), 0, True)
        assert pointer % 256 == 0


def test_cupy_allocates_on_the_stream(cupy):
    stream = cupy.cuda.Stream(non_blocking=True)
    assert CUPY.current_stream(0) == 0
    with CUPY.on_stream(stream.ptr, 0):
        assert CUPY.current_stream(0) == stream.ptr
    with stream:
        assert CUPY.current_stream(0) == stream.ptr
        with CUPY.on_stream(0, 0):
            assert CUPY.current_stream(0) == 0
    assert CUPY.current_stream(0) == 0


def test_torch_allocates_on_the_stream(torch):
    stream = torch.cuda.Stream()
    assert TORCH.current_stream(0) == 0
    with TORCH.on_stream(stream.cuda_stream, 0):
        assert TORCH.current_stream(0) == stream.cuda_stream
        assert torch.cuda.current_stream().cuda_stream == stream.cuda_stream
        array, _ = TORCH.allocator((3,), np.dtype("float32"), 0)()
    with torch.cuda.stream(stream), TORCH.on_stream(0, 0):
        assert TORCH.current_stream(0) == 0
    for handle in (0, 1, stream.cuda_stream):
        TORCH.record(array, handle)


def test_threads_have_streams_of_their_own(cupy, torch):
    stream, seen = cupy.cuda.Stream(non_blocking=True), []

    def work():
        with device_guard(0):
            seen.append((CUPY.current_stream(0), TORCH.current_stream(0), POOL.current_stream(0)))

    with CUPY.on_stream(stream.ptr, 0), TORCH.on_stream(stream.ptr, 0), POOL.on_stream(stream.ptr, 0):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert seen == [(0, 0, 0)]


def test_results_for_jax_are_jax_arrays(jax, cupy):
    stream = cupy.cuda.Stream(non_blocking=True)
    with JAX.on_stream(stream.ptr, 0):
        array, _ = JAX.allocator((1 << 20,), np.dtype("float32"), 0)()
        for _ in range(50):
            array += 0
        array[...] = 3
    result = JAX.hand_over(array, stream.ptr)
    assert isinstance(result, jax.Array)
    assert result.devices() == jax.numpy.ones(1).devices()
    np.testing.assert_array_equal(np.asarray(result + 1), 4)
    wide, _ = JAX.allocator((3,), np.dtype("float64"), 0)()
    assert JAX.hand_over(wide).dtype == ("float64" if jax.config.jax_enable_x64 else "float32")


def test_jax_arrays_are_waited_for_and_held(jax, cupy):
    stream = cupy.cuda.Stream(non_blocking=True)
    square = jax.jit(lambda x: x @ x)
    for _ in range(3):
        x = square(jax.numpy.full((2048, 2048), 1 / 2048, "float32"))
        JAX.ready(x, stream.ptr)
        with stream:
            copy = as_cupy(cupy, x).copy()
        JAX.record(x, stream.ptr)
        del x
        synchronize(stream.ptr)
        np.testing.assert_allclose(cupy.asnumpy(copy), 1 / 2048, rtol=1e-5)


def as_cupy(cupy, array):
    found = as_device(array)
    return cupy.asarray(SimpleNamespace(__cuda_array_interface__=found.__cuda_array_interface__))


def test_numba_results_and_producers(cuda, cupy):
    stream = cuda.stream()
    x = cuda.to_device(np.arange(1 << 20, dtype="float32"), stream=stream)
    with device_guard(0):
        other = cupy.cuda.Stream(non_blocking=True)
        NUMBA.ready(x, other.ptr)
        with other:
            copy = as_cupy(cupy, x).copy()
        other.synchronize()
    np.testing.assert_array_equal(cupy.asnumpy(copy), np.arange(1 << 20))
    result = NUMBA.hand_over(NUMBA.allocator((3,), np.dtype("float32"), 0)()[0], 0)
    assert type(result) is type(x)


def test_results_of_numpy_come_down():
    array, pointer = HOST.allocator((3, 4), np.dtype("float64"), 0)()
    from mathfuse.runtime.cuda.driver import copy_in

    x = np.random.default_rng(1).random((3, 4))
    copy_in(pointer, x, 0)
    np.testing.assert_array_equal(HOST.hand_over(array, 0), x)


@pytest.mark.multigpu
def test_arrays_on_another_device(cupy, torch):
    with device_guard(1):
        x = cupy.arange(6.0)
        fresh, _ = CUPY.allocator((3,), np.dtype("float32"), 1)()
    assert fresh.device.id == 1
    for array in (x, torch.arange(6.0, device="cuda:1", dtype=torch.float64)):
        found = as_device(array)
        assert found.device == 1
        np.testing.assert_array_equal(download(found, 0), np.arange(6.0))
    tensor, pointer = TORCH.allocator((3,), np.dtype("float32"), 1)()
    assert (tensor.device.index, tensor.data_ptr()) == (1, pointer)
    interface = SimpleNamespace(__cuda_array_interface__=x.__cuda_array_interface__)
    assert as_device(interface).device == 1
    crooked = as_device(x.view("float32")[1:-1].view("float64"))
    assert (crooked.copied, crooked.device) == (True, 1)
