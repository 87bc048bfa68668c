"""The functions of `mathfuse.fft`: each makes a plan, executes it once and frees it. One body serves all kinds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from inspect import Parameter, Signature
from types import MappingProxyType
from typing import Any

from mathfuse.fusion.transforms.choices import Choices
from mathfuse.fusion.transforms.kinds import KINDS, Ints, whole
from mathfuse.fusion.transforms.plans import FFT, SpectralFilter, TransformPlan
from mathfuse.runtime.cuda import graphs


def transform(kind: str) -> Callable[..., Any]:
    """SciPy's function of the name `kind`, with callbacks."""
    one = KINDS[kind].rank == 1
    length, axes = ("n", "axis") if one else ("s", "axes")
    default = -1 if one else (-2, -1) if KINDS[kind].rank == 2 else None
    signature = _signature({"x": Parameter.empty, length: None, axes: default, "norm": None})

    def function(*positional: Any, **named: Any) -> Any:
        if (known := _known(kind, positional, named)) is not None:
            return known
        try:
            given = signature.bind(*positional, **named).arguments
        except TypeError as error:
            raise TypeError(f"{kind}: {error}; it takes {', '.join(signature.parameters)}") from None
        for name in (length, axes):
            if one and given.get(name) is not None:
                whole(given[name], name)
        specified = FFT(
            given.pop("x"), given.pop(axes, default), given.pop(length, None), kind, given.pop("norm", None)
        )
        return once(specified, given, kind, positional, named)

    function.__name__ = function.__qualname__ = kind
    function.__module__ = "mathfuse.fft"
    function.__doc__ = _DOC.format(
        kind=kind,
        summary=_SUMMARY[kind.rstrip("2n")],
        where=" along one axis" if one else " along two axes" if default else " along any number of axes",
        lengths=_LENGTHS[one].format(inverse=_INVERSE.format(kind=kind) if KINDS[kind].family == "c2r" else ""),
        notes=_NOTES if KINDS[kind].family == "c2r" else "",
        axes=_AXES[one].format(default="the last two" if default else "all, or as many of the last as `s` has lengths"),
    )
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


def spectral_filter(
    x: Any, transfer: Any, axes: Ints = None, *, out: Any = None, stream: Any = None, **choices: Any
) -> Any:
    """Filter an array in the frequency domain: transform, multiply each frequency, transform back.

    Parameters
    ----------
    x : array
        The input, in CPU memory or on a CUDA GPU as for `fft`, of any rank above 0. Real input goes through half
        spectra and gives a real result, complex input a complex one, in the precision of the input: float32, float64,
        complex64 or complex128; half precision gives float32 or complex64.
    transfer : Callback or array
        An epilog applied to the spectrum, which sees the index in the spectrum (of real input: the half spectrum) and
        as `shape` the extents of `x`, or an array that broadcasts to the spectrum and multiplies it. For real input it
        must be Hermitian-symmetric, as filters made of squares of `signed_frequency` are; that is not checked.
    axes : int or sequence of int, optional
        Transform axes, by default all.
    out : array, optional
        Where the result goes; `x` itself filters in place.
    stream : optional
        On a GPU: the stream to queue on, as for `FFT.execute`; by default the current one of the framework of `x`.
    **choices
        What `SpectralFilter.plan` takes: prolog, epilog, their inputs, execution, strategy, tune, workers, block_bytes,
        backend, options.

    Returns
    -------
    array
        Of the shape, the precision and the framework of `x`, on its device; of the dtype of the epilog, if there is
        one, such as half precision of ``mathfuse.half``. On a GPU it is queued, not waited for.

    Raises
    ------
    PlanError
        If axes, the transfer array, operands, `out` or `stream` do not fit, or a GPU's memory does not suffice.
    CallbackError
        If a callback cannot be compiled, has unbound operands, or returns complex where the result is real.
    UnsupportedError
        For dtypes, arrays and places that are not supported.
    ToolchainError
        If there is no GPU for ``execution="cuda"``, or a library for it is missing or too old.

    Examples
    --------
    >>> import numpy as np
    >>> import mathfuse as mf
    >>> image = np.random.default_rng(0).random((64, 64), dtype=np.float32)
    >>> blurred = mf.fft.spectral_filter(image, mf.gaussian(sigma=2.0))
    >>> blurred.shape, blurred.dtype
    ((64, 64), dtype('float32'))
    """
    positional = x, transfer, axes
    if out is None and stream is None and (found := _known("spectral_filter", positional, choices)) is not None:
        return found
    given = {"out": out, "stream": stream, **choices}
    return once(SpectralFilter(x, transfer, axes), given, "spectral_filter", positional, choices)


def _known(name: str, positional: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """The result of a known problem on a GPU; None of any other."""
    known = sys.modules.get("mathfuse.fusion.transforms.cuda.known")  # imported with the first plan on a GPU
    return None if known is None else known.call(name, positional, named)


def once(
    specified: TransformPlan,
    choices: dict[str, Any],
    name: str = "",
    positional: tuple[Any, ...] = (),
    named: Mapping[str, Any] = MappingProxyType({}),
) -> Any:
    """Plan and execute; a call of the function `name` with the same arguments finds the way again."""
    specified.lasting = False
    with specified as plan:
        out, stream = choices.pop("out", None), choices.pop("stream", None)
        result = plan.plan(**choices).execute(out, stream)
        plan.keep(name, positional, named)
        return result


def clear_plans() -> None:
    """Let go of what the functions of `mathfuse.fft` keep on GPUs: plans for problems they know, and their workspaces.

    They keep the most recent 64 plans, whose workspaces take ``MATHFUSE_PLAN_CACHE_LIMIT`` bytes at most (by default
    ``1G``), but the newest in any case, and no array. What captured CUDA graphs read and work in goes here, too: none
    that was captured before may be running, or be replayed after.
    """
    if known := sys.modules.get("mathfuse.fusion.transforms.cuda.known"):
        known.clear()
    graphs.release()


def _signature(positional: dict[str, Any]) -> Signature:
    named = {"out": None, "stream": None, **{field.name: field.default for field in fields(Choices)}, "options": None}
    return Signature(
        [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=value) for name, value in positional.items()]
        + [Parameter(name, Parameter.KEYWORD_ONLY, default=value) for name, value in named.items()]
    )


_SUMMARY = {
    "fft": "discrete Fourier transform",
    "ifft": "inverse discrete Fourier transform",
    "rfft": "discrete Fourier transform of real input, the half spectrum",
    "irfft": "inverse discrete Fourier transform of a half spectrum to real output",
}
_LENGTHS = {
    True: "n : int, optional\n        Length of the transform: the input is cut or padded with zeros to it.{inverse}",
    False: "s : sequence of int, optional\n        Length of the transform along each axis: the input is cut or "
    "padded with zeros to it.{inverse}",
}
_INVERSE = (
    "\n        That of the result for the halved axis, by default twice the input's extent less one; of an extent of 1 "
    "it must\n        be given, as to ``numpy.fft.{kind}``."
)
_AXES = {
    True: "axis : int\n        The transform axis.",
    False: "axes : sequence of int, optional\n        The transform axes, by default {default}; the last is the "
    "one that\n        half spectra halve.",
}
_NOTES = """
    Notes
    -----
    On a GPU, what the half spectrum of no real signal has should be 0, such as imaginary parts of the zero and the
    Nyquist frequency: SciPy ignores them, cuFFT leaves the result undefined (its documentation, "Complex-to-real").
"""
_DOC = """The {summary}{where}, with callbacks fused into it; else as ``scipy.fft.{kind}``.

    Cut, prolog, pad, transform, scale, epilog: in this order.

    Parameters
    ----------
    x : array
        NumPy, PyTorch or JAX in CPU memory; CuPy, PyTorch, JAX or Numba on a CUDA GPU; or any array with DLPack or
        ``__cuda_array_interface__``. Any rank above 0, any strides; on a GPU each element lies at a multiple of its
        size. It is never written but as `out`. float32 and complex64 are transformed in 32 bits, float64 and complex128
        in 64, float16 and complex32 in 32, integers and bool as float64; with a prolog, what that returns counts.
    {lengths}
    {axes}
    norm : {{None, "backward", "ortho", "forward"}}
        Where to scale: the inverse by 1/n (None, "backward"), the forward transform by 1/n, or both by 1/√n.
    out : array, optional
        Where the result goes, of its shape and dtype, any strides, and where `x` is. `x` itself will do where a
        complex transform keeps both, and an operand that the epilog reads at the element's own index only; it overlaps
        neither otherwise.
    stream : optional
        On a GPU: the stream to queue on, a handle, a CuPy, PyTorch, Numba or cuda.core stream, or anything with
        ``__cuda_stream__``; by default the current one of the framework of `x`.
    prolog, epilog : Callback, optional
        Applied to each element as it is read, and to each result before it is written.
    prolog_inputs, epilog_inputs : mapping, optional
        Their free operands, by name.
    execution : {{None, "cpu", "cuda"}}
        Where to run; None is where `x` is. NumPy arrays with "cuda" are copied to the GPU and back, which waits.
    strategy : {{None, "kernel", "callback", "sequence", "cpu"}}
        On a GPU: cuFFT with the callbacks inlined, or between generated kernels; None takes the fastest.
    tune : bool
        On a GPU: find the fastest by timing, and remember it: later calls without it take what was found.
    workers, block_bytes, backend, options
        As for `FFT.plan`.

    Returns
    -------
    array
        `out`, or a new array of the framework of `x`, on its device; of the dtype that the epilog returns, if there is
        one: half precision where that is `mathfuse.half`, for instance. On a GPU it is queued, not waited for.

    Raises
    ------
    PlanError
        If lengths, axes, operands, `out` or `stream` do not fit, or a GPU's memory does not suffice.
    CallbackError
        If a callback cannot be compiled, has unbound operands, or returns complex where the result is real.
    UnsupportedError
        For dtypes, arrays and places that are not supported.
    ToolchainError
        If there is no GPU for ``execution="cuda"``, or a library for it is missing or too old.

    See Also
    --------
    FFT : The same as a plan, to be executed often.
    clear_plans : Lets go of the plans that calls on a GPU keep for the next call like them.
{notes}    """
