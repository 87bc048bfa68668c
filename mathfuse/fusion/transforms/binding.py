"""What users pass to a plan, checked; the checks of one callback are those of `fusion.elementwise`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mathfuse.epilogs import Callback
from mathfuse.epilogs.values import is_scalar
from mathfuse.fusion.elementwise.binding import (
    Bound,
    bound,
    check_assigned,
    check_output,
    check_overlap,
    check_reads,
    described,
    placed,
    read_at_own_index,
    unwrapped,
)
from mathfuse.fusion.elementwise.binding import shares_operand as _shares
from mathfuse.fusion.transforms.pipeline import Function
from mathfuse.runtime import arrays
from mathfuse.runtime.errors import PlanError

__all__ = [
    "Bound",
    "bound",
    "check_assigned",
    "check_output",
    "check_overlap",
    "check_reads",
    "check_roles",
    "described",
    "placed",
    "read_at_own_index",
    "rebound",
    "shares_operand",
    "unwrapped",
]


def check_roles(functions: Mapping[Any, Function], x: Any) -> None:
    """Raise PlanError where what a callback assigns to is the input, or an array of another callback."""
    for role, function in functions.items():
        others = [(name, array) for r, f in functions.items() if r != role for name, array in f.arrays.items()]
        for name in function.assigned:
            target = function.arrays[name].view
            for other, view in [("the input", x), *((repr(n), array.view) for n, array in others)]:
                if arrays.overlaps(target, view):
                    raise PlanError(f"{function.callback} assigns to {name!r}, which overlaps {other} in memory")


def rebound(callback: Callback | None, operands: Mapping[str, Any]) -> Callback | None:
    """The callback with those of `operands` bound that it has.

    Raises
    ------
    PlanError
        If a value is of another dtype or shape than the one it replaces.
    """
    if callback is None:
        return None
    mine = {name: value for name, value in operands.items() if name in callback.operands}
    callback(**mine)  # refuses what cannot be bound
    for name, value in mine.items():
        planned = unwrapped(callback.bound.get(name))
        if is_scalar(planned) and is_scalar(value) and np.can_cast(type(value), type(planned)):
            mine[name] = type(planned)(value)  # 2 for a planned 8.0 is 2.0
        elif described(planned) != described(value):
            was, now = described(planned), described(value)
            raise PlanError(f"operand {name!r} was planned as {was} and cannot become {now}: call plan again")
    return callback(**mine)


def shares_operand(out: Any, functions: Mapping[Any, Function]) -> bool:
    """Whether `out` is an operand that the epilog reads at the element's own index only: it may become the result.

    Raises
    ------
    PlanError
        If it shares memory with an operand in any other way.
    """
    shared = [_shares(out, function, role == "epilog") for role, function in functions.items()]
    return any(shared)
