"""What versions of cuFFT get wrong with callbacks: a table, so that no plan is made of it.

Half precision is no row here: cuFFT has no callbacks for it, and mathfuse computes it in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mathfuse.device.fft.shapes import largest_prime
from mathfuse.fusion.transforms.cuda.program import Program, Transform

Version = tuple[int, int, int]


@dataclass(frozen=True)
class Flaw:
    """A fault of the versions from `since` and before `fixed`, in transforms that `concerns` tells."""

    since: Version
    fixed: Version
    concerns: Callable[[Transform], bool]
    reason: str


def _real_side_of_large_primes(step: Transform) -> bool:
    """A callback on the real side of a long, even transform with a prime factor above 127."""
    call, n = step.call, step.call.lengths[-1]
    hook = {"r2c": step.load, "c2r": step.store}.get(call.family)
    return hook is not None and n % 2 == 0 and n >= (4096 if call.double else 8192) and largest_prime(n) > 127


FLAWS = (
    # CUDA 13.3 gives wrong results, 13.4 right ones; nvmath-python 1.0 refuses the same problems (fft.py).
    Flaw(
        (12, 3, 0),
        (12, 4, 0),
        _real_side_of_large_primes,
        "cuFFT 12.3 errs with callbacks on real numbers of lengths with large prime factors; CUDA 13.4 does not",
    ),
)


def flaw(program: Program, version: Version) -> str:
    """Why a program would be wrong with a version of cuFFT; the empty string where it is right."""
    steps = [step for step in program.transforms if not step.block]
    found = (f for f in FLAWS if f.since <= version < f.fixed and any(map(f.concerns, steps)))
    return next((f.reason for f in found), "")
