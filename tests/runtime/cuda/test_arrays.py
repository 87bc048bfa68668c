"""Arrays on a GPU come in as addresses, under the same rules as host arrays; host arrays go there and back."""

from __future__ import annotations

import gc
import sys
from types import SimpleNamespace

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis.extra import numpy as hnp
from numpy.lib.stride_tricks import as_strided

import mathfuse as mf
from mathfuse.fusion.compiler.fingerprint import captured_arrays, fingerprint
from mathfuse.fusion.compiler.parameters import Layout, Writer
from mathfuse.fusion.compiler.signature import OperandType, operand_type, types_of
from mathfuse.runtime import arrays as host
from mathfuse.runtime.arrays import as_host, overlaps, place, same_view, shape_of
from mathfuse.runtime.cuda import dlpack
from mathfuse.runtime.cuda.arrays import (
    DeviceArray,
    as_device,
    as_device_output,
    c_strides,
    download,
    is_device_array,
    upload,
)
from mathfuse.runtime.cuda.frameworks import CUPY, EXCHANGE, HOST, JAX, NUMBA, TORCH
from mathfuse.runtime.errors import UnsupportedError

from .fakes import Capsule, Interface

NAMES = [dtype.name for dtype in host.SUPPORTED.values()]


def address(array):
    return array.__array_interface__["data"][0]


def made(shape, strides, dtype="float32", pointer=4096):
    return DeviceArray(pointer, shape, strides, np.dtype(dtype), 0, EXCHANGE, None)


# --- what a device array tells ----------------------------------------------------------------------------------------


def test_sizes_and_bounds():
    array = made((3, 4), (-64, 8))
    assert (array.ndim, array.size, array.itemsize, array.nbytes) == (2, 12, 4, 48)
    assert array.bounds == (4096 - 128, 4096 + 28)
    assert array.view is array
    assert made((3, 0), (8, 8)).bounds == (4096, 4096)
    assert made((), ()).bounds == (4096, 4100)


@pytest.mark.parametrize(
    ("shape", "strides", "contiguous"),
    [
        ((3, 4), (16, 4), True),
        ((3, 4), (4, 12), False),
        ((3, 1), (4, 99), True),
        ((0, 4), (7, 7), True),
        ((), (), True),
    ],
)
def test_contiguous_is_c_order_without_gaps(shape, strides, contiguous):
    assert made(shape, strides).contiguous == contiguous


@hypothesis.given(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
def test_c_strides_are_numpy_s(shape):
    if 0 not in shape:
        assert c_strides(shape, 8) == np.empty(shape).strides


def test_overlap_is_by_address_range():
    a, b = made((4,), (4,)), made((4,), (4,), pointer=4112)
    assert overlaps(a, a)
    assert not overlaps(a, b)
    assert overlaps(a, made((2,), (-4,), pointer=4112))
    assert not overlaps(a, made((0,), (4,), pointer=4100))
    assert not overlaps(made((4,), (8,)), made((4,), (8,), pointer=4100))  # interleaved
    assert overlaps(made((4,), (8,)), made((4,), (12,), pointer=4100))
    assert not overlaps(made((0,), (4,), pointer=4100), a)
    assert not overlaps(a, np.zeros(4, "float32"))
    assert not overlaps(np.zeros(4, "float32"), a)


def test_the_same_view():
    a = made((1, 4), (99, 4))
    assert same_view(a, made((1, 4), (16, 4)))
    assert not same_view(a, made((1, 4), (99, 8)))
    assert not same_view(a, made((1, 4), (99, 4), "int32"))
    assert not same_view(a, made((1, 4), (99, 4), pointer=4100))
    assert not same_view(a, np.zeros((1, 4), "float32"))


# --- where arrays are -------------------------------------------------------------------------------------------------


def test_places():
    x = np.zeros((2, 3), "float32")
    for array, where in [(x, "cpu"), (Interface(x), "cuda"), (Capsule(x), "cuda"), (Capsule(x, (3, 0)), "cpu")]:
        assert place(array) == where
        assert is_device_array(array) == (where == "cuda")
    assert place(made((3,), (4,))) == "cuda"
    for value in ([1.0], 3, None, np.float32(1)):
        assert not is_device_array(value)
        for ask in (place, shape_of):
            with pytest.raises(UnsupportedError, match=r"x: an? .* is not an array"):
                ask(value, "x")
    with pytest.raises(UnsupportedError, match="x is on a ROCm GPU, which is not supported; pass a copy in CPU memory"):
        place(Capsule(x, (10, 0)), "x")
    broken = SimpleNamespace(__dlpack__=None, __dlpack_device__=lambda: 1 / 0)
    broken.__dlpack_device__ = lambda: int("x")
    assert place(broken) == "cpu"


def test_places_of_torch_and_jax():
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    assert place(torch.zeros(3)) == "cpu"
    assert place(jax.numpy.zeros(3)) == "cpu"
    assert not is_device_array(torch.zeros(3))
    with pytest.raises(UnsupportedError, match="x is on meta, which is not supported"):
        place(torch.zeros(3, device="meta"), "x")
    assert jax.jit(lambda x: place(x) == "cpu" and x)(jax.numpy.ones(3)).shape == (3,)


def test_shapes_are_told_without_reading():
    torch = pytest.importorskip("torch")
    x = np.zeros((2, 3))
    for array in (x, Interface(x), Capsule(x, (1, 0)), torch.zeros(2, 3), torch.zeros(2, 3, device="meta")):
        assert shape_of(array) == (2, 3)


# --- interfaces -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "view", [lambda x: x, lambda x: x.T, lambda x: x[::2, ::-1], lambda x: x[1:1], lambda x: x[0, 0, ...]]
)
def test_interfaces_are_read_as_they_are(driver, name, view):
    x = view(np.zeros((4, 6), name))
    array = as_device(Interface(x))
    assert (array.pointer, array.shape, array.dtype, array.device) == (address(x), x.shape, np.dtype(name), 0)
    assert array.strides == x.strides or array.size == 0
    assert (array.framework, array.readonly, array.copied) == (EXCHANGE, False, False)
    assert as_device(array) is array


def test_the_device_is_where_the_address_lies(driver):
    x = np.zeros(3)
    driver.device_of[address(x)] = 1
    assert as_device(Interface(x)).device == 1
    empty = Interface(np.zeros(0), data=(None, False))
    assert (as_device(empty).pointer, as_device(empty).device) == (0, 0)


@pytest.mark.parametrize(("module", "framework"), [("numba.cuda.x", NUMBA), ("jaxlib.x", JAX), ("other", EXCHANGE)])
def test_libraries_are_known_by_their_types(driver, module, framework):
    kind = type("Array", (Interface,), {"__module__": module})
    assert as_device(kind(np.zeros(3))).framework is framework


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(3), r"is in CPU memory; pass an array on a GPU, such as cupy\.asarray"),
        ([1, 2], "a list is not an array"),
        (Interface(np.zeros(3, ">f4")), r"foreign byte order; pass array\.astype\('float32'\)"),
        (Interface(np.zeros(3, "M8[s]")), r"array\.view\('int64'\)"),
        (Interface(np.zeros(2, [("a", "f4")])), r"one field, array\['a'\]"),
        (Interface(np.zeros(2, "V4")), r"array\.astype\('float32'\)"),
        (Interface(np.zeros(3), mask=np.zeros(3)), "masked arrays are not supported"),
        (Interface(np.zeros(3), typestr="?9"), "cannot be read; pass a CuPy array"),
        (SimpleNamespace(__cuda_array_interface__={"shape": (2,)}), "cannot be read; pass a CuPy array"),
        (Interface(np.frombuffer(bytearray(17), "f4", 4, offset=1)), "no multiples of 4 bytes"),
        (Interface(np.zeros(9, "f4")[1:].view("c8")[:2], data=(4100, False)), "no multiples of 8 bytes"),
        (Interface(as_strided(np.zeros(9, "f8"), (2,), (12,))), "no multiples of 8 bytes"),
    ],
)
def test_what_cannot_be_read_on_a_gpu_is_refused(driver, array, message):
    for take in (as_device, as_device_output):
        with pytest.raises(UnsupportedError, match=f"^x.*{message}"):
            take(array, "x")


def test_outputs_are_writable_and_of_distinct_elements(driver):
    x = np.zeros((4, 6))
    assert as_device_output(Interface(x)).pointer == address(x)
    with pytest.raises(UnsupportedError, match=r"out: a .*Interface is read-only; pass a writable one"):
        as_device_output(Interface(x, readonly=True))
    with pytest.raises(UnsupportedError, match=r"out: with shape \(3, 4\) .* some elements are the same memory"):
        as_device_output(Interface(as_strided(x, (3, 4), (8, 8))))
    assert as_device_output(Interface(as_strided(x, (1, 4), (0, 8)))).shape == (1, 4)


def test_a_device_array_is_one_for_others(driver):
    x = np.arange(6.0).reshape(2, 3).T
    again = as_device(SimpleNamespace(__cuda_array_interface__=as_device(Interface(x)).__cuda_array_interface__))
    assert (again.pointer, again.shape, again.strides) == (address(x), x.shape, x.strides)


# --- DLPack -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "view", [lambda x: x, lambda x: x.T, lambda x: x[::2, ::-1], lambda x: x[1, 1, ...], lambda x: x[2:2]]
)
def test_capsules_are_read_without_being_used_up(driver, name, view):
    x = view(np.zeros((4, 6), name))
    capsule = Capsule(x)
    array = as_device(capsule)
    assert (array.pointer, array.shape, array.dtype, array.device) == (address(x), x.shape, x.dtype, 0)  # as it exports
    assert array.strides == x.strides or array.size == 0
    assert array.framework is EXCHANGE
    assert capsule.streams == [-1]
    assert EXCHANGE.pointer(capsule) == address(x)
    EXCHANGE.ready(capsule, 0)
    EXCHANGE.ready(capsule, 9)
    assert capsule.streams[-2:] == [1, 9]


def test_old_capsules_do_not_say_that_they_may_be_written():
    class Old(Capsule):
        def __dlpack__(self, *, stream=None):
            return self.array.__dlpack__()

    x = np.zeros(3)
    assert dlpack.export(Old(x)).readonly
    assert dlpack.export(Capsule(x)).readonly == (np.lib.NumpyVersion(np.__version__) < "2.1.0")
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    if np.lib.NumpyVersion(np.__version__) >= "2.1.0":
        assert dlpack.export(Capsule(frozen)).readonly


def test_capsules_of_torch():
    torch = pytest.importorskip("torch")
    x = torch.zeros(4, 6)[1:, ::2]
    found = dlpack.export(x, None)
    assert (found.pointer, found.shape, found.strides, found.dtype) == (x.data_ptr(), (3, 3), (24, 8), np.float32)
    with pytest.raises(TypeError, match="are not in NumPy"):
        dlpack.export(torch.zeros(3, dtype=torch.bfloat16), None)


def test_what_is_no_capsule_is_a_clear_error(driver):
    class Odd(Capsule):
        def __dlpack__(self, **options):
            return 3

    with pytest.raises(UnsupportedError, match=r"x: a .*Odd cannot be read; pass a CuPy array: .*no DLPack capsule"):
        as_device(Odd(np.zeros(3)), "x")


# --- CuPy and PyTorch -------------------------------------------------------------------------------------------------


class FakeCupy:
    """What is asked of a cupy.ndarray, on NumPy memory."""

    def __init__(self, array):
        self.array, self.shape, self.strides, self.dtype = array, array.shape, array.strides, array.dtype
        self.data = SimpleNamespace(ptr=address(array), device_id=1)
        self.device = driver_context()
        self.__cuda_array_interface__ = {}

    def copy(self):
        return FakeCupy(np.array(self.array))


def driver_context():
    from contextlib import nullcontext

    return nullcontext()


def test_cupy_arrays(driver, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(ndarray=FakeCupy))
    x = np.zeros((4, 6), "complex64")[:, ::2]
    array = as_device(FakeCupy(x))
    assert (array.pointer, array.strides, array.device, array.framework) == (address(x), x.strides, 1, CUPY)
    assert CUPY.layout_key(FakeCupy(x)) == CUPY.layout_key(FakeCupy(x))
    assert CUPY.layout_key(FakeCupy(x)) != CUPY.layout_key(FakeCupy(x[:, ::-1]))
    odd = np.zeros(9, "float32")[1:]
    odd = odd if address(odd) % 8 else np.zeros(9, "float32")[:8]
    crooked = FakeCupy(odd.view("complex64"))
    for read in (as_device, as_device_output):
        with pytest.raises(UnsupportedError, match="no multiples of 8 bytes"):
            read(crooked)


def test_torch_keys_tell_layouts_apart():
    torch = pytest.importorskip("torch")
    x = torch.zeros(4, 6, dtype=torch.complex64)
    different = [x, x.T, x[:2], x.conj(), x.conj().imag, x.real, x.to(torch.complex128), x.clone().requires_grad_()]
    keys = [TORCH.layout_key(array) for array in different]
    assert len(set(keys)) == len(keys)
    assert TORCH.layout_key(torch.zeros_like(x)[:, :]) == keys[0]
    sparse = torch.zeros(3).to_sparse()
    assert TORCH.layout_key(sparse) != TORCH.layout_key(sparse)
    assert isinstance(TORCH.current_stream, object)


def test_arrays_that_change_in_place_lie_elsewhere():
    torch = pytest.importorskip("torch")
    x = torch.zeros(4, 6)
    changes = [lambda: x.set_(torch.ones(4, 6)), lambda: x.t_(), lambda: x.resize_(3, 8), lambda: x.requires_grad_()]
    before = TORCH.lies(x)
    x.fill_(3)
    assert TORCH.lies(x) == before  # values do not count
    for change in changes:
        change()
        assert TORCH.lies(x) != before
        before = TORCH.lies(x)
    array = FakeCupy(np.zeros((4, 6), "float32"))
    before = CUPY.lies(array)
    assert CUPY.lies(array) == before
    array.shape, array.strides = (24,), (4,)
    assert CUPY.lies(array) != before


# --- there and back ---------------------------------------------------------------------------------------------------


@st.composite
def layouts(draw):
    """A view of an array: permuted, strided, reversed, broadcast."""
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5))
    dtype = draw(st.sampled_from(["uint8", "float32", "complex128"]))
    x = (np.arange(np.prod(shape)) % 251).reshape(shape).astype(dtype)
    x = x.transpose(draw(st.permutations(range(x.ndim))))
    steps = st.sampled_from([slice(None), slice(None, None, 2), slice(None, None, -1)])
    x = x[(*(draw(steps) for _ in shape), ...)]
    return np.broadcast_to(x, (draw(st.integers(0, 3)), *x.shape)) if draw(st.booleans()) else x


@hypothesis.given(x=layouts())
@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
def test_any_layout_goes_to_the_gpu_and_back(driver, x):
    array = upload(x, 1, 5)
    assert (array.shape, array.dtype, array.device, array.framework) == (x.shape, x.dtype, 1, HOST)
    back = download(array, 5)
    np.testing.assert_array_equal(back, x)
    assert back.flags.writeable


def test_memory_without_gaps_keeps_its_order_and_broadcasts_stay(driver):
    x = np.asfortranarray(np.arange(24.0).reshape(4, 6))
    assert upload(x, 0, 0).strides == x.strides
    wide = np.broadcast_to(np.arange(4.0), (1000, 4))
    array = upload(wide, 0, 0)
    assert array.strides == (0, 8)
    assert array.owner.nbytes == 32


def test_uploads_are_freed_with_their_array(driver):
    array = upload(np.arange(4.0), 0, 3)
    assert len(driver.blocks) == 1
    del array
    gc.collect()
    assert driver.blocks == {}
    with pytest.raises(UnsupportedError, match="image: a list is not an array"):
        upload([1.0], 0, 0, "image")


def test_torch_and_jax_host_arrays_go_up(driver):
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    np.testing.assert_array_equal(download(upload(torch.arange(4)[::2], 0, 0), 0), [0, 2])
    np.testing.assert_array_equal(download(upload(jax.numpy.arange(4), 0, 0), 0), np.arange(4))


# --- operands ---------------------------------------------------------------------------------------------------------


def test_operand_types_of_device_arrays(driver):
    x = np.zeros((4, 6), "float32")
    assert operand_type(as_device(Interface(x))) == OperandType("float32", 2, True, False)
    assert operand_type(Interface(x.T)) == OperandType("float32", 2, False, False)
    assert operand_type(Interface(x, readonly=True)).readonly
    assert operand_type(mf.constant(Interface(x))).readonly
    assert types_of({"a": Capsule(x)})[0][1].ndim == 2
    with pytest.raises(UnsupportedError, match=r"on a GPU without axes; pass a number, or array\.reshape\(1\)"):
        operand_type(Interface(np.zeros(())))


def test_device_addresses_get_into_the_block_of_a_gpu_only(driver):
    x = np.zeros((4, 6), "float32").T
    array = as_device(Interface(x))
    layout = Layout()
    layout.add_operand("w", operand_type(array))
    writer = Writer(layout, 32)
    writer.operand("w", array)
    assert writer.block.tolist() == [address(x), *x.shape, *x.strides]
    writer.operand("w", array, 12)
    assert writer.block[0] == 12
    with pytest.raises(UnsupportedError, match="an operand is on a CUDA GPU, which a CPU pipeline does not read"):
        writer.operand("w", Interface(x))


def test_captured_device_arrays_count_with_dtype_and_rank(driver):
    def scaled(array):
        @mf.epilog
        def multiply(value, index):
            return value * array[index[0]]

        return multiply

    x = np.zeros(3, "float32")
    one, other = scaled(Interface(x)), scaled(Interface(np.zeros(3, "float32")))
    assert fingerprint(one) == fingerprint(other)
    assert fingerprint(one) != fingerprint(scaled(Interface(np.zeros(3))))
    (captured,) = captured_arrays(one).values()
    assert as_device(captured).pointer == address(x)


def test_an_interface_that_refuses_is_not_asked():
    class Reluctant:
        dtype, shape = "torch.float32", (3,)

        @property
        def __cuda_array_interface__(self):
            raise RuntimeError("requires grad")

    array = Reluctant()

    @mf.epilog
    def multiply(value, index):
        return value * array[index[0]]

    assert fingerprint(multiply)
    assert list(captured_arrays(multiply).values()) == [array]


def test_the_cpu_path_names_the_gpu(driver):
    with pytest.raises(UnsupportedError, match=r'x is on a CUDA GPU.*; pass a copy.*, or execution="cuda" to compute'):
        as_host(Interface(np.zeros(3)), "x")
