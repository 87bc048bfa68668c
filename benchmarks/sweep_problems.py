"""Which problems the sweep solves, in sections: plain data."""

from __future__ import annotations

import math
from dataclasses import dataclass

FILL, MOST_BATCHES = 1 << 24, 65536
POWERS = tuple(1 << k for k in range(6, 17))
PRIMES = (97, 251, 509, 1009, 4099)
COMPOSITE = (75, 100, 243, 375, 500, 625, 768, 1000, 1536, 1920, 2000, 3000, 5000, 6000, 8198, 10000, 20000)
REAL = (64, 97, 100, 243, 256, 500, 625, 768, 1000, 1009, 1024, 1536, 2048, 4096, 8192, 20000, 65536)
SMALL = (64, 97, 256, 1000, 1024, 4096, 16384)
DOUBLE = (64, 243, 256, 768, 1000, 1009, 1024, 4096, 8192, 16384, 65536)
DOUBLE_REAL = (256, 1000, 2048, 8192)
LONG, LONG_DOUBLE = (100_000, 1 << 17, 1 << 20, 1 << 22, 1 << 24, 1 << 27), (1 << 17, 1 << 20, 1 << 24)
SQUARES, CUBES = (512, 1000, 2048, 4096, 8192), (64, 128, 256)


@dataclass(frozen=True)
class Problem:
    """`batch` transforms of `lengths`, those of the real side."""

    family: str
    double: bool
    lengths: tuple[int, ...]
    batch: int

    def __str__(self) -> str:
        lengths = "×".join(map(str, self.lengths))
        return f"{self.family} {'double' if self.double else 'float'} {lengths}, batch {self.batch}"


def filling(family: str, *lengths: int, double: bool = False) -> Problem:
    """In as many batches as make 2^24 elements, 65536 at most."""
    return Problem(family, double, lengths, max(1, min(MOST_BATCHES, FILL // math.prod(lengths))))


SECTIONS: dict[str, list[Problem]] = {
    "1d": [filling("c2c", n) for n in sorted(POWERS + PRIMES + COMPOSITE)],
    "2d": [filling(family, n, n) for n in SQUARES for family in ("c2c", "r2c", "c2r")],
    "small": [
        *(Problem("c2c", False, (n,), batch) for n in SMALL for batch in (1, 16, 256)),
        *(Problem(family, False, (1024,), batch) for family in ("r2c", "c2r") for batch in (1, 256)),
        *(Problem(family, False, (512, 512), 1) for family in ("c2c", "r2c", "c2r")),
        Problem("c2c", False, (64, 64, 64), 1),
    ],
    "3d": [
        *(filling("c2c", n, n, n) for n in CUBES),
        *(filling(family, n, n, n) for n in CUBES[1:] for family in ("r2c", "c2r")),
    ],
    "double": [
        *(filling("c2c", n, double=True) for n in DOUBLE),
        *(filling(family, n, double=True) for n in DOUBLE_REAL for family in ("r2c", "c2r")),
        *(filling("c2c", n, n, double=True) for n in (1000, 4096)),
        filling("c2c", 128, 128, 128, double=True),
    ],
    "long": [
        *(filling("c2c", n) for n in LONG),
        *(filling("c2c", n, double=True) for n in LONG_DOUBLE),
        *(Problem("c2c", False, (n,), 1) for n in (1 << 15, 1 << 17, 1 << 20)),
    ],
    "real": [filling(family, n) for n in REAL for family in ("r2c", "c2r")],
}
