"""The compiler's heart: a partial evaluator over the Python function's own code.

Numba turns bytecode into blocks of simple statements; this module runs them on *abstract values*: what is known at
compile time (``axes``, constants, tuples, modules, functions) is computed on the spot, everything else becomes LLVM
instructions. A block is emitted once for every distinct set of compile-time values that reaches it, which unrolls loops
over ``axes``, prunes dead branches and inlines helper functions without a pass for any of them. Numba's dispatchers and
caches are not involved.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import Any

from llvmlite import ir

from mathfuse.fusion.compiler.emit.emitter import Emitter, Value
from mathfuse.fusion.compiler.emit.scalars import Scalar, promote
from mathfuse.fusion.compiler.language.arithmetic import Reject, describe, is_number
from mathfuse.fusion.compiler.language.expressions import Expressions
from mathfuse.fusion.compiler.language.frames import (
    Again,
    Frame,
    Knowledge,
    LocalFunction,
    Slot,
    inside,
    parts,
    rebuild,
    version_key,
)
from mathfuse.fusion.compiler.language.frontend import Code, frontend, numba_ir, quote
from mathfuse.fusion.compiler.language.iterators import Iterator, RangeIterator
from mathfuse.fusion.compiler.language.messages import STATEMENTS
from mathfuse.fusion.compiler.language.operands import Accesses, Operand, OperandAccess
from mathfuse.fusion.compiler.language.operations import Operations
from mathfuse.fusion.compiler.language.places import Place
from mathfuse.runtime.errors import CallbackError, MathFuseError

DEEPEST = 60  # calls inside calls
MOST_CALLS = 10_000
MOST_BLOCKS = 2_000

NO_NUMBER = "every path must return the element's new value, a number"


class Evaluator(Expressions):
    """Evaluates callbacks into one LLVM function.

    Parameters
    ----------
    emitter
        Positioned where the code goes.
    place
        The element's logical multi-index, and what else is known of where it is.
    knowledge
        What earlier runs found; ``changed`` tells when this run found a variable to need a wider type.
    capture
        ``capture(array)`` gives the :class:`Operand` for an array found in a global or a closure.
    wide
        Elements of operands are widened to 64 bits as they are read.
    """

    def __init__(
        self,
        emitter: Emitter,
        place: Place,
        knowledge: Knowledge,
        capture: Callable[[Any], Operand],
        wide: bool = False,
    ) -> None:
        self.emitter, self.builder = emitter, emitter.builder
        self.knowledge, self.changed, self.capture, self.wide = knowledge, False, capture, wide
        self.accesses = Accesses()
        self.operations = Operations(emitter, self._inline, self._coerce)
        self.operand_access = OperandAccess(
            emitter, self.operations, place, self.accesses, frozenset(knowledge.assigned)
        )
        self.stack: list[Frame] = []
        self.position: tuple = ()
        self.calls = self.blocks = 0
        self.captured: dict[tuple, Operand] = {}
        self.objects: set[tuple] = set()  # the variables, by the block that they enter, that hold operands

    # --- entry --------------------------------------------------------------------------------------------------------
    def evaluate(
        self, function: types.FunctionType, arguments: dict[str, Any], link: int = 0, procedure: bool = False
    ) -> Any:
        """The result of ``function``, link number ``link`` of a chain, called by name with abstract values.

        A ``procedure`` stores its results itself and returns nothing.
        """
        self.position = (link,)
        try:
            result = self.call_python(function, (), arguments)
            if procedure:
                return self._nothing(result)
            if result is None or isinstance(result, (tuple, str)):
                raise Reject(f"The callback returns {describe(result)}; {NO_NUMBER}")
            return self.operations.value(result)
        except Reject as rejection:
            raise CallbackError(f"{quote(function)}\n{rejection}") from None

    @staticmethod
    def _nothing(result: Any) -> None:
        if result is not None:
            raise Reject("The callback must store its result, not return it")

    def _inline(self, function: types.FunctionType, *arguments: Any) -> Any:
        return self.call_python(function, arguments, {})

    def _coerce(self, x: Any) -> Value:
        if isinstance(x, Operand):
            return self.loaded(self.operand_access.read_here(x))
        raise Reject(f"{describe(x)} is not a number")

    # --- calls --------------------------------------------------------------------------------------------------------
    def call_python(
        self, function: types.FunctionType, args: tuple, kwargs: dict[str, Any], local: LocalFunction | None = None
    ) -> Any:
        name = function.__name__
        if local is None and any(frame.code.function is function for frame in self.stack):
            raise Reject(f"{name} calls itself: recursion cannot run inside a kernel; write a loop")
        self.calls += 1
        if len(self.stack) > DEEPEST or self.calls > MOST_CALLS:
            limit = f"{DEEPEST} deep" if len(self.stack) > DEEPEST else f"{MOST_CALLS} times"
            raise Reject(f"functions call each other more than {limit}; recursion cannot run inside a kernel")
        try:
            bound = inspect.signature(function, follow_wrapped=False).bind(*args, **kwargs)
        except TypeError as error:
            raise Reject(f"{name}(): {error}") from None
        bound.apply_defaults()
        arguments = {f"arg.{name}": self.admit(value, name) for name, value in bound.arguments.items()}
        captured = local.captured if local else ()
        outside = frozenset(x for x in inside((*arguments.values(), *captured)) if isinstance(x, Value))
        path = (*self.stack[-1].path, self.position) if self.stack else self.position
        frame = Frame(self._code(function, local), path, captured, outside)
        self.stack.append(frame)
        saved = self.position
        try:
            self._run(frame, arguments)
        finally:
            self.stack.pop()
            self.position = saved
        return self._join_returns(frame)

    def _code(self, function: types.FunctionType, local: LocalFunction | None) -> Code:
        key = local.code if local else function
        if key not in self.knowledge.codes:
            self.knowledge.codes[key] = frontend(function)
        return self.knowledge.codes[key]

    def _run(self, frame: Frame, arguments: dict[str, Any]) -> None:
        """Emits the first block in place and every other version from the frame's work list."""
        self._block(frame, frame.code.first, arguments)
        while frame.pending:
            label, template, block = frame.pending.popleft()
            self.builder.position_at_end(block)
            self._block(frame, label, {name: self.load(entry) for name, entry in template.items()})

    def _join_returns(self, frame: Frame) -> Any:
        """One value for all return statements, in a block where they meet."""
        if not frame.returns:
            raise Reject(f"{frame.code.function.__name__} never returns")
        last, value = frame.returns[0]
        if len(frame.returns) == 1:
            self.builder.position_at_end(last)
            return value
        joined, store = self._join([value for _, value in frame.returns])
        meeting = self.builder.append_basic_block("meet")
        for block, result in frame.returns:
            self.builder.position_at_end(block)
            store(result)
            self.builder.branch(meeting)
        self.builder.position_at_end(meeting)
        return self.load(joined)

    def _join(self, results: list[Any]) -> tuple[Any, Callable[[Any], None]]:
        """Slots wide enough for every result, and the function that fills them."""
        first = results[0]
        if all(version_key(r) == version_key(first) for r in results):
            return first, lambda result: None
        if all(isinstance(r, tuple) for r in results) and len({len(r) for r in results}) == 1:
            columns = [self._join([r[k] for r in results]) for k in range(len(first))]

            def store_all(result: tuple) -> None:
                for (_, store), item in zip(columns, result):
                    store(item)

            return rebuild(first, [slot for slot, _ in columns]), store_all
        if any(r is None for r in results):
            raise Reject(f"A path returns None, another one a value; {NO_NUMBER}")
        if not all(isinstance(r, (Value, Operand)) or is_number(r) for r in results):
            kinds = " and ".join(dict.fromkeys(describe(r) for r in results))
            raise Reject(f"Paths return values of different kinds: {kinds}")
        scalar = self.operations.common_type(*results)
        slot = self.slot(scalar)
        return slot, lambda result: self.store(slot, self.operations.convert(result, scalar))

    # --- blocks -------------------------------------------------------------------------------------------------------
    def _block(self, frame: Frame, label: int, env: dict[str, Any]) -> None:
        """Evaluates the statements of one block version."""
        body = frame.code.blocks[label].body
        if type(body[-1]).__name__ in STATEMENTS:
            body = body[-1:]  # a block that ends in `raise`: its message is not the fault
        for number, statement in enumerate(body):
            self.position = (label, number)
            try:
                self._statement(frame, statement, env)
            except (Again, MathFuseError):
                raise
            except Reject as rejection:
                if self._is_ours(frame):
                    raise
                raise CallbackError(f"{quote(frame.code.function, statement.loc.line)}\n{rejection}") from None
            except Exception as error:
                where = quote(frame.code.function, statement.loc.line)
                raise CallbackError(
                    f"{where}\nThe compiler failed at this line ({error!r}); please report it"
                ) from error

    def _is_ours(self, frame: Frame) -> bool:
        """A function of mathfuse that the user's code calls: the line to show is the user's."""
        return len(self.stack) > 1 and (frame.code.function.__module__ or "").startswith("mathfuse.")

    def _statement(self, frame: Frame, statement: Any, env: dict[str, Any]) -> None:
        if isinstance(statement, numba_ir.Assign):
            self._refuse_late_capture(frame, statement, env)
            env[statement.target.name] = self.expression(frame, statement.value, env)
        elif isinstance(statement, (numba_ir.SetItem, numba_ir.StaticSetItem)):
            static = isinstance(statement, numba_ir.StaticSetItem)
            index = statement.index if static else self.variable(statement.index, env)
            self.set_item(self.variable(statement.target, env), index, self.variable(statement.value, env))
        elif isinstance(statement, numba_ir.Return):
            frame.returns.append((self.builder.block, self.variable(statement.value, env)))
        elif isinstance(statement, numba_ir.Jump):
            self.builder.branch(self._version(frame, statement.target, env))
        elif isinstance(statement, numba_ir.Branch):
            self._branch(frame, statement, env)
        elif not isinstance(statement, numba_ir.Del):
            name = type(statement).__name__
            raise Reject(STATEMENTS.get(name, f"{name} has no meaning inside a kernel"))

    def _refuse_late_capture(self, frame: Frame, statement: Any, env: dict[str, Any]) -> None:
        """An inner function has the values of its creation here, those of its call in Python; they must not differ."""
        own, variable = frame.code.function.__code__.co_consts, statement.target.name
        for name in frame.code.after.get(id(statement), ()):
            for entry in inside(env.get(name)):
                if isinstance(entry, LocalFunction) and entry.code in own and variable in entry.code.co_freevars:
                    raise Reject(
                        f"{variable!r} changes after {entry.description()} has captured it; "
                        f"pass it as an argument, or keep it by a default: {variable}={variable}"
                    )

    def _branch(self, frame: Frame, statement: Any, env: dict[str, Any]) -> None:
        truth = self.operations.truth(self.variable(statement.cond, env))
        if isinstance(truth, bool):
            self.builder.branch(self._version(frame, statement.truebr if truth else statement.falsebr, env))
        else:
            here = self.builder.block
            targets = [self._version(frame, label, env) for label in (statement.truebr, statement.falsebr)]
            self.builder.position_at_end(here)
            self.builder.cbranch(truth.parts[0], *targets)

    def _version(self, frame: Frame, label: int, env: dict[str, Any]) -> ir.Block:
        """The LLVM block for ``label`` under what is known now; made (and queued) when it is new."""
        live = sorted(name for name in frame.code.live[label] if name in env)
        template = {name: self._spill(frame, (label, name), env[name]) for name in live}
        key = (label, tuple((name, version_key(entry)) for name, entry in template.items()))
        if key not in frame.versions:
            self.blocks += 1
            if self.blocks > MOST_BLOCKS:
                self._grown()
            block = self.builder.append_basic_block(f"at{label}")
            frame.versions[key] = block, template
            frame.pending.append((label, template, block))
        return frame.versions[key][0]

    def _grown(self) -> None:
        if self.knowledge.unroll:
            raise self.knowledge.rolled()
        raise Reject(f"the callback unrolls into more than {MOST_BLOCKS} blocks; loop over range(n) instead of a tuple")

    # --- variables between blocks -------------------------------------------------------------------------------------
    def _spill(self, frame: Frame, key: tuple, value: Any, varies: bool | None = None) -> Any:
        """What the next block knows of a variable: the object itself, or the slot that now holds it.

        ``key`` is the block and the variable's name. A variable that is assigned at several places ``varies``: its
        numbers are run-time ones, and an operand beside numbers is its element.
        """
        if varies is None:
            varies = frame.code.assignments[key[1]] > 1
        items = parts(value)
        if items is not None:
            varies &= not isinstance(value, (Iterator, RangeIterator))
            return rebuild(value, [self._spill(frame, (*key, k), item, varies) for k, item in enumerate(items)])
        if varies and is_number(value):
            value = self.operations.value(value)
        place = (*frame.path, frame.code.function.__qualname__, key)
        if isinstance(value, Operand) and place in self.knowledge.widths:
            value = self.operations.value(value)
        if isinstance(value, Operand):
            self.objects.add(place)
        if not isinstance(value, Value) or (value in frame.fixed and not varies):
            return value
        wide = self._widened(place, value.type)
        slot = frame.slots.get((key[1:], wide))
        if slot is None:
            slot = frame.slots[key[1:], wide] = self.slot(wide)
        self.store(slot, self.emitter.convert(value, wide))
        return slot

    def _widened(self, key: tuple, scalar: Scalar) -> Scalar:
        """The type of a variable that enters a block: wide enough for all values seen on any path, in any run."""
        widths = self.knowledge.widths
        known = widths.get(key, scalar)
        wide = scalar if known == scalar else promote(known, scalar, self.knowledge.weak_bits)
        self.changed |= wide != known or key in self.objects
        widths[key] = wide
        return wide

    def slot(self, scalar: Scalar) -> Slot:
        component = self.emitter.component_type(scalar)
        with self.builder.goto_entry_block():
            return Slot(scalar, tuple(self.builder.alloca(component) for _ in range(2 if scalar.kind == "c" else 1)))

    def store(self, slot: Slot, value: Value) -> None:
        for part, cell in zip(value.parts, slot.cells):
            self.builder.store(part, cell)

    def load(self, entry: Any) -> Any:
        if isinstance(entry, Slot):
            return Value(entry.type, tuple(self.builder.load(cell) for cell in entry.cells))
        items = parts(entry)
        return rebuild(entry, [self.load(item) for item in items]) if items is not None else entry
