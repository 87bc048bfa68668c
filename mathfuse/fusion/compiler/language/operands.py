"""Operand arrays inside a callback: what an index means, and how an element is reached."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from llvmlite import ir

from mathfuse.fusion.compiler.emit.emitter import I64, Emitter, Value
from mathfuse.fusion.compiler.emit.scalars import BOOL, INT, of_dtype
from mathfuse.fusion.compiler.language.arithmetic import Arithmetic, Described, Reject, describe
from mathfuse.fusion.compiler.language.places import Place, known


@dataclass(eq=False)
class Operand(Described):
    """An array that a callback reads (or assigns to), inside the generated code.

    ``pointer`` is the byte address of its first element, ``shape`` its extents, ``strides`` its strides in bytes.
    ``title`` is what the user calls it, if not ``name``. A bare pointer is not ``bounded``: its extent is unknown.
    """

    name: str
    dtype: np.dtype
    pointer: ir.Value
    shape: tuple[Value, ...]
    strides: tuple[ir.Value, ...]
    readonly: bool = True
    title: str = ""
    bounded: bool = True

    def description(self) -> str:
        return "`source`" if self.name == "source" else f"operand {self.title or self.name!r}"

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def bits(self) -> int:
        """What holds the number of any element: the width of the arithmetic on addresses."""
        extents = [known(extent.parts[0]) for extent in self.shape]
        fits = self.bounded and math.prod(2**31 if n is None else max(n, 1) for n in extents) < 2**31
        return 32 if fits else 64


@dataclass
class Accesses:
    """How a callback touches its operands: what a plan needs to check shapes and aliasing.

    ``patterns`` holds, by operand, the set of accesses: ``"broadcast"`` (no index written), or a tuple with an entry
    for each dimension: the number of the axis for exactly ``index[axis]``, a text such as ``"-1"`` for a constant, None
    for any other index. ``assigned`` names the operands written to.
    """

    patterns: dict[str, set] = field(default_factory=dict)
    assigned: set[str] = field(default_factory=set)

    def note(self, name: str, pattern: Any) -> None:
        self.patterns.setdefault(name, set()).add(pattern)


class OperandAccess:
    """Reads and writes elements of operands.

    Parameters
    ----------
    emitter, operations
        Code generation.
    place
        Where the element at hand is.
    accesses
        Where every access is noted.
    assigned
        Operands that the callback was seen to assign to: they cannot be loaded as invariant.
    """

    def __init__(
        self,
        emitter: Emitter,
        operations: Arithmetic,
        place: Place,
        accesses: Accesses,
        assigned: frozenset[str],
    ) -> None:
        self.emitter, self.operations, self.place, self.index = emitter, operations, place, place.index
        self.accesses, self.assigned = accesses, assigned

    def read(self, operand: Operand, index: Any) -> Value:
        """``operand[index]``: an integer for one dimension, a tuple of as many integers as dimensions otherwise.

        A computed index outside the operand reads NaN (0 for integers), never foreign memory.
        """
        address, inside = self._address(operand, index)
        element = self.emitter.load(address, operand.dtype, invariant=operand.name not in self.assigned)
        if inside is None:
            return element
        outside = self.emitter.constant(math.nan if element.type.is_float else 0, element.type)
        return self.emitter.select(Value(BOOL, (inside,)), element, outside)

    def write(self, operand: Operand, index: Any, value: Any) -> None:
        """``operand[index] = value``; at a computed index outside the operand nothing is written."""
        if operand.name == "source":
            raise Reject("`source` cannot be assigned to: a plan never writes its input; assign to an operand")
        if operand.readonly:
            raise Reject(
                f"{operand.description()} is read-only: "
                "only an operand that was passed as a plain, writable array can be assigned to"
            )
        parts = index if isinstance(index, tuple) else (index,)
        if all(isinstance(part, int) for part in parts) and isinstance(self.operations.number(value), Value):
            raise Reject(
                f"every element would write to the same place of {operand.description()}, and elements are computed at "
                "the same time, in no order: write at `index`, and reduce that array afterwards"
            )
        (address, inside), scalar = self._address(operand, index), of_dtype(operand.dtype)
        if self.operations.value(value).type.kind == "c" and scalar.kind != "c":
            raise Reject(
                f"a complex value cannot be assigned to an element of {operand.description()} ({operand.dtype})"
            )
        self.accesses.assigned.add(operand.name)
        converted = self.operations.convert(value, scalar)
        with self.emitter.builder.if_then(inside) if inside else nullcontext():
            self.emitter.store(address, operand.dtype, converted)

    def read_here(self, operand: Operand) -> Value:
        """The element at the own index, aligned from the last axis as NumPy broadcasts."""
        if operand.ndim > len(self.index):
            raise Reject(
                f"{operand.description()} has {operand.ndim} dimensions, more than the {len(self.index)} of `index`; "
                "write its index out"
            )
        self.accesses.note(operand.name, "broadcast")
        own = self.index[len(self.index) - operand.ndim :]
        indices = [self._broadcast(i.parts[0], extent.parts[0]) for i, extent in zip(own, operand.shape)]
        return self.emitter.load(self._at(operand, indices), operand.dtype, operand.name not in self.assigned)

    def _broadcast(self, i: ir.Value, extent: ir.Value) -> ir.Value:
        b, constant = self.emitter.builder, known(extent)
        if constant is None:
            return b.select(b.icmp_signed("==", extent, I64(1)), I64(0), i)
        return I64(0) if constant == 1 else i

    def _at(self, operand: Operand, indices: list[ir.Value]) -> ir.Value:
        return self.place.address(self.emitter, operand.pointer, indices, operand.strides, operand.bits)

    def _address(self, operand: Operand, index: Any) -> tuple[ir.Value, ir.Value | None]:
        parts = index if isinstance(index, tuple) else (index,)
        if len(parts) != operand.ndim:
            example = ", ".join("ijklmn"[: operand.ndim])
            raise Reject(
                f"{operand.description()} has {operand.ndim} dimensions but is indexed with {len(parts)}; "
                f"one element is {operand.title or operand.name}[{example}]"
            )
        self.accesses.note(operand.name, tuple(self._pattern(part) for part in parts))
        b, positions, inside = self.emitter.builder, [], None
        for part, extent in zip(parts, operand.shape):
            position, fits = self._position(part, extent.parts[0], operand.bounded)
            positions.append(position)
            if fits:
                inside = b.and_(inside, fits) if inside else fits
        return self._at(operand, positions), inside

    def _pattern(self, part: Any) -> int | str | None:
        """The axis ``a`` of exactly ``index[a]``, a constant as text, None for what is computed."""
        axis = next((a for a, own in enumerate(self.index) if own is part), None)
        return str(part) if axis is None and isinstance(part, int) else axis

    def _position(self, part: Any, extent: ir.Value, bounded: bool) -> tuple[ir.Value, ir.Value | None]:
        """An index as an i64, negative ones counted from the end as in NumPy, and whether a computed one is inside.

        The own index and constants are checked against the operand's shape at plan; where they cannot be there is no
        shape to check against. An index outside is replaced by 0, so that the address is always the operand's.
        """
        if any(own is part for own in self.index):
            return part.parts[0], None
        if isinstance(part, slice) or part is ... or part is None:
            raise Reject(f"an index must be an integer, not {describe(part)}: a callback reads one element at a time")
        part = self.operations.number(part)
        scalar = self.operations.value(part).type
        if scalar.kind not in "iu":
            raise Reject(f"an index must be an integer, not {describe(part)}; int(x) makes one")
        b = self.emitter.builder
        if isinstance(part, int):
            return I64(part) if part >= 0 else b.add(extent, I64(part)), None
        i = self.emitter.convert(part, INT).parts[0]
        if not bounded:
            return i, None
        i = b.select(b.icmp_signed("<", i, I64(0)), b.add(i, extent), i)
        fits = b.icmp_unsigned("<", i, extent)
        return b.select(fits, i, I64(0)), fits
