"""Functions of complex values, in the callback language; see ``library.py``."""

# mypy: ignore-errors

from __future__ import annotations

import math

import numpy as np

from mathfuse.fusion.compiler.language import library


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
    return library.hypot(z.real, z.imag)


def complex_sqrt(z):
    """The principal root: real part from the half-angle formula, imaginary part by division (no cancellation)."""
    x, y = z.real, z.imag
    root = math.sqrt(0.5 * abs(x) + 0.5 * abs(z))
    other = np.where((root == 0) | (abs(y) == math.inf), root, 0.5 * abs(y) / root)
    return complex(np.where(x < 0, other, root), math.copysign(np.where(x < 0, root, other), y))


def times(a, b):
    """a * b, and 0 where b is 0 and a infinite."""
    return np.where(b == 0, math.copysign(1, a) * b, a * b)


def complex_exp(z):
    e = math.exp(z.real)
    return complex(e * math.cos(z.imag), times(e, math.sin(z.imag)))


def complex_exp2(z):
    return complex_exp(z * math.log(2))


def complex_expm1(z):
    s = math.sin(0.5 * z.imag)
    real = math.expm1(z.real) * math.cos(z.imag) - 2 * s * s
    return complex(real, math.exp(z.real) * math.sin(z.imag))


def complex_log(z):
    """log|z| without cancellation near |z| = 1: there |z|^2 - 1 = (x - 1)(x + 1) + y^2 for the larger part x."""
    x, y, modulus = abs(z.real), abs(z.imag), abs(z)
    large, small = max(x, y), min(x, y)
    near = 0.5 * math.log1p((large - 1) * (large + 1) + small * small)
    return complex(np.where((modulus > 0.5) & (modulus < 2), near, math.log(modulus)), math.atan2(z.imag, z.real))


def complex_log10(z):
    return complex_log(z) * (1 / math.log(10))


def complex_log2(z):
    return complex_log(z) * (1 / math.log(2))


def complex_log1p(z):
    near = 0.5 * math.log1p(z.real * (2 + z.real) + z.imag * z.imag)
    return complex(np.where(abs(z) < 0.5, near, math.log(abs(1 + z))), math.atan2(z.imag, 1 + z.real))


def complex_power(z, w):
    """exp(w log z), and 0 where z is 0 and the exponent positive."""
    zero = (z.real == 0) & (z.imag == 0)
    power = complex_exp(w * complex_log(np.where(zero, 1 + 0j, z)))
    return np.where(zero, np.where(w == 0, 1 + 0j, 0j), power)


def complex_sin(z):
    return complex(times(math.cosh(z.imag), math.sin(z.real)), math.sinh(z.imag) * math.cos(z.real))


def complex_cos(z):
    return complex(math.cosh(z.imag) * math.cos(z.real), times(math.sinh(z.imag), -math.sin(z.real)))


def complex_sinh(z):
    return complex(math.sinh(z.real) * math.cos(z.imag), times(math.cosh(z.real), math.sin(z.imag)))


def complex_cosh(z):
    return complex(math.cosh(z.real) * math.cos(z.imag), times(math.sinh(z.real), math.sin(z.imag)))


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


def complex_asin(z):
    """Kahan's forms for the inverse functions ("Branch cuts for complex elementary functions", 1987)."""
    a, b = complex_sqrt(1 - z), complex_sqrt(1 + z)
    return complex(math.atan2(z.real, a.real * b.real - a.imag * b.imag), math.asinh(a.real * b.imag - a.imag * b.real))


def complex_acos(z):
    a, b = complex_sqrt(1 - z), complex_sqrt(1 + z)
    return complex(2 * math.atan2(a.real, b.real), math.asinh(b.real * a.imag - b.imag * a.real))


def complex_acosh(z):
    a, b = complex_sqrt(z - 1), complex_sqrt(z + 1)
    return complex(math.asinh(a.real * b.real + a.imag * b.imag), 2 * math.atan2(a.imag, b.real))


def complex_asinh(z):
    w = complex_asin(complex(-z.imag, z.real))
    return complex(w.imag, -w.real)


def complex_atanh(z):
    x, y = abs(z.real), z.imag
    real = 0.25 * math.log1p(4 * x / ((1 - x) * (1 - x) + y * y))
    angle = 0.5 * math.atan2(y, 0.5 * ((1 - x) * (1 + x) - y * y))
    imag = np.where(abs(y) == math.inf, math.copysign(0.5 * math.pi, y), angle)
    return complex(math.copysign(np.where((x == math.inf) | (abs(y) == math.inf), 0, real), z.real), imag)


def complex_atan(z):
    w = complex_atanh(complex(-z.imag, z.real))
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
