"""Native code for the CPU: a callback in a loop nest over a block of an array, kept on disk as an object file."""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable as Function
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mathfuse.epilogs import Callback
from mathfuse.fusion.compiler.analysis import Analysis
from mathfuse.fusion.compiler.cpu.spec import ElementwiseSpec, loop_layout
from mathfuse.fusion.compiler.fingerprint import captured_arrays
from mathfuse.fusion.compiler.key import artifact_key
from mathfuse.fusion.compiler.parameters import Writer
from mathfuse.fusion.compiler.signature import Signature, numpy_view
from mathfuse.runtime.cache import Artifact, default_store
from mathfuse.runtime.dtypes import dtype_name
from mathfuse.runtime.notes import note

_lock = threading.Lock()


class CpuKernel(Analysis):
    """Compiled code for one :class:`ElementwiseSpec`."""

    def __init__(self, spec: ElementwiseSpec, signature: Signature, code: _Code) -> None:
        super().__init__(code.artifact.metadata)
        self.spec, self.signature, self.layout, self.function = spec, signature, loop_layout(signature), code.function

    def bind(
        self, operands: Mapping[str, Any], shape: tuple[int, ...], whole_source: np.ndarray | None = None
    ) -> Function[..., None]:
        """``run(source, destination, start)`` with operands and logical extents filled in. Threads may share it."""
        writer = Writer(self.layout, self.weak_bits)
        writer.integers("shape", *shape)
        if self.signature.source and whole_source is not None:
            writer.operand("source", whole_source)
        captured = captured_arrays(self.spec.callback) if self.spec.callback else {}
        values = {**operands, **{name: numpy_view(array) for name, array in captured.items()}}
        for name, _ in self.signature.operands:
            writer.operand(name, values[name])
        template, function, slots = writer.block, self.function, self.layout.slots
        alive = values, whole_source  # the block holds their addresses only

        def run(source: np.ndarray, destination: np.ndarray, start: tuple[int, ...], _: Any = alive) -> None:
            block = template.copy()
            block[slots["source_block"]] = source.__array_interface__["data"][0]
            block[slots["destination_block"]] = destination.__array_interface__["data"][0]
            for name, numbers in (
                ("extents", source.shape),
                ("source_strides", source.strides),
                ("destination_strides", destination.strides),
                ("start", start),
            ):
                block[slots[name] : slots[name] + len(numbers)] = numbers
            function(block.ctypes.data)

        return run


def analyse(spec: ElementwiseSpec) -> Analysis:
    """What :func:`elementwise` would find, without making code; from the disk cache where it is known.

    Raises
    ------
    CallbackError
        When the callback cannot run in a kernel, or returns complex where ``result_dtype`` is real.
    """
    signature = spec.signature()
    key = artifact_key("cpu analysis", signature, "any", result=str(spec.result_dtype))

    def make() -> Artifact:
        return Artifact(b"", _build(spec, signature)[1])

    return Analysis(default_store().get_or_make(key, make, f"{label(spec.callback)}: types").metadata)


def elementwise(spec: ElementwiseSpec) -> CpuKernel:
    """The kernel for ``spec``: from this process, from the disk cache, or compiled now.

    Raises
    ------
    CallbackError
        When the callback cannot run in a kernel, or returns complex where ``result_dtype`` is real.
    """
    signature = spec.signature()
    options = {
        "result": str(spec.result_dtype),
        "order": spec.order,
        "unit": spec.unit_stride,
        "in_place": spec.in_place,
    }
    key = artifact_key("cpu elementwise", signature, host(), **options)
    with _lock:
        code = _loaded.get(key)
    if code is None:
        make = functools.partial(_compile, spec, signature)
        artifact = default_store().get_or_make(key, make, f"{label(spec.callback)} for the CPU")
        code = _Code(_load(artifact.payload), artifact)
        with _lock:
            _loaded[key] = code
    note({key: code.artifact})
    return CpuKernel(spec, signature, code)


def label(callback: Callback | None) -> str:
    """What the log calls the code of a callback: the names of its functions, since bound values are no part of it."""
    return " | ".join(link.function.__name__ for link in callback.links) if callback else "a copy"


@dataclass(frozen=True)
class _Code:
    """Code in memory and what it was loaded from; never unloaded, since bound kernels point to it."""

    function: Function[[int], None]
    artifact: Artifact


_loaded: dict[str, _Code] = {}


def _build(spec: ElementwiseSpec, signature: Signature) -> tuple[str, dict[str, Any]]:
    """The loop nest as LLVM text, and what became known."""
    from mathfuse.fusion.compiler.cpu.loops import build_loops

    module, facts, result = build_loops(spec, signature, loop_layout(signature))
    return str(module), {"result_dtype": dtype_name(result), **facts.metadata()}


def _compile(spec: ElementwiseSpec, signature: Signature) -> Artifact:
    from mathfuse.fusion.compiler.cpu.native import object_code

    text, metadata = _build(spec, signature)
    return Artifact(object_code(text), metadata)


def _load(payload: bytes) -> Function[[int], None]:
    """The entry point of an object file; ctypes releases the GIL around every call."""
    from mathfuse.fusion.compiler.cpu.native import address_of

    return ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address_of(payload))


@functools.cache
def host() -> str:
    """The processor that native code is made for."""
    import llvmlite.binding as llvm

    return f"{llvm.get_process_triple()} {llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"
