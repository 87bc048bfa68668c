"""The compiler's heart: a partial evaluator over the Python function's own code.

Numba turns bytecode into blocks of simple statements; this module runs them on *abstract values*: what is known at compile time
(``axes``, constants, tuples, modules, functions) is computed on the spot, everything else becomes LLVM instructions. A block is
emitted once for every distinct set of compile-time values that reaches it, which unrolls loops over ``axes``, prunes dead
branches and inlines helper functions without a pass for any of them. Numba's dispatchers and caches are not involved.
"""

from __future__ import annotations

import inspect
import operator
import types
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
from llvmlite import ir

from mathfuse.epilogs.values import Constant, is_array
from mathfuse.runtime.errors import CallbackError

from . import library
from .arithmetic import BoundMethod, Reject, describe, is_number
from .emitter import Emitter, Value
from .frames import UNDEFINED, Frame, Knowledge, LocalFunction, Slot, Widen, rebuild, values_in, version_key
from .frontend import frontend, numba_ir, quote
from .iterators import Iterator, RangeIterator, iterate
from .language import FORBIDDEN, RAISES, STATEMENTS
from .operands import Accesses, Operand, OperandAccess
from .operations import SPECIAL, Operations, unknown_callable
from .scalars import Scalar, promote

UNARY = {"-": operator.neg, "+": operator.pos, "not": operator.not_, "~": operator.invert}


class Evaluator:
    """Evaluates callbacks into one LLVM function.

    Parameters
    ----------
    emitter
        Positioned where the code goes.
    index
        The element's logical multi-index.
    knowledge
        What earlier runs found; ``changed`` tells when this run found a variable to need a wider type.
    capture
        ``capture(array)`` gives the :class:`Operand` for an array found in a global or a closure.
    """

    def __init__(
        self, emitter: Emitter, index: tuple[Value, ...], knowledge: Knowledge, capture: Callable[[Any], Operand]
    ) -> None:
        self.emitter, self.builder = emitter, emitter.builder
        self.widths, self.changed, self.capture = knowledge.widths, False, capture
        self.accesses = Accesses()
        self.operations = Operations(emitter, self._inline, self._coerce)
        self.operand_access = OperandAccess(
            emitter, self.operations, index, self.accesses, frozenset(knowledge.assigned)
        )
        self.stack: list[Frame] = []

    # --- entry --------------------------------------------------------------------------------------------------------------
    def evaluate(
        self, function: types.FunctionType, arguments: dict[str, Any], link: int = 0, procedure: bool = False
    ) -> Any:
        """The result of ``function``, link number ``link`` of a chain, called by name with abstract values.

        A ``procedure`` stores its results itself and returns nothing.
        """
        try:
            result = self._call_python(function, (), arguments, path=(link,))
        except Reject as rejection:
            raise CallbackError(f"{quote(function)}\n{rejection}") from None
        if procedure and result is not None:
            raise CallbackError(f"{quote(function)}\nThe callback must store its result, not return it")
        if result is None and not procedure:
            raise CallbackError(
                f"{quote(function)}\nThe callback returns None on some path; every path must return the element's new value"
            )
        return result

    def _inline(self, function: types.FunctionType, *arguments: Any) -> Any:
        return self._call_python(function, arguments, {}, path=self._here())

    def _coerce(self, x: Any) -> Any:
        if isinstance(x, Operand):
            return self._checked(self.operand_access.read_here(x))
        raise Reject(f"{describe(x)} is not a number")

    def _checked(self, value: Value) -> Value:
        """A strong 64-bit float beside 32-bit weak ones: weak floats must not lose what it would give them."""
        if value.type.is_float and not value.type.weak and value.type.bits > self.emitter.weak_bits:
            raise Widen
        return value

    # --- calls --------------------------------------------------------------------------------------------------------------
    def _here(self) -> tuple:
        """Where evaluation stands: identifies a call site across runs."""
        return (*self.stack[-1].path, self.position) if self.stack else (self.position,)

    position: tuple = ()

    def _call_python(
        self, function: types.FunctionType, args: tuple, kwargs: dict[str, Any], path: tuple, captured: tuple = ()
    ) -> Any:
        if any(frame.code.function is function for frame in self.stack) and not captured:
            raise Reject(f"{function.__name__} calls itself: recursion cannot run inside a kernel; write a loop")
        if len(self.stack) > 60:
            raise Reject("helper functions are nested more than 60 deep; recursion cannot run inside a kernel")
        code = frontend(function)
        try:
            bound = inspect.signature(function).bind(*args, **kwargs)
        except TypeError as error:
            raise Reject(f"{function.__name__}(): {error}") from None
        bound.apply_defaults()
        arguments = {name: self._admit(value, name) for name, value in bound.arguments.items()}
        frame = Frame(code, path, captured, tuple(values_in(tuple(arguments.values()))))
        self.stack.append(frame)
        saved = self.position
        try:
            self._run(frame, arguments)
        finally:
            self.stack.pop()
            self.position = saved
        return self._join_returns(frame)

    def _run(self, frame: Frame, arguments: dict[str, Any]) -> None:
        """Emits the first block in place and every other version from the frame's work list."""
        self._block(frame, frame.code.first, {f"arg.{name}": value for name, value in arguments.items()})
        while frame.pending:
            label, template, block = frame.pending.pop()
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
        results = [value for _, value in frame.returns]
        if all(version_key(r) == version_key(value) for r in results) and not list(values_in(value)):
            joined, store = value, None
        else:
            joined, store = self._join(results)
        meeting = self.builder.append_basic_block("meet")
        for block, result in frame.returns:
            self.builder.position_at_end(block)
            if store:
                store(result)
            self.builder.branch(meeting)
        self.builder.position_at_end(meeting)
        return self.load(joined)

    def _join(self, results: list[Any]) -> tuple[Any, Callable[[Any], None]]:
        """Slots wide enough for every result, and the function that fills them."""
        if all(isinstance(r, tuple) for r in results) and len({len(r) for r in results}) == 1:
            columns = [self._join([r[k] for r in results]) for k in range(len(results[0]))]

            def store_all(result: tuple) -> None:
                for (_, store), item in zip(columns, result):
                    store(item)

            return tuple(slot for slot, _ in columns), store_all
        if any(r is None for r in results):
            raise Reject(
                "returns None on some path and a value on another; every path must return the element's new value"
            )
        if not all(isinstance(r, (Value, Operand)) or is_number(r) for r in results):
            if all(r is results[0] for r in results):
                return results[0], lambda result: None
            raise Reject("returns values of different kinds on different paths")
        scalar, _ = self.operations.common(*results)
        slot = self.slot(scalar)
        return slot, lambda result: self.store(
            slot, self.operations.convert(result, self.operations.value(result), scalar)
        )

    # --- blocks -------------------------------------------------------------------------------------------------------------
    def _block(self, frame: Frame, label: int, env: dict[str, Any]) -> None:
        """Evaluates the statements of one block version."""
        for number, statement in enumerate(frame.code.blocks[label].body):
            self.position = (label, number)
            try:
                self._statement(frame, statement, env)
            except Reject as rejection:
                if frame.code.function.__module__ == library.__name__:
                    raise  # the user's line is that of the caller
                raise CallbackError(f"{quote(frame.code.function, statement.loc)}\n{rejection}") from None

    def _statement(self, frame: Frame, statement: Any, env: dict[str, Any]) -> None:
        if isinstance(statement, numba_ir.Assign):
            env[statement.target.name] = self._expression(frame, statement.value, env)
        elif isinstance(statement, (numba_ir.SetItem, numba_ir.StaticSetItem)):
            index = (
                statement.index
                if isinstance(statement, numba_ir.StaticSetItem)
                else self._variable(statement.index, env)
            )
            self._set_item(self._variable(statement.target, env), index, self._variable(statement.value, env))
        elif isinstance(statement, numba_ir.Return):
            frame.returns.append((self.builder.block, self._variable(statement.value, env)))
        elif isinstance(statement, numba_ir.Jump):
            self.builder.branch(self._version(frame, statement.target, env))
        elif isinstance(statement, numba_ir.Branch):
            self._branch(frame, statement, env)
        elif isinstance(statement, numba_ir.Print):
            raise Reject("print() cannot run inside a kernel; call `callback.function` on sample values to look inside")
        elif isinstance(statement, (numba_ir.Raise, numba_ir.StaticRaise, numba_ir.TryRaise, numba_ir.StaticTryRaise)):
            raise Reject(RAISES)
        elif not isinstance(statement, numba_ir.Del):
            raise Reject(
                STATEMENTS.get(type(statement).__name__, f"{type(statement).__name__} has no meaning inside a kernel")
            )

    def _branch(self, frame: Frame, statement: Any, env: dict[str, Any]) -> None:
        truth = self.operations.truth(self._variable(statement.cond, env))
        if isinstance(truth, bool):
            self.builder.branch(self._version(frame, statement.truebr if truth else statement.falsebr, env))
        else:
            here = self.builder.block
            targets = [self._version(frame, label, env) for label in (statement.truebr, statement.falsebr)]
            self.builder.position_at_end(here)
            self.builder.cbranch(truth.parts[0], *targets)

    def _version(self, frame: Frame, label: int, env: dict[str, Any]) -> ir.Block:
        """The LLVM block for ``label`` under what is known now; made (and queued) when it is new."""
        changes = frame.code.assignments
        template = {
            name: self._spill(frame, name, env[name], changes[name] > 1)
            for name in frame.code.live[label]
            if name in env
        }
        key = (label, tuple((name, version_key(entry)) for name, entry in sorted(template.items())))
        block = frame.versions.get(key)
        if block is None:
            block = frame.versions[key] = self.builder.append_basic_block(f"at{label}")
            if len(frame.versions) > 4000:
                raise Reject(
                    "the callback unrolls into more than 4000 blocks; loop over range(n) with an n that is not a constant"
                )
            frame.pending.append((label, template, block))
        return block

    def _spill(self, frame: Frame, name: str, value: Any, changes: bool) -> Any:
        """What the next block knows of a variable: the object itself, or the slot that now holds it."""
        if isinstance(value, tuple):
            return rebuild(value, [self._spill(frame, f"{name}.{k}", item, changes) for k, item in enumerate(value)])
        if changes and is_number(value):
            value = self.emitter.literal(value)  # a variable that is assigned twice is a run-time one
        if not isinstance(value, Value) or any(value is fixed for fixed in frame.fixed):
            return value
        key = (*frame.path, frame.code.function.__qualname__, name)
        known = self.widths.get(key, value.type)
        wide = value.type if known == value.type else promote(known, value.type, self.emitter.weak_bits)
        if self.widths.get(key) != wide:
            self.changed |= key in self.widths
            self.widths[key] = wide
        slot = frame.slots.get((name, wide))
        if slot is None:
            slot = frame.slots[name, wide] = self.slot(wide)
        self.store(slot, self.emitter.convert(value, wide))
        return slot

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
        if isinstance(entry, tuple):
            return rebuild(entry, [self.load(item) for item in entry])
        return entry

    # --- expressions --------------------------------------------------------------------------------------------------------
    def _variable(self, variable: Any, env: dict[str, Any]) -> Any:
        value = env.get(variable.name, UNDEFINED)
        if value is UNDEFINED:
            raise Reject(f"{variable.name.split('.')[0]!r} may be used before it is assigned")
        return value

    def _expression(self, frame: Frame, node: Any, env: dict[str, Any]) -> Any:
        if isinstance(node, numba_ir.Arg):
            return env[f"arg.{node.name}"]
        if isinstance(node, numba_ir.Var):
            return self._variable(node, env)
        if isinstance(node, numba_ir.FreeVar) and frame.captured:
            return frame.captured[node.index]
        if isinstance(node, (numba_ir.Const, numba_ir.Global, numba_ir.FreeVar)):
            return self._admit(node.value, getattr(node, "name", "constant"))
        if not isinstance(node, numba_ir.Expr):
            raise Reject(STATEMENTS.get(type(node).__name__, f"{type(node).__name__} has no meaning inside a kernel"))
        handler = getattr(self, f"_do_{node.op}", None)
        if handler is None:
            raise Reject(STATEMENTS.get(node.op, f"{node.op} has no meaning inside a kernel"))
        return handler(frame, node, env)

    def _admit(self, value: Any, name: str) -> Any:
        """An object of the Python world as the evaluator sees it: NumPy scalars are weak numbers, arrays are operands."""
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, Constant):
            value = value.array
        if is_array(value):
            return self.capture(value)
        if isinstance(value, tuple) and type(value) is tuple:
            return tuple(self._admit(item, name) for item in value)
        return value

    def _do_binop(self, frame: Frame, node: Any, env: dict[str, Any]) -> Any:
        return self.operations.binary(node.fn, self._variable(node.lhs, env), self._variable(node.rhs, env))

    _do_inplace_binop = _do_binop

    def _do_unary(self, frame: Frame, node: Any, env: dict[str, Any]) -> Any:
        return self.operations.unary(UNARY.get(node.fn, node.fn), self._variable(node.value, env))

    def _do_cast(self, frame: Frame, node: Any, env: dict[str, Any]) -> Any:
        return self._variable(node.value, env)

    def _do_build_tuple(self, frame: Frame, node: Any, env: dict[str, Any]) -> tuple:
        return tuple(self._variable(item, env) for item in node.items)

    def _do_getattr(self, frame: Frame, node: Any, env: dict[str, Any]) -> Any:
        value = self._variable(node.value, env)
        if isinstance(value, types.ModuleType):
            if not hasattr(value, node.attr):
                raise Reject(f"module {value.__name__} has no {node.attr!r}")
            return self._admit(getattr(value, node.attr), node.attr)
        if isinstance(value, Operand):
            return self._operand_attribute(value, node.attr)
        if isinstance(value, (Value, bool, int, float, complex)):
            return self.operations.attribute(value, node.attr)
        if isinstance(value, type) or callable(value):
            return BoundMethod(node.attr, value)
        raise Reject(
            f"{describe(value)} has no attributes inside a callback; capture the number itself: name = obj.{node.attr}"
        )

    def _operand_attribute(self, operand: Operand, name: str) -> Any:
        if name == "shape":
            return operand.shape
        if name == "ndim":
            return operand.ndim
        if name == "size":
            return self.operations.product(operand.shape)
        raise Reject(
            f"operand {operand.name!r} has no {name!r} inside a callback; there are [index], .shape, .ndim and .size"
        )

    def _do_getitem(self, frame: Frame, node: Any, env: dict[str, Any]) -> Any:
        return self._get_item(self._variable(node.value, env), self._variable(node.index, env))

    def _do_static_getitem(self, frame: Frame, node: Any, env: dict[str, Any]) -> Any:
        return self._get_item(self._variable(node.value, env), node.index)

    def _get_item(self, container: Any, index: Any) -> Any:
        if isinstance(container, Operand):
            return self._checked(self.operand_access.read(container, index))
        if isinstance(container, tuple):
            if isinstance(index, (int, slice)):
                try:
                    return container[index]
                except IndexError:
                    raise Reject(
                        f"tuple index {index} is out of range: the tuple has {len(container)} elements"
                    ) from None
            if isinstance(index, Value) and index.type.kind in "iu":
                return self._select_item(container, index)
            raise Reject(f"a tuple index must be an integer, not {describe(index)}")
        raise Reject(f"{describe(container)} cannot be indexed; operands (arrays) and tuples can")

    def _select_item(self, items: tuple, index: Value) -> Any:
        """An element chosen at run time: a chain of selections, negative indices counted from the end."""
        if not items:
            raise Reject("index into an empty tuple")
        chosen: Any = items[0]
        for k in range(1, len(items)):
            here = self.operations.binary(
                operator.or_,
                self.operations.binary(operator.eq, index, k),
                self.operations.binary(operator.eq, index, k - len(items)),
            )
            chosen = self.operations.where(here, items[k], chosen)
        return chosen

    def _set_item(self, target: Any, index: Any, value: Any) -> None:
        if not isinstance(target, Operand):
            raise Reject(f"{describe(target)} cannot be assigned to by index; only operands (arrays) can")
        self.operand_access.write(target, index, value)

    def _do_getiter(self, frame: Frame, node: Any, env: dict[str, Any]) -> Any:
        value = self._variable(node.value, env)
        if isinstance(value, RangeIterator):
            return value.start(self)
        return iterate(value)

    def _do_iternext(self, frame: Frame, node: Any, env: dict[str, Any]) -> Any:
        iterator = self._variable(node.value, env)
        if isinstance(iterator, RangeIterator):
            return iterator.next(self)
        pair, env[node.value.name] = iterator.next()
        return pair

    def _do_pair_first(self, frame: Frame, node: Any, env: dict[str, Any]) -> Any:
        return self._variable(node.value, env)[0]

    def _do_pair_second(self, frame: Frame, node: Any, env: dict[str, Any]) -> Any:
        return self._variable(node.value, env)[1]

    def _do_exhaust_iter(self, frame: Frame, node: Any, env: dict[str, Any]) -> Any:
        value = self._variable(node.value, env)
        if not isinstance(value, tuple) or len(value) != node.count:
            raise Reject(
                f"cannot unpack {describe(value) if not isinstance(value, tuple) else f'a tuple of {len(value)}'} into {node.count} names"
            )
        return value

    def _do_make_function(self, frame: Frame, node: Any, env: dict[str, Any]) -> LocalFunction:
        code = node.code.value if hasattr(node.code, "value") else node.code
        if code.co_name == "<genexpr>":
            raise Reject("generator expressions need objects at run time; write a loop")
        captured = self._variable(node.closure, env) if node.closure is not None else ()
        cells = tuple(types.CellType(None) for _ in code.co_freevars)
        defaults = node.defaults if isinstance(node.defaults, tuple) else None
        function = types.FunctionType(code, frame.code.function.__globals__, code.co_name, defaults, cells)
        return LocalFunction(function, captured)

    def _do_call(self, frame: Frame, node: Any, env: dict[str, Any]) -> Any:
        function = self._variable(node.func, env)
        if node.vararg is not None or getattr(node, "varkwarg", None) is not None:
            raise Reject("*args and **kwargs cannot be passed inside a callback")
        args = tuple(self._variable(argument, env) for argument in node.args)
        return self._call(function, args, {name: self._variable(argument, env) for name, argument in node.kws})

    def _call(self, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        if isinstance(function, LocalFunction):
            return self._call_python(function.function, args, kwargs, self._here(), function.captured)
        if isinstance(function, BoundMethod):
            return self._method(function, args)
        if function is slice:
            return slice(*args)
        if any(function is f for f in (range, enumerate, zip, reversed, tuple)):
            return self._sequence(function, args, kwargs)
        result = self.operations.call(function, args, kwargs)
        if result is not NotImplemented:
            return self._checked(result) if isinstance(result, Value) else result
        if isinstance(function, Hashable) and function in FORBIDDEN:
            raise Reject(FORBIDDEN[function])
        if isinstance(function, type) and issubclass(function, BaseException):
            raise Reject(RAISES)
        plain = getattr(function, "py_func", None) or _callback_function(function) or function
        if isinstance(plain, types.FunctionType) and not _is_library(plain):
            return self._call_python(plain, args, kwargs, self._here())
        if isinstance(plain, types.MethodType):
            raise Reject(f"{plain.__qualname__} is a bound method; write a plain function")
        raise unknown_callable(function)

    def _method(self, method: BoundMethod, args: tuple) -> Any:
        if method.name == "conjugate" and not args:
            return self.operations.conjugate(method.value)
        raise Reject(f"the method {method.name!r} of {describe(method.value)} cannot run inside a callback")

    def _sequence(self, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """``range``, ``enumerate``, ``zip``, ``reversed`` and ``tuple`` of what is known at compile time; ``range`` also at run time."""
        if function is range:
            return RangeIterator.of(self, args)
        if not all(isinstance(a, (tuple, Iterator)) or (function is enumerate and k) for k, a in enumerate(args)):
            raise Reject(
                f"{function.__name__}() takes tuples such as `axes`, `index` or `shape`; loop over range(n) otherwise"
            )
        items = [tuple(a.items[a.position :]) if isinstance(a, Iterator) else a for a in args]
        return tuple(function(*items, **kwargs))


def _callback_function(function: Any) -> Any:
    """The plain function behind a ready-made or decorated callback that is called like a helper."""
    links = getattr(function, "links", None)
    return links[0].function if links and len(links) == 1 else None


def _is_library(function: types.FunctionType) -> bool:
    """A Python function of NumPy or the standard library: not meant to be inlined."""
    return (function.__module__ or "").split(".")[0] in (
        "numpy",
        "scipy",
        "torch",
        "cupy",
        "jax",
    ) and function not in SPECIAL
