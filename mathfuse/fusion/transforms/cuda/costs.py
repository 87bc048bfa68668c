"""What a program costs, in bytes moved at the speed of a copy: the rule by which a way of fusing is chosen untimed.

A kernel of its own costs what it reads and writes. A callback costs a share of that, measured on an H200 with cuFFT
12.0 (benchmarks/results/fft-sweep.json); where the share exceeds 1, callbacks make cuFFT take a slower algorithm.
"""

from __future__ import annotations

import math

from mathfuse.fusion.transforms.cuda.program import Hook, Map, Program, Transform
from mathfuse.runtime.cuda.cufft import Call

LAUNCH = 5 << 20  # bytes that a copy moves in the time that a further kernel takes at least
LARGEST_PRIME = 127  # longer prime factors: Bluestein's algorithm, which callbacks slow down
COLUMNS = 1024  # the longest outer axis along which a callback costs little
ANOTHER_PASS = 2.0  # copies that cuFFT's further pass over memory costs

# The share of a copy that a callback of a one-dimensional transform costs, up to a length.
SHARES = ((512, 0.25), (4096, 0.35), (8192, 0.5))
SECOND = 0.25  # of the smaller share, where both sides have a callback
# The share that a callback costs in addition where cuFFT sees gaps between the lines of its input.
GAPS = ((512, 0.1), (4096, 0.05), (8192, 0.5))
# Lengths from 513 to 999 that cuFFT transforms with callbacks in one pass all the same.
SINGLE = (625, 675, 686, 700, 729, 882, 980)


def cost(program: Program, slowed: frozenset[Transform] = frozenset()) -> float:
    """Bytes for everything that differs between the ways of fusing.

    `slowed` are transforms known to take another pass because of their callbacks.
    """
    return sum(_cost(step) + (ANOTHER_PASS * _moved(step) if step in slowed else 0) for step in program.steps)


def _cost(step: Map | Transform) -> float:
    if isinstance(step, Map):
        return LAUNCH + step.source.layout.nbytes + step.target.layout.nbytes
    shares = sorted(share(step, hook)[0] for hook in (step.load, step.store) if hook)
    more = shares[-1] + SECOND * sum(shares[:-1]) + _gaps(step.call) if shares else 0
    return LAUNCH + (1 + more) * _moved(step)


def share(step: Transform, hook: Hook) -> tuple[float, str]:
    """What a callback costs as a share of a copy of its side, and a reason where that is much."""
    call = step.call
    if len(call.lengths) > 1:
        if hook is _on_columns(step) and call.lengths[0] > COLUMNS:
            return 6.0, f"a callback on columns of {call.lengths[0]} elements makes cuFFT take a slower algorithm"
        return 0.5, ""
    (n,) = call.lengths
    if _largest_prime(n) > LARGEST_PRIME:
        return 1.5, f"{n} has a large prime factor, where callbacks slow cuFFT down"
    if 512 < n < 1000 and n not in SINGLE:
        return 1.5, f"cuFFT takes another pass over memory for transforms of {n} elements with callbacks"
    found = next((s for most, s in SHARES if n <= most), 2.5)
    return found, f"transforms of {n} elements are too long for callbacks in one pass" if found > 1 else ""


def _on_columns(step: Transform) -> Hook | None:
    """The callback on the side of the strided axes: cuFFT begins with them, but for real input."""
    return step.store if step.call.family == "r2c" else step.load


def _moved(step: Transform | Map) -> int:
    """Bytes that a transform reads and writes."""
    assert isinstance(step, Transform)
    return _bytes(step.call, inside=True) + _bytes(step.call, inside=False)


def _bytes(call: Call, inside: bool) -> int:
    real = call.family == ("r2c" if inside else "c2r")
    return math.prod(call.lengths) * call.batch * (8 if call.double else 4) * (1 if real or call.family != "c2c" else 2)


def _gaps(call: Call) -> float:
    half = (*call.lengths[:-1], call.lengths[-1] // 2 + 1)
    lengths = half if call.family == "c2r" else call.lengths
    dense = call.batch == 1 or call.input.stride > 1 or call.input.distance == math.prod(lengths)
    if dense or len(lengths) > 1:
        return 0.0
    return next((more for most, more in GAPS if lengths[0] <= most), GAPS[-1][1])


def _largest_prime(n: int) -> int:
    largest, factor = 1, 2
    while factor * factor <= n:
        while n % factor == 0:
            n, largest = n // factor, factor
        factor += 1
    return max(largest, n)
