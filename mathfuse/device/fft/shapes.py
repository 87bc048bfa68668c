"""How a transform is cut into stages and dealt to threads: pure decisions.

Stockham's algorithm: a stage of radix R does N / R butterflies, and writes to where the next one reads in order.
Between two stages all elements change threads through shared memory (C. Van Loan, "Computational Frameworks for the
Fast Fourier Transform", SIAM 1992, section 1.7).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

RADICES = tuple(range(16, 1, -1))
LONGEST_BLOCK = 16384  # elements of a float32 transform by one block, of a float64 one half as many
LONG = 4096  # beyond that, fewer exchanges are worth the registers of radix 32, and of others up to it
FEW, WIDEST = 3, 25  # stages, and up to which radix others serve where the usual ones do not leave as few
LARGEST_PRIME = 13  # in a radix
BUTTERFLY = 16.0  # operations that the addresses and twiddle factors of a butterfly stand for, about
VALUES, MOST_VALUES = 16, 32  # that a thread holds, of long float32 transforms; each is two registers, or four
MOST_THREADS = 1024  # of a block
REGISTERS = 65536  # of a multiprocessor, which deals warps to four parts with a quarter of them each
MOST_REGISTERS = 255  # of a thread
PARTS = 4 * 32  # threads of a warp in each part
# Registers of a thread that holds up to so many values in float32: few, or with some slack.
ENOUGH = ((8, (40, 48)), (10, (48, 64)), (16, (64, 80)), (20, (80, 96)), (25, (96, 112)), (32, (112, 128)))
EXCHANGE = 12.0  # operations a component that an exchange through shared memory stands for, about


@dataclass(frozen=True)
class Stages:
    """One transform of `length` elements by `threads` threads.

    Thread t does the butterflies t, t + threads, … of each stage: as many `rounds` as it takes, the last maybe in part.
    """

    length: int
    radices: tuple[int, ...]
    threads: int

    def butterflies(self, stage: int) -> int:
        return self.length // self.radices[stage]

    def rounds(self, stage: int) -> int:
        return -(-self.butterflies(stage) // self.threads)

    def whole(self, stage: int, number: int) -> bool:
        """Whether every thread has a butterfly in round `number`."""
        return (number + 1) * self.threads <= self.butterflies(stage)

    def done(self, stage: int) -> int:
        """The length of the transforms that are finished before a stage."""
        return math.prod(self.radices[:stage])

    @property
    def values(self) -> int:
        """Complex ones that a thread holds."""
        return max(self.rounds(s) * radix for s, radix in enumerate(self.radices))

    @property
    def backward(self) -> Stages:
        """The same with the radices reversed: it begins where this one ends, with no exchange in between."""
        return Stages(self.length, self.radices[::-1], self.threads)


def registers(stages: Stages, double: bool, slack: int = 0) -> int:
    """What a thread gets by with, so that a multiprocessor holds many threads; with some slack, or with none."""
    least = next(counts for values, counts in ENOUGH if stages.values <= values)[slack]
    return min(2 * least if double else least, MOST_REGISTERS)


def most_threads(stages: Stages, double: bool, slack: int = 0) -> int:
    """That a block may have of them."""
    return min(MOST_THREADS, REGISTERS // (PARTS * registers(stages, double, slack)) * PARTS)


def most_registers(threads: int) -> int:
    """That each of so many threads in a block may have."""
    return min(REGISTERS // (-(-threads // PARTS) * PARTS) // 8 * 8, MOST_REGISTERS)


def is_supported(length: int, double: bool) -> bool:
    """Whether a block can do it: it has small factors only, and fits into registers."""
    return length <= (LONGEST_BLOCK // 2 if double else LONGEST_BLOCK) and bool(cuts(length, double))


def stages_of(length: int, double: bool = False) -> Stages:
    """The cut that is expected to be the fastest: few exchanges, little arithmetic, few idle threads."""
    return cuts(length, double)[0]


def cost(stages: Stages) -> tuple[float, int]:
    """Operations of all threads, idle ones included, for one element; then how many threads there are."""
    total = EXCHANGE * (len(stages.radices) - 1)
    for s, radix in enumerate(stages.radices):
        total += (operations(radix) + BUTTERFLY) / radix * stages.rounds(s) * stages.threads / stages.butterflies(s)
    return total, stages.threads


@functools.cache
def operations(radix: int) -> float:
    """Real operations of a butterfly with its twiddle factors."""
    return _operations(radix) + 8.0 * (radix - 1)


def _operations(n: int) -> float:
    if n == 1:
        return 0.0
    first = split(n)
    if first == n:
        half = (n - 1) // 2
        return 4.0 if n == 2 else 16.0 if n == 4 else 2.0 * n + 8.0 * half * (half + 1)
    rest = n // first
    return first * _operations(rest) + rest * _operations(first) + 8.0 * (first - 1) * (rest - 1)


def split(n: int) -> int:
    """The factor by which a butterfly of `n` elements is computed: 4, or the least prime; `n` itself of no other."""
    if n % 4 == 0:
        return 4
    return next(k for k in range(2, n + 1) if n % k == 0)


def largest_prime(n: int) -> int:
    largest, factor = 1, 2
    while factor * factor <= n:
        while n % factor == 0:
            n, largest = n // factor, factor
        factor += 1
    return max(largest, n)


def _factorings(length: int, usable: Sequence[int]) -> list[tuple[int, ...]]:
    """Usable radices in falling order whose product is `length`, the shortest lists first."""
    return sorted(_falling(length, usable), key=len) if length > 1 else [(1,)]


def _falling(length: int, usable: Sequence[int]) -> Iterator[tuple[int, ...]]:
    if length == 1:
        yield ()
    for k, radix in enumerate(usable):
        if length % radix == 0:
            yield from ((radix, *rest) for rest in _falling(length // radix, usable[k:]))


@functools.cache
def cuts(length: int, double: bool = False) -> tuple[Stages, ...]:
    """Those for which a block and registers suffice, the one that is expected to be the fastest first.

    They have as few stages as there can be, or one more.
    """
    long = length > LONG
    radices, values = ((32, *RADICES), MOST_VALUES) if long and not double else (RADICES, VALUES)
    found = _cuts(length, double, radices, values)
    if not double and (len(found[0].radices) > FEW if found else long):
        widest = MOST_VALUES if long else WIDEST
        found = list(dict.fromkeys(found + _cuts(length, double, _smooth(widest), widest)))
    return tuple(sorted(found, key=cost))


def _smooth(most: int) -> tuple[int, ...]:
    """Radices up to a largest one."""
    return tuple(n for n in range(most, 1, -1) if largest_prime(n) <= LARGEST_PRIME)


def _cuts(length: int, double: bool, usable: Sequence[int], values: int) -> list[Stages]:
    fitting: list[Stages] = []
    for radices in _factorings(length, usable):
        if fitting and len(radices) > len(fitting[0].radices) + 1:
            break
        for threads in sorted({length // radix for radix in radices}):
            cut = Stages(length, radices, threads)
            if cut.values <= values and threads <= most_threads(cut, double):
                fitting.append(cut)
    return fitting
