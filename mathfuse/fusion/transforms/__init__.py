"""Fourier transforms and filters with callbacks fused into them: plans, and the functions that use one once."""

from mathfuse.fusion.transforms.convolution import Convolution, convolve, correlate
from mathfuse.fusion.transforms.functions import clear_plans, spectral_filter, transform
from mathfuse.fusion.transforms.plans import FFT, SpectralFilter

__all__ = [
    "FFT",
    "Convolution",
    "SpectralFilter",
    "clear_plans",
    "convolve",
    "correlate",
    "spectral_filter",
    "transform",
]
