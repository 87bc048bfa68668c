"""From what users say to a unit: :func:`compile`, with everything checked and defaults filled in."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mathfuse.epilogs import Callback
from mathfuse.fusion.compiler.cuda import toolchain
from mathfuse.fusion.compiler.cuda.artifacts import Compiled
from mathfuse.fusion.compiler.cuda.units import PIPELINES, SIDES, Unit
from mathfuse.fusion.compiler.signature import OperandType, Signature
from mathfuse.runtime.arrays import dtype_of
from mathfuse.runtime.errors import CallbackError, PlanError, UnsupportedError

SCALARS = ("bool", "int", "float", "complex")
MAX_RANK = 64  # as of NumPy's arrays


def compile(
    callback: Callback,
    pipeline: str = "fft",
    *,
    dtype: Any = "complex64",
    operands: Mapping[str, Any] | None = None,
    arch: str = "sm_90a",
    side: str | None = None,
    ndim: int | None = None,
    axes: Sequence[int] | None = None,
) -> Compiled:
    """Compiles a callback for a GPU pipeline, on any machine: neither a GPU nor its driver is needed.

    Parameters
    ----------
    callback : Callback
        A prolog or an epilog. Its operands may be bound or free.
    pipeline : {"fft", "matmul", "elementwise"}
        Where it runs: in a cuFFT transform, on the results of a matrix product, or in a kernel of its own.
    dtype : dtype-like
        Of the elements that the callback gets: the transform's element type on the callback's side or the product's
        compute type (float32, float64, complex64, complex128); in an elementwise kernel any dtype of numbers.
    operands : mapping, optional
        Operands by name, as a value or as a type: ``"float32[2]"`` (dtype and rank) for an array, ``"int"``,
        ``"float"`` or ``"complex"`` for a scalar. Only types matter to the code.
    arch : str
        GPU architecture: ``"sm_80"``, ``"sm_90a"``, ``"sm_100"``, ``"sm_120"`` …
    side : {"prolog", "epilog"}, optional
        Side of a transform; by default the callback's kind.
    ndim : int, optional
        Rank of the index space; by default the largest rank of an operand, and at least 2 for a product.
    axes : sequence of int, optional
        Transform axes, negative ones from the end; by default all (for a product the last two).

    Returns
    -------
    Compiled
        With ``.ltoir``, ``.ptx``, ``.sass`` and ``.audit``; what is already in the cache is not compiled again.

    Raises
    ------
    CallbackError
        The callback uses something that cannot run in a kernel, or is none.
    PlanError
        An operand is missing, unknown or of no type; ``ndim`` and ``axes`` do not fit together.
    UnsupportedError
        There is no such pipeline, or it does not have that dtype or rank.
    ToolchainError
        A compiler library is missing or too old, or does not know the architecture.

    Examples
    --------
    >>> import mathfuse as mf
    >>> mf.compile(mf.gaussian(sigma=8.0), "fft", dtype="complex64", arch="sm_80").audit.calls
    0
    """
    return Compiled(make_unit(callback, pipeline, dtype, operands or {}, arch, side, ndim, axes))


def make_unit(
    callback: Any,
    pipeline: str,
    dtype: Any,
    operands: Mapping[str, Any],
    arch: str,
    side: str | None = None,
    ndim: int | None = None,
    axes: Sequence[int] | None = None,
    symbol: str | None = None,
) -> Unit:
    """The unit that :func:`compile` compiles: everything checked, defaults filled in."""
    if not isinstance(callback, Callback):
        name = getattr(callback, "__name__", repr(callback))
        raise CallbackError(f"{name} is not a callback; decorate the function with @mf.epilog or @mf.prolog")
    side = side or callback.kind
    for choice, known, what in ((pipeline, PIPELINES, "pipeline"), (side, SIDES, "side")):
        if choice not in known:
            raise UnsupportedError(f"there is no {what} {choice!r}; there are {', '.join(known)}")
    callback, element = callback.as_kind(side), dtype_of(dtype)
    signature = Signature.of(callback, element, 1, (0,), _operand_types(callback, operands))
    rank = _rank(pipeline, ndim, signature)
    source = any("source" in link.reserved for link in callback.links)
    signature = replace(
        signature,
        ndim=rank,
        axes=_axes(pipeline, axes, rank),
        source=operand_spec(f"{element}[{rank}]", "source") if source else None,
    )
    prescribed = None if pipeline == "elementwise" else element
    unit = Unit(pipeline, signature, prescribed, toolchain.checked_arch(arch), side, tuple(range(rank)), False, symbol)
    assert unit.prototype or pipeline == "elementwise"  # a pipeline without such elements says so
    return unit


def _rank(pipeline: str, ndim: int | None, signature: Signature) -> int:
    ranks = [kind.ndim for _, kind in signature.operands]
    rank = max([2 if pipeline == "matmul" else 1, *ranks]) if ndim is None else ndim
    if not isinstance(rank, int) or not 1 <= rank <= MAX_RANK:
        raise PlanError(f"ndim={rank!r}: the rank of the index space is an integer from 1 to {MAX_RANK}")
    if pipeline == "matmul" and rank not in (2, 3):
        raise UnsupportedError(
            f"a product's index has a row, a column and at most one batch index, not {rank} of them; "
            "reshape the batch to one axis"
        )
    return rank


def _axes(pipeline: str, axes: Sequence[int] | None, rank: int) -> tuple[int, ...]:
    if axes is None:
        return tuple(range(rank - 2 if pipeline == "matmul" else 0, rank))
    try:
        chosen = tuple(operator.index(axis) for axis in axes)
    except TypeError:
        raise PlanError(f"axes={axes!r}: write a sequence of integers") from None
    if wrong := [axis for axis in chosen if not -rank <= axis < rank]:
        raise PlanError(f"axes={chosen}: there is no axis {wrong[0]} in an index of rank {rank}; give ndim, too")
    if len({axis % rank for axis in chosen}) < len(chosen):
        raise PlanError(f"axes={chosen} names an axis twice")
    return tuple(axis % rank for axis in chosen)


def _operand_types(callback: Callback, operands: Mapping[str, Any]) -> dict[str, Any]:
    """Operands by name, each a value that the callback accepts or a type."""
    if unknown := [name for name in operands if name not in callback.operands]:
        raise PlanError(f"{callback!r} has no operand {unknown[0]!r}; it has {', '.join(callback.operands) or 'none'}")
    types = {
        name: operand_spec(given, name)
        for name, given in operands.items()
        if isinstance(given, (str, type, np.dtype, OperandType))
    }
    bound = callback(**{name: given for name, given in operands.items() if name not in types}).bound
    if missing := [name for name in callback.operands if name not in types and name not in bound]:
        name = missing[0]
        raise PlanError(
            f"{callback!r}: operand {name!r} is not bound; give its value, or its type ('float' for a scalar, "
            f"'float32[1]' for an array): operands={{{name!r}: …}}, on the command line --operand {name}=…"
        )
    return {**bound, **types}


def operand_spec(spec: Any, name: str) -> OperandType:
    """``"float32[2]"`` (an array's dtype and rank) or ``"float"`` (a scalar's kind) as the type of operand ``name``."""
    if isinstance(spec, OperandType):
        return spec
    text = spec.__name__ if isinstance(spec, type) else str(spec)
    if text in SCALARS:
        return OperandType(text)
    match = re.fullmatch(r"(\w+)\[([1-9]\d*)\]", text)
    if not match:
        raise PlanError(
            f"{name}={text!r} is no type of operand; write 'float32[1]' for an array (dtype and rank, at least 1), "
            f"or {', '.join(map(repr, SCALARS))} for a scalar"
        )
    return OperandType(str(dtype_of(match[1], name)), int(match[2]), contiguous=True, readonly=False)
