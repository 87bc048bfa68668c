"""Where the element at hand is: its multi-index, and the offsets that the index was decoded from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from mathfuse.fusion.compiler.emit.emitter import I64, Emitter, Value

Term = tuple[ir.Value, ir.Value]


@dataclass(frozen=True, eq=False)
class Place:
    """The element at hand.

    Parameters
    ----------
    index
        Its logical multi-index.
    sums
        ``(weights, value)``: an integer of any width that is known to be the sum of ``weight * index``, such as a flat
        offset. An address that is a multiple of one is found without the index, so that nothing need be decoded.
    """

    index: tuple[Value, ...]
    sums: tuple[tuple[tuple[int, ...], ir.Value], ...] = ()

    def address(
        self, emitter: Emitter, pointer: ir.Value, indices: Sequence[ir.Value], strides: Sequence[ir.Value], bits: int
    ) -> ir.Value:
        """Byte address ``pointer + sum(index * stride)``; ``bits`` hold the sum counted in what divides all strides."""
        terms = self._folded([term for term in zip(indices, strides) if 0 not in map(known, term)])
        factors = [known(stride) for _, stride in terms]
        if bits == 64 or len(terms) < 2 or None in factors:
            wide = [emitter.resized(i, 64) for i, _ in terms]
            return emitter.offset(pointer, wide, [stride for _, stride in terms])
        return _narrow(emitter, pointer, [i for i, _ in terms], [factor for factor in factors if factor is not None])

    def _folded(self, terms: list[Term]) -> list[Term]:
        """The same sum, what the own index contributes in one term if it is a multiple of a known sum."""
        axes = {id(position.parts[0]): axis for axis, position in enumerate(self.index)}
        steps, others = [0] * len(self.index), []
        for i, stride in terms:
            axis, step = axes.get(id(i)), known(stride)
            if axis is None or step is None:
                others.append((i, stride))
            else:
                steps[axis] += step
        for weights, value in self.sums:
            if factor := ratio(steps, weights):
                return [(value, I64(factor)), *others]
        return terms


def _narrow(emitter: Emitter, pointer: ir.Value, indices: list[ir.Value], strides: list[int]) -> ir.Value:
    """The address by 32-bit products; the one in 64 bits that is left is an instruction together with the addition."""
    builder, unit, narrow = emitter.builder, math.gcd(*strides), ir.IntType(32)
    products = [builder.mul(emitter.resized(i, 32), narrow(s // unit)) for i, s in zip(indices, strides)]
    total = products[0]
    for product in products[1:]:
        total = builder.add(total, product)
    extend = builder.sext if min(strides) < 0 else builder.zext
    return emitter.offset(pointer, [extend(total, I64)], [I64(unit)])


def known(x: ir.Value) -> int | None:
    """The value of a constant."""
    return x.constant if isinstance(x, ir.Constant) else None


def ratio(steps: Sequence[int], weights: Sequence[int]) -> int | None:
    """What ``weights`` are to be multiplied by to give ``steps``; None where nothing does."""
    factor = next((step // weight for step, weight in zip(steps, weights) if weight), 0)
    return factor if factor and all(step == factor * weight for step, weight in zip(steps, weights)) else None
