"""Callbacks as values: functions with operands bound by name, chained with `|`, compared by what they do."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import FunctionType, MappingProxyType
from typing import Any, NoReturn

from mathfuse.epilogs import pickling
from mathfuse.epilogs.reference import apply, unwrapped
from mathfuse.epilogs.signature import RESERVED, error, parameters
from mathfuse.epilogs.values import identity, objection, summary
from mathfuse.runtime.errors import CallbackError


@dataclass(frozen=True, eq=False, repr=False)
class Link:
    """One function of a callback with its bindings and options; an immutable value.

    Attributes
    ----------
    function : function
        The user's plain Python function.
    parameters, reserved, operands : tuple of str
        Names of all parameters, of the reserved ones among them, and of the rest, each in the order of the signature.
    bindings : tuple of (str, object)
        Operands bound so far, defaults included, in the order of the signature.
    fastmath : bool
    precision : {None, "float64"}
    """

    function: FunctionType
    parameters: tuple[str, ...]
    reserved: tuple[str, ...]
    operands: tuple[str, ...]
    bindings: tuple[tuple[str, object], ...] = ()
    fastmath: bool = True
    precision: str | None = None

    @classmethod
    def of(cls, function: FunctionType, kind: str, fastmath: bool = True, precision: str | None = None) -> Link:
        """The link of a decorated function, its defaults bound."""
        names, reserved, operands, defaults = parameters(function, kind)
        return cls(function, names, reserved, operands, (), fastmath, precision).bind(defaults)

    def bind(self, values: Mapping[str, object]) -> Link:
        """This link with those of `values` bound that are its own operands."""
        merged = {**dict(self.bindings), **values}
        return replace(self, bindings=tuple((name, merged[name]) for name in self.operands if name in merged))

    @cached_property
    def key(self) -> Hashable:
        """What equality and hash go by."""
        values = tuple((name, identity(value)) for name, value in self.bindings)
        return self.function, self.fastmath, self.precision, values

    def __eq__(self, other: object) -> bool:
        return self.key == other.key if isinstance(other, Link) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        bound = dict(self.bindings)
        shown = (f"{name}={summary(bound[name])}" if name in bound else name for name in self.operands)
        return f"{self.function.__name__}({', '.join(shown)})"

    def __reduce__(self) -> tuple[Callable[..., Link], tuple[object, ...]]:
        return _restore, (pickling.reference(self.function), self.bindings, self.fastmath, self.precision)


@dataclass(frozen=True, repr=False)
class Callback:
    """A prolog or an epilog with the operands bound so far: what `prolog`, `epilog`, binding and ``|`` give.

    An immutable value. Two callbacks are equal, with equal hashes, when they are of one kind and have the same
    functions, options and bound values: scalars by type and value (1, 1.0 and True differ, −0.0 differs from 0.0, NaN
    equals itself), arrays and functions as objects. Pickling goes by module and name where those lead to the same
    function again, else by the function itself; bound values travel along.

    ``callback(name=value, …)`` binds operands and never computes; the function itself is ``callback.function``.
    ``a | b`` applies `a` first.

    Attributes
    ----------
    kind : {"prolog", "epilog"}
    links : tuple of Link
        One for a decorated function, several for a chain, in the order in which they are applied.
    """

    kind: str
    links: tuple[Link, ...]

    def __post_init__(self) -> None:
        _check_source(self.kind, self.links)
        _check_shared_operands(self.kind, self.links)
        if len(self.links) == 1:  # as functools.wraps does, so that help() and documentation show the user's function
            function = self.links[0].function
            names = ("__name__", "__qualname__", "__module__", "__doc__")
            self.__dict__.update({name: getattr(function, name) for name in names}, __wrapped__=function)
        else:
            self.__dict__["__name__"] = repr(self)

    @cached_property
    def function(self) -> Callable[..., Any]:
        """The plain Python function, for debugging.

        It takes the reserved parameters as the pipeline would give them, and every operand. A chain's function applies
        the links in order, takes all arguments by keyword, and may be called without the operands that are bound.
        """
        return self.links[0].function if len(self.links) == 1 else _composed(self)

    @cached_property
    def bound(self) -> Mapping[str, object]:
        """Bound operands by name, defaults included."""
        return MappingProxyType({name: value for link in self.links for name, value in link.bindings})

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """Names of all operands, bound or free, in the order of their appearance."""
        return tuple(dict.fromkeys(name for link in self.links for name in link.operands))

    @cached_property
    def free(self) -> tuple[str, ...]:
        """Names of the operands that still have to be bound, in the order of their appearance."""
        return tuple(name for name in self.operands if name not in self.bound)

    def __call__(self, /, *positional: object, **values: object) -> Callback:
        """Bind operands by name; a name that is bound already gets the new value.

        Raises
        ------
        CallbackError
            For positional arguments, names that are no operands, and values that are neither numbers nor arrays.
        """
        if positional:
            bind = ", ".join(f"{name}=…" for name in self.operands)
            how = f"bind by name, callback({bind})" if bind else "it has no operands to bind"
            self._fail(f"positional arguments have no meaning here: {how}{self._how_to_run}")
        if reserved := [name for name in values if name in RESERVED]:
            self._fail(f"`{reserved[0]}` cannot be bound, the pipeline gives it for each element{self._how_to_run}")
        if unknown := [name for name in values if name not in self.operands]:
            known = f"its operands are {', '.join(self.operands)}" if self.operands else "it has no operands"
            self._fail(f"there is no operand {', '.join(map(repr, unknown))}: {known}")
        for name, value in values.items():
            if problem := objection(name, value):
                self._fail(problem)
        return Callback(self.kind, tuple(link.bind(values) for link in self.links))

    def __or__(self, other: object) -> Callback:
        if not isinstance(other, Callback):
            _fail_to_chain(other, self.kind)
        if other.kind != self.kind:
            problem = f"a chain is of one kind, and {self} is of kind {self.kind}, {other} of kind {other.kind}"
            functions = (link.function for link in self.links + other.links)
            raise error("chain", f"{problem}: write mf.{self.kind}(…) around the second", *functions)
        return Callback(self.kind, self.links + other.links)

    def __ror__(self, other: object) -> NoReturn:
        _fail_to_chain(other, self.kind)

    __array_ufunc__ = None  # `array | callback` comes to __ror__ instead of NumPy's loop over elements

    def as_kind(self, kind: str) -> Callback:
        """The same callback as a "prolog" or an "epilog".

        Every epilog can be a prolog; a prolog can be an epilog unless it reads ``source``.

        Raises
        ------
        CallbackError
            If it reads ``source`` and `kind` is "epilog".
        """
        return self if kind == self.kind else Callback(kind, self.links)

    def with_options(self, fastmath: bool | None = None, precision: str | None = None) -> Callback:
        """The same callback with those options changed, in all its links, that are not None."""
        changes = {"fastmath": fastmath, "precision": precision}
        given: dict[str, Any] = {name: option for name, option in changes.items() if option is not None}
        return Callback(self.kind, tuple(replace(link, **given) for link in self.links)) if given else self

    @cached_property
    def _hash(self) -> int:
        return hash((self.kind, self.links))

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return " | ".join(map(repr, self.links))

    def __reduce__(self) -> tuple[type[Callback], tuple[str, tuple[Link, ...]]]:
        return Callback, (self.kind, self.links)

    def __copy__(self) -> Callback:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Callback:
        links = (replace(link, bindings=copy.deepcopy(link.bindings, memo)) for link in self.links)
        return Callback(self.kind, tuple(links))

    @property
    def _how_to_run(self) -> str:
        names = dict.fromkeys([name for link in self.links for name in link.parameters])
        return f". To run the plain function, write callback.function({', '.join(f'{name}=…' for name in names)})"

    def _fail(self, problem: str) -> NoReturn:
        raise error(self.kind, problem, *(link.function for link in self.links))


def _check_source(kind: str, links: tuple[Link, ...]) -> None:
    for position, link in enumerate(links):
        if "source" in link.reserved and kind == "epilog":
            raise error(
                kind, "only a prolog can read `source`, the whole input: use `value` and `index`", link.function
            )
        if "source" in link.reserved and position > 0:
            raise error(kind, "only the first callback of a chain can read `source`: put it first", link.function)


def _check_shared_operands(kind: str, links: tuple[Link, ...]) -> None:
    owners: dict[str, Link] = {}
    for link in links:
        for name in link.operands:
            owner = owners.get(name)
            if owner and not _agree(name, dict(owner.bindings), dict(link.bindings)):
                problem = f"{owner} and {link} both have an operand {name!r}, and not one value for it"
                instead = f"bind both to the same object before chaining, or rename {name!r} in one of them"
                raise error(kind, f"{problem}: {instead}", owner.function, link.function)
            owners[name] = link


def _agree(name: str, first: dict[str, object], second: dict[str, object]) -> bool:
    return name in first and name in second and identity(first[name]) == identity(second[name])


def _fail_to_chain(other: object, kind: str) -> NoReturn:
    name = getattr(other, "__name__", type(other).__name__)
    how = f"decorate it with @mf.{kind}" if isinstance(other, FunctionType) else "`|` joins callbacks only"
    raise CallbackError(f"cannot chain with {name}, which is not a callback: {how}")


def _composed(callback: Callback) -> Callable[..., Any]:
    known = {*RESERVED, *callback.operands}
    bound = {name: unwrapped(value) for name, value in callback.bound.items()}

    def composed(**arguments: Any) -> Any:
        if unknown := [name for name in arguments if name not in known]:
            raise TypeError(f"{callback} got an unexpected keyword argument {unknown[0]!r}")
        return apply(callback.links, {**bound, **arguments})

    composed.__name__ = composed.__qualname__ = repr(callback)
    composed.__doc__ = f"Apply {callback} to one element; all arguments by keyword."
    return composed


def _restore(
    reference: pickling.Reference, bindings: tuple[tuple[str, object], ...], fastmath: bool, precision: str | None
) -> Link:
    link = Link.of(pickling.resolve(reference), "prolog", fastmath, precision)
    if lost := [name for name, _ in bindings if name not in link.operands]:
        raise error("callback", f"it was pickled when it had operands that it lacks now, {lost[0]!r}", link.function)
    return link.bind(dict(bindings))
