"""Known problems of the stateless functions: what they planned once is found again by what they are called with.

Engines (code, cuFFT plans and workspaces) are kept, the most recent ones up to a number and a size. No array of a user
is: a shortcut holds addresses, and goes when the callback that owns the arrays goes.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from mathfuse.epilogs import Callback
from mathfuse.fusion.compiler.fingerprint import watch
from mathfuse.fusion.transforms.cuda.engine import Engine, Values, forget_captures
from mathfuse.runtime import settings
from mathfuse.runtime.cuda.frameworks import CUPY, TORCH, Framework
from mathfuse.runtime.cuda.interface import Allocator

MOST_SHORTCUTS, MOST_ENGINES = 256, 64


class Shortcut:
    """A known problem: the engine, its parameters, and what tells that they still hold."""

    __slots__ = ("_current", "_device", "_new", "_pointer", "_run", "_unchanged", "_values", "engine")

    def __init__(self, engine: Engine, values: Values, new: Allocator, unchanged: list[Callable[[], bool]]) -> None:
        self.engine, self._run, self._values, self._new, self._unchanged = engine, engine.run, values, new, unchanged
        self._pointer, self._current = engine.framework.pointer, engine.framework.current_stream
        self._device = engine.device

    def run(self, x: Any) -> Any:
        """The result for an input of the same layout; None if a callback is another one by now."""
        for unchanged in self._unchanged:
            if not unchanged():
                return None
        result, target = self._new()
        self._run(self._values, self._pointer(x), target, self._current(self._device))
        return result


_shortcuts: OrderedDict[Hashable, tuple[Shortcut, Any]] = OrderedDict()  # with references to what the keys name
_engines: OrderedDict[int, Engine] = OrderedDict()
_frameworks: dict[type, Framework] = {}
_lock = threading.Lock()


_PLAIN = frozenset((type(None), bool, int, str, tuple))  # known by their value; anything else by its identity


def key_of(name: str, positional: tuple[Any, ...], named: Mapping[str, Any]) -> Hashable | None:
    """What a call is known by; None where it cannot be known."""
    if not positional or "out" in named or "stream" in named:
        return None
    framework = _frameworks.get(type(positional[0]))
    if framework is None:
        return None
    parts: list[Hashable] = [name, framework.layout_key(positional[0])]
    parts += [value if type(value) in _PLAIN else id(value) for value in positional[1:]]
    for word, value in named.items():
        parts += word, value if type(value) in _PLAIN else id(value)
    return tuple(parts)


def find(key: Hashable | None) -> Shortcut | None:
    """The shortcut of a call. What its key names lives: the end of that is the end of the shortcut."""
    try:
        found = _shortcuts.get(key)
    except TypeError:  # a tuple of lists
        return None
    return found[0] if found else None


def remember(
    name: str,
    positional: tuple[Any, ...],
    named: Mapping[str, Any],
    engine: Engine,
    values: Values,
    new: Allocator,
) -> None:
    """Have a call be found again, if its arguments can be."""
    if not positional:
        return
    if engine.framework in (CUPY, TORCH):
        _frameworks[type(positional[0])] = engine.framework
    key = key_of(name, positional, named)
    objects = [value for value in (*positional[1:], *named.values()) if type(value) not in _PLAIN]

    def forget(_: Any) -> None:
        _shortcuts.pop(key, None)

    try:
        hash(key)
        references = tuple(weakref.ref(each, forget) for each in objects)
    except TypeError:  # lists, mappings
        return
    if key is not None:
        shortcut = Shortcut(engine, values, new, [watch(each) for each in objects if isinstance(each, Callback)])
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
        for key in [key for key, (shortcut, _) in _shortcuts.items() if id(shortcut.engine) not in alive]:
            del _shortcuts[key]


def clear() -> None:
    """Let go of all of them and of their device memory, also of what is kept for captured graphs."""
    with _lock:
        _shortcuts.clear()
        _engines.clear()
    forget_captures()
