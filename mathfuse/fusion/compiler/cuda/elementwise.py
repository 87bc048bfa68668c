"""A kernel of its own around a callback: tiles of several vectors a thread, then what is left one by one."""

from __future__ import annotations

from collections.abc import Callable as Function
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
from llvmlite import ir

from mathfuse.fusion.compiler.cuda.decoding import Decoder
from mathfuse.fusion.compiler.cuda.elements import Element, build_element, guarded, within
from mathfuse.fusion.compiler.cuda.tiling import THREADS, Tile, tile_of
from mathfuse.fusion.compiler.cuda.vectors import load_vector, store_vector
from mathfuse.fusion.compiler.emit.emitter import BYTES, I32, I64, Value
from mathfuse.fusion.compiler.emit.scalars import of_dtype
from mathfuse.fusion.compiler.reader import Reader

if TYPE_CHECKING:
    from mathfuse.fusion.compiler.cuda.units import Unit
    from mathfuse.fusion.compiler.lowering import Lowering

Index = tuple[Value, ...]


def build_elementwise_kernel(lowering: Lowering, unit: Unit) -> tuple[np.dtype, int]:
    """The kernel ``name(block)``, the block by value; gives the dtype stored and the elements of a tile."""
    block_type = ir.ArrayType(I64, lowering.layout.size).as_pointer()
    element = build_element(lowering, unit, block_type)
    function = ir.Function(lowering.module, ir.FunctionType(ir.VoidType(), [block_type]), unit.name)
    function.args[0].add_attribute("byval")
    function.args[0].attributes.align = 8
    mark_kernel(lowering.module, function)
    lanes = unit.vector if unit.flat and not unit.padded else 1
    tile = tile_of(lanes, element.size, unit.signature.value_dtype.itemsize)
    _Kernel(lowering, unit, function, element, tile).build()
    return element.stored, tile.elements


def mark_kernel(module: ir.Module, function: ir.Function, threads: int = THREADS, registers: int | None = None) -> None:
    """Makes a function a kernel, bounds its threads, maybe their registers, and keeps the linker from dropping it."""
    bounds = [("kernel", 1), ("maxntidx", threads), *([("maxnreg", registers)] if registers else [])]
    for name, number in bounds:
        module.add_named_metadata("nvvm.annotations", module.add_metadata([function, name, I32(number)]))
    kept = ir.GlobalVariable(module, ir.ArrayType(BYTES, 1), "llvm.used")
    kept.linkage, kept.section = "appending", "llvm.metadata"
    kept.initializer = ir.Constant(kept.value_type, [function.bitcast(BYTES)])


class _Kernel:
    """The body of a kernel. Elements have numbers, counted along the axes in the order of the destination."""

    def __init__(self, lowering: Lowering, unit: Unit, function: ir.Function, element: Element, tile: Tile) -> None:
        self.unit, self.element, self.tile, self.signature = unit, element, tile, unit.signature
        self.builder = ir.IRBuilder(function.append_basic_block("entry"))
        self.emitter = lowering.emitter(self.builder)
        self.block = function.args[0]
        self.reader = Reader(self.emitter, self.builder.bitcast(self.block, BYTES), lowering.layout)
        order = unit.order or tuple(range(self.signature.ndim))
        self.decoder, self.innermost = Decoder(self.reader, order, unit.wide, dense=True), order[-1]
        self.bits = 64 if unit.wide else 32
        self.integer = ir.IntType(self.bits)

    def build(self) -> None:
        b = self.builder
        self.source, self.destination = (self.reader.pointer(f"{name}_block") for name in ("source", "destination"))
        thread, group, groups = (self._register(name) for name in ("tid", "ctaid", "nctaid"))
        count = self.emitter.resized(self.reader.integers("count")[0], self.bits)
        whole = b.and_(count, self.integer(-self.tile.elements))
        first, step = (b.mul(n, self.integer(self.tile.elements)) for n in (group, groups))
        with self._counting(first, whole, step) as start:
            lanes, between = self.integer(self.tile.lanes), THREADS * self.tile.lanes
            own = b.add(start, b.mul(thread, lanes))
            self._elements([b.add(own, self.integer(k * between)) for k in range(self.tile.groups)], self.tile.lanes)
        last = b.sub(b.sub(groups, self.integer(1)), group)  # the rest is for blocks that have the fewest tiles
        rest = b.add(whole, b.add(b.mul(last, self.integer(THREADS)), thread))
        with self._counting(rest, count, b.mul(groups, self.integer(THREADS))) as number:
            self._elements([number], 1)
        b.ret_void()

    def _register(self, name: str) -> ir.Value:
        return self.emitter.resized(self.emitter.call(f"llvm.nvvm.read.ptx.sreg.{name}.x", I32, []), self.bits)

    @contextmanager
    def _counting(self, first: ir.Value, end: ir.Value, step: ir.Value) -> Iterator[ir.Value]:
        """The body of a loop from ``first`` to before ``end``."""
        b, before = self.builder, self.builder.block
        head, body, after = (b.append_basic_block(name) for name in ("head", "body", "after"))
        b.branch(head)
        b.position_at_end(head)
        counter = b.phi(self.integer)
        counter.add_incoming(first, before)
        b.cbranch(b.icmp_unsigned("<", counter, end), body, after)
        b.position_at_end(body)
        yield counter
        counter.add_incoming(b.add(counter, step), b.block)
        b.branch(head)
        b.position_at_end(after)

    def _elements(self, numbers: list[ir.Value], lanes: int) -> None:
        """Loads ``lanes`` neighbours of each number, then evaluates, then stores: loads overlap."""
        places = [self._indices(number, lanes) for number in numbers]
        loaded = [self._load(number, indices) for number, indices in zip(numbers, places)]
        results = [[self._evaluate(*pair) for pair in zip(values, indices)] for values, indices in zip(loaded, places)]
        for number, indices, values in zip(numbers, places, results):
            address = self._address("destination", self.destination, number, indices[0], self.element.stored)
            store_vector(self.emitter, address, self.element.stored, values)

    def _indices(self, number: ir.Value, lanes: int) -> list[Index]:
        """The multi-indices of neighbours; whole rows are decoded once."""
        b = self.builder
        if not self.unit.whole_rows:
            return [self._index(b.add(number, self.integer(k)) if k else number) for k in range(lanes)]
        index, axis = self._index(number), self.innermost
        first = self.emitter.resized(index[axis].parts[0], self.bits)
        following = [b.add(first, self.integer(k), flags=("nuw", "nsw")) for k in range(1, lanes)]
        along = [index[axis], *(self.emitter.integer(self.emitter.resized(last, 64)) for last in following)]
        return [(*index[:axis], last, *index[axis + 1 :]) for last in along]

    def _index(self, number: ir.Value) -> Index:
        return self.decoder.index(self.emitter.resized(number, 64))

    def _load(self, number: ir.Value, indices: list[Index]) -> list[Value]:
        dtype, invariant = self.signature.value_dtype, not self.unit.in_place
        address = self._address("source", self.source, number, indices[0], dtype)
        if not self.unit.padded:
            return load_vector(self.emitter, address, dtype, len(indices), invariant)
        load: Function[[], Value] = lambda: self.emitter.load(address, dtype, invariant)  # noqa: E731
        return [guarded(self.emitter, self._inside(indices[0]), of_dtype(dtype), load)]

    def _evaluate(self, value: Value, index: Index) -> Value:
        def call() -> Value:
            return self.element.call(self.emitter, self.block, value, index)

        if not self.unit.padded:
            return call()
        return guarded(self.emitter, self._inside(index), of_dtype(self.element.stored), call)

    def _inside(self, index: Index) -> ir.Value:
        return within(self.emitter, index, dict(enumerate(self.reader.integers("limits", self.signature.ndim))))

    def _address(self, side: str, pointer: ir.Value, number: ir.Value, index: Index, dtype: np.dtype) -> ir.Value:
        """Of an element on one side."""
        if self.unit.flat:
            return self.emitter.offset(pointer, [self.emitter.resized(number, 64)], [I64(dtype.itemsize)])
        strides = list(self.reader.integers(f"{side}_strides", self.signature.ndim))
        return self.emitter.offset(pointer, [position.parts[0] for position in index], strides)
