"""Where elements lie in shared memory while they change threads between two stages: pure decisions.

A stage's butterflies write with a stride that may keep them to a few banks. So places are skipped after each period
of what has been transformed so far: elements at the distances that a thread asks for then lie at constant distances.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from mathfuse.device.fft.shapes import Stages

BANKS = 16  # elements that threads beside each other read or write at once
MOST_PADDING = 4  # a period is this many times as long as what is skipped after it, at least


@dataclass(frozen=True)
class Exchange:
    """A layout: after each `period` elements `pad` places are skipped."""

    period: int
    pad: int = 0

    def place(self, element: int) -> int:
        return element + element // self.period * self.pad


@functools.lru_cache(maxsize=1024)
def exchanges(stages: Stages, columns: int = 1) -> tuple[Exchange, ...]:
    """The layout after each stage but the last, with the fewest conflicts; plain after the last one.

    Of each element those of `columns` transforms lie together.
    """
    inner = [_exchange(stages, stage, columns) for stage in range(len(stages.radices) - 1)]
    return (*inner, Exchange(stages.length))


def _exchange(stages: Stages, stage: int, columns: int) -> Exchange:
    done, period = stages.done(stage), stages.done(stage + 1)
    threads = range(min(stages.threads, 4 * BANKS))

    def cost(exchange: Exchange) -> tuple[int, int]:
        written = [exchange.place(j // done * period + j % done) for j in threads]
        read = [exchange.place(j) for j in threads]
        return sum(turns([c * columns + k for c in places for k in range(columns)]) for places in (written, read)), (
            exchange.pad
        )

    return min((Exchange(period, pad) for pad in range(min(BANKS, period // MOST_PADDING + 1))), key=cost)


def turns(places: Sequence[int]) -> int:
    """How often shared memory is accessed for elements at these places, one a thread."""
    groups = [places[k : k + BANKS] for k in range(0, len(places), BANKS)]
    return sum(max(Counter(place % BANKS for place in set(group)).values()) for group in groups)
