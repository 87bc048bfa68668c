"""What a program costs, in bytes moved at the speed of a copy: the rule by which a way of fusing is chosen untimed.

A kernel of its own costs what it reads and writes. A callback costs a share of that, measured on an H200 with cuFFT
12.0 (benchmarks/results/fft-sweep.json); where the share exceeds 1, callbacks make cuFFT take a slower algorithm.
"""

from __future__ import annotations

import math

from mathfuse.device.fft.shapes import largest_prime
from mathfuse.fusion.transforms.cuda.program import Hook, Map, Program, Transform
from mathfuse.fusion.transforms.kinds import Family
from mathfuse.runtime.cuda.cufft import Call

LAUNCH = 5 << 20  # bytes that a copy moves in the time that a further kernel takes at least
LARGEST_PRIME = 127  # longer prime factors: Bluestein's algorithm, which callbacks slow down in float64
LARGEST_RADIX = 13  # longer prime factors: a larger work area does not tell of another pass over memory
# The longest axes of a transform of several at which callbacks do not slow cuFFT down: in float32, in float64.
COLUMNS, ROWS = (1024, 512), 4096
SLOWER_COLUMNS, SLOWER_ROWS = 6.0, 1.1
SLOWER, SLOWER_REAL = 1.5, 1.8
LATENCY = 12 << 20  # bytes for what callbacks delay longer transforms of other lengths than powers of two
CACHED = 96 << 20  # bytes up to which a pass over memory is one over the L2 cache

# The share of a copy that a callback of a one-dimensional transform costs, up to a length; and what it costs in
# addition if cuFFT then needs more of a work area, for another pass. In float32, of real numbers in it, and in float64.
SHARES = ((512, 0.25, 1.6), (4096, 0.35, 1.6), (8192, 0.5, 1.6), (20000, 0.9, 0.0))
SHARES_REAL = ((512, 0.25, 1.6), (4096, 0.6, 1.6), (8192, 1.2, 1.6), (20000, 0.9, 0.0))
SHARES_DOUBLE = ((512, 0.25, 1.6), (4096, 0.35, 1.6), (20000, 0.75, 0.0), (65536, 0.95, 0.0))
CACHED_SHARE = 1.6  # of more than 8192 elements, where a pass costs little
TOO_LONG = 3.0
LONG_SPECTRA, SPECTRAL = 65536, 0.9  # but of real transforms up to that length, on the side of the spectrum
SECOND = 0.25  # of the smaller share, where both sides have a callback
# The share that a callback costs in addition where cuFFT sees gaps between the lines of its input.
GAPS = ((512, 0.1), (4096, 0.05), (8192, 0.5))
# The share of a copy that own kernels take, up to a length: for rows, for columns, and there and back.
BLOCKS = ((96, 1.4), (4096, 0.99), (8192, 1.1), (16384, 1.4))
BLOCKS_REAL = ((128, 2.0), (8192, 0.95), (32768, 1.3))
COLUMN_BLOCKS: dict[Family, tuple[tuple[int, float], ...]] = {
    "c2c": ((96, 1.25), (128, 1.1), (256, 1.2), (512, 1.45), (2048, 1.5), (4096, 1.8), (16384, 3.0)),
    "r2c": ((128, 1.9), (256, 1.5), (2048, 1.6), (4096, 1.75), (16384, 3.0)),
    "c2r": ((128, 1.9), (256, 1.5), (2048, 1.6), (4096, 1.75), (16384, 3.9)),
}
COLUMNS_DOUBLE = 0.85  # of that, and of steps, in float64
FILTERED = ((512, 1.2), (2048, 1.5), (4096, 1.8), (16384, 2.4))
STEPS = ((512, 1.2), (2048, 1.35))  # of a longer transform, likewise
# The share of a copy that cuFFT takes without callbacks, up to a length: longer transforms take it more passes.
PASSES = ((20000, 1.0), (32768, 2.1), (65536, 2.6), (1 << 20, 3.0), (1 << 22, 3.7), (1 << 62, 4.3))
FURTHER_AXIS = 1.2, 1.5  # of a copy for each further axis of cuFFT's transforms, of complex and of real numbers
FUSED = 0.25  # of a copy for a callback in them, that is, for its operand
# Lengths from 513 to 999 that cuFFT transforms with callbacks in one pass all the same.
SINGLE = (625, 675, 686, 700, 729, 882, 980)


def cost(program: Program, slowed: frozenset[Transform] = frozenset()) -> float:
    """Bytes for everything that differs between the ways of fusing.

    `slowed` are transforms known to take another pass because of their callbacks.
    """
    real = next((step.call.family for step in program.transforms if step.call.family != "c2c"), None)
    return sum(_cost(step, step in slowed, real or "c2c") for step in program.steps)


def _cost(step: Map | Transform, slowed: bool, family: Family) -> float:
    if isinstance(step, Map):
        return LAUNCH + step.source.layout.nbytes + step.target.layout.nbytes
    moved, lengths = _moved(step), step.call.lengths
    if step.block:
        hooks = FUSED * (1 + SECOND * (len(step.hooks) - 1)) if step.hooks else 0
        return LAUNCH + (blocks_share(step, family) + hooks) * moved
    shares = sorted(share(step, hook)[0] for hook in (step.load, step.store) if hook)
    passes = [next(share for most, share in PASSES if n <= most) for n in lengths]
    base = 1 + sum(passes) - len(passes) + FURTHER_AXIS[family != "c2c"] * (len(lengths) - 1)
    launches = LAUNCH * sum(map(int, passes))
    if not shares:
        return launches + base * moved
    more = shares[-1] + SECOND * sum(shares[:-1]) + _gaps(step.call) + (_another_pass(step.call) if slowed else 0)
    return launches + (base + more) * moved + (LATENCY if any(n > 512 and n & (n - 1) for n in lengths) else 0)


def blocks_share(step: Transform, family: Family) -> float:
    """What an own kernel costs as a share of a copy of both its sides, in a program of a family."""
    assert step.block
    (n,), views = step.call.lengths, (step.call.input, step.call.output)
    across = step.block.tiles != (1, 1) or all(view.distance < view.stride for view in views)
    rows = BLOCKS if family == "c2c" else BLOCKS_REAL
    table = FILTERED if step.transfer else STEPS if step.part else COLUMN_BLOCKS[family] if across else rows
    found = next((share for most, share in table if n <= most), table[-1][1])
    return found * COLUMNS_DOUBLE if step.call.double and table in (COLUMN_BLOCKS[family], STEPS) else found


def share(step: Transform, hook: Hook) -> tuple[float, str]:
    """What a callback costs as a share of a copy of its side, and a reason where that is much."""
    call, lengths = step.call, step.call.lengths
    if len(lengths) > 1:
        if hook is _on_columns(step) and lengths[0] > COLUMNS[call.double]:
            return SLOWER_COLUMNS, f"callbacks on columns of {lengths[0]} elements make cuFFT take a slower algorithm"
        if lengths[-1] > ROWS and call.family != "c2c":
            return SLOWER_ROWS, f"callbacks on rows of {lengths[-1]} elements cost more than a pass over memory"
        return 0.5, ""
    (n,) = lengths
    if largest_prime(n) > LARGEST_PRIME and call.double:
        return SLOWER, f"{n} has a large prime factor, where callbacks slow cuFFT down"
    if 512 < n < 1000 and n not in SINGLE and not call.double:
        why = f"cuFFT takes another pass over memory for transforms of {n} elements with callbacks"
        return SLOWER if call.family == "c2c" else SLOWER_REAL, why
    found = next((share for most, share, _ in _shares(call) if n <= most), TOO_LONG)
    if (
        SHARES[-2][0] < n <= SHARES[-1][0]
        and not call.double
        and _bytes(call, inside=True) + _bytes(call, inside=False) <= CACHED
    ):
        found = CACHED_SHARE
    if found == TOO_LONG and n <= LONG_SPECTRA and hook is _on_spectrum(step):
        found = SPECTRAL
    return found, f"transforms of {n} elements are too long for callbacks" if found > 1 else ""


def _shares(call: Call) -> tuple[tuple[int, float, float], ...]:
    return SHARES_DOUBLE if call.double else SHARES if call.family == "c2c" else SHARES_REAL


def _another_pass(call: Call) -> float:
    if largest_prime(max(call.lengths)) > LARGEST_RADIX:
        return 0.0
    return next((more for most, _, more in _shares(call) if max(call.lengths) <= most), 0.0)


def _moved(step: Transform) -> float:
    """Bytes that a transform reads and writes, in the dtypes in which they are stored."""
    ends = (step.load.map if step.load else step).source, (step.store.map if step.store else step).target
    return sum(
        _bytes(step.call, inside) * end.layout.dtype.itemsize / _itemsize(step.call, inside)
        for end, inside in zip(ends, (True, False))
    )


def _on_spectrum(step: Transform) -> Hook | None:
    """The callback on the side of half a spectrum."""
    return {"r2c": step.store, "c2r": step.load}.get(step.call.family)


def _on_columns(step: Transform) -> Hook | None:
    """The callback on the side of the strided axes: cuFFT begins with them, but for real input."""
    return step.store if step.call.family == "r2c" else step.load


def _itemsize(call: Call, inside: bool) -> int:
    real = call.family == ("r2c" if inside else "c2r")
    return (8 if call.double else 4) * (1 if real else 2)


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
