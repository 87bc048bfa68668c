"""Elementary functions in the callback language, where a target's own would call, widen or keep a loop scalar."""

# mypy: ignore-errors

from __future__ import annotations

import math

import numpy as np

from mathfuse.fusion.compiler.language import library

# --- sin, cos, atan2, asinh in float32 on a GPU, where libdevice would call or leave the precision --------------------
# Arguments up to 2^15 are reduced by Cody and Waite's constants, larger ones by Payne and Hanek's product with
# the right 96 bits of 2/pi, in integer registers. Polynomials: Cephes (sinf.c, cosf.c).

TWO_OVER_PI = (
    0x00000000,
    0x00000000,
    0xA2F9836E,
    0x4E441529,
    0xFC2757D1,
    0xF534DDC0,
    0xDB629599,
    0x3C439041,
    0xFE5163AB,
)


def word_of_two_over_pi(k):
    """The 32-bit word ``k`` of 2/pi's binary digits (two zero words first)."""
    word = np.uint32(0)
    for i in range(2, 9):
        word = np.where(k == i, np.uint32(TWO_OVER_PI[i]), word)
    return word


def reduce_large(x):
    """Quadrant and remainder of ``|x| >= 2^15`` by Payne and Hanek (SIGNUM 18, 1983); float32 only."""
    bits = np.bitwise_and(bit_pattern(x), np.uint32(0x7FFFFFFF))
    exponent = np.int64(bits >> np.uint32(23)) - 127
    mantissa = np.uint64((bits & np.uint32(0x7FFFFF)) | np.uint32(0x800000))
    # x = mantissa * 2^(exponent - 23); the bits of 2/pi that give multiples of 4 fall away: start at exponent - 23 - 2.
    start = exponent - 25 + 64
    first, shift = start >> 5, np.uint32(start & 31)
    a, b, c, d = (
        np.uint64(word_of_two_over_pi(first)),
        np.uint64(word_of_two_over_pi(first + 1)),
        np.uint64(word_of_two_over_pi(first + 2)),
        np.uint64(word_of_two_over_pi(first + 3)),
    )
    left = np.uint64(shift)
    high = (((a << np.uint64(32)) | b) << left) | ((c << left) >> np.uint64(32))
    low = (((c << np.uint64(32)) | d) << left) >> np.uint64(32)
    # Product of the mantissa with the 96 bits, modulo 2^64 in units of 2^-62 quadrants.
    product = mantissa * high + ((mantissa * low) >> np.uint64(32))
    quadrant = product >> np.uint64(62)
    fraction = np.int64(product << np.uint64(2))
    quadrant = np.where(fraction < 0, quadrant + np.uint64(1), quadrant)
    remainder = np.float32(fraction) * np.float32(1.5707963267948966 * 2.0**-64)
    negative = x < 0
    return np.where(negative, -np.int64(quadrant), np.int64(quadrant)), np.where(negative, -remainder, remainder)


# pi/2 in pieces of nine bits, so that a product with a quadrant of fifteen is exact in float32; the last is the rest.
PARTS_OF_HALF_PI = (201 / 2**7, 507 / 2**20, 337 / 2**30, 6.077100506506192e-11)


def reduce_quadrant(x):
    """``(q, r)`` with x = q pi/2 + r and |r| <= pi/4; the first three products are exact, fused or not."""
    q = np.rint(x * np.float32(2 / math.pi))
    r = x
    for part in PARTS_OF_HALF_PI:
        r = r - q * np.float32(part)
    quadrant, remainder = np.int64(q), r
    if abs(x) >= 32768.0:
        quadrant, remainder = reduce_large(x)
    return quadrant, remainder


def sine_of_quadrant(q, r):
    """sin(r + q pi/2)."""
    s = r * r
    sine = r + r * s * (-1.6666654611e-1 + s * (8.3321608736e-3 + s * -1.9515295891e-4))
    cosine = 1 - 0.5 * s + s * s * (4.166664568298827e-2 + s * (-1.388731625493765e-3 + s * 2.443315711809948e-5))
    result = np.where((q & 1) != 0, cosine, sine)
    return np.where((q & 2) != 0, -result, result)


def sin_single(x):
    q, r = reduce_quadrant(x)
    return np.where(abs(x) < math.inf, sine_of_quadrant(q, r), math.nan)


def cos_single(x):
    q, r = reduce_quadrant(x)
    return np.where(abs(x) < math.inf, sine_of_quadrant(q + 1, r), math.nan)


def atan2_single(y, x):
    """From the arctangent of a ratio in [0, 1]; libdevice's divides by a call."""
    across, up = abs(x), abs(y)
    large, small = max(across, up), min(across, up)
    ratio = np.where(across == up, np.where(large == 0, 0, 1), small / large)
    angle = math.atan(ratio)
    angle = np.where(up > across, math.pi / 2 - angle, angle)
    angle = np.where(math.copysign(1, x) < 0, math.pi - angle, angle)
    return np.where((x != x) | (y != y), x + y, math.copysign(angle, y))


def asinh_single(x):
    """log1p(a + a²/(1 + √(1 + a²))) of a = |x|, and log(2a) before a² overflows; libdevice's of CUDA 12 has a call."""
    a = abs(x)
    square = a * a
    near = math.log1p(a + square / (1 + math.sqrt(1 + square)))
    return math.copysign(np.where(a < 1.0e9, near, np.log(a) + math.log(2)), x)


# --- exp and tanh on a CPU, where a call to libm would keep LLVM from vectorising the loop ----------------------------


def exp_single(x):
    """float32: two-step reduction by ln 2 and Cephes' polynomial (expf.c); under an ulp and a half."""
    x = library.minimum(library.maximum(x, -104.0), 89.0)
    n = np.rint(x * 1.4426950408889634)
    r = x - n * np.float32(0.693359375) + n * np.float32(2.12194440054690583e-4)
    p = 5.0000001201e-1 + r * (
        1.6666665459e-1 + r * (4.1665795894e-2 + r * (8.3334519073e-3 + r * (1.3981999507e-3 + r * 1.9875691500e-4)))
    )
    return scale_by_power(1 + r + r * r * p, n)


INVERSE_FACTORIALS = tuple(1 / math.factorial(k) for k in range(13, 1, -1))


def exp_double(x):
    """float64: the same with Taylor's series to the 13th power; |r| <= ln(2) / 2 leaves less than an ulp."""
    x = library.minimum(library.maximum(x, -746.0), 710.0)
    n = np.rint(x * 1.4426950408889634)
    r = x - n * 6.93145751953125e-1 - n * 1.42860682030941723212e-6
    p = 0.0
    for coefficient in INVERSE_FACTORIALS:
        p = p * r + coefficient
    return scale_by_power(1 + (r + r * r * p), n)


def scale_by_power(x, n):
    """x * 2^n in two steps, so that neither the largest nor subnormal results are lost."""
    half = np.floor(n * 0.5)
    return x * power_of_two(half) * power_of_two(n - half)


def tanh_single(x):
    """float32: by exp, and near 0 by an odd polynomial (Cephes, tanhf.c)."""
    z = abs(x)
    large = 1 - 2 / (exp_single(2 * z) + 1)
    s = z * z
    p = -3.33332819422e-1 + s * (
        1.33314422036e-1 + s * (-5.37397155531e-2 + s * (2.06390887954e-2 + s * -5.70498872745e-3))
    )
    return math.copysign(np.where(z < 0.625, z + z * s * p, large), x)


def power_of_two(n):
    """2^n for an integral float n in the range of exponents (the evaluator builds the bits)."""
    return 2.0**n


def bit_pattern(x):
    """The 32 bits of a float32 (the evaluator emits a bitcast)."""
    return np.float32(x).view(np.uint32)
