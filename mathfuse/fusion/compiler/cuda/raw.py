"""Callbacks in cuFFT's own signature, for people who drive cuFFT themselves: inlined there, too."""

from __future__ import annotations

import inspect
from collections.abc import Callable as Function
from typing import Any

import numpy as np
from llvmlite import ir

from mathfuse.epilogs import Callback
from mathfuse.epilogs.callback import Link
from mathfuse.epilogs.signature import plain_function
from mathfuse.fusion.compiler.cuda import toolchain
from mathfuse.fusion.compiler.cuda.prototypes import CUFFT_NAMES, cufft_prototype
from mathfuse.fusion.compiler.emit.target import CUDA
from mathfuse.fusion.compiler.key import artifact_key
from mathfuse.fusion.compiler.parameters import Layout
from mathfuse.fusion.compiler.signature import Signature
from mathfuse.runtime.arrays import dtype_of
from mathfuse.runtime.cache import Artifact, default_store
from mathfuse.runtime.errors import CallbackError, PlanError, UnsupportedError

PARAMETERS = {
    "prolog": ("data_in", "offset", "user_info", "reserved"),
    "epilog": ("data_out", "offset", "data", "user_info", "reserved"),
}


def compile_prolog(
    function: Function, element_dtype: Any, user_info_dtype: Any, *, compute_capability: Any = None
) -> bytes:
    """LTO-IR of a cuFFT load callback, ``function(data_in, offset, user_info, reserved) -> element``.

    Parameters
    ----------
    function : function
        Plain Python. ``data_in[offset]`` is the element that cuFFT asks for, ``offset`` an element offset;
        ``user_info`` is indexed like a one-dimensional array.
    element_dtype : dtype-like
        What the transform reads: float32, float64, complex64 or complex128.
    user_info_dtype : dtype-like
        Element type behind the ``user_info`` pointer.
    compute_capability : str or (int, int), optional
        ``"90"``, ``"9.0"``, ``"sm_90"`` or ``(9, 0)``; by default that of the current GPU.

    Returns
    -------
    bytes
        LTO-IR for ``cufftXtSetJITCallback`` with the symbol name NULL: its function has cuFFT's default (mangled) name
        and exact prototype, so that it is inlined.

    Raises
    ------
    CallbackError
        The function has another number of parameters or uses something that cannot run in a kernel.
    UnsupportedError
        cuFFT has no callbacks for ``element_dtype``.
    PlanError
        No ``compute_capability`` was given and there is no GPU to ask.
    """
    return _compile(function, "prolog", element_dtype, user_info_dtype, compute_capability)


def compile_epilog(
    function: Function, element_dtype: Any, user_info_dtype: Any, *, compute_capability: Any = None
) -> bytes:
    """LTO-IR of a cuFFT store callback, ``function(data_out, offset, data, user_info, reserved)``.

    The function stores the element itself, ``data_out[offset] = …``, and returns nothing. Parameters, result and errors
    are those of :func:`compile_prolog`.
    """
    return _compile(function, "epilog", element_dtype, user_info_dtype, compute_capability)


def _compile(function: Any, side: str, element_dtype: Any, user_info_dtype: Any, compute_capability: Any) -> bytes:
    element, info = dtype_of(element_dtype, "element_dtype"), dtype_of(user_info_dtype, "user_info_dtype")
    if str(element) not in CUFFT_NAMES:
        raise UnsupportedError(f"cuFFT has no callbacks for {element}; it has them for {', '.join(CUFFT_NAMES)}")
    plain = plain_function(function, side)
    if len(inspect.signature(plain).parameters) != len(PARAMETERS[side]):
        expected = ", ".join(PARAMETERS[side])
        raise CallbackError(f"{plain.__name__} must take {len(PARAMETERS[side])} parameters: ({expected})")
    arch = architecture(compute_capability)
    named = Callback(side, (Link(plain, tuple(inspect.signature(plain).parameters), (), ()),))
    signature = Signature(named, element, 1, (0,))
    key = artifact_key(f"cuda raw {side}", signature, toolchain.identity(), info=info, arch=arch)
    return default_store().get_or_make(key, lambda: _make(plain, side, signature, info, arch), plain.__name__).payload


def _make(function: Any, side: str, signature: Signature, info: np.dtype, arch: str) -> Artifact:
    from mathfuse.fusion.compiler.lowering import Lowering, lower

    def build(lowering: Lowering) -> None:
        _build(lowering, function, side, signature.value_dtype, info)

    module, facts = lower(signature, CUDA, Layout(), build)
    return Artifact(toolchain.nvvm(str(module), arch, lto=True, fastmath=True), facts.metadata())


def _build(lowering: Any, function: Any, side: str, dtype: np.dtype, info_dtype: np.dtype) -> None:
    """The function in cuFFT's prototype; pointers become one-dimensional arrays of unknown extent."""
    from mathfuse.fusion.compiler.cuda.callbacks import from_struct, llvm_element, to_struct
    from mathfuse.fusion.compiler.emit.emitter import BYTES, I64
    from mathfuse.fusion.compiler.emit.scalars import INT, of_dtype
    from mathfuse.fusion.compiler.language.arithmetic import Reject
    from mathfuse.fusion.compiler.language.evaluator import Evaluator
    from mathfuse.fusion.compiler.language.operands import Operand
    from mathfuse.fusion.compiler.language.places import Place

    prolog, element = side == "prolog", llvm_element(lowering.module, dtype)
    arguments = [BYTES, I64, BYTES, BYTES] if prolog else [BYTES, I64, element, BYTES, BYTES]
    prototype = ir.FunctionType(element if prolog else ir.VoidType(), arguments)
    entry = ir.Function(lowering.module, prototype, cufft_prototype(side, dtype).symbol)
    builder = ir.IRBuilder(entry.append_basic_block("entry"))
    emitter = lowering.emitter(builder)

    def pointer(name: str, kind: np.dtype, address: ir.Value, readonly: bool) -> Operand:
        return Operand(name, kind, address, (emitter.constant(0, INT),), (I64(kind.itemsize),), readonly, bounded=False)

    def refuse(_: Any) -> Operand:
        raise Reject("an array cannot be captured in cuFFT's raw signature; pass its pointer as user_info")

    data = pointer("data", dtype, entry.args[0], readonly=prolog)
    info = pointer("user_info", info_dtype, entry.args[-2], readonly=False)
    offset = emitter.integer(entry.args[1])
    given = [] if prolog else [from_struct(emitter, entry.args[2], of_dtype(dtype))]
    lowering.knowledge.assigned.add("data")  # a transform in place writes what it reads
    evaluator = Evaluator(emitter, Place((offset,)), lowering.knowledge, refuse)
    values = dict(zip(inspect.signature(function).parameters, [data, offset, *given, info, None]))
    result = evaluator.evaluate(function, values, procedure=not prolog)
    lowering.take(evaluator)
    if prolog:
        loaded = lowering.require(evaluator.operations.value(result), dtype, "what the transform reads", emitter)
        builder.ret(to_struct(emitter, loaded, element))
    else:
        builder.ret_void()


def architecture(compute_capability: Any) -> str:
    """``sm_90`` for ``"90"``, ``"9.0"``, ``"sm_90"``, ``(9, 0)``, or the current GPU's."""
    if compute_capability is None:
        return current_architecture()
    if isinstance(compute_capability, tuple) and len(compute_capability) == 2:
        return toolchain.checked_arch("sm_{}{}".format(*compute_capability))
    text = str(compute_capability).replace(".", "")
    return toolchain.checked_arch(text if text.startswith("sm_") else f"sm_{text}")


def current_architecture() -> str:
    """The architecture of the current GPU."""
    try:
        from cuda.core import Device

        major, minor = Device().compute_capability
    except Exception as error:  # no package, no driver, no device: each binding raises its own kind
        raise PlanError(f'no GPU was found to compile for ({error}); give compute_capability="90" or another') from None
    return f"sm_{major}{minor}"
