"""A block of threads that transforms what its threads hold in registers, emitted as LLVM instructions for NVVM."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

from llvmlite import ir

from mathfuse.device.fft.block import Block
from mathfuse.device.fft.codelets import FLOAT, Arithmetic, Complex
from mathfuse.device.fft.steps import Twiddles, fine
from mathfuse.device.fft.twiddles import places, powers

I8, I32, I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
SHARED = 3  # address space


class BlockFft:
    """Emits transforms of the values that the threads of a block hold.

    A thread holds ``rounds * radix`` values: before a transform those of its butterflies in the first stage, leg r of
    butterfly j being element ``j + r * butterflies``; after it those of its butterflies in the last stage, likewise.
    What it holds for a butterfly that it does not have is of no account.

    Parameters
    ----------
    builder
        Where the instructions go.
    block, bits
        Shape, and width of a component.
    thread, member
        i32: the number of the thread in its transform, and of the transform in the block.
    shared
        Pointer to the block's shared memory.
    twiddles
        Pointer to the table of `~.twiddles.table`, in global memory.
    in_use
        Whether threads may still read what is in shared memory.
    """

    def __init__(
        self,
        builder: ir.IRBuilder,
        block: Block,
        bits: int,
        thread: ir.Value,
        member: ir.Value,
        shared: ir.Value,
        twiddles: ir.Value,
        in_use: bool = False,
    ) -> None:
        self.builder, self.block, self.stages = builder, block, block.stages
        self.arithmetic, self.thread, self.member = Arithmetic(builder, bits), thread, member
        self.pair, self.align = ir.VectorType(FLOAT[bits], 2), bits // 4
        self.shared = builder.bitcast(shared, self.pair.as_pointer(SHARED))
        self.twiddles = builder.bitcast(twiddles, self.pair.as_pointer(1))
        self._in_use = in_use

    def transform(self, values: list[Complex], sign: int) -> list[Complex]:
        """The values of a transform with ``exp(sign * 2πi …)``, unscaled."""
        for stage in range(len(self.stages.radices)):
            if stage:
                values = self._exchanged(values, stage)
            values = self._butterflies(values, stage, sign)
        return values

    # --- butterflies -------------------------------------------------------------------------------------------------

    def _butterflies(self, values: list[Complex], stage: int, sign: int) -> list[Complex]:
        radix, result = self.stages.radices[stage], list[Complex]()
        for number in range(self.stages.rounds(stage)):
            own = values[number * radix : (number + 1) * radix]
            if stage:
                factors = self._factors(stage, number, sign)
                own = [own[0], *(self.arithmetic.multiply(own[leg], factors[leg]) for leg in range(1, radix))]
            result += self.arithmetic.dft(own, sign)
        return result

    def _factors(self, stage: int, number: int, sign: int) -> dict[int, Complex]:
        """The twiddle factor of each leg of the thread's butterfly in a round."""
        b, done, radix = self.builder, self.stages.done(stage), self.stages.radices[stage]
        k = b.urem(self._butterfly(number), I32(done))
        found: dict[int, Complex] = {}
        for row, leg in enumerate(powers(radix)):
            factor = self._root(self.twiddles, b.add(k, I32(places(self.stages)[stage] + row * done)))
            found[leg] = factor if sign < 0 else self.arithmetic.conjugate(factor)
        for leg in range(1, radix):
            if leg not in found:
                high = 1 << leg.bit_length() - 1
                found[leg] = self.arithmetic.multiply(found[high], found[leg - high])
        return found

    def _root(self, table: ir.Value, number: ir.Value) -> Complex:
        """An element (i32) of a table."""
        loaded = self.builder.load(self.builder.gep(table, [number]), align=self.align)
        loaded.set_metadata("invariant.load", self.builder.module.add_metadata([]))
        return self._parts(loaded)

    def _butterfly(self, number: int) -> ir.Value:
        """The number of the thread's butterfly in a round."""
        return self.builder.add(self.thread, I32(number * self.stages.threads)) if number else self.thread

    # --- between two steps of a longer transform ---------------------------------------------------------------------

    def between(
        self, values: list[Complex], sign: int, twiddles: Twiddles, column: ir.Value, tables: Sequence[ir.Value]
    ) -> list[Complex]:
        """The values times the twiddle factors of a line in a column (i32); tables are those of `twiddles`."""
        b, result, places = self.builder, list[Complex](), [fine(count) for _, count in twiddles.roots(self.stages)]
        stage = 0 if twiddles.first else len(self.stages.radices) - 1
        radix = self.stages.radices[stage]

        def factor(which: int, number: ir.Value) -> Complex:
            table, each = b.bitcast(tables[which], self.pair.as_pointer(1)), places[which]
            low = self._root(table, b.and_(number, I32(each - 1)))
            high = self._root(table, b.add(b.lshr(number, I32(each.bit_length() - 1)), I32(each)))
            found = self.arithmetic.multiply(low, high)
            return found if sign < 0 else self.arithmetic.conjugate(found)

        legs = {leg: factor(1, b.mul(column, I32(leg))) for leg in powers(radix)}

        def turn(own: list[Complex], leg: int, found: Complex, bit: int) -> None:
            """All legs with the bits of `leg` above `bit`: depth first, so that few factors are held at once."""
            if not bit:
                own[leg] = self.arithmetic.multiply(own[leg], found)
                return
            turn(own, leg, found, bit >> 1)
            if leg + bit < radix:
                turn(own, leg + bit, self.arithmetic.multiply(found, legs[bit]), bit >> 1)

        for number in range(self.stages.rounds(stage)):
            j = self._butterfly(number)
            if not self.stages.whole(stage, number):
                j = b.select(self._has(stage, number), j, I32(0))
            own = values[number * radix : (number + 1) * radix]
            turn(own, 0, factor(0, b.mul(column, j)), max(legs, default=0))
            result += own
        return result

    # --- exchanges ---------------------------------------------------------------------------------------------------

    def _exchanged(self, values: list[Complex], stage: int) -> list[Complex]:
        """What the butterflies of a stage begin with, from the results of those of the stage before."""
        self._put(values, stage - 1)
        self.barrier()
        return self._taken(stage)

    def put(self, values: list[Complex]) -> None:
        """Write the values of a transform's result to shared memory, in order."""
        self._put(values, len(self.stages.radices) - 1)
        self.barrier()

    def taken(self) -> list[Complex]:
        """The values with which a transform begins, from shared memory; the caller has let all threads write."""
        self._in_use = True
        return self._taken(0)

    def read(self, element: ir.Value) -> Complex:
        """An element (i32) in shared memory, in order."""
        return self._parts(self.builder.load(self._place(element), align=self.align))

    def write(self, element: ir.Value, value: Complex) -> None:
        """An element (i32) to shared memory, in order."""
        self.builder.store(self._vector(value), self._place(element), align=self.align)

    def barrier(self) -> None:
        """Wait for all threads of the block."""
        module, name = self.builder.module, "llvm.nvvm.barrier0"
        function = module.globals.get(name)
        if function is None:
            function = ir.Function(module, ir.FunctionType(ir.VoidType(), []), name)
            function.attributes.add("convergent")
        self.builder.call(function, [])

    def _put(self, values: list[Complex], stage: int) -> None:
        """Write the results of a stage's butterflies to where the next stage reads them in order."""
        b, radix, done = self.builder, self.stages.radices[stage], self.stages.done(stage)
        exchange = self.block.exchanges[stage]
        if self._in_use:
            self.barrier()
        self._in_use = True
        for number in range(self.stages.rounds(stage)):
            j = self._butterfly(number)
            period = b.mul(b.udiv(j, I32(done)), I32(exchange.period + exchange.pad))
            first = self._place(b.add(period, b.urem(j, I32(done))))
            with nullcontext() if self.stages.whole(stage, number) else b.if_then(self._has(stage, number)):
                for leg, value in enumerate(values[number * radix : (number + 1) * radix]):
                    b.store(self._vector(value), self._from(first, leg * done), align=self.align)

    def _taken(self, stage: int) -> list[Complex]:
        """What the butterflies of a stage begin with, from shared memory."""
        b, radix, count, result = self.builder, self.stages.radices[stage], self.stages.butterflies(stage), []
        exchange = self.block.exchanges[stage - 1]  # before the first stage they are in order, as after the last
        for number in range(self.stages.rounds(stage)):
            j = self._butterfly(number)
            if not self.stages.whole(stage, number):
                j = b.select(self._has(stage, number), j, I32(0))
            skipped = b.mul(b.udiv(j, I32(exchange.period)), I32(exchange.pad))
            first = self._place(b.add(j, skipped))
            places = [self._from(first, exchange.place(leg * count)) for leg in range(radix)]
            result += [self._parts(b.load(place, align=self.align)) for place in places]
        return result

    def _has(self, stage: int, number: int) -> ir.Value:
        """Whether the thread has a butterfly in a round."""
        return self.builder.icmp_unsigned("<", self._butterfly(number), I32(self.stages.butterflies(stage)))

    def _place(self, element: ir.Value) -> ir.Value:
        """The address of a place (i32) of the thread's transform in shared memory."""
        b, count = self.builder, self.block.transforms
        if self.block.interleaved:
            element = b.add(b.mul(element, I32(count)), self.member)
        elif count > 1:
            element = b.add(element, b.mul(self.member, I32(self.block.pitch)))
        return b.gep(self.shared, [element])

    def _from(self, first: ir.Value, distance: int) -> ir.Value:
        """The address so many places of a transform from another one."""
        return self.builder.gep(first, [I32(distance * (self.block.transforms if self.block.interleaved else 1))])

    def _parts(self, pair: ir.Value) -> Complex:
        return self.builder.extract_element(pair, I32(0)), self.builder.extract_element(pair, I32(1))

    def _vector(self, value: Complex) -> ir.Value:
        pair: ir.Value = ir.Constant(self.pair, ir.Undefined)
        for k in (0, 1):
            pair = self.builder.insert_element(pair, value[k], I32(k))
        return pair
