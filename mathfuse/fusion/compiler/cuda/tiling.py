"""How much a thread of an elementwise kernel does at once. Pure functions of plain data."""

from __future__ import annotations

from dataclasses import dataclass

THREADS = 256
VECTOR_BYTES = 16  # the widest access
BYTES_IN_FLIGHT = 16  # that a thread loads before it stores: with full occupancy as much as a GPU's latency asks for
COPIES = 16  # of the callback in a thread's straight-line code, at most
MOST_BLOCKS = (1 << 31) - 1  # of a launch
INSTRUCTIONS = 1500  # in all copies together: a larger callback is bound by arithmetic


@dataclass(frozen=True)
class Tile:
    """What a block of threads does at once: each thread ``groups`` accesses of ``lanes`` elements."""

    lanes: int
    groups: int

    @property
    def elements(self) -> int:
        return THREADS * self.lanes * self.groups


def tile_of(vector: int, instructions: int, itemsize: int) -> Tile:
    """The tile for accesses of at most ``vector`` elements of ``itemsize`` bytes, each of so many instructions."""
    copies = _power_of_two(min(COPIES, INSTRUCTIONS // instructions))
    lanes = min(_power_of_two(vector), copies)
    return Tile(lanes, _power_of_two(min(4, BYTES_IN_FLIGHT // (lanes * itemsize), copies // lanes)))


def vector_width(*itemsizes: int) -> int:
    """Elements that one access moves where source and destination have these element sizes in bytes."""
    return _power_of_two(min(8, VECTOR_BYTES // max(itemsizes)))


def blocks_of(count: int, tile: int, multiprocessors: int) -> int:
    """Blocks of a launch: a tile each, or, of few elements, spread over all multiprocessors; the kernel strides."""
    tiles, spread = -(-count // tile), -(-count // THREADS)
    return max(1, min(max(tiles, min(spread, multiprocessors)), MOST_BLOCKS))


def _power_of_two(n: int) -> int:
    """The largest one that is not larger, at least 1."""
    return 1 << max(n, 1).bit_length() - 1
