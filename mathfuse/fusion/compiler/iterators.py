"""Loops: iterators over what is known at compile time unroll, ``range`` of a run-time or large extent stays a loop."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from .arithmetic import Reject, describe
from .emitter import Value
from .scalars import INT

if TYPE_CHECKING:
    from .evaluator import Evaluator, Slot

UNROLL = 16  # constant ranges up to this many turns are unrolled


class Pair(NamedTuple):
    """What ``iternext`` gives: the item, and whether there was one."""

    item: Any
    valid: Any


@dataclass(frozen=True, eq=False)
class Iterator:
    """A position in a tuple known at compile time."""

    items: tuple
    position: int = 0

    def next(self) -> tuple[Pair, Iterator]:
        if self.position < len(self.items):
            return Pair(self.items[self.position], True), Iterator(self.items, self.position + 1)
        return Pair(0, False), self


def iterate(value: Any) -> Iterator:
    if isinstance(value, Iterator):
        return value
    if isinstance(value, tuple):
        return Iterator(value)
    raise Reject(
        f"a loop runs over a tuple (`axes`, `shape`) or range(n), not over {describe(value)}; for an operand: range(array.shape[0])"
    )


@dataclass(eq=False)
class RangeIterator:
    """``range(start, stop, step)`` with run-time extents; ``step`` is a constant."""

    first: Any
    stop: Any
    step: int
    current: Slot | None = None
    end: Slot | None = None

    @staticmethod
    def of(evaluator: Evaluator, args: tuple) -> Any:
        """A tuple for a short constant range, else an iterator."""
        if not 1 <= len(args) <= 3:
            raise Reject("range() takes one to three integers")
        numbers = [evaluator.operations.number(a) for a in args]
        for n in numbers:
            if not (isinstance(n, int) or (isinstance(n, Value) and n.type.kind in "iub")):
                raise Reject(f"range() takes integers, not {describe(n)}")
        if all(isinstance(n, int) for n in numbers) and len(range(*numbers)) <= UNROLL:  # type: ignore[arg-type]
            return tuple(range(*numbers))  # type: ignore[arg-type]
        first, stop, step = (0, numbers[0], 1) if len(numbers) == 1 else (*numbers, 1)[:3]
        if not isinstance(step, int) or step == 0:
            raise Reject("the step of range() must be a constant other than 0")
        return RangeIterator(first, stop, step)

    def start(self, evaluator: Evaluator) -> RangeIterator:
        """Stores the bounds; one pair of slots for each place in the code, however often it is reached."""
        operations = evaluator.operations
        iterator = evaluator.stack[-1].ranges.setdefault(
            evaluator.position, RangeIterator(self.first, self.stop, self.step)
        )
        if iterator.current is None or iterator.end is None:
            iterator.current, iterator.end = evaluator.slot(INT), evaluator.slot(INT)
        iterator.step = self.step
        evaluator.store(iterator.current, operations.value(operations.to_int(self.first)))
        evaluator.store(iterator.end, operations.value(operations.to_int(self.stop)))
        return iterator

    def next(self, evaluator: Evaluator) -> Pair:
        assert self.current is not None and self.end is not None
        now, end = evaluator.load(self.current), evaluator.load(self.end)
        compare = operator.lt if self.step > 0 else operator.gt
        valid = evaluator.operations.binary(compare, now, end)
        evaluator.store(self.current, evaluator.operations.binary(operator.add, now, self.step))
        return Pair(now, valid)
