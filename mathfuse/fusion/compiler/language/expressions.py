"""What each kind of expression means: names, attributes, elements, loops, calls."""

from __future__ import annotations

import difflib
import inspect
import operator
import types
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from mathfuse.epilogs.values import Constant, is_array
from mathfuse.fusion.compiler.emit.emitter import Value
from mathfuse.fusion.compiler.emit.scalars import Scalar
from mathfuse.fusion.compiler.language.arithmetic import BoundMethod, Reject, describe
from mathfuse.fusion.compiler.language.frames import UNDEFINED, Frame, Knowledge, LocalFunction, rebuild
from mathfuse.fusion.compiler.language.frontend import numba_ir
from mathfuse.fusion.compiler.language.iterators import Iterator, Pair, RangeIterator, make_range, sequence, start
from mathfuse.fusion.compiler.language.messages import FORBIDDEN, RAISES, STATEMENTS, TRY
from mathfuse.fusion.compiler.language.operands import Operand, OperandAccess
from mathfuse.fusion.compiler.language.operations import Operations, unknown_callable
from mathfuse.runtime.words import counted

UNARY = {"-": operator.neg, "+": operator.pos, "not": operator.not_, "~": operator.invert}
NEVER_INLINED = {"numpy", "scipy", "torch", "cupy", "jax"}  # their Python functions are never inlined


class Expressions:
    """The handlers of expressions, one ``_do_<operation>`` each; :class:`~.evaluator.Evaluator` brings the state."""

    operations: Operations
    operand_access: OperandAccess
    knowledge: Knowledge
    capture: Callable[[Any], Operand]
    captured: dict[tuple, Operand]
    wide: bool

    def call_python(
        self, function: types.FunctionType, args: tuple, kwargs: dict[str, Any], local: LocalFunction | None = None
    ) -> Any:
        """The result of a Python function, evaluated in place."""

    # --- names --------------------------------------------------------------------------------------------------------
    def variable(self, variable: Any, env: dict[str, Any]) -> Any:
        value = env.get(variable.name, UNDEFINED)
        if value is UNDEFINED:
            raise Reject(f"{variable.name.split('.')[0]!r} may be used before it is assigned")
        return value

    def expression(self, frame: Frame, node: Any, env: dict[str, Any]) -> Any:
        if isinstance(node, numba_ir.Arg):
            return env[f"arg.{node.name}"]
        if isinstance(node, numba_ir.Var):
            return self.variable(node, env)
        if isinstance(node, numba_ir.FreeVar) and frame.captured:
            return frame.captured[node.index]
        if isinstance(node, (numba_ir.Const, numba_ir.Global, numba_ir.FreeVar)):
            if node.value is numba_ir.UNDEFINED:
                raise Reject(f"{getattr(node, 'name', 'a name')!r} is not defined")
            return self.admit(node.value, getattr(node, "name", "constant"))
        operation = node.op if isinstance(node, numba_ir.Expr) else type(node).__name__
        handler = getattr(self, f"_do_{operation}", None)
        if handler is None:
            raise Reject(STATEMENTS.get(operation, f"{operation} has no meaning inside a kernel"))
        return handler(frame, node, env)

    def admit(self, value: Any, name: str) -> Any:
        """An object of the Python world as the evaluator sees it: NumPy scalars are weak numbers, arrays operands."""
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, Constant):
            return self._captured(value.array, name, readonly=True)
        if is_array(value):
            return self._captured(value, name)
        if isinstance(value, tuple):
            return rebuild(value, [self.admit(item, name) for item in value])
        return value

    def _captured(self, array: Any, name: str, readonly: bool = False) -> Operand:
        key = (id(array), readonly)
        if key not in self.captured:
            try:
                operand = self.capture(array)
            except KeyError:
                raise Reject(f"the array {name!r} cannot be found before the callback runs; pass it in") from None
            self.captured[key] = replace(operand, title=name, readonly=readonly or operand.readonly)
        return self.captured[key]

    # --- operators ----------------------------------------------------------------------------------------------------
    def _do_binop(self, frame: Frame, node: Any, env: dict[str, Any]) -> Any:
        return self.operations.binary(node.fn, self.variable(node.lhs, env), self.variable(node.rhs, env))

    _do_inplace_binop = _do_binop

    def _do_unary(self, frame: Frame, node: Any, env: dict[str, Any]) -> Any:
        return self.operations.unary(UNARY.get(node.fn, node.fn), self.variable(node.value, env))

    def _do_cast(self, frame: Frame, node: Any, env: dict[str, Any]) -> Any:
        return self.variable(node.value, env)

    def _do_undef(self, frame: Frame, node: Any, env: dict[str, Any]) -> Any:
        return UNDEFINED

    def _do_build_tuple(self, frame: Frame, node: Any, env: dict[str, Any]) -> tuple:
        return tuple(self.variable(item, env) for item in node.items)

    # --- attributes ---------------------------------------------------------------------------------------------------
    def _do_getattr(self, frame: Frame, node: Any, env: dict[str, Any]) -> Any:
        value, name = self.variable(node.value, env), node.attr
        if isinstance(value, types.ModuleType):
            return self._module_attribute(value, name)
        if isinstance(value, Operand):
            return self._operand_attribute(value, name)
        if isinstance(value, (Value, bool, int, float, complex)):
            return self.operations.attribute(value, name)
        if isinstance(value, tuple) and name in getattr(value, "_fields", ()):
            return getattr(value, name)
        raise Reject(
            f"{describe(value)} has no attributes inside a callback; "
            f"take what you need outside of it: {name} = ….{name}"
        )

    def _module_attribute(self, module: types.ModuleType, name: str) -> Any:
        try:
            return self.admit(getattr(module, name), name)
        except AttributeError:
            close = difflib.get_close_matches(name, dir(module), n=3)
        near = f"; near it there is {', '.join(close)}" if close else ""
        raise Reject(f"module {module.__name__} has no {name!r}{near}")

    def _operand_attribute(self, operand: Operand, name: str) -> Any:
        if name == "shape":
            return operand.shape
        if name == "ndim":
            return operand.ndim
        if name == "size":
            return self.operations.product(operand.shape)
        if name in ("real", "imag", "conjugate", "conj"):
            return self.operations.attribute(self.operations.number(operand), name)
        raise Reject(
            f"{describe(operand)} has no {name!r} inside a callback; there are [index], .shape, .ndim and .size"
        )

    # --- elements -----------------------------------------------------------------------------------------------------
    def _do_getitem(self, frame: Frame, node: Any, env: dict[str, Any]) -> Any:
        return self._item(self.variable(node.value, env), self.variable(node.index, env))

    def _do_static_getitem(self, frame: Frame, node: Any, env: dict[str, Any]) -> Any:
        return self._item(self.variable(node.value, env), node.index)

    def _item(self, container: Any, index: Any) -> Any:
        if isinstance(container, Operand):
            return self.loaded(self.operand_access.read(container, index))
        if not isinstance(container, tuple):
            raise Reject(f"{describe(container)} cannot be indexed; operands (arrays) and tuples can")
        if isinstance(index, Value) and index.type.kind in "iu":
            return self._select_item(container, index)
        try:
            return container[index]
        except IndexError:
            found = counted(len(container), "element", "elements")
            raise Reject(f"tuple index {index} is out of range: the tuple has {found}") from None
        except TypeError:
            what = "the bounds of a tuple's slice must be constants" if isinstance(index, slice) else ""
            raise Reject(what or f"a tuple index must be an integer, not {describe(index)}") from None

    def _select_item(self, items: tuple, index: Value) -> Any:
        """An element chosen at run time: a chain of selections, negative indices counted from the end."""
        if not items:
            raise Reject("index into an empty tuple")
        chosen: Any = items[0]
        for k in range(1, len(items)):
            equal = [self.operations.binary(operator.eq, index, n) for n in (k, k - len(items))]
            chosen = self.operations.where(self.operations.binary(operator.or_, *equal), items[k], chosen)
        return chosen

    def set_item(self, target: Any, index: Any, value: Any) -> None:
        if not isinstance(target, Operand):
            raise Reject(
                f"an element of {describe(target)} cannot be assigned to; only elements of operands (arrays) can"
            )
        self.operand_access.write(target, index, value)

    def _do_exhaust_iter(self, frame: Frame, node: Any, env: dict[str, Any]) -> tuple:
        value = self.variable(node.value, env)
        if not isinstance(value, tuple) or len(value) != node.count:
            raise Reject(f"cannot unpack {describe(value)} into {node.count} names")
        return value

    # --- loops --------------------------------------------------------------------------------------------------------
    def _do_getiter(self, frame: Frame, node: Any, env: dict[str, Any]) -> Iterator | RangeIterator:
        return start(self.variable(node.value, env), self)  # type: ignore[arg-type]

    def _do_iternext(self, frame: Frame, node: Any, env: dict[str, Any]) -> Pair:
        iterator = self.variable(node.value, env)
        if isinstance(iterator, RangeIterator):
            return iterator.next(self)  # type: ignore[arg-type]
        pair, env[node.value.name] = iterator.next()
        return pair

    def _do_pair_first(self, frame: Frame, node: Any, env: dict[str, Any]) -> Any:
        return self.variable(node.value, env)[0]

    def _do_pair_second(self, frame: Frame, node: Any, env: dict[str, Any]) -> Any:
        return self.variable(node.value, env)[1]

    # --- functions ----------------------------------------------------------------------------------------------------
    def _do_make_function(self, frame: Frame, node: Any, env: dict[str, Any]) -> LocalFunction:
        code = getattr(node.code, "value", node.code)
        if code.co_name in ("<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>"):
            raise Reject("comprehensions and generator expressions need memory at run time; write a loop")
        captured, defaults = (
            self.variable(given, env) if isinstance(given, numba_ir.Var) else tuple(given or ())
            for given in (node.closure, node.defaults)
        )
        return LocalFunction(code, frame.code.function, captured, defaults)

    def _do_call(self, frame: Frame, node: Any, env: dict[str, Any]) -> Any:
        function = self.variable(node.func, env)
        args = tuple(self.variable(argument, env) for argument in node.args)
        if node.vararg is not None:
            starred = self.variable(node.vararg, env)
            if not isinstance(starred, tuple):
                raise Reject(f"*{describe(starred)}: only a tuple such as `index` can be passed on with a star")
            args += starred
        if getattr(node, "varkwarg", None) is not None:
            raise Reject("**keywords cannot be passed on inside a callback; write the arguments out")
        return self.call(function, args, {name: self.variable(argument, env) for name, argument in node.kws})

    def call(self, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        if isinstance(function, LocalFunction):
            return self.call_python(function.function(), args, kwargs, function)
        if isinstance(function, BoundMethod):
            return self._method(function, args, kwargs)
        if not callable(function):
            raise Reject(f"{describe(function)} cannot be called")
        if function is slice and 1 <= len(args) <= 3 and not kwargs:  # what Numba makes of items[start:stop]
            return slice(*args)
        if function is range and not kwargs:
            return make_range(self, args)  # type: ignore[arg-type]
        if any(function is f for f in (enumerate, zip, reversed, tuple)):
            return sequence(function, args, kwargs)
        result = self.operations.call(function, args, kwargs)
        if result is not NotImplemented:
            return self.checked(result) if isinstance(result, Value) else result
        plain = _plain(function)
        if plain is not None:
            return self.call_python(plain, args, kwargs)
        raise _refusal(function)

    def loaded(self, value: Value) -> Value:
        """An element as it was read, in 64 bits under ``precision="float64"``."""
        wide = self.wide and value.type.is_float
        return self.checked(self.operations.emitter.convert(value, Scalar(value.type.kind, 64)) if wide else value)

    def checked(self, value: Value) -> Value:
        """A strong 64-bit float beside 32-bit weak ones: weak floats must not lose what it would give them."""
        if value.type.is_float and not value.type.weak and value.type.bits > self.knowledge.weak_bits:
            raise self.knowledge.wide()
        return value

    def _method(self, method: BoundMethod, args: tuple, kwargs: dict[str, Any]) -> Any:
        if method.name == "conjugate" and not args and not kwargs:
            return self.operations.conjugate(method.value)
        raise Reject(f"{method.description()} takes no arguments")


def _plain(function: Any) -> types.FunctionType | None:
    """The plain Python function that a helper, a Numba dispatcher or a callback of one link stands for."""
    links = getattr(function, "links", None)
    if links and len(links) == 1:
        _refuse_bindings(links[0])
        function = links[0].function
    function = getattr(function, "py_func", function)
    if not isinstance(function, types.FunctionType):
        return None
    return None if (function.__module__ or "").split(".")[0] in NEVER_INLINED else function


def _refuse_bindings(link: Any) -> None:
    """What is bound to a callback is run-time data of its own plan; only the function can be called in another."""
    parameters = inspect.signature(link.function).parameters
    for name, value in link.bindings:
        if parameters[name].default is not value:
            raise Reject(
                f"{link.function.__name__}({name}=…) has a value bound, which a call inside a callback would lose; "
                f"call {link.function.__name__} and pass {name} as an argument"
            )


def _refusal(function: Any) -> Exception:
    """What to say of a callable that cannot run inside a kernel."""
    try:
        message = FORBIDDEN.get(function)
    except TypeError:  # not hashable
        message = None
    if message:
        return Reject(message)
    if isinstance(function, type) and issubclass(function, BaseException):
        return Reject(RAISES)
    if getattr(function, "__module__", None) == "numba.core.unsafe.eh":
        return Reject(TRY)
    if isinstance(function, types.MethodType):
        return Reject(f"{function.__qualname__} is a bound method; write a plain function")
    if len(getattr(function, "links", ())) > 1:
        return Reject(f"{function!r} is a chain, which cannot be called; call its functions one after the other")
    return unknown_callable(function)
