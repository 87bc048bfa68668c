"""What operators and functions mean where no single instruction does it, written in the callback language itself.

Each function is plain Python that the evaluator inlines with the types it meets: constants are weak, so one definition
serves float32 and float64, on every target, and can be tested against NumPy as it stands.
"""

# mypy: ignore-errors

from __future__ import annotations

import math

import numpy as np

# --- real -------------------------------------------------------------------------------------------------------------


def remainder_floor(a, b):
    """NumPy's ``%``: the sign of the divisor; exact, because fmod is."""
    r = math.fmod(a, b)
    r = np.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)
    return np.where(r == 0, math.copysign(r, b), r)


def divide_floor(a, b):
    """NumPy's ``//``: consistent with ``%``, so that a == (a // b) * b + a % b."""
    r = math.fmod(a, b)
    quotient = np.rint((a - r) / b)
    rounded = np.where((r != 0) & ((r < 0) != (b < 0)), quotient - 1, quotient)
    return np.where(b == 0, a / b, rounded)


def hypot(x, y):
    """sqrt(x^2 + y^2) scaled by the larger part, so that it neither overflows nor underflows."""
    x, y = abs(x), abs(y)
    large, small = max(x, y), min(x, y)
    ratio = np.where(large == 0, large, small / large)
    infinite = (x == math.inf) | (y == math.inf)
    undefined = (x != x) | (y != y)
    return np.where(infinite, math.inf, np.where(undefined, x + y, large * math.sqrt(1 + ratio * ratio)))


def sign(x):
    return np.where(x != x, x, np.where(x > 0, 1, np.where(x < 0, -1, 0)))


def square(x):
    return x * x


def reciprocal(x):
    return 1 / x


def isnan(x):
    return x != x


def isinf(x):
    return abs(x) == math.inf


def isfinite(x):
    return abs(x) < math.inf


def signbit(x):
    return math.copysign(1, x) < 0


def degrees(x):
    return x * (180 / math.pi)


def radians(x):
    return x * (math.pi / 180)


def tan(x):
    return math.sin(x) / math.cos(x)


def square_root(x):
    return np.sqrt(x)


def sinc(x):
    y = math.pi * np.where(x == 0, 1.0e-20, x)
    return np.sin(y) / y


def modf(x):
    """Fractional and integral part, both with the sign of x."""
    whole = np.trunc(x)
    return math.copysign(np.where(abs(x) == math.inf, 0, x - whole), x), whole


def isclose(a, b, relative, absolute):
    """Python's symmetric test: |a - b| <= max(relative * max(|a|, |b|), absolute)."""
    near = abs(a - b) <= max(relative * max(abs(a), abs(b)), absolute)
    return (a == b) | (near & (abs(a) < math.inf) & (abs(b) < math.inf))


def isclose_to(a, b, relative, absolute):
    """NumPy's test, in which b is the reference: |a - b| <= absolute + relative * |b|."""
    near = abs(a - b) <= absolute + relative * abs(b)
    return (a == b) | (near & (abs(a) < math.inf) & (abs(b) < math.inf))


def logaddexp(a, b):
    difference = abs(a - b)
    return np.where(a == b, a + math.log(2), max(a, b) + math.log1p(math.exp(-difference)))


def logaddexp2(a, b):
    difference = abs(a - b)
    return np.where(a == b, a + 1, max(a, b) + math.log1p(np.exp2(-difference)) * (1 / math.log(2)))


def heaviside(x, at_zero):
    return np.where(x != x, x, np.where(x > 0, 1, np.where(x < 0, 0, at_zero)))


def maximum(a, b):
    """Propagates NaN, as numpy.maximum."""
    return np.where((a != a) | (a > b), a, b)


def minimum(a, b):
    return np.where((a != a) | (a < b), a, b)


def fmax(a, b):
    """Ignores NaN, as numpy.fmax."""
    return np.where((b != b) | (a > b), a, b)


def fmin(a, b):
    return np.where((b != b) | (a < b), a, b)


def clip(x, low, high):
    return minimum(maximum(x, low), high)


def absolute_integer(x):
    return np.where(x < 0, -x, x)


# --- integers ---------------------------------------------------------------------------------------------------------


def divide_unsigned(n, d):
    """64-bit unsigned division, 0 where ``d`` is 0 (the evaluator takes the processor's own where there is one)."""
    return divide_unsigned_in_line(n, d)


def divide_unsigned_in_line(n, d):
    """The same without a call: one 32-bit division where both operands fit, else bit by bit."""
    if (n | d) >> np.uint64(32) == 0:
        divisor = np.uint32(d)
        return np.uint64(
            np.where(d == 0, np.uint32(0), divide_single(np.uint32(n), np.where(d == 0, np.uint32(1), divisor)))
        )
    quotient, rest = np.uint64(0), np.uint64(0)
    for bit in range(63, -1, -1):
        carry = rest >> np.uint64(63)
        rest = (rest << np.uint64(1)) | ((n >> np.uint64(bit)) & np.uint64(1))
        fits = (carry != 0) | (rest >= d)
        rest = np.where(fits, rest - d, rest)
        quotient = (quotient << np.uint64(1)) | np.where(fits, np.uint64(1), np.uint64(0))
    return np.where(d == 0, np.uint64(0), quotient)


def divide_floor_integer(a, b):
    """Python's ``//`` for signed integers; 0 where the divisor is 0, as NumPy."""
    quotient = np.int64(divide_unsigned(np.uint64(abs(a)), np.uint64(abs(b))))
    differ = (a < 0) != (b < 0)
    exact = quotient * abs(b) == abs(a)
    rounded = np.where(differ, np.where(exact, -quotient, -quotient - 1), quotient)
    return np.where(b == 0, 0, rounded)


def remainder_floor_integer(a, b):
    """Python's ``%`` for signed integers; 0 where the divisor is 0, as NumPy."""
    return np.where(b == 0, 0, a - divide_floor_integer(a, b) * b)


def remainder_unsigned(a, b):
    return np.where(b == 0, np.uint64(0), a - divide_unsigned(a, b) * b)


def integer_power(a, n):
    """An integer to an unsigned power, by squaring."""
    power, base, rest = a * 0 + 1, a, n
    while rest > 0:
        power = np.where((rest & 1) != 0, power * base, power)
        base = base * base
        rest = rest >> 1
    return power


def divide_single(n, d):
    """32-bit unsigned division by something that is not 0 (the evaluator emits the instruction)."""
    return n // d
