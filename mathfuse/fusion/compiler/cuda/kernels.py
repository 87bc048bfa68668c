"""Elementwise kernels as a host uses them: machine code, where the parameters stand, and the size of a launch."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mathfuse.fusion.compiler.analysis import Analysis
from mathfuse.fusion.compiler.cuda import division
from mathfuse.fusion.compiler.cuda.artifacts import Compiled
from mathfuse.fusion.compiler.cuda.tiling import THREADS, blocks_of
from mathfuse.fusion.compiler.cuda.units import Unit
from mathfuse.fusion.compiler.parameters import Writer


class ElementwiseKernel(Analysis):
    """Compiled code for one unit of the pipeline ``"elementwise"``.

    Its one parameter is the block of slots by value: as many 64-bit integers as the layout has.

    Attributes
    ----------
    cubin : bytes
        Machine code.
    name : str
        The kernel's name in it.
    layout : Layout
        Where the slots stand; ``layout.slots["source_block"]`` and ``["destination_block"]`` hold the two pointers.
    result_dtype, accesses, assigned, weak_bits
        As in an :class:`~.analysis.Analysis`.
    """

    def __init__(self, unit: Unit) -> None:
        compiled = Compiled(unit)
        super().__init__(compiled.metadata)
        self.unit, self.name, self.layout, self.cubin = unit, unit.name, unit.layout, compiled.cubin
        self.tile: int = compiled.metadata["tile"]

    def writer(self, extents: Sequence[int]) -> Writer:
        """A block with the slots that follow from the extents of the index space: the count, and how to decode."""
        writer = Writer(self.layout, self.weak_bits)
        ordered = [extents[axis] for axis in self.unit.order]
        writer.integers("count", math.prod(extents))
        strides = [max(1, math.prod(ordered[k + 1 :])) for k in range(len(ordered))]
        division.fill(writer, strides, self.unit.wide)
        return writer

    def grid(self, count: int, multiprocessors: int) -> tuple[int, int]:
        """Blocks and threads of a launch over ``count`` elements; the kernel strides over what is left."""
        return blocks_of(count, self.tile, multiprocessors), THREADS
