"""Kernels that transform one axis, a block of threads several lines: plain data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mathfuse.device.fft import real, twiddles
from mathfuse.device.fft.block import Block
from mathfuse.device.fft.steps import Step

NAME, UNBOUND = "mathfuse_block_fft", 2
# What its parameter, an array of int64 that is passed by value, holds; strides and distances in elements.
SLOTS = (
    *("source", "target", "load_info", "transfer_info", "store_info", "batch"),
    *("source_stride", "source_distance", "target_stride", "target_distance"),
    *("source_inner", "source_outer", "target_inner", "target_outer"),
)


@dataclass(frozen=True)
class BlockKernel:
    """A kernel for transforms of one axis, or filters along it, of any batch and strides; unscaled.

    Parameters
    ----------
    length
        Of the real side, if there is one.
    block
        How many lines a block of threads transforms, and how: of `packed` ones complex numbers of half the length.
    double
        Whether in float64.
    forward
        The sign of the exponent; of filters that of the first transform.
    real
        Whether source and target are real: a spectrum of real numbers is its half.
    load, store
        Whether a callback of cuFFT's prototype gives, and takes, the elements.
    transfer
        A filter: forward, a callback on each element of the spectrum, and back.
    strides
        How far elements of a line lie apart in the source and in the target; None: a parameter tells.
    tiles, steps
        How many elements of a line lie at the stride in the source and in the target, 1 being all, and how far the next
        ones lie.
    nested
        Whether only `inner` lines follow each other at one distance, and the next ones at another, outer one; in the
        source and in the target.
    paired
        Whether two real numbers that are packed lie where one complex number may, in the source and in the target.
    present
        How many elements of a line the source has, those beyond being 0, and how many the target takes; None: all.
    half
        Whether source and target, where no callback gives or takes the elements, are stored in half precision.
    step
        What it does as a step of longer transforms.
    slack
        0: a thread has to get by with few registers; 1: with some more, and the transfer function is applied to a few
        elements at a time; 2: with what a block can have.
    arch
        GPU architecture.
    """

    length: int
    block: Block
    double: bool
    forward: bool
    real: tuple[bool, bool]
    load: bool
    store: bool
    transfer: bool
    strides: tuple[int | None, int | None]
    arch: str
    tiles: tuple[int, int] = (1, 1)
    steps: tuple[int, int] = (0, 0)
    nested: tuple[bool, bool] = (False, False)
    paired: tuple[bool, bool] = (False, False)
    present: tuple[int | None, int | None] = (None, None)
    half: tuple[bool, bool] = (False, False)
    step: Step | None = None
    slack: int = 0

    @property
    def packed(self) -> bool:
        """Whether two real numbers are the parts of a complex one."""
        return any(self.real) and self.length % 2 == 0

    @property
    def spectrum(self) -> int:
        """Elements of a spectrum."""
        return self.length // 2 + 1 if any(self.real) else self.length

    @property
    def bits(self) -> int:
        """Of a component."""
        return 64 if self.double else 32

    @property
    def dtype(self) -> np.dtype:
        """Of a spectrum."""
        return np.dtype(np.complex128 if self.double else np.complex64)

    def side(self, number: int) -> np.dtype:
        """The dtype of the source (0) or the target (1)."""
        return np.dtype(f"f{self.bits // 8}") if self.real[number] else self.dtype

    @property
    def shared_bytes(self) -> int:
        """Of packed lines the spectrum goes through shared memory, too."""
        return self.block.pitch * self.block.transforms * self.dtype.itemsize if self.exchanges else 0

    @property
    def exchanges(self) -> bool:
        return self.packed or len(self.block.stages.radices) > 1

    @property
    def tables(self) -> list[npt.NDArray[np.complexfloating]]:
        """Twiddle factors of the transform, of the way back, of packed lines, and those between two steps."""
        stages = self.block.stages
        found = [twiddles.table(each, self.double) for each in (stages, *([stages.backward] if self.transfer else []))]
        between = self.step and self.step.twiddles
        return [
            *found,
            *([real.table(self.length, self.double)] if self.packed else []),
            *(between.tables(stages, self.double) if between else []),
        ]

    def blocks(self, batch: int) -> int:
        """Blocks of a launch."""
        return -(-batch // self.block.transforms)
