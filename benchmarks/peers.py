"""What the GPU benchmarks compare with: cuFFT and one elementwise kernel, PyTorch, and nvmath-python's callbacks."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks import gpu

# As fast as a copy: 16 bytes of the data an access.
MULTIPLY = r"""
template <class T, int N> struct alignas(sizeof(T) * N) Pack { T v[N]; };
__device__ float times(float a, float w) { return a * w; }
__device__ double times(double a, double w) { return a * w; }
__device__ float2 times(float2 a, float w) { return make_float2(a.x * w, a.y * w); }
__device__ double2 times(double2 a, double w) { return make_double2(a.x * w, a.y * w); }
#define KERNEL(name, T, W, N) \
extern "C" __global__ void name(const T* x, const W* __restrict__ w, T* y, long long n) { \
    long long i = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * N; \
    if (i + N <= n) { \
        Pack<T, N> a = *(const Pack<T, N>*)(x + i); Pack<W, N> b = *(const Pack<W, N>*)(w + i); \
        _Pragma("unroll") for (int k = 0; k < N; k++) a.v[k] = times(a.v[k], b.v[k]); \
        *(Pack<T, N>*)(y + i) = a; \
    } else for (; i < n; i++) y[i] = times(x[i], w[i]); \
}
KERNEL(multiply_float32, float, float, 4)
KERNEL(multiply_complex64, float2, float, 2)
KERNEL(multiply_float64, double, double, 2)
KERNEL(multiply_complex128, double2, double, 1)
"""
THREADS = 256

Multiply = Callable[[Any, Any, Any], None]


@functools.cache
def multipliers() -> Mapping[str, Multiply]:
    """``y = x * w`` by CuPy's own elementwise kernel, and by a hand-written one; `x` may be `y`."""
    cp = gpu.cupy()
    fused = cp.ElementwiseKernel("T x, W w", "T y", "y = x * w", "multiply")
    module = cp.RawModule(code=MULTIPLY, options=("-std=c++17",))

    def vector(x: Any, w: Any, y: Any) -> None:
        kernel = module.get_function(f"multiply_{x.dtype}")
        lanes = max(1, 16 // x.dtype.itemsize)
        kernel((math.ceil(x.size / lanes / THREADS),), (THREADS,), (x, w, y, np.int64(x.size)))

    return {"CuPy kernel": fused, "vector kernel": vector}


def cufft(family: str, lengths: tuple[int, ...], x: Any, y: Any) -> Callable[[], None]:
    """cuFFT's unscaled transform of contiguous [batch, …] `x` into `y`, forward but for c2r; on the current stream."""
    from mathfuse.runtime.cuda.cufft import Call, Transform, View

    cp = gpu.cupy()
    views = [View(a.shape[1:], 1, math.prod(a.shape[1:])) for a in (x, y)]
    double = x.dtype.name in ("float64", "complex128")
    transform = Transform(Call(family, double, lengths, x.shape[0], *views), (), x.device.id)
    area = cp.empty(max(transform.work_bytes, 1), np.uint8)
    transform.set_work_area(area.data.ptr)
    source, target, forward = x.data.ptr, y.data.ptr, family != "c2r"
    stream = cp.cuda.get_current_stream

    def run() -> None:
        transform.set_stream(stream().ptr)
        transform.run(source, target, forward)

    run.alive = x, y, area  # as long as it may be called
    return run


def separate(
    family: str, lengths: tuple[int, ...], x: Any, before: Any, after: Any, y: Any
) -> dict[str, Callable[[], Any]]:
    """cuFFT with one elementwise kernel a side that multiplies by `before` or `after`, unless it is None.

    cuFFT overwrites the input of a c2r transform of several axes, which is therefore copied where no kernel reads it.
    """
    cp = gpu.cupy()
    apart = before is not None or (family == "c2r" and len(lengths) > 1)
    read = cp.empty_like(x) if apart else x
    transform = cufft(family, lengths, read, y)
    copy = gpu.copier(read, x)

    def with_kernel(multiply: Multiply) -> Callable[[], Any]:
        def run() -> Any:
            if before is not None:
                multiply(x, before, read)
            elif apart:
                copy()
            transform()
            if after is not None:
                multiply(y, after, y)
            return y

        return run

    return {f"cuFFT + {name}": with_kernel(multiply) for name, multiply in multipliers().items()}


def torch_peer(x: Any, before: Any, after: Any) -> Callable[[], Any] | None:
    """``torch.fft.fft`` along the last axis with a multiplication a side; None without PyTorch."""
    torch = gpu.optional("torch")
    if torch is None:
        return None
    x, before, after = (None if a is None else torch.from_dlpack(a) for a in (x, before, after))

    def run() -> Any:
        y = torch.fft.fft(x if before is None else x * before)
        return y if after is None else y.mul_(after)

    return run


def nvmath_prolog(data_in: Any, offset: Any, user_info: Any, reserved: Any) -> Any:
    return data_in[offset] * user_info[offset]


def nvmath_epilog(data_out: Any, offset: Any, data: Any, user_info: Any, reserved: Any) -> None:
    data_out[offset] = data * user_info[offset]


def nvmath_plan(x: Any, before: Any = None, after: Any = None) -> Any:
    """nvmath-python's planned FFT along the last axis with its own callbacks; None where it is not installed."""
    nvmath = gpu.optional("nvmath.fft")
    if nvmath is None:
        return None
    dtypes = {"element_dtype": "complex64", "user_info_dtype": "float32"}
    capability = gpu.cupy().cuda.Device().compute_capability
    callbacks = {}
    for side, w, function in (("prolog", before, nvmath_prolog), ("epilog", after, nvmath_epilog)):
        if w is not None:
            code = getattr(nvmath, f"compile_{side}")(function, **dtypes, compute_capability=capability)
            callbacks[side] = {"ltoir": code, "data": w.data.ptr}
    planned = nvmath.FFT(x, axes=[x.ndim - 1])
    planned.plan(**callbacks)
    return planned
