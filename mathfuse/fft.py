"""Fast Fourier transforms with SciPy's names and defaults, and with prologs and epilogs fused into them."""

from __future__ import annotations

from mathfuse.fusion.transforms import FFT, SpectralFilter, spectral_filter, transform

fft, ifft, rfft, irfft = map(transform, ("fft", "ifft", "rfft", "irfft"))
fft2, ifft2, rfft2, irfft2 = map(transform, ("fft2", "ifft2", "rfft2", "irfft2"))
fftn, ifftn, rfftn, irfftn = map(transform, ("fftn", "ifftn", "rfftn", "irfftn"))

__all__ = ["FFT", "SpectralFilter", "spectral_filter"]
__all__ += ["fft", "fft2", "fftn", "ifft", "ifft2", "ifftn", "irfft", "irfft2", "irfftn", "rfft", "rfft2", "rfftn"]
