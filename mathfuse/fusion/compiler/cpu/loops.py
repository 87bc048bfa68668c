"""The CPU's loop nest around a callback: a counted loop an axis, the body inlined, ready for LLVM's vectoriser."""

from __future__ import annotations

import platform
from collections.abc import Callable as Function
from typing import TYPE_CHECKING

import numpy as np
from llvmlite import ir

from mathfuse.fusion.compiler.emit.emitter import BYTES, I64
from mathfuse.fusion.compiler.emit.target import CPU
from mathfuse.fusion.compiler.language.places import Place
from mathfuse.fusion.compiler.lowering import Facts, Lowering, lower
from mathfuse.fusion.compiler.parameters import Layout
from mathfuse.fusion.compiler.reader import Reader

if TYPE_CHECKING:
    from mathfuse.fusion.compiler.cpu.spec import ElementwiseSpec
    from mathfuse.fusion.compiler.signature import Signature

ENTRY = "mathfuse_run"


def build_loops(spec: ElementwiseSpec, signature: Signature, layout: Layout) -> tuple[ir.Module, Facts, np.dtype]:
    """The module whose function ``mathfuse_run(block)`` does the work, what was found, and the dtype stored."""
    stored = spec.result_dtype

    def build(lowering: Lowering) -> None:
        nonlocal stored
        found = _Nest(lowering, spec, layout, stored).build()
        lowering.changed |= found != stored  # the strides of the destination depend on it
        stored = found

    module, facts = lower(signature, CPU, layout, build)
    assert stored is not None
    return module, facts, stored


class _Nest:
    """One loop nest: a function of its own, because only arguments can be ``noalias``; LLVM inlines it."""

    def __init__(self, lowering: Lowering, spec: ElementwiseSpec, layout: Layout, stored: np.dtype | None) -> None:
        self.lowering, self.spec, self.stored = lowering, spec, stored
        void, pointers = ir.VoidType(), [BYTES] if spec.in_place else [BYTES, BYTES]
        self.body = ir.Function(lowering.module, ir.FunctionType(void, [*pointers, BYTES]), "nest")
        self.body.linkage = "internal"
        self.body.attributes.add("alwaysinline")
        for argument in self.body.args:
            argument.add_attribute("noalias")
        self.builder = ir.IRBuilder(self.body.append_basic_block("entry"))
        self.block = self.body.args[-1]
        self.reader = Reader(lowering.emitter(self.builder), self.block, layout)

    def build(self) -> np.dtype:
        n, read = self.spec.ndim, self.reader.integers
        self.extents, self.start = read("extents", n), read("start", n)
        self.strides = [list(read("source_strides", n)), list(read("destination_strides", n))]
        source, destination = self.body.args[0], self.body.args[0 if self.spec.in_place else 1]
        self._loop(list(self.spec.order), source, destination, {})
        self.builder.ret_void()
        self._entry()
        assert self.stored is not None
        return self.stored

    def _entry(self) -> None:
        function = ir.Function(self.lowering.module, ir.FunctionType(ir.VoidType(), [BYTES]), ENTRY)
        builder = ir.IRBuilder(function.append_basic_block("entry"))
        reader = Reader(self.lowering.emitter(builder), function.args[0], self.reader.layout)
        names = ["source_block"] if self.spec.in_place else ["source_block", "destination_block"]
        callback = self.spec.callback
        flush = callback is not None and all(link.fastmath for link in callback.links)
        restore = flush_subnormals(builder) if flush else None
        builder.call(self.body, [*(reader.pointer(name) for name in names), function.args[0]])
        if restore:
            restore()
        builder.ret_void()

    def _loop(self, axes: list[int], source: ir.Value, destination: ir.Value, index: dict[int, ir.Value]) -> None:
        """Loops over ``axes``, outermost first; ``source`` and ``destination`` have advanced along the axes outside."""
        if not axes:
            self._element(source, destination, index)
            return
        b, axis = self.builder, axes[0]
        before = b.block
        head, body, after = (b.append_basic_block(f"axis{axis}.{part}") for part in ("head", "body", "after"))
        b.branch(head)
        b.position_at_end(head)
        counter = b.phi(I64)
        counter.add_incoming(I64(0), before)
        b.cbranch(b.icmp_signed("<", counter, self.extents[axis]), body, after)
        b.position_at_end(body)
        position = b.add(self.start[axis], counter, flags=("nsw",))
        source, destination = self._advance(source, destination, axis, counter, innermost=len(axes) == 1)
        self._loop(axes[1:], source, destination, {**index, axis: position})
        following = b.add(counter, I64(1), flags=("nsw", "nuw"))
        counter.add_incoming(following, b.block)
        b.branch(head)
        b.position_at_end(after)

    def _advance(
        self, source: ir.Value, destination: ir.Value, axis: int, counter: ir.Value, innermost: bool
    ) -> tuple[ir.Value, ir.Value]:
        """Both pointers moved along an axis; in place they stay one value, so that LLVM sees that nothing overlaps."""
        b = self.builder
        moved = []
        for side, pointer in enumerate((source, destination)[: 1 if self.spec.in_place else 2]):
            dtype = (self.spec.value_dtype, self.stored)[side]
            unit = innermost and self.spec.unit_stride[side] and dtype is not None
            stride = I64(dtype.itemsize) if unit and dtype is not None else self.strides[side][axis]
            moved.append(b.gep(pointer, [b.mul(counter, stride, flags=("nsw",))], inbounds=True))
        return moved[0], moved[-1]

    def _element(self, source: ir.Value, destination: ir.Value, index: dict[int, ir.Value]) -> None:
        emitter = self.lowering.emitter(self.builder)
        value = emitter.load(source, self.spec.value_dtype, invariant=False)
        place = Place(tuple(emitter.integer(index[axis]) for axis in range(self.spec.ndim)))
        result = self.lowering.apply(self.builder, value, place, self.block)
        self.stored = self.spec.result_dtype or self.lowering.result.dtype
        result = self.lowering.require(result, self.stored, "the result", emitter)
        emitter.store(destination, self.stored, result)


def flush_subnormals(builder: ir.IRBuilder) -> Function[[], None] | None:
    """Has this thread flush subnormal numbers to zero, as fastmath allows; gives what restores its mode.

    Intel SDM 1, 10.2.3 (MXCSR: FTZ is bit 15, DAZ bit 6); Arm ARM, FPCR (FZ is bit 24). None on other processors.
    """
    machine = platform.machine().lower()
    if machine in ("x86_64", "amd64"):
        i32 = ir.IntType(32)
        saved, mode = builder.alloca(i32), builder.alloca(i32)
        store, load = (
            _intrinsic(builder, f"llvm.x86.sse.{name}mxcsr", ir.VoidType(), [BYTES]) for name in ("st", "ld")
        )
        builder.call(store, [builder.bitcast(saved, BYTES)])
        builder.store(builder.or_(builder.load(saved), i32(0x8040)), mode)
        builder.call(load, [builder.bitcast(mode, BYTES)])
        return lambda: builder.call(load, [builder.bitcast(saved, BYTES)])
    if machine in ("aarch64", "arm64"):
        before = builder.call(_intrinsic(builder, "llvm.aarch64.get.fpcr", I64, []), [])
        change = _intrinsic(builder, "llvm.aarch64.set.fpcr", ir.VoidType(), [I64])
        builder.call(change, [builder.or_(before, I64(1 << 24))])
        return lambda: builder.call(change, [before])
    return None


def _intrinsic(builder: ir.IRBuilder, name: str, result: ir.Type, arguments: list[ir.Type]) -> ir.Function:
    return ir.Function(builder.module, ir.FunctionType(result, arguments), name)
