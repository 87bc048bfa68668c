"""What users pass, checked: callbacks with operands, their shapes, outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mathfuse.epilogs import Callback, Constant
from mathfuse.epilogs.values import is_scalar
from mathfuse.fusion.compiler.fingerprint import captured_arrays
from mathfuse.fusion.elementwise.functions import Function, Held
from mathfuse.fusion.elementwise.layouts import Shape
from mathfuse.runtime import arrays
from mathfuse.runtime.dtypes import HALF, dtype_name
from mathfuse.runtime.errors import CallbackError, PlanError
from mathfuse.runtime.words import an


@dataclass(frozen=True)
class Bound:
    """A callback with every operand bound, its arrays (captured ones, too) and its operands as they are read."""

    callback: Callback
    arrays: Mapping[str, Held]
    operands: Mapping[str, Any]


def bound(
    callback: Any,
    kind: str,
    inputs: Mapping[str, Any] | None,
    read: Callable[[Any, str], Held],
    parameter: str | None = None,
) -> Bound | None:
    """`callback` as a prolog or epilog, its free operands taken from `inputs`; None where there is none.

    `read` takes an array, and what messages call it, to the execution space; `parameter` is what users call `callback`,
    by default its kind.

    Raises
    ------
    CallbackError
        If it is no callback, or an operand is unknown or left unbound.
    """
    given = "inputs" if parameter else f"{kind}_inputs"
    if inputs is not None and not (isinstance(inputs, Mapping) and all(isinstance(name, str) for name in inputs)):
        raise PlanError(f"{given} must be a mapping from names to operands, not {inputs!r}")
    if callback is None:
        if inputs:
            raise CallbackError(f"{given} binds {', '.join(inputs)}, but there is no {kind}")
        return None
    if not isinstance(callback, Callback):
        name = getattr(callback, "__name__", type(callback).__name__)
        raise CallbackError(f"{parameter or kind}={name} is no callback: decorate the function with @mf.{kind}")
    callback = callback.as_kind(kind)(**(inputs or {}))
    if callback.free:
        names = ", ".join(f"{name}=…" for name in callback.free)
        raise CallbackError(
            f"{kind} {callback} has unbound operands: write {callback.links[0].function.__name__}({names})"
        )
    values = {name: unwrapped(value) for name, value in callback.bound.items()}
    held = {name: read(value, f"operand {name!r}") for name, value in values.items() if not is_scalar(value)}
    operands = {name: held[name].view if name in held else value for name, value in values.items()}
    captured = {name: read(value, "a captured array") for name, value in captured_arrays(callback).items()}
    return Bound(callback, {**held, **captured}, operands)


def described(value: Any) -> str:
    """Dtype and shape of an array or scalar, in words."""
    value = unwrapped(value)
    if is_scalar(value) or not hasattr(value, "shape"):
        return an(type(value).__name__)
    name = dtype_name(value.dtype) if isinstance(value.dtype, np.dtype) else str(value.dtype).removeprefix("torch.")
    return f"{name} of shape {tuple(value.shape)}"


def unwrapped(value: Any) -> Any:
    """The array in a constant; anything else as it is."""
    return value.array if isinstance(value, Constant) else value


def check_reads(bound: Bound, kind: str, accesses: Mapping[str, Any], extents: Shape) -> None:
    """Raise PlanError where an operand is smaller than the indices at which it is read or written.

    Parameters
    ----------
    accesses
        By operand, the ways it is accessed: see :class:`mathfuse.fusion.compiler.language.operands.Accesses`.
    extents
        Of the index space.
    """
    for name, patterns in accesses.items():
        if name not in bound.arrays:
            continue
        shape = bound.arrays[name].view.shape
        for pattern in patterns:
            if pattern == "broadcast":
                needed = extents[len(extents) - len(shape) :]
                fits = all(have in (1, need) for have, need in zip(shape, needed))
            else:
                needed = tuple(_least(index, extents) for index in pattern)
                fits = all(have >= need for have, need in zip(shape, needed))
            if not fits and 0 not in extents:
                called = "an array that it captured" if name.startswith("captured.") else repr(name)
                raise PlanError(f"{kind} {bound.callback} indexes {called} as shape {needed}, but it has shape {shape}")


def _least(index: int | str | None, extents: Shape) -> int:
    """The extent that an operand must have along a dimension: an axis's, enough for a constant, or at least one."""
    if isinstance(index, str):
        constant = int(index)
        return -constant if constant < 0 else constant + 1
    return 1 if index is None else extents[index]


def check_output(view: Any, shape: Shape, dtype: np.dtype) -> None:
    """Raise PlanError if `view`, an output, has not the shape and dtype of the result."""
    if view.shape != shape or view.dtype != dtype:
        halved = "; an epilog that returns mathfuse.half(value) makes results half precision"
        instead = halved if HALF.get(view.dtype) == dtype else ""
        had, has = dtype_name(view.dtype), dtype_name(dtype)
        raise PlanError(f"out has dtype {had} and shape {view.shape}, the result has {has} and {shape}{instead}")


def check_overlap(out: Any, x: Any, in_place: bool) -> None:
    """Raise PlanError if `out` shares memory with `x` where it may not."""
    if arrays.overlaps(out, x) and not (in_place and arrays.same_view(out, x)):
        how = "pass x itself as out" if in_place else "leave out away, since this plan cannot work in place"
        raise PlanError(f"out overlaps the input in memory: {how}, or give memory of its own")


def shares_operand(out: Any, function: Function, may: bool = True) -> bool:
    """Whether `out` is an operand that is read at the element's own index only: it may become the result.

    `may` tells whether the function writes to `out` at all.

    Raises
    ------
    PlanError
        If it shares memory with an operand in any other way.
    """
    shared = [
        (may and name in function.own and not _is_constant(function, name) and arrays.same_view(out, array.view), name)
        for name, array in function.arrays.items()
        if arrays.overlaps(out, array.view)
    ]
    for fits, name in shared:
        if not fits:
            raise PlanError(
                f"out overlaps operand {name!r} in memory: give one of them memory of its own "
                "(an operand that is no constant and is read at [index] only, where the result is written, may be out)"
            )
    return bool(shared)


def _is_constant(function: Function, name: str) -> bool:
    return isinstance(function.callback.bound.get(name), Constant)


def read_at_own_index(bound: Bound, accesses: Mapping[str, Any], extents: Shape) -> frozenset[str]:
    """Operands of the index space's shape that are read at exactly `index`."""
    own = ("broadcast", list(range(len(extents))))
    return frozenset(
        name
        for name, patterns in accesses.items()
        if name in bound.arrays and bound.arrays[name].view.shape == extents and all(p in own for p in patterns)
    )


def check_assigned(bound: Bound, kind: str, assigned: Sequence[str], x: Any) -> None:
    """Raise PlanError where an operand that is written is a copy, or shares memory with something that is read."""
    for name in assigned:
        target = bound.arrays[name].view
        if bound.arrays[name].copied:
            raise PlanError(
                f"{kind} {bound.callback} assigns to {name!r}, of which only a copy can be used: pass an aligned array "
                "in native byte order, or a tensor that is not lazily conjugated"
            )
        if isinstance(bound.callback.bound.get(name), Constant):
            raise PlanError(f"{kind} {bound.callback} assigns to {name!r}, which is a constant: pass its array")
        if arrays.overlaps_itself(target):
            raise PlanError(
                f"{kind} {bound.callback} assigns to {name!r}, of which several elements are one place in memory: "
                "pass an array whose elements each have their own"
            )
        others = {repr(other): array.view for other, array in bound.arrays.items() if other != name}
        if x is not None:
            others["the input"] = x
        for other, view in others.items():
            if arrays.overlaps(target, view):
                raise PlanError(f"{kind} {bound.callback} assigns to {name!r}, which overlaps {other} in memory")


def placed(
    bound: Bound,
    kind: str,
    value_dtype: np.dtype,
    extents: Shape,
    shape: Shape,
    axes: Shape,
    result_dtype: np.dtype | None = None,
    source: Any = None,
) -> Function:
    """A callback in its place, its result dtype found and its operands' shapes checked; `kind` is for messages.

    Raises
    ------
    CallbackError
        If it cannot run in a kernel.
    PlanError
        If an operand is too small, or is assigned to and overlaps what is read.
    """
    free = Function(
        callback=bound.callback,
        value_dtype=value_dtype,
        result_dtype=result_dtype,
        extents=extents,
        shape=shape,
        axes=axes,
        operands=bound.operands,
        arrays=bound.arrays,
        source=source,
    )
    found = free.analysis()
    check_reads(bound, kind, found.accesses, extents)
    check_assigned(bound, kind, found.assigned, source)
    own = read_at_own_index(bound, found.accesses, extents) - set(found.assigned)
    return replace(free, result_dtype=found.result_dtype, assigned=frozenset(found.assigned), own=own)
