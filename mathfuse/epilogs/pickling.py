"""How a callback's function travels: by module and name where these lead back to it, else by its own code."""

from __future__ import annotations

import functools
import importlib
import pickle
import sys
import weakref
from types import FunctionType
from typing import cast

from mathfuse.runtime.errors import CallbackError

Reference = tuple[str, str] | bytes

_MAIN = ("__main__", "__mp_main__")  # the second is what multiprocessing calls it in a child
_LOADED: weakref.WeakValueDictionary[bytes, FunctionType] = weakref.WeakValueDictionary()


def reference(function: FunctionType) -> Reference:
    """`(module, qualified name)` if another process finds the same function there, else the function pickled."""
    name = function.__module__, function.__qualname__
    if name[0] not in _MAIN and name[0] in sys.modules and _lookup(*name) is function:
        return name
    import cloudpickle  # type: ignore[import-untyped]

    return cast(bytes, cloudpickle.dumps(function))


def resolve(reference: Reference) -> FunctionType:
    """The function of a reference; the same bytes give the same function while it lives, so callbacks stay equal.

    Raises
    ------
    CallbackError
        If the module no longer has the function.
    """
    if isinstance(reference, bytes):
        import hashlib  # 3 ms that most programs never need

        digest = hashlib.sha256(reference).digest()
        return _LOADED.get(digest) or _LOADED.setdefault(digest, pickle.loads(reference))
    function = _lookup(*reference)
    if not isinstance(function, FunctionType):
        raise CallbackError(f"a stored callback is {'.'.join(reference)}, and there is no such function any more")
    return function


def _lookup(module: str, qualname: str) -> object:
    try:
        found: object = functools.reduce(getattr, qualname.split("."), importlib.import_module(module))
    except AttributeError:
        return None
    # A Callback and a Numba dispatcher stand in their module in the place of the function that they wrap.
    return found if isinstance(found, FunctionType) else getattr(found, "__wrapped__", None)
