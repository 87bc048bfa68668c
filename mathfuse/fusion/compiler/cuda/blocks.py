"""Kernels that transform one axis, a block of threads several lines, with cuFFT's callbacks linked into both sides.

The kernel is code of its own, kept apart from the callbacks: a new one costs its own lowering and a link. It calls them
by cuFFT's prototypes, so that what cuFFT inlines serves here as well.
"""

from __future__ import annotations

from collections.abc import Callable as Function
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from llvmlite import ir

from mathfuse.device.fft.block import SHARED, Block, BlockFft
from mathfuse.device.fft.codelets import FLOAT, Complex
from mathfuse.device.fft.twiddles import table
from mathfuse.fusion.compiler.cuda import toolchain
from mathfuse.fusion.compiler.cuda.callbacks import llvm_element
from mathfuse.fusion.compiler.cuda.elementwise import mark_kernel
from mathfuse.fusion.compiler.cuda.prototypes import cufft_prototype, transfer_prototype
from mathfuse.fusion.compiler.emit.emitter import BYTES, I8, I32, I64
from mathfuse.fusion.compiler.emit.target import CUDA
from mathfuse.fusion.compiler.key import library_digest
from mathfuse.runtime.cache import Artifact, default_store

NAME = "mathfuse_block_fft"
# What its parameter, an array of int64 that is passed by value, holds; strides and distances in elements.
SLOTS = (
    *("source", "target", "load_info", "transfer_info", "store_info", "twiddles", "batch"),
    *("source_stride", "source_distance", "target_stride", "target_distance"),
)


@dataclass(frozen=True)
class BlockKernel:
    """A kernel for complex transforms of one axis, or filters along it, of any batch and strides.

    Parameters
    ----------
    block
        How many lines a block of threads transforms, and how.
    double
        Whether in float64.
    forward
        The sign of the exponent.
    load, store
        Whether a callback of cuFFT's prototype gives, and takes, the elements.
    transfer
        A filter: forward, a callback on each element of the spectrum, and back, unscaled.
    dense
        Whether elements of a line are neighbours, in the source and in the target.
    arch
        GPU architecture.
    """

    block: Block
    double: bool
    forward: bool
    load: bool
    store: bool
    transfer: bool
    dense: tuple[bool, bool]
    arch: str

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.complex128 if self.double else np.complex64)

    @property
    def shared_bytes(self) -> int:
        return self.block.shared_bytes(self.double)

    def table(self) -> npt.NDArray[np.complexfloating]:
        """What the slot ``twiddles`` leads to."""
        stages = self.block.stages
        parts = [table(each, self.double) for each in (stages, *([stages.backward] if self.transfer else []))]
        return np.concatenate(parts)

    def blocks(self, batch: int) -> int:
        """Blocks of a launch."""
        return -(-batch // self.block.transforms)

    def lower(self) -> str:
        """The LLVM module as text."""
        module = ir.Module(name="mathfuse", context=ir.Context())
        module.triple, module.data_layout = CUDA.triple, CUDA.data_layout
        _Body(self, module).build()
        return str(module)

    def ltoir(self) -> bytes:
        def make() -> Artifact:
            return Artifact(toolchain.nvvm(self.lower(), self.arch, lto=True, fastmath=True), {})

        return default_store().get_or_make(self._key("ltoir"), make, f"{NAME} of {self.block.stages.length}").payload

    def link(self, callbacks: Sequence[bytes]) -> tuple[bytes, str]:
        """The cubin with the LTO-IR of its callbacks, and the linker's report."""
        return toolchain.link([self.ltoir(), *callbacks], self.arch)

    def _key(self, what: str) -> str:
        return f"{what} of {self!r}; target={toolchain.identity()}; library={library_digest()}"


class _Body:
    """The body of a kernel. Each thread loads, transforms and stores its share of one line."""

    def __init__(self, kernel: BlockKernel, module: ir.Module) -> None:
        self.kernel, self.module, self.block, self.stages = kernel, module, kernel.block, kernel.block.stages
        block_type = ir.ArrayType(I64, len(SLOTS)).as_pointer()
        self.function = ir.Function(module, ir.FunctionType(ir.VoidType(), [block_type]), NAME)
        self.function.args[0].add_attribute("byval")
        self.function.args[0].attributes.align = 8
        mark_kernel(module, self.function, self.block.threads)
        self.builder = ir.IRBuilder(self.function.append_basic_block("entry"))
        self.component, self.element = FLOAT[64 if kernel.double else 32], llvm_element(module, kernel.dtype)

    def build(self) -> None:
        b, count = self.builder, self.block.transforms
        thread, group = (self._register(name) for name in ("tid", "ctaid"))
        if self.block.across:
            member, thread = b.urem(thread, I32(count)), b.udiv(thread, I32(count))
        else:
            member, thread = b.udiv(thread, I32(self.stages.threads)), b.urem(thread, I32(self.stages.threads))
        self.thread = thread
        self.line = b.add(b.mul(b.zext(group, I64), I64(count)), b.zext(member, I64))
        self.exists = b.icmp_unsigned("<", self.line, self._slot("batch")) if count > 1 else None
        shared = ir.GlobalVariable(self.module, ir.ArrayType(I8, 0), "mathfuse_shared", addrspace=SHARED)
        shared.linkage, shared.align = "external", 16
        place = 64 if self.kernel.double else 32, thread, member, shared
        twiddles = self._pointer("twiddles")
        values = self._load()
        values = BlockFft(b, self.block, *place, twiddles).transform(values, -1 if self.kernel.forward else 1)
        if self.kernel.transfer:
            values = self._transferred(values)
            self.stages = self.stages.backward
            back = replace(self.block, stages=self.stages)
            twiddles = b.gep(twiddles, [I64(table(back.stages.backward, self.kernel.double).nbytes)])
            values = BlockFft(b, back, *place, twiddles, in_use=True).transform(values, 1)
        self._store(values)
        b.ret_void()

    # --- both sides --------------------------------------------------------------------------------------------------

    def _load(self) -> list[Complex]:
        read = self._reader()
        result: list[Complex] = []
        for number in range(self.stages.rounds(0)):
            offsets = self._offsets("source", 0, number)

            def load(offsets: list[ir.Value] = offsets) -> list[Complex]:
                return [read(offset) for offset in offsets]

            result += self._where(self._condition(0, number), load)
        return result

    def _transferred(self, values: list[Complex]) -> list[Complex]:
        """What the callback makes of each element of the spectrum, which is dense."""
        b, last, result = self.builder, len(self.stages.radices) - 1, list[Complex]()
        radix, count = self.stages.radices[last], self.stages.butterflies(last)
        name = transfer_prototype(self.kernel.dtype).symbol
        callback = ir.Function(self.module, ir.FunctionType(self.element, [self.element, I64, BYTES]), name)
        info, line = b.inttoptr(self._slot("transfer_info"), BYTES), b.mul(self.line, I64(self.stages.length))
        for number in range(self.stages.rounds(last)):
            first = b.add(line, b.zext(b.add(self.thread, I32(number * self.stages.threads)), I64))

            def apply(number: int = number, first: ir.Value = first) -> list[Complex]:
                made = []
                for leg, value in enumerate(values[number * radix : (number + 1) * radix]):
                    found = b.call(callback, [self._struct(value), b.add(first, I64(leg * count)), info])
                    made.append((b.extract_value(found, 0), b.extract_value(found, 1)))
                return made

            result += self._where(self._condition(last, number), apply)
        return result

    def _store(self, values: list[Complex]) -> None:
        write, last = self._writer(), len(self.stages.radices) - 1
        radix = self.stages.radices[last]
        for number in range(self.stages.rounds(last)):
            own = values[number * radix : (number + 1) * radix]
            offsets = self._offsets("target", last, number)

            def store(own: list[Complex] = own, offsets: list[ir.Value] = offsets) -> list[Complex]:
                for offset, value in zip(offsets, own):
                    write(offset, value)
                return []

            self._where(self._condition(last, number), store)

    def _offsets(self, side: str, stage: int, number: int) -> list[ir.Value]:
        """Of the elements of the thread's butterfly in a round, in elements from the side's address."""
        b, radix, count = self.builder, self.stages.radices[stage], self.stages.butterflies(stage)
        dense = self.kernel.dense[side == "target"]
        stride = I64(1) if dense else self._slot(f"{side}_stride")
        line = b.mul(self.line, self._slot(f"{side}_distance"))
        first = b.zext(b.add(self.thread, I32(number * self.stages.threads)), I64)
        return [b.add(line, b.mul(b.add(first, I64(leg * count)), stride)) for leg in range(radix)]

    def _condition(self, stage: int, number: int) -> ir.Value | None:
        """Whether the thread has a butterfly in a round, of a line that exists; None where all have."""
        b, condition = self.builder, self.exists
        if not self.stages.whole(stage, number):
            own = b.add(self.thread, I32(number * self.stages.threads))
            has = b.icmp_unsigned("<", own, I32(self.stages.butterflies(stage)))
            condition = b.and_(condition, has) if condition else has
        return condition

    def _where(self, condition: ir.Value | None, compute: Function[[], list[Complex]]) -> list[Complex]:
        """What is computed where the condition holds, and zeros elsewhere."""
        if condition is None:
            return compute()
        b, before = self.builder, self.builder.block
        with b.if_then(condition):
            values, last = compute(), b.block
        merged: list[Complex] = []
        for value in values:
            phis = []
            for part in value:
                phi = b.phi(self.component)
                phi.add_incoming(part, last)
                phi.add_incoming(ir.Constant(self.component, 0.0), before)
                phis.append(phi)
            merged.append((phis[0], phis[1]))
        return merged

    def _reader(self) -> Function[[ir.Value], Complex]:
        """What gives the element at an offset."""
        b = self.builder
        if not self.kernel.load:
            pair = ir.VectorType(self.component, 2)
            source = b.bitcast(self._pointer("source"), pair.as_pointer(1))

            def read(offset: ir.Value) -> Complex:
                value = b.load(b.gep(source, [offset]), align=self.kernel.dtype.itemsize)
                return b.extract_element(value, I32(0)), b.extract_element(value, I32(1))

            return read
        callback = self._callback("prolog", self.element, [BYTES, I64, BYTES, BYTES])
        data, info = (b.inttoptr(self._slot(name), BYTES) for name in ("source", "load_info"))

        def call(offset: ir.Value) -> Complex:
            value = b.call(callback, [data, offset, info, ir.Constant(BYTES, None)])
            return b.extract_value(value, 0), b.extract_value(value, 1)

        return call

    def _writer(self) -> Function[[ir.Value, Complex], object]:
        """What takes the element at an offset."""
        b = self.builder
        if not self.kernel.store:
            pair = ir.VectorType(self.component, 2)
            target = b.bitcast(self._pointer("target"), pair.as_pointer(1))

            def write(offset: ir.Value, value: Complex) -> None:
                made = b.insert_element(ir.Constant(pair, ir.Undefined), value[0], I32(0))
                made = b.insert_element(made, value[1], I32(1))
                b.store(made, b.gep(target, [offset]), align=self.kernel.dtype.itemsize)

            return write
        callback = self._callback("epilog", ir.VoidType(), [BYTES, I64, self.element, BYTES, BYTES])
        data, info = (b.inttoptr(self._slot(name), BYTES) for name in ("target", "store_info"))

        def call(offset: ir.Value, value: Complex) -> None:
            b.call(callback, [data, offset, self._struct(value), info, ir.Constant(BYTES, None)])

        return call

    def _struct(self, value: Complex) -> ir.Value:
        made = self.builder.insert_value(ir.Constant(self.element, ir.Undefined), value[0], 0)
        return self.builder.insert_value(made, value[1], 1)

    def _callback(self, side: str, result: ir.Type, arguments: list[ir.Type]) -> ir.Function:
        prototype = ir.FunctionType(result, arguments)
        return ir.Function(self.module, prototype, cufft_prototype(side, self.kernel.dtype).symbol)

    # --- parameters --------------------------------------------------------------------------------------------------

    def _slot(self, name: str) -> ir.Value:
        place = self.builder.gep(self.function.args[0], [I32(0), I32(SLOTS.index(name))])
        return self.builder.load(place, align=8)

    def _pointer(self, name: str) -> ir.Value:
        return self.builder.inttoptr(self._slot(name), I8.as_pointer(1))

    def _register(self, name: str) -> ir.Value:
        symbol = f"llvm.nvvm.read.ptx.sreg.{name}.x"
        function = ir.Function(self.module, ir.FunctionType(I32, []), symbol)
        return self.builder.call(function, [])
