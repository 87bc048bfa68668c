"""Fast Fourier transforms with SciPy's names and defaults, and with prologs and epilogs fused into them.

They run where their input is: on the CPU, or on a CUDA GPU. Of SciPy's arguments, ``overwrite_x`` and ``plan`` are not
taken (``out=x`` writes over the input), and ``workers`` is 1 or more, by default all CPUs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mathfuse.fusion.transforms import (
    FFT,
    Convolution,
    SpectralFilter,
    convolve,
    correlate,
    spectral_filter,
    transform,
)

fft, ifft, rfft, irfft = map(transform, ("fft", "ifft", "rfft", "irfft"))
fft2, ifft2, rfft2, irfft2 = map(transform, ("fft2", "ifft2", "rfft2", "irfft2"))
fftn, ifftn, rfftn, irfftn = map(transform, ("fftn", "ifftn", "rfftn", "irfftn"))

if TYPE_CHECKING:
    from mathfuse.fusion.compiler.cuda.raw import compile_epilog, compile_prolog

__all__ = ["FFT", "Convolution", "SpectralFilter", "compile_epilog", "compile_prolog", "convolve", "correlate"]
__all__ += ["spectral_filter"]
__all__ += ["fft", "fft2", "fftn", "ifft", "ifft2", "ifftn", "irfft", "irfft2", "irfftn", "rfft", "rfft2", "rfftn"]


def __getattr__(name: str) -> Any:
    """The two functions that bring the compiler, on first use."""
    if name in ("compile_epilog", "compile_prolog"):
        from mathfuse.fusion.compiler.cuda import raw

        return getattr(raw, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
