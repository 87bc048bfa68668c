"""How a block of threads transforms several lines of a length, and the shared memory that takes: pure decisions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from mathfuse.device.fft.exchanges import BANKS, Exchange, exchanges
from mathfuse.device.fft.shapes import Stages, most_threads

LEAST_THREADS = 48  # of a block
ACROSS = 16  # transforms beside each other in memory that make whole sectors of it
# KiB of shared memory that a block may have, by compute capability (CUDA C++ Programming Guide, "Technical
# Specifications per Compute Capability"); others have the least of them at least.
MOST_SHARED, LEAST_SHARED = {80: 163, 87: 163, 90: 227, 100: 227, 103: 227, 110: 227}, 99


@dataclass(frozen=True)
class Configuration:
    """How a transform is cut into stages of these radices and dealt to threads, and how many a block does."""

    radices: tuple[int, ...]
    threads: int
    transforms: int

    def __str__(self) -> str:
        return f"{'·'.join(map(str, self.radices))} / {self.threads} × {self.transforms}"

    @classmethod
    def read(cls, text: str) -> Configuration:
        """Of the text that `str` makes."""
        radices, _, rest = text.partition(" / ")
        threads, _, transforms = rest.partition(" × ")
        return cls(tuple(map(int, radices.split("·"))), int(threads), int(transforms))


@dataclass(frozen=True)
class Block:
    """Several transforms of one kind in a block.

    Parameters
    ----------
    stages
        One of them.
    transforms
        How many.
    across
        Neighbouring threads work on neighbouring transforms; else on neighbouring elements of one.
    tile
        Across: so many neighbouring threads work on neighbouring elements first.
    turned
        Before or after the transform, neighbouring threads work on neighbouring transforms.
    """

    stages: Stages
    transforms: int
    across: bool = False
    tile: int = 1
    turned: bool = False

    @property
    def threads(self) -> int:
        return self.stages.threads * self.transforms

    @property
    def configuration(self) -> Configuration:
        return Configuration(self.stages.radices, self.stages.threads, self.transforms)

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """Where elements of a transform lie after each stage."""
        return exchanges(self.stages, self.transforms if self.interleaved else 1)

    @property
    def interleaved(self) -> bool:
        """Whether elements of all transforms with one number lie together in shared memory."""
        return self.across and self.tile == 1

    @property
    def pitch(self) -> int:
        """Elements of shared memory for one transform; of several that are accessed at once each has its banks."""
        both = (*self.exchanges, *replace(self, stages=self.stages.backward).exchanges)
        most = max(exchange.place(self.stages.length - 1) for exchange in both) + 1
        beside = self.tile if self.across else self.stages.threads  # threads of one transform
        beside = max(1, BANKS // self.transforms) if self.turned else beside
        apart = beside < BANKS and self.transforms > 1 and not self.interleaved
        return most + ((beside - most) % BANKS if apart else 0)

    def shared_bytes(self, double: bool) -> int:
        """0 of a single stage, which needs no exchange."""
        return self.pitch * self.transforms * (16 if double else 8) if len(self.stages.radices) > 1 else 0


def block_of(
    stages: Stages, double: bool, arch: str, wanted: int = 0, *, slack: int = 0, **options: Any
) -> Block | None:
    """As many transforms as `wanted`, or as make a block of a good size; None where shared memory has room for none.

    With `slack` its threads have as many registers, if one transform leaves them.
    """
    wanted = wanted or (ACROSS if options.get("across") else -(-LEAST_THREADS // stages.threads))
    room = MOST_SHARED.get(int(arch.strip("sm_af")), LEAST_SHARED) << 10
    most = max(1, most_threads(stages, double, slack) // stages.threads)
    blocks = (Block(stages, n, **options) for n in range(min(wanted, most), 0, -1))
    return next((block for block in blocks if block.shared_bytes(double) <= room), None)
