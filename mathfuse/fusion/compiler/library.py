"""What operators and functions mean where no single instruction does it, written in the callback language itself.

Each function is plain Python that the evaluator inlines with the types it meets: constants are weak, so one definition serves
float32, float64 and their complex types, on every target, and can be tested against NumPy as it stands.
"""

from __future__ import annotations

import math

import numpy as np

# --- complex --------------------------------------------------------------------------------------------------------------------


def complex_divide(a, b):
    """Smith's algorithm (CACM 5, 1962) without branches: no overflow of the intermediate |b|^2."""
    swap = abs(b.real) < abs(b.imag)
    large = np.where(swap, b.imag, b.real)
    small = np.where(swap, b.real, b.imag)
    zero = large == 0  # then both parts of b vanish, and a / 0 keeps NumPy's infinities and NaNs
    ratio = np.where(zero, 0, small / large)
    denominator = np.where(zero, abs(large), large + small * ratio)
    real = np.where(swap, a.real * ratio + a.imag, a.real + a.imag * ratio)
    imag = np.where(swap, a.imag * ratio - a.real, a.imag - a.real * ratio)
    return complex(real / denominator, imag / denominator)


def complex_abs(z):
    """sqrt(x^2 + y^2) scaled by the larger part, so that it neither overflows nor underflows."""
    x, y = abs(z.real), abs(z.imag)
    large, small = max(x, y), min(x, y)
    ratio = np.where(large == 0, large, small / large)
    modulus = large * math.sqrt(1 + ratio * ratio)
    infinite = (x == math.inf) | (y == math.inf)
    undefined = (x != x) | (y != y)
    return np.where(infinite, math.inf, np.where(undefined, x + y, modulus))


def complex_sqrt(z):
    """The principal root: real part from the half-angle formula, imaginary part by division (no cancellation)."""
    x, y = z.real, z.imag
    root = math.sqrt(0.5 * abs(x) + 0.5 * abs(z))
    other = np.where(root == 0, root, 0.5 * abs(y) / root)
    return complex(np.where(x < 0, other, root), math.copysign(np.where(x < 0, root, other), y))


def complex_exp(z):
    e = math.exp(z.real)
    return complex(e * math.cos(z.imag), e * math.sin(z.imag))


def complex_log(z):
    return complex(math.log(abs(z)), math.atan2(z.imag, z.real))


def complex_log10(z):
    w = complex_log(z)
    return complex(w.real * 0.4342944819032518, w.imag * 0.4342944819032518)


def complex_power(z, w):
    """exp(w log z), and 0 where z is 0 and the exponent positive."""
    zero = (z.real == 0) & (z.imag == 0)
    power = complex_exp(w * complex_log(np.where(zero, 1 + 0j, z)))
    return np.where(zero, np.where(w == 0, 1 + 0j, 0j), power)


def complex_sin(z):
    return complex(math.sin(z.real) * math.cosh(z.imag), math.cos(z.real) * math.sinh(z.imag))


def complex_cos(z):
    return complex(math.cos(z.real) * math.cosh(z.imag), -math.sin(z.real) * math.sinh(z.imag))


def complex_sinh(z):
    return complex(math.sinh(z.real) * math.cos(z.imag), math.cosh(z.real) * math.sin(z.imag))


def complex_cosh(z):
    return complex(math.cosh(z.real) * math.cos(z.imag), math.sinh(z.real) * math.sin(z.imag))


def complex_tanh(z):
    """Kahan's form (1987): finite for every real part."""
    t = math.tan(z.imag)
    beta = 1 + t * t
    s = math.sinh(min(max(z.real, -40.0), 40.0))
    rho = math.sqrt(1 + s * s)
    denominator = 1 + beta * s * s
    return complex(beta * rho * s / denominator, t / denominator)


def complex_tan(z):
    w = complex_tanh(complex(-z.imag, z.real))
    return complex(w.imag, -w.real)


def complex_square(z):
    return complex((z.real - z.imag) * (z.real + z.imag), 2 * z.real * z.imag)


def complex_reciprocal(z):
    return complex_divide(1 + 0j, z)


def complex_sign(z):
    """NumPy 2: z / |z|, and 0 where z is 0."""
    modulus = abs(z)
    return np.where(modulus == 0, 0j, z / modulus)


def phase(z):
    return math.atan2(z.imag, z.real)


def polar(z):
    return abs(z), math.atan2(z.imag, z.real)


def rect(r, phi):
    return complex(r * math.cos(phi), r * math.sin(phi))


def complex_isnan(z):
    return math.isnan(z.real) | math.isnan(z.imag)


def complex_isinf(z):
    return math.isinf(z.real) | math.isinf(z.imag)


def complex_isfinite(z):
    return math.isfinite(z.real) & math.isfinite(z.imag)


# --- real -----------------------------------------------------------------------------------------------------------------------


def remainder_floor(a, b):
    """NumPy's ``%``: the sign of the divisor; exact, because fmod is."""
    r = math.fmod(a, b)
    r = np.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)
    return np.where(r == 0, math.copysign(r, b), r)


def divide_floor(a, b):
    """NumPy's ``//``: consistent with ``%``, so that a == (a // b) * b + a % b."""
    quotient = (a - remainder_floor(a, b)) / b
    nearest = np.rint(quotient)
    return np.where(b == 0, a / b, nearest)


def hypot(x, y):
    return complex_abs(complex(x, y))


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


def sinc(x):
    y = math.pi * np.where(x == 0, 1.0e-20, x)
    return math.sin(y) / y


def logaddexp(a, b):
    difference = abs(a - b)
    return np.where(a == b, a + math.log(2), max(a, b) + math.log1p(math.exp(-difference)))


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


# --- integers -------------------------------------------------------------------------------------------------------------------


def divide_unsigned(n, d):
    """64-bit unsigned division in line: one 32-bit division where both operands fit, else bit by bit; 0 where ``d`` is 0."""
    if (n | d) >> np.uint64(32) == 0:
        divisor = np.uint32(d)
        return np.uint64(np.where(d == 0, np.uint32(0), np.uint32(n) // np.where(d == 0, np.uint32(1), divisor)))
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


# --- float32 on a GPU, where libdevice would call or leave the precision -------------------------------------------------------------
# Sine and cosine: libdevice reduces large arguments through local memory and float64. Here: Cody and Waite's three constants up to 2^15, and
# Payne and Hanek's multiplication by the right 96 bits of 2/pi above, in integer registers. Polynomials: Cephes (sinf.c, cosf.c).

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
    # x = mantissa * 2^(exponent - 23). Bits of 2/pi that give multiples of 4 fall away: start `exponent - 23 - 2` bits in.
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


def reduce_quadrant(x):
    """``(q, r)`` with x = q pi/2 + r and |r| <= pi/4."""
    q = np.rint(x * np.float32(0.6366197723675814))
    r = x - q * np.float32(1.5703125)
    r = r - q * np.float32(4.837512969970703125e-4)
    r = r - q * np.float32(7.549789948768648e-8)
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


# --- exp and tanh on a CPU, where a call to libm would keep LLVM from vectorising the loop ------------------------------------------


def exp_single(x):
    """float32: two-step reduction by ln 2 and Cephes' polynomial (expf.c); under an ulp and a half, all special values."""
    x = minimum(maximum(x, -104.0), 89.0)
    n = np.rint(x * 1.4426950408889634)
    r = x - n * np.float32(0.693359375) + n * np.float32(2.12194440054690583e-4)
    p = 5.0000001201e-1 + r * (
        1.6666665459e-1
        + r * (4.1665795894e-2 + r * (8.3334519073e-3 + r * (1.3981999507e-3 + r * 1.9875691500e-4)))
    )
    return scale_by_power(1 + r + r * r * p, n)


INVERSE_FACTORIALS = tuple(1 / math.factorial(k) for k in range(13, 1, -1))


def exp_double(x):
    """float64: the same with Taylor's series to the 13th power; |r| <= ln(2) / 2 leaves less than an ulp."""
    x = minimum(maximum(x, -746.0), 710.0)
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
