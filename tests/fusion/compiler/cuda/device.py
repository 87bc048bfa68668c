"""Runs compiled callbacks on a GPU for the tests: a generated elementwise kernel, and cuFFT with callbacks."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np

from mathfuse.fusion.compiler.cuda import artifacts, division
from mathfuse.fusion.compiler.cuda.interface import make_unit
from mathfuse.fusion.compiler.cuda.raw import current_architecture
from mathfuse.fusion.compiler.cuda.units import ELEMENTWISE
from mathfuse.fusion.compiler.fingerprint import captured_arrays
from mathfuse.fusion.compiler.parameters import Writer


def architecture() -> str:
    """The GPU's, with its own instructions where it has a variant with them."""
    return {"sm_90": "sm_90a"}.get(current_architecture(), current_architecture())


def kernel(cubin: bytes, name: str) -> Any:
    from cuda.core import Device, ObjectCode

    Device().set_current()
    return ObjectCode.from_cubin(cubin).get_kernel(name)


def block_on_device(
    writer: Writer, compiled: artifacts.Compiled, operands: dict[str, Any], shape: tuple[int, ...]
) -> list:
    """Fills the callback's part of the block; gives what must stay alive."""
    import cupy

    writer.integers("shape", *shape)
    callback = compiled.unit.signature.callback
    values = {**operands, **(captured_arrays(callback) if callback else {})}
    alive = []
    for name, kind in compiled.unit.signature.operands:
        value = values[name]
        if kind.is_scalar:
            writer.operand(name, value)
        else:
            alive.append(cupy.asarray(value))
            writer.operand(name, value, alive[-1].data.ptr)
    return alive


def elementwise(callback: Any, x: np.ndarray, **operands: Any) -> np.ndarray:
    """``callback`` on every element of ``x``, on the GPU."""
    import cupy
    from cuda.core import Device, LaunchConfig, launch

    values = {**callback.bound, **operands}
    unit = make_unit(callback, "elementwise", x.dtype, values, architecture(), "epilog", ndim=x.ndim)
    compiled = artifacts.Compiled(unit)
    writer = Writer(unit.layout, compiled.weak_bits)
    source, result = cupy.asarray(x), cupy.empty(x.shape, compiled.result_dtype)
    alive = block_on_device(writer, compiled, values, x.shape)
    division.fill(writer, [math.prod(x.shape[k + 1 :]) for k in range(x.ndim)], wide=False)
    writer.integers("source_block", source.data.ptr)
    writer.integers("destination_block", result.data.ptr)
    writer.integers("source_strides", *source.strides)
    writer.integers("destination_strides", *result.strides)
    block = cupy.asarray(writer.block)
    cupy.cuda.Device().synchronize()
    stream = Device().default_stream
    entry = kernel(compiled.cubin, ELEMENTWISE)
    launch(stream, LaunchConfig(grid=64, block=128), entry, block.data.ptr, x.size)
    stream.sync()
    del alive
    return cupy.asnumpy(result)


# --- cuFFT -----------------------------------------------------------------------------------------------------------

# cufft.h and cufftXt.h
TYPES = {"float32": {"C2C": 0x29, "R2C": 0x2A, "C2R": 0x2C}, "float64": {"C2C": 0x69, "R2C": 0x6A, "C2R": 0x6C}}
CALLBACKS = {
    ("prolog", "complex64"): 0, ("prolog", "complex128"): 1, ("prolog", "float32"): 2, ("prolog", "float64"): 3,
    ("epilog", "complex64"): 4, ("epilog", "complex128"): 5, ("epilog", "float32"): 6, ("epilog", "float64"): 7,
}  # fmt: skip


def cufft() -> tuple[Any, Any]:
    """cuFFT's library and its function that sets an LTO callback (named with a version in CUDA 12)."""
    from cuda.pathfinder import load_nvidia_dynamic_lib

    library = ctypes.CDLL(load_nvidia_dynamic_lib("cufft").abs_path)
    set_callback = getattr(library, "cufftXtSetJITCallback", None) or library.__cufftXtSetJITCallback_12_7
    return library, set_callback


def transform(kind: str, x: np.ndarray, n: int, ltoir: bytes, side: str, info: np.ndarray) -> np.ndarray:
    """A batched 1-D transform (``kind`` C2C, R2C or C2R) of the rows of ``x`` by cuFFT with one LTO callback."""
    import cupy

    library, set_callback = cufft()
    real = np.dtype("float32" if x.dtype in (np.float32, np.complex64) else "float64")
    complex_ = np.dtype("complex64" if real == np.float32 else "complex128")
    element = (complex_ if kind == "C2R" else x.dtype) if side == "prolog" else (real if kind == "C2R" else complex_)
    width = {"C2C": n, "R2C": n // 2 + 1, "C2R": n}[kind]
    result = cupy.full((x.shape[0], width), 7, real if kind == "C2R" else complex_)
    source, block = cupy.asarray(x), cupy.asarray(info)
    handle, work = ctypes.c_int(), ctypes.c_size_t()
    check(library.cufftCreate(ctypes.byref(handle)))
    pointer = ctypes.c_void_p(block.data.ptr)
    number = CALLBACKS[side, str(element)]
    check(set_callback(handle, None, ltoir, ctypes.c_size_t(len(ltoir)), number, ctypes.byref(pointer)))
    size = (ctypes.c_int * 1)(n)
    transform_type = TYPES[str(real)][kind]
    check(
        library.cufftMakePlanMany(
            handle, 1, size, None, 1, 0, None, 1, 0, transform_type, x.shape[0], ctypes.byref(work)
        )
    )
    cupy.cuda.Device().synchronize()
    data = ctypes.c_void_p(source.data.ptr), ctypes.c_void_p(result.data.ptr)
    check(library.cufftXtExec(handle, *data, -1 if kind != "C2R" else 1))
    cupy.cuda.Device().synchronize()
    check(library.cufftDestroy(handle))
    return cupy.asnumpy(result)


def check(status: int) -> None:
    assert status == 0, f"cuFFT status {status}"
