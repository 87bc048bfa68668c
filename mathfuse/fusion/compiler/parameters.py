"""The parameter block: how run-time data (pointers, extents, strides, bound scalars) reach generated code.

One flat array of 64-bit slots on every target and in every pipeline. What stands where is a pure function of types, so
that the host fills and the kernel reads the same place, and another value of the same type never recompiles.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mathfuse.fusion.compiler.signature import OperandType, Signature, numpy_view, operand_type
from mathfuse.runtime.cuda.arrays import DeviceArray


@dataclass
class Layout:
    """Names of slots in order: ``add`` reserves, ``slots`` tells the first slot of a name."""

    slots: dict[str, int] = field(default_factory=dict)
    size: int = 0

    def add(self, name: str, count: int = 1) -> None:
        self.slots[name] = self.size
        self.size += count

    def add_operand(self, name: str, kind: OperandType) -> None:
        if kind.is_scalar:
            self.add(name, 2 if kind.dtype == "complex" else 1)
            return
        for part, count in (("pointer", 1), ("shape", kind.ndim), ("strides", kind.ndim)):
            self.add(f"{name}.{part}", count)

    def end(self, name: str, kind: OperandType) -> int:
        """The slot after an operand's last."""
        if kind.is_scalar:
            return self.slots[name] + (2 if kind.dtype == "complex" else 1)
        return self.slots[f"{name}.strides"] + kind.ndim

    def add_signature(self, signature: Signature) -> Layout:
        """Reserves what a callback reads: the logical extents, ``source``, and its operands."""
        self.add("shape", signature.ndim)
        if signature.source:
            self.add_operand("source", signature.source)
        for name, kind in signature.operands:
            self.add_operand(name, kind)
        return self


class Writer:
    """Fills a block on the host."""

    def __init__(self, layout: Layout, weak_bits: int) -> None:
        self.layout, self.weak_bits = layout, weak_bits
        self.block = np.zeros(max(1, layout.size), np.int64)

    def integers(self, name: str, *numbers: int) -> None:
        first = self.layout.slots[name]
        self.block[first : first + len(numbers)] = numbers

    def real(self, name: str, number: float, bits: int) -> None:
        """A float of 32 or 64 bits."""
        self.integers(name, slot_of(number, bits))

    def operand(self, name: str, value: Any, pointer: int | None = None) -> None:
        """An operand's scalar value, or its address, extents and strides in bytes.

        An array is one in CPU memory; one on a GPU comes as the `DeviceArray` that it is, so that its address never
        gets into the block of a CPU kernel.
        """
        kind = operand_type(value)
        if not kind.is_scalar:
            array = value if isinstance(value, DeviceArray) else numpy_view(value)
            own = array.pointer if isinstance(array, DeviceArray) else array.__array_interface__["data"][0]
            self.integers(f"{name}.pointer", own if pointer is None else pointer)
            self.integers(f"{name}.shape", *array.shape)
            self.integers(f"{name}.strides", *array.strides)
        elif kind.dtype in ("int", "bool"):
            self.integers(name, int(value))
        else:
            number = complex(value)
            parts = (number.real, number.imag) if kind.dtype == "complex" else (number.real,)
            self.integers(name, *(slot_of(part, self.weak_bits) for part in parts))


def slot_of(number: float, bits: int) -> int:
    """A float of 32 or 64 bits as the integer that a slot holds."""
    if bits == 64:
        return struct.unpack("<q", struct.pack("<d", number))[0]
    return struct.unpack("<q", struct.pack("<fi", np.float32(number), 0))[0]
