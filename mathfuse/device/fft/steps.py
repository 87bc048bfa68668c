"""Transforms of lines that are too long for one block, as steps along shorter ones: pure decisions, and tables.

The four-step algorithm: of ``n = n1 * N2 + n2`` and ``k = k1 + N1 * k2``, transforms along n1, twiddle factors
``exp(-2πi * n2 * k1 / (N1 * N2))``, and transforms along n2; these may be two steps in their turn (D. H. Bailey, "FFTs
in External or Hierarchical Memory", Journal of Supercomputing 4, 1990).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mathfuse.device.fft.shapes import MOST_VALUES, Stages, is_supported, most_threads, stages_of
from mathfuse.device.fft.twiddles import powers, roots

MOST_STEPS, LONGEST_STEP = 3, 2048  # of longer ones a block has too few lines for whole sectors of memory
LONGEST = 1 << 31  # elements that are counted in 32 bits
LINES, FEW_LINES, STEP_THREADS = 16, 8, 512  # in a block, more than a few only of short lines, which take few threads

# Digits of a line's number: Σ line // every % count * weight.
Digits = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Twiddles:
    """``exp(∓2πi * column * element / length)`` for each element of a step's lines.

    Parameters
    ----------
    length
        What the step and those after it transform.
    columns
        How many there are: a line is the one that its number tells.
    first
        Whether the values are multiplied before the transform, else after it.
    """

    length: int
    columns: int
    first: bool

    def tables(self, stages: Stages, double: bool) -> list[npt.NDArray[np.complexfloating]]:
        """Roots for the first leg of each butterfly in the stage next to the factors, and from leg to leg."""
        return [table(*each, double) for each in self.roots(stages)]

    def roots(self, stages: Stages) -> tuple[tuple[int, int], tuple[int, int]]:
        """The length and how many there are of these roots."""
        stage = 0 if self.first else len(stages.radices) - 1
        count, most = stages.butterflies(stage), max(powers(stages.radices[stage]), default=0)
        return (self.length, (self.columns - 1) * (count - 1) + 1), (
            self.length // count,
            (self.columns - 1) * most + 1,
        )


@dataclass(frozen=True)
class Step:
    """Of a step: where its lines belong in longer ones of `length` elements.

    Parameters
    ----------
    number, weight
        Element n of the step's line is element ``n * weight + number`` of the long line: of the first step's those that
        are read, of the last step's those of the spectrum.
    twiddles
        Factors between this step and the next, if any.
    """

    length: int
    number: Digits
    weight: int
    twiddles: Twiddles | None = None


def sector(double: bool) -> int:
    """Complex numbers that make a sector of memory."""
    return 2 if double else 4


def deal(stages: Stages, double: bool) -> tuple[Stages, int]:
    """How a step is dealt to threads, and how many lines a block has: whole sectors, with registers to spare.

    Where they do not suffice, a thread does twice as much.
    """
    halved = Stages(stages.length, stages.radices, -(-stages.threads // 2))
    if not double and not _fits(stages, double, FEW_LINES) and halved.values <= MOST_VALUES:
        stages = halved
    if stages.threads * LINES <= STEP_THREADS:
        return stages, LINES
    lines = next((n for n in (FEW_LINES, FEW_LINES // 2) if _fits(stages, double, n)), sector(double))
    return stages, min(lines, most_threads(stages, double) // stages.threads)


def _fits(stages: Stages, double: bool, lines: int) -> bool:
    return stages.threads * lines <= most_threads(stages, double, slack=1)


def factors(length: int, double: bool, longest: int = LONGEST_STEP) -> tuple[int, ...]:
    """Lengths of the steps, as few and as equal as can be, the last one in whole sectors if it may; () of none."""
    least = sector(double)
    if length >= LONGEST:
        return ()
    for count in range(2, MOST_STEPS + 1):
        found = _falling(length, count, min(longest, LONGEST_STEP))
        for each in sorted(found, key=lambda each: (_pieces(each, least), max(each), sum(each))):
            if all(is_supported(n, double) and deal(stages_of(n, double), double)[1] >= least for n in each):
                last = min(each, key=lambda n: (-math.gcd(n, least), n))
                first = list(each)
                first.remove(last)
                return (*first, last)
    return ()


def _pieces(lengths: tuple[int, ...], elements: int) -> int:
    """Of how many pieces of lines so many elements consist, at the best."""
    return elements // max(math.gcd(n, elements) for n in lengths)


def _falling(length: int, count: int, most: int) -> Iterator[tuple[int, ...]]:
    """So many factors in falling order, of at most so much each."""
    if count == 1:
        if 1 < length <= most:
            yield (length,)
        return
    for first in range(min(most, length), 1, -1):
        if length % first == 0 and first**count >= length:
            yield from ((first, *rest) for rest in _falling(length // first, count - 1, first))


def fine(count: int) -> int:
    """How many of so many roots are kept one by one; the others are products of these and of every such one."""
    return 1 << ((count - 1).bit_length() + 1) // 2


def table(length: int, count: int, double: bool) -> npt.NDArray[np.complexfloating]:
    """``exp(-2πi k / length)`` for the least k, then for multiples of their number, so that products make `count`."""
    each = fine(count)
    k = np.concatenate([np.arange(each), each * np.arange(-(-count // each))])
    return roots(k, length).astype(np.complex128 if double else np.complex64)
