"""The body of a kernel that transforms in a block: each thread loads, transforms and stores its share of one line."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable as Function
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from llvmlite import ir

from mathfuse.device.fft import real
from mathfuse.device.fft.codelets import Complex
from mathfuse.device.fft.generator import SHARED, BlockFft
from mathfuse.device.fft.shapes import most_registers, registers
from mathfuse.fusion.compiler.cuda.blocks import UNBOUND, BlockKernel
from mathfuse.fusion.compiler.cuda.blocksides import Parts, Place, Reader, Sides
from mathfuse.fusion.compiler.cuda.callbacks import llvm_element
from mathfuse.fusion.compiler.cuda.elementwise import mark_kernel
from mathfuse.fusion.compiler.cuda.prototypes import transfer_prototype
from mathfuse.fusion.compiler.emit.emitter import BYTES, I8, I32, I64

GROUP = 4  # elements that a callback in need of many registers is applied to at once
T = TypeVar("T")
Rounds = Iterable[tuple["ir.Value | None", list[tuple["ir.Value", Complex]]]]
Pair = tuple[Complex, Complex]  # elements k and length / 2 - k of a spectrum


class Element(NamedTuple):
    """The number of an element in its line, as the code has it, and the least and the largest that it may be."""

    number: ir.Value
    low: int
    high: int

    def times(self, b: ir.IRBuilder, factor: int, more: int = 0) -> Element:
        number = b.mul(self.number, I64(factor))
        return Element(
            b.add(number, I64(more)) if more else number, self.low * factor + more, self.high * factor + more
        )


class Body(Sides):
    """Emits a kernel: which one, and in what module."""

    def __init__(self, kernel: BlockKernel, module: ir.Module) -> None:
        super().__init__(kernel, module)
        self.stages = kernel.block.stages
        wanted = registers(self.stages, kernel.double, kernel.slack) if kernel.slack < UNBOUND else None
        most = min(wanted, most_registers(kernel.block.threads)) if wanted else None
        mark_kernel(module, self.function, kernel.block.threads, most)
        self._divide_threads()
        shared = ir.GlobalVariable(module, ir.ArrayType(I8, 0), "mathfuse_shared", addrspace=SHARED)
        shared.linkage, shared.align = "external", 16
        self.tables = [self._constant(f"twiddles_{k}", each.tobytes()) for k, each in enumerate(kernel.tables)]
        self._place = kernel.bits, self.at.thread, self.at.member, shared
        self.fft = BlockFft(self.builder, kernel.block, *self._place, self.tables[0])

    def build(self) -> None:
        kernel, forward, backward = self.kernel, -1 if self.kernel.forward else 1, 1 if self.kernel.forward else -1
        if kernel.packed and kernel.real[0]:
            values = self._split(self.fft.transform(self._load(), forward))
        elif kernel.packed:
            values = self._load_pairs()
        else:
            values = self._between(self.fft.transform(self._between(self._load(), first=True), forward), first=False)
        if kernel.transfer:
            values = self._transferred(values)
            self.stages = self.stages.backward
            block = replace(kernel.block, stages=self.stages)
            self.fft = BlockFft(self.builder, block, *self._place, self.tables[1], in_use=kernel.exchanges)
        if kernel.packed and kernel.real[1]:
            self._store(self.fft.transform(self._merged(values), backward if kernel.transfer else forward))
        elif kernel.packed:
            self._store_pairs(values)
        else:
            self._store(self.fft.transform(values, backward) if kernel.transfer else values)
        self.builder.ret_void()

    def _between(self, values: list[Complex], first: bool) -> list[Complex]:
        """The values times the twiddle factors between steps, if these are to come before the transform, or after."""
        step = self.kernel.step
        if not step or not step.twiddles or step.twiddles.first != first:
            return values
        sign = -1 if self.kernel.forward else 1
        return self.fft.between(values, sign, step.twiddles, self._numbered(step.number), self.tables[-2:])

    def _divide_threads(self) -> None:
        """Which line the thread works on, and as which of its threads."""
        block = self.kernel.block
        thread, group = (self._register(name) for name in ("tid", "ctaid"))
        self._own, self._across = (self._dealt(thread, group, across) for across in (block.across, True))
        self.at = self._own

    def _dealt(self, thread: ir.Value, group: ir.Value, across: bool) -> Place:
        """Its place if neighbours work on neighbouring lines, after neighbouring elements of a tile, or on one line."""
        b, block = self.builder, self.kernel.block
        if across:
            high, low = b.udiv(thread, I32(block.tile)), b.urem(thread, I32(block.tile))
            member, own = b.urem(high, I32(block.transforms)), b.udiv(high, I32(block.transforms))
            own = b.add(b.mul(own, I32(block.tile)), low)
        else:
            member, own = b.udiv(thread, I32(self.stages.threads)), b.urem(thread, I32(self.stages.threads))
        line = b.add(b.mul(b.zext(group, I64), I64(block.transforms)), b.zext(member, I64))
        exists = b.icmp_unsigned("<", line, self._slot("batch")) if block.transforms > 1 else None
        return Place(own, member, line, exists)

    def _turn(self, there: bool) -> None:
        """To the side of the spectrum, or back, where neighbouring threads work on neighbouring lines there."""
        if self.kernel.block.turned:
            self.at = self._across if there else self._own
            self.fft.thread, self.fft.member = self.at.thread, self.at.member

    # --- elements ----------------------------------------------------------------------------------------------------

    def _load(self) -> list[Complex]:
        """The values with which a transform begins."""
        read = self._reader()
        rounds = [(self._condition(0, number), self._elements(0, number)) for number in range(self.stages.rounds(0))]
        return self._in_groups(rounds, lambda elements: [self._loaded(read, element) for element in elements])

    def _loaded(self, read: Reader, element: Element) -> Complex:
        """One value of a transform: of real lines two elements, or one beside 0; of half a spectrum either half."""
        b, zero, number = self.builder, ir.Constant(self.component, 0.0), element.number
        if self.kernel.packed and self.kernel.paired[0] and not self.kernel.load:
            return self._given(self._read_pair, element, 2)
        if self.kernel.packed:
            low, high = (self._given(read, element.times(b, 2, more)) for more in (0, 1))
            return low[0], high[0]
        if self.kernel.real[0]:
            return self._given(read, element)[0], zero
        if not self.kernel.real[1]:
            return self._given(read, element)
        value = self._given(read, Element(self._kept(number), 0, self.kernel.spectrum - 1))
        real_part, imaginary = self._mirrored(number, value)
        return real_part, b.select(b.icmp_unsigned("==", number, I64(0)), zero, imaginary)

    def _given(self, read: Reader, element: Element, each: int = 1) -> Complex:
        """What is read, `each` elements at once; 0 beyond those that the source has."""
        b, zero, given = self.builder, ir.Constant(self.component, 0.0), self.kernel.present[0]

        def value(number: ir.Value) -> Complex:
            parts = read(number)
            return parts[0], parts[1] if len(parts) > 1 else zero

        place = self._whole(element)
        if given is None or place.high < given // each:
            return value(element.number)
        if place.low >= given // each:
            return zero, zero
        inside = b.icmp_unsigned("<", place.number, I64(given // each))
        if self.kernel.load or self.kernel.step:  # of a step's line there may be no element at all
            return self._where(inside, lambda: [value(element.number)])[0]
        found = value(b.select(inside, element.number, I64(0)))  # no branch, so that loads overlap
        return b.select(inside, found[0], zero), b.select(inside, found[1], zero)

    def _whole(self, element: Element) -> Element:
        """The same as an element of the long line, of which a step's is a part."""
        step = self.kernel.step
        if not step or self.kernel.present == (None, None):
            return element
        high = element.high * step.weight + step.weight - 1
        return Element(self._in_long_line(element.number), element.low * step.weight, high)

    def _store(self, values: list[Complex]) -> None:
        """The values with which a transform ends."""
        write, last = self._writer(), len(self.stages.radices) - 1
        radix = self.stages.radices[last]

        def store(pairs: list[tuple[Element, Complex]]) -> list[Complex]:
            for element, value in pairs:
                self._stored(write, element, value)
            return []

        rounds = []
        for number in range(self.stages.rounds(last)):
            own = values[number * radix : (number + 1) * radix]
            rounds.append((self._condition(last, number), list(zip(self._elements(last, number), own))))
        self._in_groups(rounds, store)

    def _stored(self, write: Function[[ir.Value, Parts], object], element: Element, value: Complex) -> None:
        b, kept = self.builder, self.kernel.present[1]
        if self.kernel.packed and self.kernel.paired[1] and not self.kernel.store:
            if inside := self._until(element, None if kept is None else kept // 2):
                with inside:
                    self._write_pair(element.number, value)
            return
        parts: list[tuple[Element, Parts]] = [(element, value[:1] if self.kernel.real[1] else value)]
        if self.kernel.packed:
            parts = [(element.times(b, 2), value[:1]), (element.times(b, 2, 1), value[1:])]
        half = self.kernel.spectrum if self.kernel.real[0] and not self.kernel.real[1] else None
        for place, part in parts:
            if inside := self._until(self._whole(place), half if kept is None else kept):
                with inside:
                    write(place.number, part)

    def _until(self, element: Element, count: int | None) -> AbstractContextManager[Any] | None:
        """A context for code on elements below a count, of which None has no end; None if it is none of them."""
        if count is None or element.high < count:
            return nullcontext()
        if element.low >= count:
            return None
        return self.builder.if_then(self.builder.icmp_unsigned("<", element.number, I64(count)))

    def _elements(self, stage: int, number: int) -> list[Element]:
        """The elements of the thread's butterfly in a round."""
        count, threads = self.stages.butterflies(stage), self.stages.threads
        thread, least, most = (
            self.builder.zext(self.at.thread, I64),
            number * threads,
            min((number + 1) * threads, count) - 1,
        )
        return [
            Element(self._plus(thread, least + leg * count), least + leg * count, most + leg * count)
            for leg in range(self.stages.radices[stage])
        ]

    def _number(self, number: int) -> ir.Value:
        """The number of what the thread has in a round, if all threads have one each."""
        return self.builder.add(self.at.thread, I32(number * self.stages.threads))

    def _condition(self, stage: int, number: int) -> ir.Value | None:
        """Whether the thread has a butterfly in a round, of a line that exists; None where all have."""
        return self._below(number, self.stages.butterflies(stage))

    def _below(self, number: int, count: int) -> ir.Value | None:
        if (number + 1) * self.stages.threads <= count:
            return self.at.exists
        has = self.builder.icmp_unsigned("<", self._number(number), I32(count))
        return self.builder.and_(self.at.exists, has) if self.at.exists else has

    def _in_groups(
        self, rounds: list[tuple[ir.Value | None, list[T]]], compute: Function[[list[T]], list[Complex]]
    ) -> list[Complex]:
        """What is computed round by round, those under one condition at once: what they load overlaps."""
        result = list[Complex]()
        for _, group in itertools.groupby(rounds, key=lambda each: id(each[0])):
            together = list(group)
            items = [item for _, part in together for item in part]
            result += self._where(together[0][0], functools.partial(compute, items))
        return result

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

    # --- spectra -----------------------------------------------------------------------------------------------------

    def _transferred(self, values: list[Complex]) -> list[Complex]:
        """What the callback makes of each element of the spectrum, which is dense."""
        b, kernel = self.builder, self.kernel
        element = llvm_element(self.module, kernel.dtype)
        prototype = ir.FunctionType(element, [element, I64, I64, BYTES])
        callback = ir.Function(self.module, prototype, transfer_prototype(kernel.dtype).symbol)
        info = b.inttoptr(self._slot("transfer_info"), BYTES)

        def apply(number: ir.Value, value: Complex) -> Complex:
            if not any(kernel.real) or kernel.packed:
                return call(number, value)
            return self._mirrored(number, call(self._kept(number), self._mirrored(number, value)))

        def call(number: ir.Value, value: Complex) -> Complex:
            found = b.call(callback, [self._struct(value, element), *self._spectral(number), info])
            return b.extract_value(found, 0), b.extract_value(found, 1)

        rounds = [(condition, list(zip(numbers, own))) for condition, numbers, own in self._spectrum(values)]
        rounds = list(self._apart(rounds)) if kernel.slack else rounds
        return self._in_groups(rounds, lambda pairs: [apply(*pair) for pair in pairs])

    def _apart(self, rounds: Rounds) -> Iterator[tuple[ir.Value | None, list[tuple[ir.Value, Complex]]]]:
        """The same in small groups, each under a condition that holds but that no compiler can tell from the others.

        It then does not begin with all elements at once, which would take more registers than there are.
        """
        b, batch = self.builder, self._slot("batch")
        for number, (condition, pairs) in enumerate(rounds):
            for first in range(0, len(pairs), GROUP):
                holds = b.icmp_unsigned("<", self.at.line, b.add(batch, I64(number * len(pairs) + first)))
                yield b.and_(condition, holds) if condition else holds, pairs[first : first + GROUP]

    def _kept(self, element: ir.Value) -> ir.Value:
        """Which element of half a spectrum stands for one of the whole."""
        b, spectrum = self.builder, self.kernel.spectrum
        other = b.sub(I64(self.kernel.length), element)
        return b.select(b.icmp_unsigned("<", element, I64(spectrum)), element, other)

    def _mirrored(self, element: ir.Value, value: Complex) -> Complex:
        """An element of the whole spectrum from the one that stands for it, and the other way round."""
        b, conjugate = self.builder, self.fft.arithmetic.conjugate(value)[1]
        kept = b.icmp_unsigned("<", element, I64(self.kernel.spectrum))
        return value[0], b.select(kept, value[1], conjugate)

    def _spectrum(self, values: list[Complex]) -> list[tuple[ir.Value | None, list[ir.Value], list[Complex]]]:
        """By round whether the thread has elements of the spectrum, their numbers, and their values."""
        if self.kernel.packed:
            return [
                (self._below(number, self._pairs), [low, high], values[2 * number : 2 * number + 2])
                for number, (low, high) in enumerate(map(self._pair, range(self._pair_rounds)))
            ]
        last = len(self.stages.radices) - 1
        radix = self.stages.radices[last]
        return [
            (
                self._condition(last, number),
                [element.number for element in self._elements(last, number)],
                values[number * radix : (number + 1) * radix],
            )
            for number in range(self.stages.rounds(last))
        ]

    # --- pairs of packed lines: a thread has both of two lists of values, k and half - k ------------------------------

    @property
    def _half(self) -> int:
        return self.kernel.length // 2

    @property
    def _pairs(self) -> int:
        return self._half // 2 + 1

    @property
    def _pair_rounds(self) -> int:
        return -(-self._pairs // self.stages.threads)

    def _pair(self, number: int) -> tuple[ir.Value, ir.Value]:
        """The numbers of the thread's pair in a round."""
        thread, first = self.builder.zext(self.at.thread, I64), number * self.stages.threads
        return self._plus(thread, first), self._plus(self.builder.sub(I64(self._half), thread), -first)

    def _factor(self, number: int) -> Complex:
        b, pair = self.builder, ir.VectorType(self.component, 2)
        table = b.bitcast(self.tables[-1], pair.as_pointer(1))
        loaded = b.load(b.gep(table, [self._clamped(number)]), align=self.kernel.dtype.itemsize)
        loaded.set_metadata("invariant.load", self.module.add_metadata([]))
        return b.extract_element(loaded, I32(0)), b.extract_element(loaded, I32(1))

    def _clamped(self, number: int) -> ir.Value:
        """The number of the thread's pair in a round, 0 if it has none."""
        own = self._number(number)
        if (number + 1) * self.stages.threads <= self._pairs:
            return own
        return self.builder.select(self.builder.icmp_unsigned("<", own, I32(self._pairs)), own, I32(0))

    def _split(self, values: list[Complex]) -> list[Complex]:
        """Pairs of the spectrum from the transform of packed numbers."""
        b, result = self.builder, list[Complex]()
        self.fft.put(values)
        self._turn(there=True)
        for number in range(self._pair_rounds):
            k = self._clamped(number)
            other = b.select(b.icmp_unsigned("==", k, I32(0)), I32(0), b.sub(I32(self._half), k))
            result += real.split(self.fft.arithmetic, self.fft.read(k), self.fft.read(other), self._factor(number))
        return result

    def _merged(self, pairs: list[Complex]) -> list[Complex]:
        """What the transform to packed numbers begins with, from pairs of the spectrum."""
        b, zero = self.builder, ir.Constant(self.component, 0.0)
        if self.kernel.real[0]:
            self.fft.barrier()
        for number in range(self._pair_rounds):
            k, (low, high) = self._number(number), pairs[2 * number : 2 * number + 2]
            first = b.icmp_unsigned("==", k, I32(0)) if number == 0 else None
            if first:  # imaginary parts of the zero and the Nyquist frequency count for nothing, as in NumPy
                low, high = ((value[0], b.select(first, zero, value[1])) for value in (low, high))
            low, high = real.merge(self.fft.arithmetic, low, high, self._factor(number))
            whole = (number + 1) * self.stages.threads <= self._pairs
            with nullcontext() if whole else b.if_then(b.icmp_unsigned("<", k, I32(self._pairs))):
                self.fft.write(k, low)
                with b.if_then(b.not_(first)) if first else nullcontext():
                    self.fft.write(b.sub(I32(self._half), k), high)
        self.fft.barrier()
        self._turn(there=False)
        return self.fft.taken()

    def _load_pairs(self) -> list[Complex]:
        read = self._reader()
        self._turn(there=True)

        def load(elements: list[ir.Value]) -> list[Complex]:
            return [self._given(read, Element(element, 0, self._half)) for element in elements]

        rounds = [(self._below(k, self._pairs), list(self._pair(k))) for k in range(self._pair_rounds)]
        return self._in_groups(rounds, load)

    def _store_pairs(self, values: list[Complex]) -> None:
        b, write, rounds = self.builder, self._writer(), []
        for number, (condition, (low, high), (first, second)) in enumerate(self._spectrum(values)):
            if number * self.stages.threads * 2 <= self._half < (number + 1) * self.stages.threads * 2:
                apart = b.icmp_unsigned("!=", low, high)  # the pair in the middle is one element
                rounds.append((condition, [(low, first)]))
                rounds.append((b.and_(condition, apart) if condition else apart, [(high, second)]))
            else:
                rounds.append((condition, [(low, first), (high, second)]))

        def store(elements: list[tuple[ir.Value, Complex]]) -> list[Complex]:
            for element in elements:
                write(*element)
            return []

        self._in_groups(rounds, store)
