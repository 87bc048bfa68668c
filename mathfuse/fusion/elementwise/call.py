"""The public function: its arguments checked, and where it runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mathfuse.epilogs import Callback
from mathfuse.runtime import arrays
from mathfuse.runtime.errors import CallbackError, PlanError

EXECUTIONS = ("cpu", "cuda")

_gpu: Any = None  # the module `cuda`, once there was an array on a GPU


def elementwise(
    callback: Any,
    x: Any,
    *,
    inputs: Mapping[str, Any] | None = None,
    out: Any = None,
    execution: str | None = None,
    stream: Any = None,
    workers: int | None = None,
) -> Any:
    """Apply a prolog or an epilog to every element of an array: ``out[i] = callback(x[i])``.

    One compiled kernel reads each element once and writes each result once, on the CPU shared by threads. On a GPU
    nothing waits for it, and calls that differ in addresses and numbers only cost a launch.

    Parameters
    ----------
    callback : Callback
        A prolog or an epilog. Its `index` is the element's own in `x`, `shape` that of `x`, and `axes` are all axes; an
        array without axes is seen as one of shape ``(1,)``. Operands are read as they are when the kernel runs; those
        that it assigns to are written.
    x : array
        NumPy, PyTorch or JAX in CPU memory; CuPy, PyTorch, JAX, Numba or any array with ``__cuda_array_interface__`` or
        DLPack on a CUDA GPU. Any shape, any strides, any supported dtype; float16 and complex32 are computed as float32
        and complex64.
    inputs : mapping, optional
        Free operands of the callback, by name. On a GPU, operands in CPU memory are copied there at each call.
    out : array, optional
        Where the result goes, of the shape of `x` and the dtype that the callback returns, with any strides. It may be
        `x` itself, if the callback does not read `source`, or an operand that is read at the element's own index only;
        it shares no element otherwise.
    execution : {None, "cpu", "cuda"}
        Where to run; None is where `x` is. NumPy arrays with "cuda" are copied to the GPU and back, which waits.
    stream : optional
        On a GPU: the stream to queue on, a handle, a CuPy, PyTorch, Numba or cuda.core stream, or anything with
        ``__cuda_stream__``; by default the current one of the framework of `x`.
    workers : int, optional
        On the CPU: threads, 256 at most; by default all CPUs of this process, or ``MATHFUSE_NUM_WORKERS``.

    Returns
    -------
    array
        `out`, or a new array in C order, of the framework of `x` and on its device, of the dtype that the callback
        returns.

    Raises
    ------
    CallbackError
        If `callback` is none, cannot be compiled or has unbound operands.
    PlanError
        If operands or `out` do not fit, or overlap where they must not.
    UnsupportedError
        For dtypes, arrays and places that are not supported.
    ToolchainError
        If there is no GPU for ``execution="cuda"``, or a library for it is missing.

    Examples
    --------
    >>> import math
    >>> import numpy as np
    >>> import mathfuse as mf
    >>> @mf.epilog
    ... def gated_silu(value, index, bias, gate):
    ...     y = value + bias[index[-1]]
    ...     return y / (1 + math.exp(-y)) * gate[index]
    >>> x, gate = np.ones((2, 3), np.float32), np.full((2, 3), 2, np.float32)
    >>> mf.elementwise(gated_silu(bias=np.zeros(3, np.float32), gate=gate), x)
    array([[1.4621172, 1.4621172, 1.4621172],
           [1.4621172, 1.4621172, 1.4621172]], dtype=float32)
    """
    if not isinstance(callback, Callback):
        name = getattr(callback, "__name__", type(callback).__name__)
        raise CallbackError(f"callback={name} is no callback: decorate the function with @mf.epilog")
    if inputs is not None and not (isinstance(inputs, Mapping) and all(isinstance(name, str) for name in inputs)):
        raise PlanError(f"inputs must be a mapping from names to operands, not {inputs!r}")
    if execution is not None and not (isinstance(execution, str) and execution in EXECUTIONS):
        raise PlanError(f"execution={execution!r}: it is None or one of {', '.join(EXECUTIONS)}")
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int | np.integer) or workers < 1):
        raise PlanError(f"workers={workers!r}: it must be a whole number, 1 or more")
    if _gpu and execution != "cpu" and (execution or type(x) is not np.ndarray):
        result = _gpu.again(callback, x, inputs, out, stream)
        if result is not None:
            return result
    if (execution or arrays.place(x, "x")) == "cuda":
        return _with_gpu().run(callback, x, inputs, out, stream)
    if stream is not None:
        raise PlanError("stream=… is for arrays on a GPU, and this call runs on the CPU")
    from mathfuse.fusion.elementwise import cpu

    return cpu.run(callback, x, inputs, out, workers)


def _with_gpu() -> Any:
    from mathfuse.fusion.elementwise import cuda  # the driver: only arrays on a GPU pay for it

    global _gpu
    _gpu = cuda
    return cuda
