"""Where a kernel's lines lie: elements read and written, in memory or by callbacks, and the parameters that tell it."""

from __future__ import annotations

from collections.abc import Callable as Function
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from llvmlite import ir

from mathfuse.device.fft.codelets import FLOAT, Complex
from mathfuse.device.fft.steps import Digits
from mathfuse.fusion.compiler.cuda.blocks import NAME, SLOTS, BlockKernel
from mathfuse.fusion.compiler.cuda.callbacks import llvm_element
from mathfuse.fusion.compiler.cuda.prototypes import cufft_prototype
from mathfuse.fusion.compiler.emit.emitter import BYTES, I8, I32, I64, Emitter, Value
from mathfuse.fusion.compiler.emit.scalars import of_dtype
from mathfuse.fusion.compiler.emit.target import CUDA
from mathfuse.runtime.dtypes import COMPLEX32

FLOAT16: np.dtype = np.dtype(np.float16)
SIDES = ("source", "target")
Parts = tuple[ir.Value, ...]  # of an element: one, or two of a complex one
Reader = Function[["ir.Value"], Parts]


class Place(NamedTuple):
    """What a thread works on: its number among those of a line, the line's in the block, the line, and if it exists."""

    thread: ir.Value
    member: ir.Value
    line: ir.Value
    exists: ir.Value | None


class Sides:
    """The kernel's function, with access to source and target for the line that a thread works on.

    Parameters
    ----------
    kernel
        Which one.
    module
        Where its function is to be.

    Attributes
    ----------
    at : Place
        What the thread works on now.
    """

    at: Place

    def __init__(self, kernel: BlockKernel, module: ir.Module) -> None:
        self.kernel, self.module = kernel, module
        block_type = ir.ArrayType(I64, len(SLOTS)).as_pointer()
        self.function = ir.Function(module, ir.FunctionType(ir.VoidType(), [block_type]), NAME)
        self.function.args[0].add_attribute("byval")
        self.function.args[0].attributes.align = 8
        self.builder = ir.IRBuilder(self.function.append_basic_block("entry"))
        self.component = FLOAT[kernel.bits]
        self._sums: dict[ir.Value, tuple[ir.Value, int]] = {}

    def _offset(self, side: str, element: ir.Value) -> ir.Value:
        """Of an element of the thread's line, in elements from the side's address."""
        b, number = self.builder, SIDES.index(side)
        distance = b.mul(self.at.line, self._slot(f"{side}_distance"))
        if self.kernel.nested[number]:
            line, inner = (b.trunc(each, I32) for each in (self.at.line, self._slot(f"{side}_inner")))
            outer, own = (b.zext(each, I64) for each in (b.udiv(line, inner), b.urem(line, inner)))
            distance = b.mul(own, self._slot(f"{side}_distance"))
            distance = b.add(distance, b.mul(outer, self._slot(f"{side}_outer")))
        tile, stride = self.kernel.tiles[number], self.kernel.strides[number]
        apart = self._slot(f"{side}_stride") if stride is None else I64(stride)
        first, shift = self._sums.get(element, (element, 0))
        if tile == 1:
            along, more = b.mul(first, apart), b.mul(I64(shift), apart)
        else:
            step = self.kernel.steps[number]
            if shift % tile:
                first, shift = element, 0
            along = b.add(b.mul(b.udiv(first, I64(tile)), I64(step)), b.mul(b.urem(first, I64(tile)), apart))
            more = I64(shift // tile * step)
        return b.add(b.add(distance, along), more)

    def _plus(self, value: ir.Value, constant: int) -> ir.Value:
        """A number (i64) more by a constant, which stays known: addresses then have it in the instruction."""
        total = self.builder.add(value, I64(constant)) if constant else value
        self._sums[total] = value, constant
        return total

    def _numbered(self, digits: Digits) -> ir.Value:
        """What digits of the line's number make (i32)."""
        b, line, found = self.builder, self.builder.trunc(self.at.line, I32), I32(0)
        for every, count, weight in digits:
            digit = b.urem(b.udiv(line, I32(every)), I32(count))
            found = b.add(found, b.mul(digit, I32(weight)))
        return found

    def _in_long_line(self, element: ir.Value) -> ir.Value:
        """Which element (i64) of the long line one of a step's line is."""
        b, step = self.builder, self.kernel.step
        assert step is not None
        return b.add(b.mul(element, I64(step.weight)), b.zext(self._numbered(step.number), I64))

    def _spectral(self, element: ir.Value) -> tuple[ir.Value, ir.Value]:
        """The line of a spectrum, and which of its elements one of the thread's line is; all i64."""
        if not self.kernel.step:
            return self.at.line, element
        b, line, ((every, count, _),) = self.builder, self.builder.trunc(self.at.line, I32), self.kernel.step.number
        outer = b.mul(b.udiv(line, I32(every * count)), I32(every))
        return b.zext(b.add(outer, b.urem(line, I32(every))), I64), self._in_long_line(element)

    def _reader(self) -> Reader:
        """What gives an element of the thread's line."""
        b, dtype = self.builder, self.kernel.side(0)
        if self.kernel.half[0]:
            return lambda element: self._read_half(element, COMPLEX32 if dtype.kind == "c" else FLOAT16)
        if not self.kernel.load:
            stored = self._stored_type(dtype)
            source = b.bitcast(self._pointer("source"), stored.as_pointer(1))

            def read(element: ir.Value) -> Parts:
                value = b.load(b.gep(source, [self._offset("source", element)]), align=dtype.itemsize)
                return tuple(b.extract_element(value, I32(k)) for k in (0, 1)) if dtype.kind == "c" else (value,)

            return read
        element_type = llvm_element(self.module, dtype)
        callback = self._callback("prolog", dtype, element_type, [BYTES, I64, BYTES, BYTES])
        data, info = (b.inttoptr(self._slot(name), BYTES) for name in ("source", "load_info"))

        def call(element: ir.Value) -> Parts:
            value = b.call(callback, [data, self._offset("source", element), info, ir.Constant(BYTES, None)])
            return tuple(b.extract_value(value, k) for k in (0, 1)) if dtype.kind == "c" else (value,)

        return call

    def _writer(self) -> Function[[ir.Value, Sequence[ir.Value]], object]:
        """What takes an element of the thread's line."""
        b, dtype = self.builder, self.kernel.side(1)
        if self.kernel.half[1]:
            half = COMPLEX32 if dtype.kind == "c" else FLOAT16
            return lambda element, value: self._write_half(element, value, half)
        if not self.kernel.store:
            stored = self._stored_type(dtype)
            target = b.bitcast(self._pointer("target"), stored.as_pointer(1))

            def write(element: ir.Value, value: Sequence[ir.Value]) -> None:
                made: ir.Value = value[0]
                if dtype.kind == "c":
                    made = ir.Constant(stored, ir.Undefined)
                    for k in (0, 1):
                        made = b.insert_element(made, value[k], I32(k))
                b.store(made, b.gep(target, [self._offset("target", element)]), align=dtype.itemsize)

            return write
        element_type = llvm_element(self.module, dtype)
        callback = self._callback("epilog", dtype, ir.VoidType(), [BYTES, I64, element_type, BYTES, BYTES])
        data, info = (b.inttoptr(self._slot(name), BYTES) for name in ("target", "store_info"))

        def call(element: ir.Value, value: Sequence[ir.Value]) -> None:
            made = self._struct(value, element_type) if dtype.kind == "c" else value[0]
            b.call(callback, [data, self._offset("target", element), made, info, ir.Constant(BYTES, None)])

        return call

    def _stored_type(self, dtype: np.dtype) -> ir.Type:
        return ir.VectorType(self.component, 2) if dtype.kind == "c" else self.component

    def _struct(self, value: Sequence[ir.Value], element: ir.Type) -> ir.Value:
        made = self.builder.insert_value(ir.Constant(element, ir.Undefined), value[0], 0)
        return self.builder.insert_value(made, value[1], 1)

    def _callback(self, side: str, dtype: np.dtype, result: ir.Type, arguments: list[ir.Type]) -> ir.Function:
        return ir.Function(self.module, ir.FunctionType(result, arguments), cufft_prototype(side, dtype).symbol)

    # --- half precision ----------------------------------------------------------------------------------------------

    def _read_half(self, element: ir.Value, dtype: np.dtype) -> Parts:
        return self._emitter().load(self._half_address(0, element), dtype, invariant=False).parts

    def _write_half(self, element: ir.Value, value: Sequence[ir.Value], dtype: np.dtype) -> None:
        made = Value(of_dtype(dtype), tuple(value))
        self._emitter().store(self._half_address(1, element), dtype, made)

    def _half_address(self, number: int, element: ir.Value) -> ir.Value:
        """Of an element of the thread's line in the source (0) or the target (1)."""
        side, size = SIDES[number], (COMPLEX32 if self.kernel.side(number).kind == "c" else FLOAT16).itemsize
        data = self.builder.inttoptr(self._slot(side), BYTES)
        return self._emitter().offset(data, [self._offset(side, element)], [I64(size)])

    def _emitter(self) -> Emitter:
        return Emitter(self.builder, CUDA, fastmath=True, weak_bits=32)

    # --- two real numbers at once ------------------------------------------------------------------------------------

    def _read_pair(self, number: ir.Value) -> Parts:
        b = self.builder
        if self.kernel.half[0]:
            return self._read_half(b.mul(number, I64(2)), COMPLEX32)
        pair = b.load(self._pair_address("source", number), align=self.kernel.dtype.itemsize)
        return b.extract_element(pair, I32(0)), b.extract_element(pair, I32(1))

    def _write_pair(self, number: ir.Value, value: Complex) -> None:
        if self.kernel.half[1]:
            self._write_half(self.builder.mul(number, I64(2)), value, COMPLEX32)
            return
        b, pair = self.builder, ir.Constant(ir.VectorType(self.component, 2), ir.Undefined)
        for k in (0, 1):
            pair = b.insert_element(pair, value[k], I32(k))
        b.store(pair, self._pair_address("target", number), align=self.kernel.dtype.itemsize)

    def _pair_address(self, side: str, element: ir.Value) -> ir.Value:
        """Of two packed numbers."""
        b, pair = self.builder, ir.VectorType(self.component, 2)
        first = b.bitcast(self._pointer(side), self.component.as_pointer(1))
        place = b.gep(first, [self._offset(side, b.mul(element, I64(2)))])
        return b.bitcast(place, pair.as_pointer(1))

    # --- parameters and constants ------------------------------------------------------------------------------------

    def _constant(self, name: str, data: bytes) -> ir.Value:
        """A pointer to bytes that are loaded with the code."""
        kind = ir.ArrayType(I8, len(data))
        constant = ir.GlobalVariable(self.module, kind, name, addrspace=1)
        constant.linkage, constant.global_constant, constant.align = "internal", True, 16
        constant.initializer = ir.Constant(kind, bytearray(data))
        return self.builder.bitcast(constant, I8.as_pointer(1))

    def _slot(self, name: str) -> ir.Value:
        place = self.builder.gep(self.function.args[0], [I32(0), I32(SLOTS.index(name))])
        return self.builder.load(place, align=8)

    def _pointer(self, name: str) -> ir.Value:
        return self.builder.inttoptr(self._slot(name), I8.as_pointer(1))

    def _register(self, name: str) -> ir.Value:
        symbol = f"llvm.nvvm.read.ptx.sreg.{name}.x"
        function = ir.Function(self.module, ir.FunctionType(I32, []), symbol)
        call = self.builder.call(function, [])
        if name == "tid":  # comparisons of what is made of it are often decided by that
            call.set_metadata("range", self.module.add_metadata([I32(0), I32(self.kernel.block.threads)]))
        return call
