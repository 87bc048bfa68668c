"""A bound callback applied to one element in plain Python: what compiled code must agree with.

Tests compare with it, and it shows in a debugger what a callback does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from mathfuse.epilogs.values import Constant, is_scalar
from mathfuse.runtime.errors import CallbackError

if TYPE_CHECKING:
    from mathfuse.epilogs.callback import Callback, Link


def evaluate(
    callback: Callback,
    value: Any,
    index: tuple[int, ...] = (),
    shape: tuple[int, ...] = (),
    axes: tuple[int, ...] = (),
    source: np.ndarray | None = None,
) -> Any:
    """Apply a bound callback to one element, in plain Python and the precision of `value`.

    Parameters
    ----------
    callback : Callback
        Every operand bound, to scalars or to arrays in host memory.
    value : scalar
        The element.
    index, shape, axes : tuple of int
        Its logical multi-index, the logical extents and the transform axes.
    source : ndarray, optional
        The whole input, for a prolog that reads it.

    Returns
    -------
    scalar
        What the callback makes of the element. As in compiled code, an array operand that the function uses without an
        index stands for its element at `index`, aligned like NumPy's broadcasting (last axis). NumPy functions give
        infinity and NaN without a warning; those of `math` raise where compiled code goes on.

    Raises
    ------
    CallbackError
        If an operand is not bound, or has more axes than `index` where it is used without an index.
    """
    if callback.free:
        bind = ", ".join(f"{name}=…" for name in callback.free)
        raise CallbackError(f"{callback} has free operands: bind them first, callback({bind})")
    operands = {name: _operand(bound, index) for name, bound in callback.bound.items()}
    given = {"value": value, "index": index, "shape": shape, "axes": axes, "source": source, **operands}
    with np.errstate(all="ignore"):
        return apply(callback.links, given)


def apply(links: tuple[Link, ...], given: Mapping[str, object]) -> object:
    """Call the functions of `links` one after the other, each on the value of the one before."""
    given = dict(given)
    for link in links:
        result = link.function(**{name: given[name] for name in link.parameters if name in given})
        given["value"] = result.own if isinstance(result, _OperandArray) else result
    return given["value"]


def unwrapped(bound: object) -> object:
    """The array in a constant; anything else as it is."""
    return bound.array if isinstance(bound, Constant) else bound


def _operand(bound: object, index: tuple[int, ...]) -> object:
    return bound if is_scalar(bound) else _OperandArray(_host(unwrapped(bound)), index)


def _host(array: Any) -> np.ndarray:
    if hasattr(array, "__array__") or hasattr(array, "__array_interface__"):
        return np.asarray(array)
    return np.from_dlpack(array)


class _OperandArray(np.lib.mixins.NDArrayOperatorsMixin):
    """An array operand inside a callback: an array where it is indexed, its element at the own index elsewhere."""

    def __init__(self, array: np.ndarray, index: tuple[int, ...]) -> None:
        self.array, self.index = array, index

    @property
    def own(self) -> Any:
        extents = self.array.shape
        if len(extents) > len(self.index):
            raise CallbackError(
                f"an operand of shape {extents} has more axes than the index {self.index}: write operand[…]"
            )
        aligned = self.index[len(self.index) - len(extents) :]
        return self.array[tuple(0 if extent == 1 else i for i, extent in zip(aligned, extents, strict=True))]

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        own = (each.own if isinstance(each, _OperandArray) else each for each in inputs)
        return getattr(ufunc, method)(*own, **options)

    def __getitem__(self, index: Any) -> Any:
        return self.array[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self.array[index] = value

    def __len__(self) -> int:
        return len(self.array)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.array if name in ("shape", "ndim", "size", "dtype") else self.own, name)

    def __bool__(self) -> bool:
        return bool(self.own)

    def __int__(self) -> int:
        return int(self.own)

    def __float__(self) -> float:
        return float(self.own)

    def __complex__(self) -> complex:
        return complex(self.own)

    def __index__(self) -> int:
        return self.own.__index__()

    def __round__(self, digits: int | None = None) -> Any:
        return round(self.own, digits) if digits is not None else round(self.own)
