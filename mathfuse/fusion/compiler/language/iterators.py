"""Loops: iterators over what is known at compile time unroll, ``range`` of a run-time or large extent stays a loop."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from mathfuse.fusion.compiler.emit.emitter import Value
from mathfuse.fusion.compiler.emit.scalars import INT
from mathfuse.fusion.compiler.language.arithmetic import Described, Reject, describe

if TYPE_CHECKING:
    from mathfuse.fusion.compiler.language.evaluator import Evaluator
    from mathfuse.fusion.compiler.language.frames import Slot


class Pair(NamedTuple):
    """What ``iternext`` gives: the item, and whether there was one."""

    item: Any
    valid: Any


@dataclass(frozen=True, eq=False)
class Iterator(Described):
    """A position in a tuple known at compile time."""

    items: tuple
    position: int = 0

    def next(self) -> tuple[Pair, Iterator]:
        if self.position < len(self.items):
            return Pair(self.items[self.position], True), Iterator(self.items, self.position + 1)
        return Pair(0, False), self


@dataclass(frozen=True, eq=False)
class RangeIterator(Described):
    """``range(first, stop, step)`` with run-time extents; ``step`` is a constant. Slots hold the state once it runs."""

    first: Any
    stop: Any
    step: int
    current: Slot | None = None
    end: Slot | None = None

    def description(self) -> str:
        return "a range() of a run-time or large extent"

    def start(self, evaluator: Evaluator) -> RangeIterator:
        """Stores the bounds; one pair of slots for each place in the code, however often it is reached."""
        ranges, place = evaluator.stack[-1].ranges, (evaluator.position, self.step)
        if place not in ranges:
            ranges[place] = RangeIterator(None, None, self.step, evaluator.slot(INT), evaluator.slot(INT))
        running, operations = ranges[place], evaluator.operations
        assert running.current is not None and running.end is not None
        evaluator.store(running.current, operations.cast(INT, self.first))
        evaluator.store(running.end, operations.cast(INT, self.stop))
        return running

    def next(self, evaluator: Evaluator) -> Pair:
        assert self.current is not None and self.end is not None
        now, end = evaluator.load(self.current), evaluator.load(self.end)
        valid = evaluator.operations.binary(operator.lt if self.step > 0 else operator.gt, now, end)
        evaluator.store(self.current, evaluator.operations.binary(operator.add, now, self.step))
        return Pair(now, valid)


def start(value: Any, evaluator: Evaluator) -> Iterator | RangeIterator:
    """``iter(value)``."""
    if isinstance(value, RangeIterator):
        return value.start(evaluator)
    if isinstance(value, tuple):
        return Iterator(value)
    raise Reject(
        f"a loop runs over a tuple (`axes`, `shape`) or range(n), not over {describe(value)}; "
        "for an operand: range(array.shape[0])"
    )


def make_range(evaluator: Evaluator, args: tuple) -> tuple | RangeIterator:
    """``range(...)``: a tuple where it is constant and short."""
    if not 1 <= len(args) <= 3:
        raise Reject("range() takes one to three integers")
    numbers: list[Any] = [evaluator.operations.number(a) for a in args]
    for n in numbers:
        if not (isinstance(n, int) or (isinstance(n, Value) and not n.type.is_float)):
            raise Reject(f"range() takes integers, not {describe(n)}")
    first, stop, step = (0, numbers[0], 1) if len(numbers) == 1 else (*numbers, 1)[:3]
    if not isinstance(step, int) or step == 0:
        raise Reject("the step of range() must be a constant other than 0")
    if isinstance(first, int) and isinstance(stop, int):
        known = range(first, stop, step)
        if not known[evaluator.knowledge.unroll :]:
            return tuple(known)
    return RangeIterator(first, stop, step)


def sequence(function: Any, args: tuple, kwargs: dict[str, Any]) -> tuple:
    """``enumerate``, ``zip``, ``reversed`` and ``tuple`` of tuples."""
    for k, argument in enumerate(args):
        if isinstance(argument, RangeIterator):
            raise Reject(f"{function.__name__}() cannot take {describe(argument)}; write `for i in range(…)` and index")
        if not isinstance(argument, tuple) and not (function is enumerate and k == 1 and isinstance(argument, int)):
            raise Reject(
                f"{function.__name__}() takes tuples such as `axes`, `index` or `shape`, not {describe(argument)}; "
                "loop over range(n) otherwise"
            )
    try:
        return tuple(function(*args, **kwargs))
    except (TypeError, ValueError) as error:
        raise Reject(f"{function.__name__}(): {error}") from None
