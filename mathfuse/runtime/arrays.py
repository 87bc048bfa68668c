"""Arrays of every framework as NumPy views of CPU memory, and results given back in the framework they came from.

A framework is touched only if the program imported it already. Nothing is copied unless it must be: lazy conjugates,
foreign byte order and unaligned memory.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from mathfuse.runtime.dtypes import COMPLEX32, dtype_name, pairs
from mathfuse.runtime.errors import UnsupportedError
from mathfuse.runtime.words import an

Array = npt.NDArray[Any]

_NAMES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128".split()
SUPPORTED = {(dtype.kind, dtype.itemsize): dtype for dtype in map(np.dtype, _NAMES)}

# By dtype.kind, where the dtype is none of the above: extended precision, objects, texts, times, bfloat16 and its kind.
_NEAREST_DTYPE = {
    "c": "array.astype('complex128')",
    "M": "array.view('int64')",
    "m": "array.view('int64')",
    "V": "array.astype('float32')",
}

CPU, CUDA = "cpu", "cuda"  # where arrays may be

# DLPack's device types (dlpack.h, DLDeviceType): those that the CPU reads, those of CUDA, and the names of others.
_DLPACK_PLACES = {
    **dict.fromkeys((1, 3, 11), CPU),
    **dict.fromkeys((2, 13), CUDA),
    8: "a Metal GPU",
    10: "a ROCm GPU",
    14: "a oneAPI device",
}
_TO_HOST = {
    "cupy": "cupy.asnumpy(array)",
    "jax": "jax.device_put(array, jax.devices('cpu')[0])",
    "numba": "array.copy_to_host()",
    "torch": "array.cpu()",
}


@dataclass(frozen=True)
class HostArray:
    """An array in CPU memory as NumPy sees it, and where it came from.

    Attributes
    ----------
    view : numpy.ndarray
        A plain array, native and aligned, of a dtype in `SUPPORTED`; any strides. Read-only where its owner says so.
    framework : {"numpy", "torch", "jax"}
        What results are given back as.
    copied : bool
        Whether `view` is a copy, which later changes of the user's array do not reach.
    device : object
        The JAX device; None elsewhere.
    """

    view: Array
    framework: str
    copied: bool = False
    device: Any = None

    def restore(self, result: Array) -> Any:
        """`result` in the framework of this array, on its device."""
        return like(result, self.framework, self.device)


def as_host(array: Any, what: str = "the array") -> HostArray:
    """`array` as a NumPy view of its own memory.

    Parameters
    ----------
    array
        A NumPy array, a PyTorch or JAX array in CPU memory, or anything else with DLPack or ``__array_interface__``.
    what
        What error messages call it.

    Raises
    ------
    UnsupportedError
        For lists, scalars, GPU arrays, masked and sparse arrays, tensors that require grad, and dtypes that no kernel
        computes with; the message names the nearest thing that works.
    """
    framework = framework_of(array)
    if framework is None:
        raise _not_an_array(array, what)
    view, device = _READERS[framework](array, what)
    dtype = supported(view.dtype, what)
    if view.flags.aligned and view.dtype.isnative:
        copied = framework == "torch" and (array.is_conj() or array.is_neg())
    else:
        view, copied = view.astype(dtype), True
    return HostArray(view, "numpy" if framework == "protocol" else framework, copied, device)


def as_output(array: Any, what: str = "out") -> Array:
    """A writable NumPy view of the memory of `array`, a NumPy array or a PyTorch CPU tensor.

    Call it before each write: PyTorch is told that the tensor changes, so that autograd notices.

    Raises
    ------
    UnsupportedError
        If there is no such view, or if two of its elements may be the same memory.
    """
    framework = framework_of(array)
    if framework is None:
        raise _not_an_array(array, what)
    if framework not in ("numpy", "torch"):
        raise UnsupportedError(f"{what}: {a(array)} cannot be written to; pass a NumPy array or a PyTorch CPU tensor")
    view, _ = _READERS[framework](array, what)
    supported(view.dtype, what)
    if framework == "torch" and (array.is_conj() or array.is_neg()):
        raise UnsupportedError(
            f"{what}: a lazily conjugated or negated tensor cannot be written to; pass torch.empty(…)"
        )
    if not view.flags.writeable:
        raise UnsupportedError(f"{what}: the array is read-only; pass a writable one, such as numpy.empty_like(array)")
    if not (view.flags.aligned and view.dtype.isnative):
        raise UnsupportedError(f"{what}: an array must be aligned and in native byte order to be written to")
    if overlaps_itself(view):
        raise UnsupportedError(
            f"{what}: with shape {view.shape} and strides {view.strides} some elements are the same memory; "
            f"pass one of its own, such as {framework}.empty(shape, dtype=dtype)"
        )
    if framework == "torch" and not array.is_inference():
        sys.modules["torch"].autograd.graph.increment_version(array)
    return view


def like(result: Array, framework: str, device: Any = None) -> Any:
    """`result`, a fresh array that the caller gives away, as an array of `framework`.

    NumPy and PyTorch share its memory. JAX may copy it and, unless ``jax_enable_x64`` is set, turns 64-bit types into
    32-bit ones, as it does with every array.
    """
    return _WRITERS[framework](result, device)


def framework_of(array: object) -> str | None:
    """Whose array it is: "numpy", "torch", "jax", "protocol" for other array objects, None for anything else."""
    if isinstance(array, np.ndarray):
        return "numpy"
    if isinstance(array, np.generic | type):
        return None
    for framework, name in (("torch", "Tensor"), ("jax", "Array")):
        kind = getattr(sys.modules.get(framework), name, None)  # None too while it is being imported
        if kind is not None and isinstance(array, kind):
            return framework
    protocols = ("__array_interface__", "__dlpack__", "__cuda_array_interface__")
    return "protocol" if any(hasattr(array, name) for name in protocols) else None


def place(array: Any, what: str = "the array") -> Literal["cpu", "cuda"]:
    """Whether an array is in CPU memory or on a CUDA GPU.

    Raises
    ------
    UnsupportedError
        If it is on another device, or no array.
    """
    found = location(array)
    if found is None:
        raise _not_an_array(array, what)
    if found == CPU:
        return "cpu"
    if found == CUDA:
        return "cuda"
    raise UnsupportedError(f"{what} is on {found}, which is not supported; pass {_host_copy(array)}")


def location(array: Any) -> str | None:
    """`CPU`, `CUDA`, or the name of another device where an array is; None of what is no array."""
    framework = framework_of(array)
    return None if framework is None else _LOCATIONS[framework](array)


def shape_of(array: Any, what: str = "the array") -> tuple[int, ...]:
    """The shape of an array of any framework, which is not read if it tells.

    Raises
    ------
    UnsupportedError
        If it is no array.
    """
    if framework_of(array) is None:
        raise _not_an_array(array, what)
    for read in _SHAPES:
        try:
            return tuple(int(extent) for extent in read(array))
        except (AttributeError, KeyError, RuntimeError, TypeError):  # PyTorch's nested tensors have none
            continue
    return as_host(array, what).view.shape


_SHAPES: tuple[Callable[[Any], Any], ...] = (
    lambda array: array.shape,
    lambda array: array.__array_interface__["shape"],
    lambda array: array.__cuda_array_interface__["shape"],
)


def _torch_location(array: Any) -> str:
    device = array.device
    return device.type if device.type in (CPU, CUDA) else str(device)


def _jax_location(array: Any) -> str:
    if isinstance(array, sys.modules["jax"].core.Tracer):
        return CPU  # where it is refused as what it is
    device = next(iter(array.sharding.device_set))
    return {"cpu": CPU, "gpu": CUDA, "cuda": CUDA}.get(device.platform, str(device))


def _protocol_location(array: Any) -> str:
    if hasattr(array, "__cuda_array_interface__"):
        return CUDA
    if not hasattr(array, "__dlpack_device__"):
        return CPU
    try:
        kind = int(array.__dlpack_device__()[0])
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError):
        return CPU  # where reading it says what is wrong
    return _DLPACK_PLACES.get(kind, f"a device of DLPack's type {kind}")


_LOCATIONS: dict[str, Callable[[Any], str]] = {
    "numpy": lambda array: CPU,
    "torch": _torch_location,
    "jax": _jax_location,
    "protocol": _protocol_location,
}


def dtype_of(spec: Any, what: str = "dtype") -> np.dtype[Any]:
    """The NumPy dtype that `spec` stands for, in native byte order.

    Parameters
    ----------
    spec
        ``"int32"``, ``np.dtype("int32")``, ``np.int32``, ``torch.int32``, ``jnp.int32``, or ``bool``, ``int``,
        ``float``, ``complex``.
    what
        What error messages call it.

    Raises
    ------
    UnsupportedError
        For anything else, and for dtypes that no kernel computes with.
    """
    torch_dtype = getattr(sys.modules.get("torch"), "dtype", ())
    name = str(spec).removeprefix("torch.") if isinstance(spec, torch_dtype) else spec
    try:
        dtype = np.dtype(name) if isinstance(name, str | type | np.dtype) else None
    except (TypeError, ValueError):
        dtype = None
    found = dtype and SUPPORTED.get((dtype.kind, dtype.itemsize))
    if found is None or found != dtype:
        raise UnsupportedError(f"{what}={spec!r} is not supported; write one of {', '.join(_NAMES)}")
    return found


MOST_WORK = 10_000  # candidates that NumPy tries to tell whether strided arrays share an element


def overlaps(a: Any, b: Any) -> bool:
    """Whether two arrays share memory, or may: of some exotic strides it is too hard to tell.

    Each is a NumPy array or a `DeviceArray`.
    """
    if isinstance(a, np.ndarray) != isinstance(b, np.ndarray):
        return False
    try:
        return np.shares_memory(_addresses(a), _addresses(b), max_work=MOST_WORK)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def _addresses(array: Any) -> np.ndarray:
    """An array that covers the addresses of another one, and is never read."""
    if isinstance(array, np.ndarray):
        return array
    interface = {
        "version": 3,
        "typestr": f"|V{array.itemsize}",
        "data": (array.pointer, True),
        "shape": array.shape,
        "strides": array.strides,
    }
    return np.asarray(SimpleNamespace(__array_interface__=interface))


def same_view(a: Any, b: Any) -> bool:
    """Whether two arrays have the same element at each index: pointer, shape, dtype, and strides where they matter.

    Each is a NumPy array or a `DeviceArray`.
    """
    return (
        isinstance(a, np.ndarray) == isinstance(b, np.ndarray)
        and a.dtype == b.dtype
        and a.shape == b.shape
        and _address(a) == _address(b)
        and all(s == t for n, s, t in zip(a.shape, a.strides, b.strides, strict=True) if n > 1)
    )


def _read_numpy(array: Any, what: str) -> tuple[Array, None]:
    if isinstance(array, np.ma.MaskedArray):
        raise UnsupportedError(f"{what}: masked arrays are not supported; pass array.filled(value)")
    return np.asarray(array), None


def _read_torch(array: Any, what: str) -> tuple[Array, None]:
    if array.device.type != CPU:
        raise _not_on_host(array, what, str(array.device), array.device.type)
    tensor = plain_tensor(array, what)
    try:
        if tensor_dtype(tensor, what) == COMPLEX32:
            return sys.modules["torch"].view_as_real(tensor).numpy().view(COMPLEX32)[..., 0], None
        return tensor.numpy(), None
    except (RuntimeError, TypeError) as error:
        raise UnsupportedError(
            f"{what}: the tensor has no memory to read, as inside torch.vmap and torch.compile; call mathfuse outside, "
            f"with all of the data: {error}"
        ) from None


def plain_tensor(array: Any, what: str) -> Any:
    """A PyTorch tensor without lazy bits: itself, or a copy. What cannot be read as strided memory is refused."""
    if array.requires_grad:
        raise UnsupportedError(f"{what}: the tensor requires grad, which would be lost; pass array.detach()")
    if array.is_nested or array.is_quantized or array.layout is not sys.modules["torch"].strided:
        kind = "nested" if array.is_nested else "quantized" if array.is_quantized else f"{array.layout}"
        nearest = "its parts" if array.is_nested else "array.dequantize()" if array.is_quantized else "array.to_dense()"
        raise UnsupportedError(f"{what}: {kind} tensors are not supported; pass {nearest}")
    return array.resolve_conj().resolve_neg()


def tensor_dtype(tensor: Any, what: str) -> np.dtype[Any]:
    """The NumPy dtype of a PyTorch tensor's elements."""
    if tensor.dtype is sys.modules["torch"].complex32:
        return COMPLEX32
    try:
        return dtype_of(tensor.dtype)
    except UnsupportedError:
        raise _no_twin(tensor, what) from None


def _no_twin(tensor: Any, what: str) -> UnsupportedError:
    return UnsupportedError(f"{what}: a tensor of {tensor.dtype} is not supported; pass array.float()")


def _read_jax(array: Any, what: str) -> tuple[Array, Any]:
    device = jax_device(array, what)
    if device.platform != CPU:
        raise _not_on_host(array, what, str(device), _jax_location(array))
    try:
        return np.asarray(array), device
    except (RuntimeError, TypeError) as error:  # deleted buffers, random keys
        raise UnsupportedError(f"{what}: the array cannot be read: {error}") from None


def jax_device(array: Any, what: str) -> Any:
    """The one device on which a JAX array lies."""
    jax = sys.modules["jax"]
    if isinstance(array, jax.core.Tracer):
        raise UnsupportedError(f"{what}: inside jax.jit and its kind there is no array to read; call mathfuse outside")
    devices = array.sharding.device_set
    if len(devices) > 1:
        raise UnsupportedError(f"{what}: the array is sharded over {len(devices)} devices; pass jax.device_get(array)")
    return next(iter(devices))


def _read_protocol(array: Any, what: str) -> tuple[Array, None]:
    try:
        if (found := _protocol_location(array)) != CPU:
            raise _not_on_host(array, what, "a CUDA GPU" if found == CUDA else found, found)
        return np.asarray(array) if hasattr(array, "__array_interface__") else np.from_dlpack(array), None
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError) as error:
        raise UnsupportedError(f"{what}: {a(array)} cannot be read; pass a NumPy array: {error}") from error


_READERS: dict[str, Callable[[Any, str], tuple[Array, Any]]] = {
    "numpy": _read_numpy,
    "torch": _read_torch,
    "jax": _read_jax,
    "protocol": _read_protocol,
}
_WRITERS: dict[str, Callable[[Array, Any], Any]] = {
    "numpy": lambda result, device: result,
    "torch": lambda result, device: _to_torch(result),
    "jax": lambda result, device: sys.modules["jax"].device_put(result, device),
}


def _to_torch(result: Array) -> Any:
    torch = sys.modules["torch"]
    if result.dtype == COMPLEX32:
        return torch.view_as_complex(torch.from_numpy(pairs(result)))
    return torch.from_numpy(result)


def check_result(dtype: np.dtype[Any], framework: str) -> None:
    """Raise UnsupportedError if arrays of a framework cannot hold a result of `dtype`."""
    if dtype == COMPLEX32 and framework in ("cupy", "jax", "numba"):
        raise UnsupportedError(
            f"the result is {dtype_name(dtype)}, which arrays of {framework} cannot hold: leave it complex64, "
            "return real numbers, or pass a PyTorch tensor"
        )


def supported(dtype: np.dtype[Any], what: str) -> np.dtype[Any]:
    """The native dtype in `SUPPORTED` that `dtype` is, byte order aside, or complex32."""
    if dtype == COMPLEX32:
        return COMPLEX32
    found = SUPPORTED.get((dtype.kind, dtype.itemsize))
    if found is not None and found == dtype.newbyteorder("="):
        return found
    nearest = (
        f"one field, array[{dtype.names[0]!r}]"
        if dtype.names
        else _NEAREST_DTYPE.get(dtype.kind, "array.astype('float64')")
    )
    raise UnsupportedError(f"{what}: dtype {dtype} is not supported; pass {nearest}")


def overlaps_itself(view: Any) -> bool:
    """Whether the strides do not rule out that two indices are one address; exact for all but exotic strides."""
    if view.size == 0:
        return False
    reach = view.itemsize
    for stride, extent in sorted((abs(s), n) for s, n in zip(view.strides, view.shape, strict=True) if n > 1):
        if stride < reach:
            return True
        reach += stride * (extent - 1)
    return False


def _not_an_array(array: object, what: str) -> UnsupportedError:
    return UnsupportedError(f"{what}: {a(array)} is not an array; pass an array, such as numpy.asarray(…)")


def _not_on_host(array: object, what: str, device: str, where: str) -> UnsupportedError:
    computing = ', or execution="cuda" to compute there' if where == CUDA else ""
    return UnsupportedError(
        f"{what} is on {device}, which a CPU pipeline does not read; pass {_host_copy(array)}{computing}"
    )


def _host_copy(array: object) -> str:
    """What to write for a copy of an array in CPU memory."""
    return _TO_HOST.get(library_of(array), "a copy in CPU memory")


def library_of(array: object) -> str:
    """The top-level package of an array's type."""
    return type(array).__module__.partition(".")[0].removesuffix("lib")  # JAX's arrays are jaxlib's


def _address(array: Any) -> int:
    return array.__array_interface__["data"][0] if isinstance(array, np.ndarray) else array.pointer


def a(array: object) -> str:
    """`a numpy.float32`, `an array.array`, for messages."""
    kind = type(array)
    return an(kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}")
