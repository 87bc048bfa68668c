"""Arrays of every framework come in without a copy, go back as what they were, and others are refused by name."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from mathfuse.runtime import arrays
from mathfuse.runtime.arrays import as_host, as_output, dtype_of, framework_of, like, overlaps, same_view
from mathfuse.runtime.errors import UnsupportedError

NAMES = [dtype.name for dtype in arrays.SUPPORTED.values()]


def address(array):
    return array.__array_interface__["data"][0]


def unaligned(dtype="float32", count=4):
    return np.frombuffer(bytearray(count * np.dtype(dtype).itemsize + 1), dtype, count, offset=1)


# ---- NumPy


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3, 4)])
def test_a_plain_array_is_itself(name, shape):
    array = np.ones(shape, name)
    host = as_host(array)
    assert host.view is array
    assert (host.framework, host.copied, host.device) == ("numpy", False, None)
    assert host.restore(array) is array
    assert as_output(array) is array


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.T,
        lambda x: x[::2, ::-1],
        lambda x: x[:, None],
        lambda x: np.broadcast_to(x, (5, *x.shape)),
        lambda x: np.lib.stride_tricks.sliding_window_view(x, (2, 2)),
        lambda x: np.lib.stride_tricks.as_strided(x, (3, 4), (0, 0)),
    ],
)
def test_any_strides_come_in_as_they_are(view):
    array = view(np.arange(24.0).reshape(4, 6))
    assert same_view(as_host(array).view, array)


def test_foreign_byte_order_and_unaligned_memory_become_plain_copies():
    swapped = np.arange(12, dtype=">c8").reshape(3, 4)[:, ::-1]
    crooked = unaligned()
    crooked[:] = [1, 2, 3, 4]
    field = np.zeros(5, np.dtype([("tag", "u1"), ("x", "f8")]))["x"]
    for array in (swapped, crooked, field):
        host = as_host(array)
        np.testing.assert_array_equal(host.view, array)
        assert host.copied
        assert host.view.flags.aligned
        assert host.view.dtype.isnative
        with pytest.raises(UnsupportedError, match="aligned and in native byte order"):
            as_output(array)


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_subclasses_become_plain_arrays_of_the_same_memory(tmp_path):
    class Metres(np.ndarray):
        pass

    matrix = np.matrix([[1.0, 2.0]])
    mapped = np.memmap(tmp_path / "data", "float32", "w+", shape=(4,))
    for array in (matrix, mapped, np.zeros(3).view(Metres)):
        view = as_host(array).view
        assert type(view) is np.ndarray
        assert address(view) == address(array)
        assert as_output(array).shape == array.shape


@pytest.mark.parametrize(
    ("array", "nearest"),
    [
        (np.ma.masked_array([1.0, 2.0], [True, False]), r"masked.*array\.filled"),
        (np.array([1, None]), r"object.*array\.astype\('float64'\)"),
        (np.array(["1.5"]), r"<U3.*array\.astype\('float64'\)"),
        (np.array([b"1.5"]), r"S3.*array\.astype\('float64'\)"),
        (np.zeros(2, [("x", "f4"), ("y", "f4")]), r"one field, array\['x'\]"),
        (np.zeros(2, "V8"), r"array\.astype\('float32'\)"),
        (np.zeros(2, np.longdouble), r"array\.astype\('float64'\)"),
        (np.zeros(2, np.clongdouble), r"array\.astype\('complex128'\)"),
        (np.zeros(2, "M8[s]"), r"array\.view\('int64'\)"),
        (np.zeros(2, "m8[s]"), r"array\.view\('int64'\)"),
    ],
)
def test_what_no_kernel_computes_with_is_refused(array, nearest):
    for take in (as_host, as_output):
        with pytest.raises(UnsupportedError, match=rf"^operand 'bias': .*{nearest}"):
            take(array, "operand 'bias'")


@pytest.mark.parametrize(
    "value", [[1, 2], (1.0,), 1, 2.5, 1j, True, None, "x", range(3), np.float32(1), np.ndarray, {}]
)
def test_what_is_no_array_is_refused(value):
    assert framework_of(value) is None
    for take in (as_host, as_output):
        with pytest.raises(
            UnsupportedError, match=rf"an? (numpy\.)?{type(value).__name__} is not an array; pass an array"
        ):
            take(value)


def test_outputs_must_be_writable_and_of_distinct_elements():
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    with pytest.raises(UnsupportedError, match="out: the array is read-only"):
        as_output(frozen)
    base = np.zeros((4, 6))
    for shape, strides in [((4, 6), (0, 8)), ((2, 2), (8, 8)), ((3, 2), (8, 16)), ((2, 3), (-8, 8))]:
        clash = np.lib.stride_tricks.as_strided(base[1:], shape, strides)
        with pytest.raises(UnsupportedError, match=r"some elements are the same memory; .* numpy\.empty\("):
            as_output(clash)
    for shape, strides in [((1, 6), (0, 8)), ((0, 6), (0, 0)), ((6, 4), (8, 48)), ((2, 6), (96, 8)), ((3,), (-8,))]:
        fine = np.lib.stride_tricks.as_strided(base[1:], shape, strides)
        assert as_output(fine) is fine


# ---- other objects


class Interface:
    def __init__(self, array):
        self.array = array
        self.__array_interface__ = array.__array_interface__


class Capsule:
    """An array of another framework: DLPack and nothing else."""

    def __init__(self, array, device=(1, 0)):
        self.array, self.device = array, device

    def __dlpack__(self, **options):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.device


@pytest.mark.parametrize("wrap", [Interface, Capsule])
def test_protocols_share_memory_and_give_numpy_back(wrap):
    array = np.arange(12, dtype="float32").reshape(3, 4)[:, ::2]
    host = as_host(wrap(array))
    assert same_view(host.view, array)
    assert host.framework == "numpy"
    with pytest.raises(UnsupportedError, match=f"{wrap.__name__} cannot be written to"):
        as_output(wrap(array))


def test_pinned_memory_is_host_memory():
    assert framework_of(Capsule(np.zeros(1), (3, 0))) == "protocol"
    np.testing.assert_array_equal(as_host(Capsule(np.ones(2), (3, 0))).view, [1, 1])


@pytest.mark.parametrize(
    ("array", "place"),
    [
        (SimpleNamespace(__cuda_array_interface__={"shape": (2,)}), "a CUDA GPU"),
        (Capsule(np.zeros(1), (2, 0)), "a CUDA GPU"),
        (Capsule(np.zeros(1), (13, 0)), "a CUDA GPU"),
        (Capsule(np.zeros(1), (10, 0)), "a ROCm GPU"),
        (Capsule(np.zeros(1), (99, 0)), "a device of DLPack's type 99"),
    ],
)
def test_arrays_on_a_gpu_are_refused(array, place):
    with pytest.raises(
        UnsupportedError, match=f"image is on {place}, which a CPU pipeline does not read; pass a copy in CPU"
    ) as caught:
        as_host(array, "image")
    assert ('execution="cuda" to compute there' in str(caught.value)) == ("CUDA" in place)


@pytest.mark.parametrize(
    ("module", "nearest"), [("cupy", r"cupy\.asnumpy\(array\)"), ("numba.cuda.cudadrv", r"array\.copy_to_host\(\)")]
)
def test_the_error_names_the_framework_s_own_copy(module, nearest):
    kind = type("ndarray", (), {"__module__": module, "__cuda_array_interface__": {}})
    with pytest.raises(UnsupportedError, match=nearest):
        as_host(kind())


@pytest.mark.parametrize("error", [BufferError("gone"), TypeError("odd"), RuntimeError("closed")])
def test_a_protocol_that_fails_is_a_clear_error(error):
    class Broken(Capsule):
        def __dlpack__(self, **options):
            raise error

    with pytest.raises(UnsupportedError, match=rf"x: a .*Broken cannot be read; pass a NumPy array: {error}"):
        as_host(Broken(np.zeros(1)), "x")
    with pytest.raises(UnsupportedError, match="cannot be read"):
        as_host(SimpleNamespace(__array_interface__={"shape": (2,)}))


def test_pillow_images_come_in():
    image = pytest.importorskip("PIL.Image").new("RGB", (4, 3), (1, 2, 3))
    view = as_host(image).view
    assert (view.shape, view.dtype) == ((3, 4, 3), np.uint8)


def test_no_framework_is_imported():
    script = """
import sys
from mathfuse.runtime.arrays import as_host, dtype_of, like
import numpy as np
like(as_host(np.ones(3)).view, "numpy"); dtype_of("float32")
print(sorted({"torch", "jax", "cupy", "numba"} & set(sys.modules)))
"""
    assert subprocess.check_output([sys.executable, "-c", script], text=True) == "[]\n"


def test_a_framework_in_the_middle_of_its_import_is_no_obstacle(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace())
    assert framework_of(np.zeros(1)) == "numpy"
    assert framework_of(Interface(np.zeros(1))) == "protocol"
    assert dtype_of("int8") == np.int8


# ---- PyTorch


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.mark.parametrize("name", NAMES)
def test_torch_tensors_share_memory_both_ways(torch, name):
    tensor = torch.ones(3, 4, dtype=getattr(torch, name)).T[::2]
    host = as_host(tensor)
    assert address(host.view) == tensor.data_ptr()
    assert (host.framework, host.copied, host.view.dtype, host.view.shape) == ("torch", False, np.dtype(name), (2, 3))
    back = host.restore(host.view)
    assert back.dtype == tensor.dtype
    assert back.data_ptr() == tensor.data_ptr()


def test_torch_lazy_bits_are_resolved(torch):
    z = torch.tensor([1 + 2j, 3 - 4j])
    for lazy in (z.conj(), z.conj().imag):
        host = as_host(lazy)
        np.testing.assert_array_equal(host.view, lazy.resolve_conj().resolve_neg().numpy())
        assert host.copied
        with pytest.raises(UnsupportedError, match="lazily conjugated or negated"):
            as_output(lazy)


@pytest.mark.filterwarnings("ignore")
def test_torch_tensors_that_are_refused(torch):
    weight = torch.nn.Parameter(torch.ones(2))
    cases = {
        r"requires grad.*array\.detach\(\)": weight,
        r"requires grad": weight * 2,
        r"bfloat16.*array\.float\(\)": torch.zeros(2, dtype=torch.bfloat16),
        r"float8_e4m3fn.*array\.float\(\)": torch.zeros(2, dtype=torch.float8_e4m3fn),
        r"sparse_coo.*array\.to_dense\(\)": torch.zeros(2).to_sparse(),
        r"quantized.*array\.dequantize\(\)": torch.quantize_per_tensor(torch.zeros(2), 0.1, 0, torch.qint8),
        r"nested.*its parts": torch.nested.nested_tensor([torch.zeros(1), torch.zeros(2)]),
        r"is on meta.*array\.cpu\(\)": torch.zeros(2, device="meta"),
    }
    for message, tensor in cases.items():
        for take in (as_host, as_output):
            with pytest.raises(UnsupportedError, match=f"^image.*{message}"):
                take(tensor, "image")
    message = r"^x: the tensor has no memory to read, as inside torch\.vmap .*call mathfuse outside"
    with pytest.raises(UnsupportedError, match=message):
        torch.vmap(lambda row: as_host(row, "x"))(torch.zeros(2, 3))
    with torch.no_grad(), pytest.raises(UnsupportedError, match="requires grad"):
        as_host(weight)


def test_torch_outputs_are_the_user_s_memory_and_autograd_notices(torch):
    tensor = torch.zeros(2, 3)
    as_output(tensor.T)[2, 1] = 5
    assert tensor[1, 2] == 5
    assert tensor._version == 1
    with pytest.raises(UnsupportedError, match=r"same memory; pass one of its own, such as torch\.empty"):
        as_output(torch.zeros(1).expand(4))
    with torch.inference_mode():
        as_output(torch.zeros(3))[:] = 1
    weight = torch.ones(3, requires_grad=True)
    factor = torch.ones(3)
    loss = (weight * factor).sum()
    as_output(factor)[:] = 7
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


# ---- JAX


@pytest.fixture
def jax():
    return pytest.importorskip("jax")


def test_jax_arrays_are_read_only_views(jax):
    array = jax.numpy.arange(12, dtype="float32").reshape(3, 4)
    host = as_host(array)
    assert address(host.view) == array.unsafe_buffer_pointer()
    assert (host.framework, host.copied, host.view.flags.writeable) == ("jax", False, False)
    with pytest.raises(UnsupportedError, match=r"out: a .*Array.* cannot be written to; pass a NumPy array"):
        as_output(array)
    back = host.restore(np.fft.rfft(host.view).astype("complex64"))
    assert isinstance(back, jax.Array)
    assert back.dtype == "complex64"
    assert back.devices() == array.devices()
    np.testing.assert_allclose(back, np.fft.rfft(host.view), rtol=1e-6)


def test_jax_arrays_that_are_refused(jax):
    jnp = jax.numpy
    deleted = jnp.ones(3)
    deleted.delete()
    cases = {
        r"bfloat16.*array\.astype\('float32'\)": jnp.ones(2, "bfloat16"),
        r"cannot be read": jax.random.key(0),
        r"cannot be read.*deleted": deleted,
    }
    for message, array in cases.items():
        with pytest.raises(UnsupportedError, match=rf"^x: .*{message}"):
            as_host(array, "x")
    with pytest.raises(UnsupportedError, match=r"x: inside jax\.jit"):
        jax.jit(lambda x: as_host(x, "x").view)(jnp.ones(3))


def test_jax_results_go_back_to_their_device(jax):
    script = """
import jax, numpy as np
from mathfuse.runtime.arrays import as_host
from mathfuse.runtime.errors import UnsupportedError
second = jax.devices()[1]
array = jax.device_put(np.ones(4, "float32"), second)
assert as_host(array).restore(np.zeros(4, "float32")).devices() == {second}
sharding = jax.sharding.NamedSharding(jax.make_mesh((2,), ("x",)), jax.sharding.PartitionSpec("x"))
try:
    as_host(jax.device_put(np.ones(4), sharding), "x")
except UnsupportedError as error:
    assert "x: the array is sharded over 2 devices; pass jax.device_get(array)" in str(error)
else:
    raise SystemExit("a sharded array was taken")
"""
    flags = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-c", script], env=flags, check=True)


# ---- dtypes


def test_dtypes_in_every_spelling():
    for name in NAMES:
        for spec in (name, np.dtype(name), np.dtype(name).type, f"={np.dtype(name).str[1:]}"):
            assert dtype_of(spec) == np.dtype(name)
            assert dtype_of(spec).isnative
    assert [dtype_of(kind) for kind in (bool, float, complex)] == [np.bool_, np.float64, np.complex128]
    assert dtype_of(np.longlong) == dtype_of(ctypes.c_int64) == np.int64


def test_torch_dtypes(torch):
    for name in NAMES:
        assert dtype_of(getattr(torch, name)) == np.dtype(name)
    for spec in (torch.bfloat16, torch.complex32, torch.float8_e5m2):
        with pytest.raises(UnsupportedError, match=f"dtype={spec} is not supported; write one of bool, int8"):
            dtype_of(spec)


def test_jax_dtypes(jax):
    for name in NAMES:
        spec = getattr(jax.numpy, name)
        assert dtype_of(spec) == np.dtype(name)
    for spec in (jax.numpy.bfloat16, jax.random.key(0).dtype, "bfloat16"):
        with pytest.raises(UnsupportedError, match="is not supported; write one of bool, int8"):
            dtype_of(spec)


@pytest.mark.parametrize(
    "spec",
    [
        *(
            None,
            3,
            "int33",
            "",
            "f4,f4",
            "(2,)f4",
            "f4 ",
            ">f4",
            np.dtype(">c8"),
            "O",
            object,
            str,
            "U3",
            "M8[s]",
            [],
            {},
        ),
        *("longdouble", ("f4",), np.ones(2), np.float32(1), SimpleNamespace(dtype=np.dtype("f4")), np.ndarray),
    ],
)
def test_other_dtypes_are_one_clear_error(spec):
    with pytest.raises(
        UnsupportedError, match=r"result_dtype=.* is not supported; write one of bool, int8, .*complex128$"
    ):
        dtype_of(spec, "result_dtype")


# ---- aliasing


def test_overlap_is_of_elements():
    x = np.zeros(10)
    assert overlaps(x, x)
    assert overlaps(x[:6], x[5:])
    assert not overlaps(x[::2], x[1::2])  # interleaved
    assert overlaps(x[::2], x[1::3])
    assert overlaps(x[::-1], x[:1])
    assert overlaps(x.view("uint8")[7:8], x[:1])
    assert not overlaps(x[:5], x[5:])
    assert not overlaps(x, x.copy())
    assert not overlaps(x[:0], x)


def test_same_view_is_element_by_element():
    x = np.zeros((4, 6))
    assert same_view(x, x[:])
    assert same_view(x[:1], np.lib.stride_tricks.as_strided(x, (1, 6), (8, 8)))
    for other in (x.T, x[::-1], x[:3], x.view("int64"), x[:, :5], x.copy(), x.reshape(24)):
        assert not same_view(x, other)
    assert not same_view(x[:2], x[::2])
    assert not same_view(x[:3], x[1:])


def test_like_takes_scalars_of_rank_zero(torch):
    assert like(np.ones(()), "torch").shape == ()
