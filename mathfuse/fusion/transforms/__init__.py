"""Fourier transforms and filters with callbacks fused into them: plans, and the functions that use one once."""

from mathfuse.fusion.transforms.functions import clear_plans, spectral_filter, transform
from mathfuse.fusion.transforms.plans import FFT, SpectralFilter

__all__ = ["FFT", "SpectralFilter", "clear_plans", "spectral_filter", "transform"]
