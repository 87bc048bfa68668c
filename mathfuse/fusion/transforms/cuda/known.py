"""Known problems of the stateless functions: what they planned once is found again by what they are called with.

Engines (code, cuFFT plans and workspaces) are kept, the most recent ones up to a number and a size. No array of a user
is: a shortcut holds addresses, and goes when the callback that owns the arrays goes.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from mathfuse.epilogs import Callback
from mathfuse.fusion.compiler.fingerprint import watch
from mathfuse.fusion.transforms.cuda.engine import Engine, Values
from mathfuse.fusion.transforms.cuda.outputs import Ready
from mathfuse.runtime import settings
from mathfuse.runtime.cuda.frameworks import CUPY, EXCHANGE, JAX, NUMBA, TORCH, Framework
from mathfuse.runtime.cuda.interface import Allocator

MOST_SHORTCUTS, MOST_ENGINES = 256, 64


class Shortcut:
    """A known problem: the engine, its parameters, and what tells that they still hold."""

    __slots__ = ("_current", "_device", "_new", "_places", "_pointer", "_run", "_unchanged", "_values", "engine")

    def __init__(
        self,
        engine: Engine,
        values: Values,
        new: Allocator,
        unchanged: Sequence[Callable[[], bool]],
        users: Sequence[tuple[Framework, Any]],
    ) -> None:
        self.engine, self._run, self._values, self._new, self._unchanged = engine, engine.run, values, new, unchanged
        self._places = [(weakref.ref(array), framework.lies, framework.lies(array)) for framework, array in users]
        self._pointer, self._current = engine.framework.pointer, engine.framework.current_stream
        self._device = engine.device

    def run(self, x: Any) -> Any:
        """The result for an input of the same layout; None if a callback is another one by now, or its arrays moved."""
        for unchanged in self._unchanged:
            if not unchanged():
                return None
        for reference, lies, before in self._places:
            array = reference()
            if array is None or lies(array) != before:
                return None
        result, target = self._new()
        self._run(self._values, self._pointer(x), target, self._current(self._device))
        return result


_shortcuts: OrderedDict[Hashable, tuple[Shortcut, Any]] = OrderedDict()  # with references to what the keys name
_engines: OrderedDict[int, Engine] = OrderedDict()
_frameworks: dict[type, Framework] = {}
_lock = threading.Lock()


_PLAIN = frozenset((type(None), bool, int, str, tuple))  # known by their value; anything else by its identity


def call(name: str, positional: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    """The result of a known call; None of any other.

    What the key of a shortcut names lives: the end of that is the end of the shortcut.
    """
    try:
        found = _shortcuts.get(_key(name, positional, named))
    except TypeError:  # a tuple of lists
        return None
    return found[0].run(positional[0]) if found else None


def _key(name: str, positional: tuple[Any, ...], named: Mapping[str, Any]) -> Hashable | None:
    """What a call is known by; None where it cannot be known."""
    if not positional or "out" in named or "stream" in named:
        return None
    framework = _frameworks.get(type(positional[0]))
    if framework is None:
        return None
    key: list[Hashable] = [name, framework.layout_key(positional[0]), len(positional), *named]
    for values in (positional[1:], named.values()):
        key += [value if type(value) in _PLAIN else id(value) for value in values]
    return tuple(key)


def remember(
    name: str,
    positional: tuple[Any, ...],
    named: Mapping[str, Any],
    ready: Ready,
    new: Allocator,
    users: Sequence[tuple[Framework, Any]],
) -> None:
    """Have a call be found again, if its arguments can be.

    `users` are the callbacks' arrays as the user has them; no shortcut keeps one alive.
    """
    engine = ready.engine
    if not positional:
        return
    if engine.framework in (CUPY, TORCH):
        _frameworks[type(positional[0])] = engine.framework
    key = _key(name, positional, named)
    objects = [value for value in (*positional[1:], *named.values()) if type(value) not in _PLAIN]
    if not all(isinstance(each, Callback) or type(each) in _frameworks for each in objects):
        return  # what may change under its identity: mappings, lists

    def forget(_: Any) -> None:
        _shortcuts.pop(key, None)

    try:
        hash(key)
        references = tuple(weakref.ref(each, forget) for each in objects)
        owners = tuple(weakref.ref(array) for _, array in users)
    except TypeError:  # tuples of lists, arrays that know no weak references
        return
    if key is None:
        return
    unchanged = [watch(each) for each in objects if isinstance(each, Callback)]
    shortcut = Shortcut(engine, Values(ready.values.blocks, owners), new, unchanged, users)
    with _lock:
        _shortcuts[key] = shortcut, references
        while len(_shortcuts) > MOST_SHORTCUTS:
            _shortcuts.popitem(last=False)


def keep(engine: Engine) -> None:
    """Hold an engine, as the most recent one, within the limits on their number and on the size of all workspaces."""
    with _lock:
        _engines[id(engine)] = engine
        _engines.move_to_end(id(engine))
        total = sum(each.workspace_bytes for each in _engines.values())
        while len(_engines) > 1 and (len(_engines) > MOST_ENGINES or total > settings.plan_cache_bytes()):
            total -= _engines.popitem(last=False)[1].workspace_bytes
        alive = set(_engines)
        for key in tuple(_shortcuts):  # at once: weak references strike in between
            found = _shortcuts.get(key)
            if found and id(found[0].engine) not in alive:
                _shortcuts.pop(key, None)


def forget_shortcuts() -> None:
    """Have every known problem be planned again."""
    _shortcuts.clear()


def clear() -> None:
    """Let go of all of them and of their device memory."""
    with _lock:
        _shortcuts.clear()
        _engines.clear()
    for framework in (EXCHANGE, JAX, NUMBA):
        framework.release()
