"""Arrays on a GPU, of every framework, as an address and a layout; and copies of host arrays there and back."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mathfuse.runtime import arrays as host
from mathfuse.runtime.cuda import dlpack
from mathfuse.runtime.cuda.devices import current_device, device_guard
from mathfuse.runtime.cuda.frameworks import CUPY, EXCHANGE, HOST, JAX, NUMBA, TORCH, Framework
from mathfuse.runtime.cuda.memory import allocate, copy_in, copy_out, device_of
from mathfuse.runtime.dtypes import described, dtype_described
from mathfuse.runtime.errors import UnsupportedError

_FRAMEWORKS = {"jax": JAX, "numba": NUMBA, "numba_cuda": NUMBA}


@dataclass(frozen=True, eq=False)
class DeviceArray:
    """An array on a GPU, and where it came from.

    Attributes
    ----------
    pointer : int
        Device address of the element with index 0 everywhere.
    shape, strides : tuple of int
        Strides in bytes, of any sign.
    dtype : numpy.dtype
        One of the supported ones; every element lies at a multiple of its size.
    device : int
        Ordinal of the GPU.
    framework : Framework
    owner : object
        Keeps the memory alive.
    readonly : bool
    copied : bool
        Whether this is a copy, which later changes of the user's array do not reach.
    """

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    device: int
    framework: Framework
    owner: Any
    readonly: bool = False
    copied: bool = False

    @property
    def view(self) -> DeviceArray:
        """Itself, as a `HostArray` has its NumPy view."""
        return self

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Of the elements; what a broadcast array covers is less."""
        return self.size * self.itemsize

    @property
    def bounds(self) -> tuple[int, int]:
        """The first byte that belongs to an element and the first behind the last; equal of no elements."""
        if self.size == 0:
            return self.pointer, self.pointer
        reach = [stride * (extent - 1) for stride, extent in zip(self.strides, self.shape, strict=True)]
        low, high = (sum(r for r in reach if r < 0), sum(r for r in reach if r > 0))
        return self.pointer + low, self.pointer + high + self.itemsize

    @property
    def contiguous(self) -> bool:
        """Whether in C order without gaps."""
        return self.size == 0 or all(
            n == 1 or s == t
            for n, s, t in zip(self.shape, self.strides, c_strides(self.shape, self.itemsize), strict=True)
        )

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        data = self.pointer, self.readonly
        return {"shape": self.shape, "strides": self.strides, **described(self.dtype), "data": data, "version": 3}


def c_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Strides in bytes of an array in C order."""
    return tuple(itemsize * math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def is_device_array(array: Any) -> bool:
    """Whether an array lies in the memory of a CUDA GPU."""
    return type(array) is not np.ndarray and host.location(array) == host.CUDA


def as_device(array: Any, what: str = "the array") -> DeviceArray:
    """`array` as an address on its GPU.

    Parameters
    ----------
    array
        A CuPy, PyTorch, JAX or Numba array on a GPU, or anything else there with ``__cuda_array_interface__`` or
        DLPack.
    what
        What error messages call it.

    Raises
    ------
    UnsupportedError
        For host arrays and whatever `as_host` refuses, foreign byte order, and elements at odd addresses.
    """
    if isinstance(array, DeviceArray):
        return array
    if host.place(array, what) != host.CUDA:
        raise UnsupportedError(f"{what} is in CPU memory; pass an array on a GPU, such as cupy.asarray(…)")
    cupy = getattr(sys.modules.get("cupy"), "ndarray", None)
    kind = "cupy" if cupy is not None and isinstance(array, cupy) else host.framework_of(array)
    found = _READERS[kind or "protocol"](array, what)
    if not _is_aligned(found):
        raise UnsupportedError(
            f"{what}: elements of {found.dtype} lie at addresses that are no multiples of {found.itemsize} bytes, "
            "where a GPU cannot read them; put their bytes into memory of their own first"
        )
    return found


def _read_cupy(array: Any, what: str) -> DeviceArray:
    dtype = _dtype(array.dtype, what)
    return DeviceArray(array.data.ptr, array.shape, array.strides, dtype, array.data.device_id, CUPY, array)


def _read_torch(array: Any, what: str) -> DeviceArray:
    tensor = host.plain_tensor(array, what)
    dtype = host.tensor_dtype(tensor, what)
    strides = tuple(stride * dtype.itemsize for stride in tensor.stride())
    try:
        pointer = tensor.data_ptr()
    except RuntimeError as error:  # tensors without memory, as torch.compile and torch.func have them
        raise UnsupportedError(f"{what}: {host.a(array)} cannot be read: {error}") from None
    owner = tensor.detach()  # keeps this memory, should the tensor be given another one
    return DeviceArray(
        *(pointer, tuple(tensor.shape), strides, dtype, tensor.get_device(), TORCH, owner),
        copied=array.is_conj() or array.is_neg(),
    )


def _read_jax(array: Any, what: str) -> DeviceArray:
    device = host.jax_device(array, what)
    try:
        _dtype(np.dtype(array.dtype), what)
        return replace(_read_protocol(array, what), device=device.local_hardware_id, readonly=True)
    except (RuntimeError, TypeError) as error:  # random keys, deleted buffers
        raise UnsupportedError(f"{what}: the array cannot be read: {error}") from None


def _read_protocol(array: Any, what: str) -> DeviceArray:
    reader = _read_interface if hasattr(array, "__cuda_array_interface__") else _read_dlpack
    try:
        return reader(array, what)
    except (AttributeError, BufferError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise UnsupportedError(f"{what}: {host.a(array)} cannot be read; pass a CuPy array: {error}") from error


def _read_interface(array: Any, what: str) -> DeviceArray:
    interface = array.__cuda_array_interface__
    if interface.get("mask") is not None:
        raise UnsupportedError(f"{what}: masked arrays are not supported; pass one without a mask")
    dtype = _dtype(dtype_described(interface), what)
    shape = tuple(map(int, interface["shape"]))
    strides = interface.get("strides")  # None: in C order
    address, readonly = interface["data"]
    pointer = int(address or 0)
    device = device_of(pointer) if pointer else None
    return DeviceArray(
        pointer,
        shape,
        c_strides(shape, dtype.itemsize) if strides is None else tuple(map(int, strides)),
        dtype,
        current_device() if device is None else device,
        _FRAMEWORKS.get(host.library_of(array), EXCHANGE),
        array,
        bool(readonly),
    )


def _read_dlpack(array: Any, what: str) -> DeviceArray:
    found = dlpack.export(array)
    dtype = _dtype(found.dtype, what)
    owner = array, found.capsule
    return DeviceArray(found.pointer, found.shape, found.strides, dtype, found.device, EXCHANGE, owner, found.readonly)


_READERS: dict[str, Callable[[Any, str], DeviceArray]] = {
    "cupy": _read_cupy,
    "torch": _read_torch,
    "jax": _read_jax,
    "protocol": _read_protocol,
}


def _dtype(dtype: np.dtype[Any], what: str) -> np.dtype[Any]:
    native = host.supported(dtype, what)
    if not dtype.isnative:
        raise UnsupportedError(f"{what}: dtype {dtype} is of foreign byte order; pass array.astype({str(native)!r})")
    return native


def _is_aligned(array: DeviceArray) -> bool:
    """Whether every element lies at a multiple of its size, as a GPU's loads need it."""
    steps = (stride for stride, extent in zip(array.strides, array.shape, strict=True) if extent > 1)
    return array.size == 0 or not any(step % array.itemsize for step in (array.pointer, *steps))


def as_device_output(array: Any, what: str = "out") -> DeviceArray:
    """`array` as memory on its GPU that is written to. Call it before each write, as PyTorch is told of it.

    Raises
    ------
    UnsupportedError
        If it is read-only, or two of its elements may be the same memory.
    """
    found = as_device(array, what)
    if found.copied:
        raise UnsupportedError(
            f"{what}: a lazily conjugated or negated tensor cannot be written to; pass torch.empty(…)"
        )
    if found.readonly:
        raise UnsupportedError(f"{what}: {host.a(array)} is read-only; pass a writable one, such as cupy.empty(…)")
    if host.overlaps_itself(found):
        own = "torch.empty(…, device='cuda')" if found.framework is TORCH else "cupy.empty(…)"
        raise UnsupportedError(
            f"{what}: with shape {found.shape} and strides {found.strides} some elements are the same memory; "
            f"pass one of its own, such as {own}"
        )
    if found.framework is TORCH and not array.is_inference():
        sys.modules["torch"].autograd.graph.increment_version(array)
    return found


def upload(array: Any, device: int, stream: int, what: str = "the array") -> DeviceArray:
    """A copy of a host array of any framework on a GPU, made on `stream`.

    Memory without gaps keeps its order of axes, and broadcast axes stay so; anything else is laid out in C order.
    """
    view = host.as_host(array, what).view
    once = view[(*(slice(1) if s == 0 else slice(None) for s in view.strides), ...)]
    ordered = once.transpose(sorted(range(once.ndim), key=lambda axis: -once.strides[axis]))
    if not ordered.flags.c_contiguous:
        ordered = once = np.array(once, order="C")
    memory = allocate(once.nbytes, device, stream)
    with device_guard(device):
        copy_in(memory.pointer, ordered, stream)
        memory.used(stream)
    strides = tuple(0 if s == 0 else t for s, t in zip(view.strides, once.strides, strict=True))
    return DeviceArray(memory.pointer, view.shape, strides, view.dtype, device, HOST, memory)


def refill(copy: DeviceArray, array: Any, stream: int) -> None:
    """Put what a host array holds now into the copy that `upload` made of it."""
    low, high = copy.bounds
    raw = np.zeros(high - low, np.uint8)
    view: npt.NDArray[Any] = np.ndarray(copy.shape, copy.dtype, raw, copy.pointer - low, copy.strides)
    view[...] = host.as_host(array).view
    with device_guard(copy.device):
        copy_in(low, raw, stream)


def download(array: DeviceArray, stream: int) -> npt.NDArray[Any]:
    """A NumPy array of the same elements, once `stream` has done what it holds; gaps are left out."""
    low, high = array.bounds
    raw = np.empty(high - low, np.uint8)
    with device_guard(array.device):
        copy_out(raw, low, stream)
    view: npt.NDArray[Any] = np.ndarray(array.shape, array.dtype, raw, array.pointer - low, array.strides)
    return view if view.nbytes == raw.nbytes else view.copy()
