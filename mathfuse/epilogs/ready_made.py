"""Callbacks ready to use, and examples to read: right for any rank, axes and batch.

Pointwise callbacks and filters are epilogs and serve as prologs as well; windows, which belong before a transform, are
prologs. An array operand is read at the element's own index, aligned like NumPy's broadcasting (last axis).
"""

# mypy: allow-untyped-defs

import math

import numpy as np

from mathfuse.epilogs.decorators import epilog, prolog
from mathfuse.epilogs.helpers import angular_frequency, radial_frequency, signed_frequency, to_half


@epilog
def scale(value, factor):
    """``value * factor``, for one factor; `multiply` is the same with an array in mind.

    Parameters
    ----------
    factor : scalar or array
    """
    return value * factor


@epilog
def add(value, term):
    """``value + term``.

    Parameters
    ----------
    term : scalar or array
    """
    return value + term


@epilog
def multiply(value, factor):
    """``value * factor``, element by element: a mask, a gate, or a transfer function in the layout of the spectrum.

    Parameters
    ----------
    factor : array or scalar
        For a half spectrum, an array of the half spectrum's shape.
    """
    return value * factor


@epilog
def bias(value, bias):
    """``value + bias``, the bias of a layer: one number for each column.

    Parameters
    ----------
    bias : array or scalar
        Of shape (N,) for one number a column; of shape (M, 1) for one number a row.
    """
    return value + bias


@epilog
def half(value):
    """`value` in half precision: float16, or PyTorch's complex32 of a complex one.

    At the end of a chain of epilogs it makes results half precision, and so does a callback that returns
    ``mf.half(x)`` or, of a real number, ``numpy.float16(x)``. What is computed with it is computed in float32, through
    which float64 is rounded, too.
    """
    return to_half(value)


@epilog
def normalise(value, mean, deviation):
    """``(value - mean) / deviation``.

    Parameters
    ----------
    mean, deviation : scalar or array
        Of shape (C, 1, 1) for the channels of a (…, C, H, W) batch.
    """
    return (value - mean) / deviation


@epilog
def clamp(value, low, high):
    """Real `value` clamped to low … high, as `numpy.clip`: NaN stays NaN, and `high` wins where low > high.

    Parameters
    ----------
    low, high : scalar or array
    """
    raised = low if value < low else value
    return high if raised > high else raised


@epilog
def relu(value):
    """Real ``max(value, 0)``; NaN stays NaN."""
    return 0 if value < 0 else value


@epilog
def leaky_relu(value, slope=0.01):
    """Real `value`, with ``slope * value`` below zero.

    Parameters
    ----------
    slope : scalar or array, default 0.01
    """
    return value * slope if value < 0 else value


@epilog
def gelu(value):
    """Gaussian error linear unit of a real value in its exact form, ``value * Φ(value)``: gelu(−3) = −0.0040497.

    Φ(x) = (1 + erf(x/√2))/2, written as erfc(−x/√2)/2, which keeps its digits for negative x.

    Source: Hendrycks & Gimpel, "Gaussian Error Linear Units (GELUs)", arXiv:1606.08415, section 2.
    """
    return 0.5 * value * math.erfc(-math.sqrt(0.5) * value)


@epilog
def gelu_tanh(value):
    """Gaussian error linear unit of a real value in its tanh form: gelu_tanh(−3) = −0.0036374.

    ``value/2 * (1 + tanh(u))`` with u = √(2/π) (value + 0.044715 value³), written as ``value / (1 + exp(-2u))``, which
    is equal and keeps its digits for negative values.

    Source: Hendrycks & Gimpel, "Gaussian Error Linear Units (GELUs)", arXiv:1606.08415, section 2.
    """
    u = math.sqrt(2 / math.pi) * (value + 0.044715 * value * value * value)
    return value / (1 + np.exp(-2 * u))


@epilog
def silu(value):
    """Sigmoid linear unit (swish) of a real value, ``value / (1 + exp(-value))``.

    Source: Elfwing, Uchibe & Doya, "Sigmoid-weighted linear units for neural network function approximation in
    reinforcement learning", arXiv:1702.03118, section 2.
    """
    return value / (1 + np.exp(-value))


@epilog
def sigmoid(value):
    """Logistic function of a real value, ``1 / (1 + exp(-value))``."""
    return 1 / (1 + np.exp(-value))


@epilog
def tanh(value):
    """Hyperbolic tangent of a real value."""
    return math.tanh(value)


@epilog
def power_spectrum(value):
    """Squared magnitude |value|², real for complex values."""
    return value.real * value.real + value.imag * value.imag


@epilog
def conjugate_multiply(value, spectrum):
    """``value * conj(spectrum)``: the inverse transform of the products is the circular cross-correlation.

    Parameters
    ----------
    spectrum : array or scalar
        The other signal's spectrum, in the layout of this one; for a batch, one or as many as there are signals.

    Notes
    -----
    Correlation theorem: Bracewell, "The Fourier Transform and Its Applications", chapter 6.
    """
    return value * np.conj(spectrum)


@epilog
def gaussian(value, index, shape, axes, sigma):
    """Gaussian low-pass filter: `value` times exp(−2 π² σ² f²), with f the distance from zero frequency.

    Parameters
    ----------
    sigma : scalar
        Standard deviation, in samples, of the Gaussian with which the signal is convolved (periodically).

    Notes
    -----
    The Fourier transform of a Gaussian of standard deviation σ and area 1: Bracewell, "The Fourier Transform and Its
    Applications". `scipy.ndimage.fourier_gaussian` is the same filter.
    """
    width = 0.0
    for a in axes:
        f = sigma * signed_frequency(index[a], shape[a])  # before the square: a huge sigma times no frequency is 0
        width += f * f
    return value * math.exp(-2 * math.pi**2 * width)


@epilog
def band_pass(value, index, shape, axes, low, high):
    """Ideal band-pass filter: `value` where low ≤ f < high, else 0, with f the distance from zero frequency.

    Bands that share a limit share no bin. ``low=0`` makes a low-pass, ``high=math.inf`` a high-pass filter.

    Parameters
    ----------
    low, high : scalar
        Limits in cycles per sample; along one axis the highest frequency is 1/2, over d axes it is √d/2.
    """
    f = radial_frequency(index, shape, axes)
    return 0 if f < low or f >= high else value


@prolog
def hann(value, index, shape, axes):
    """`value` times the periodic Hann window, sin²(πi/n), along each transform axis.

    Notes
    -----
    Equal to ½ − ½ cos(2πi/n), which loses digits near i = 0: Harris, "On the use of windows for harmonic analysis with
    the discrete Fourier transform", Proc. IEEE 66 (1978), section V.C. `scipy.signal.get_window("hann", n)` is it.
    """
    for a in axes:
        value = value * math.sin(math.pi * signed_frequency(index[a], shape[a])) ** 2
    return value


@prolog
def hamming(value, index, shape, axes):
    """`value` times the periodic Hamming window, 0.54 − 0.46 cos(2πi/n), along each transform axis.

    Notes
    -----
    Harris, "On the use of windows for harmonic analysis with the discrete Fourier transform", Proc. IEEE 66 (1978),
    section V.D. `scipy.signal.get_window("hamming", n)` is it.
    """
    for a in axes:
        value = value * (0.54 - 0.46 * math.cos(angular_frequency(index[a], shape[a])))
    return value
