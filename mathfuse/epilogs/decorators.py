"""The two decorators of the epilog language."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

from mathfuse.epilogs.callback import Callback, Link
from mathfuse.epilogs.signature import plain_function
from mathfuse.runtime.errors import CallbackError


@overload
def epilog(
    function: Callable[..., Any] | Callback, /, *, fastmath: bool | None = None, precision: str | None = None
) -> Callback: ...
@overload
def epilog(
    *, fastmath: bool | None = None, precision: str | None = None
) -> Callable[[Callable[..., Any] | Callback], Callback]: ...
def epilog(
    function: Any = None, /, *, fastmath: bool | None = None, precision: str | None = None
) -> Callback | Callable[[Any], Callback]:
    """Turn a function into an epilog: it is applied to each result of a pipeline before that is written.

    Bare (``@mf.epilog``) or with options (``@mf.epilog(fastmath=False)``). Applied to a callback, it gives the same
    callback as an epilog, with the options that are given: ``mf.epilog(gelu, fastmath=False)``.

    Parameters
    ----------
    function : function or Callback
        A plain Python function of one element. These parameters are reserved and given by the pipeline, in any order
        and only where they are named: ``value`` the element; ``index`` its logical multi-index, a tuple of ints;
        ``shape`` the logical extents (for half spectra those of the full transform); ``axes`` the transform axes, a
        tuple of non-negative ints.
        Every other parameter is an operand, a scalar or an array, bound by name: ``gaussian(sigma=8.0)``; Python
        defaults are default bindings. A function compiled with ``numba.njit`` or ``cuda.jit`` stands for its
        ``py_func``.
    fastmath : bool, default True
        Allow contraction, flush to zero, and approximate division, square root, exp, log and tanh.
    precision : {None, "float64"}
        None computes in the precision of ``value``; "float64" computes in float64 and complex128 and rounds the result
        back to that precision.

    Returns
    -------
    Callback
        An immutable value: hashable, comparable, picklable.

    Raises
    ------
    CallbackError
        If the function or its signature cannot be a callback.

    Notes
    -----
    The result has the dtype that the function returns. Numbers (constants, ``index``, bound scalars) take the precision
    of ``value``: that of a float or complex value, float32 for integers of up to 16 bits and bool, float64 for wider
    ones; a float64 array makes float64 of what it meets. Half precision is computed as float32; ``numpy.float16(x)``
    and ``mathfuse.half(x)``, of complex numbers too, round to it, and are stored so where they are returned. Integers
    are computed in 64 bits and wrap; a signed one that meets a uint64 becomes one, as in C; division by the integer
    zero gives 0. An index outside an operand is an error when planning if it is ``index[a]`` or a constant, and reads
    NaN (0 for integers) if it is computed. Globals and closures count as they are at ``plan``.

    Operands may be assigned to: ``kept[index] = value``. Elements are computed at the same time and in no order: where
    two write to one place, or one reads what another writes, the result is undefined.

    Examples
    --------
    >>> @epilog
    ... def gated(value, index, bias, gate=1.0):
    ...     return (value + bias[index[-1]]) * gate
    >>> gated(gate=0.5)
    gated(bias, gate=0.5)
    """
    return _decorate("epilog", function, fastmath, precision)


@overload
def prolog(
    function: Callable[..., Any] | Callback, /, *, fastmath: bool | None = None, precision: str | None = None
) -> Callback: ...
@overload
def prolog(
    *, fastmath: bool | None = None, precision: str | None = None
) -> Callable[[Callable[..., Any] | Callback], Callback]: ...
def prolog(
    function: Any = None, /, *, fastmath: bool | None = None, precision: str | None = None
) -> Callback | Callable[[Any], Callback]:
    """Turn a function into a prolog: it is applied to each element as a pipeline reads it.

    As `epilog`, with one reserved parameter more: ``source``, the whole input array, for neighbours of the element. An
    epilog can be used as a prolog, and a prolog that does not read ``source`` as an epilog. What a prolog returns is
    transformed; integers and booleans among it become floats of the precision of ``value``.

    ``source.shape`` is what there is to read; ``shape`` may be more: the input of a C2R transform is half a spectrum.

    Parameters
    ----------
    function, fastmath, precision
        As for `epilog`.

    Returns
    -------
    Callback

    Raises
    ------
    CallbackError
        If the function or its signature cannot be a callback.
    """
    return _decorate("prolog", function, fastmath, precision)


def _decorate(
    kind: str, function: Any, fastmath: bool | None, precision: str | None
) -> Callback | Callable[[Any], Callback]:
    if precision not in (None, "float64"):
        raise CallbackError(f"precision={precision!r}: write precision='float64', or leave it out")
    if fastmath is not None and not isinstance(fastmath, bool):
        raise CallbackError(f"fastmath={fastmath!r}: write True or False")

    def decorate(function: Any) -> Callback:
        if isinstance(function, Callback):
            return function.with_options(fastmath, precision).as_kind(kind)
        link = Link.of(plain_function(function, kind), kind, fastmath is not False, precision)
        return Callback(kind, (link,))

    return decorate if function is None else decorate(function)
