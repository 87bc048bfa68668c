"""Callbacks through the CPU kernel, and the same ones in plain Python."""

from __future__ import annotations

import cmath
import linecache
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

import mathfuse as mf
from mathfuse.epilogs import Constant, evaluate
from mathfuse.fusion.compiler.cpu.kernels import CpuKernel, elementwise
from mathfuse.fusion.compiler.cpu.spec import ElementwiseSpec

REALS = ("float32", "float64")
COMPLEXES = ("complex64", "complex128")


def as_callback(function: Callable | mf.Callback) -> mf.Callback:
    """A callback as it is; a plain function as a prolog where it reads ``source``, else as an epilog."""
    if isinstance(function, mf.Callback):
        return function
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    return mf.prolog(function) if "source" in names else mf.epilog(function)


def kernel_for(
    function: Callable | mf.Callback,
    x: np.ndarray,
    axes: tuple[int, ...] | None = None,
    result: Any = None,
    **operands: Any,
) -> tuple[CpuKernel, dict[str, Any]]:
    """The compiled kernel for `x`, and the operands to bind."""
    callback = as_callback(function)
    bound = {name: v.array if isinstance(v, Constant) else v for name, v in {**callback.bound, **operands}.items()}
    reads_source = any("source" in link.reserved for link in callback.links)
    spec = ElementwiseSpec(
        callback,
        x.dtype,
        np.dtype(result) if result is not None else None,
        x.ndim,
        tuple(range(x.ndim)) if axes is None else axes,
        bound,
        tuple(range(x.ndim)),
        (x.ndim > 0 and x.strides[-1] == x.itemsize, x.ndim > 0),
        source=x if reads_source else None,
    )
    return elementwise(spec), bound


def run(
    function: Callable | mf.Callback,
    x: np.ndarray,
    axes: tuple[int, ...] | None = None,
    result: Any = None,
    shape: tuple[int, ...] | None = None,
    **operands: Any,
) -> np.ndarray:
    """The callback on every element of `x`, compiled."""
    kernel, bound = kernel_for(function, x, axes, result, **operands)
    out = np.empty(x.shape, kernel.result_dtype)
    bind = kernel.bind(bound, shape or x.shape, x if kernel.signature.source else None)
    bind(x, out, (0,) * x.ndim)
    return out


def plain(
    function: Callable | mf.Callback,
    x: np.ndarray,
    axes: tuple[int, ...] | None = None,
    shape: tuple[int, ...] | None = None,
    **operands: Any,
) -> np.ndarray:
    """The callback on every element of `x`, in Python, with values widened to 64 bits."""
    callback = as_callback(function)(**operands)
    axes = tuple(range(x.ndim)) if axes is None else axes
    wide = x.astype({"f": np.float64, "c": np.complex128, "u": np.int64}.get(x.dtype.kind, x.dtype))
    results = [evaluate(callback, wide[i], i, shape or x.shape, axes, wide) for i in np.ndindex(x.shape)]
    return np.array(results).reshape(x.shape)


def define(source: str, **namespace: Any) -> Callable:
    """The function that `source` defines under the name `function`; error messages can quote it."""
    filename = f"<{source}>"
    linecache.cache[filename] = len(source), None, source.splitlines(keepends=True), filename
    scope: dict[str, Any] = {"np": np, "math": math, "cmath": cmath, "mf": mf, **namespace}
    exec(compile(source, filename, "exec"), scope)
    return scope["function"]


def expression(text: str, names: str = "value", **namespace: Any) -> Callable:
    """A function of the text of an expression."""
    return define(f"def function({names}): return {text}\n", **namespace)


def table(texts: Iterable[str], x: np.ndarray, dtype: Any, **operands: Any) -> dict[str, np.ndarray]:
    """Many expressions of `value`, `i` (the index) and `operands[i]` over a vector, in one kernel, by text."""
    texts = list(texts)
    lines = [f"    {name} = {name}_[i]" for name in operands]
    lines += [f"    out[{k}, i] = {text}" for k, text in enumerate(texts)]
    names = ", ".join(["value", "index", "out", *(f"{name}_" for name in operands)])
    function = define("\n".join([f"def function({names}):", "    i = index[0]", *lines, "    return value", ""]))
    out = np.zeros((len(texts), x.size), dtype)
    run(function, x, out=out, **{f"{name}_": array for name, array in operands.items()})
    return dict(zip(texts, out))


def assert_close(found: np.ndarray, expected: Any, units: float = 4, absolute: float = 0) -> None:
    """Equal to within some units in the last place of the result's type; NaN and infinity where expected."""
    dtype = found.dtype
    expected = np.broadcast_to(np.asarray(expected), found.shape)
    if dtype.kind in "biu":
        np.testing.assert_array_equal(found, expected)
        return
    with np.errstate(all="ignore"):
        rounded = expected.astype(dtype)
    rtol = units * np.finfo(dtype).eps
    np.testing.assert_allclose(found, rounded, rtol=rtol, atol=absolute + np.finfo(dtype).tiny)
