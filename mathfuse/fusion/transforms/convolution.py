"""Convolution and correlation by Fourier transforms: padding, product and cut are parts of one filter."""

# mypy: allow-untyped-defs

from __future__ import annotations

import functools
import operator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mathfuse.device.fft.shapes import largest_prime
from mathfuse.epilogs import Callback, constant, epilog, prolog
from mathfuse.epilogs.values import is_array
from mathfuse.fusion.elementwise.binding import unwrapped
from mathfuse.fusion.transforms.choices import Choices
from mathfuse.fusion.transforms.dispatch import space_of
from mathfuse.fusion.transforms.functions import once, transform
from mathfuse.fusion.transforms.kinds import Ints, Problem, complex_of, compute_dtype, real_of, replaced, resolve
from mathfuse.fusion.transforms.plans import Operands, TransformPlan
from mathfuse.runtime import arrays
from mathfuse.runtime.dtypes import is_complex
from mathfuse.runtime.errors import CallbackError, PlanError

MODES = ("full", "same", "valid", "circular")


@dataclass(frozen=True)
class Extent:
    """Of the result along an axis: `length` elements of the full one, from `start` on, by transforms of `padded`."""

    length: int
    start: int
    padded: int


def extent_of(mode: str, x: int, kernel: int, real: bool, on_gpu: bool = False) -> Extent:
    """The result of `x` elements with a kernel of `kernel`; what transforms wrap around never gets into it."""
    if mode == "circular":
        return Extent(x, 0, x)
    full = x + kernel - 1
    start = {"full": 0, "same": (kernel - 1) // 2, "valid": min(x, kernel) - 1}[mode]
    length = {"full": full, "same": x, "valid": abs(x - kernel) + 1}[mode]
    least = max(x, kernel, full - start, start + length)
    return Extent(length, start, gpu_length(least) if on_gpu else cpu_length(least, real))


def cpu_length(least: int, real: bool) -> int:
    """The next length that SciPy transforms fast."""
    import scipy.fft  # which takes longer to import than a known plan on a GPU to be ready

    return int(scipy.fft.next_fast_len(least, real))


def gpu_length(least: int) -> int:
    """The next length that own kernels transform fast: no prime factor above 5, and many factors of two."""
    step = next((step for step in (64, 16, 4) if least > 4 * step), 1)
    length = -(-least // step) * step
    while largest_prime(length) > 5:
        length += step
    return length


@epilog
def _convolved(value, kernel):
    return value * kernel


@epilog
def _conjugated(value):
    return value.conjugate()


@epilog
def _shifted(value, index, axes, turns):
    """The spectrum of what begins so many elements later, by a table of complex numbers for each axis."""
    for k in range(len(axes)):
        value = value * turns[k, index[axes[k]]]
    return value


@prolog
def _float32(value):
    return np.float32(value)


@prolog
def _float64(value):
    return np.float64(value)


@prolog
def _complex64(value):
    return np.complex64(value)


@prolog
def _complex128(value):
    return np.complex128(value)


_CONVERSIONS = dict(zip(map(np.dtype, ("f4", "f8", "c8", "c16")), (_float32, _float64, _complex64, _complex128)))
_TRANSFORMS = {kind: transform(kind) for kind in ("fftn", "rfftn")}


class Convolution(TransformPlan):
    """A convolution or correlation with a kernel, by Fourier transforms, as a plan.

    Padding, transform, product with the kernel's spectrum, inverse transform and cut are one filter, with `prolog`
    and `epilog` inside. Plans, streams, graphs and errors are as for `FFT`.

    Parameters
    ----------
    x : array
        The input, as for `FFT`.
    kernel : array
        Of the rank of `x`, or of less, for the last axes of `x`; along axes that are not transformed its extents
        broadcast to those of `x`. In CPU memory, or where `x` is. `plan` and each `reset_operands` read and transform
        it as it is then.
    mode : {"full", "same", "valid", "circular"}
        What of the result is computed: all of it, as much as `x` from the middle, or what owes nothing to zeros beyond
        the edges, as in `scipy.signal.convolve`; "circular" takes `x` for periodic and gives one period.
    axes : int or sequence of int, optional
        Along which to convolve, by default all of the kernel's.
    correlate : bool
        Whether to correlate: with the kernel's conjugate, not reversed, as in `scipy.signal.correlate`. Circular, its
        first element is that of no shift.

    Raises
    ------
    PlanError
        If mode, axes, or the shape of the kernel do not fit.
    CallbackError
        If `kernel` is no array.

    Notes
    -----
    Real `x` and kernel give a real result, others a complex one, in the precision of `x`, or of what the prolog
    returns, to which the kernel is converted. A prolog sees `x`, an epilog the result.

    Examples
    --------
    >>> with Convolution(images, kernel, mode="same") as c:
    ...     blurred = c.plan().execute()
    """

    def __init__(self, x: Any, kernel: Any, mode: str = "full", axes: Ints = None, *, correlate: bool = False) -> None:
        name = "correlation" if correlate else "convolution"
        if not is_array(unwrapped(kernel)):
            raise CallbackError(f"kernel={type(kernel).__name__} is no array: pass data as numpy.asarray(…)")
        if not isinstance(mode, str) or mode not in MODES:
            raise PlanError(f"mode={mode!r}: it is one of {', '.join(MODES)}")
        if not isinstance(correlate, bool | np.bool_):
            raise PlanError(f"correlate={correlate!r}: it is True or False")
        self._shape, self._mode, self._correlate = arrays.shape_of(x, "x"), mode, bool(correlate)
        self._on_gpu = arrays.place(x, "x") == "cuda"
        small = arrays.shape_of(unwrapped(kernel), "kernel")
        self._title = f"{mode} {name} of {list(self._shape)} with {list(small)}"
        self._beyond = len(self._shape) - len(small)  # axes that the kernel lacks
        if self._beyond < 0:
            raise PlanError(f"{self._title}: the kernel has more axes than x")
        axes = tuple(range(-len(small), 0)) if axes is None and small else axes
        self._axes = resolve("fftn", self._shape, None, axes).axes
        self._kernel_shape = (*(1,) * self._beyond, *small)
        self._check()
        if isinstance(kernel, np.ndarray) and not kernel.dtype.isnative:
            kernel = kernel.astype(kernel.dtype.newbyteorder("="))
        held = space_of(unwrapped(kernel), Choices()).read(unwrapped(kernel), "kernel")
        self._kernel_dtype = held.view.dtype
        compute_dtype(self._kernel_dtype)
        super().__init__(self._title, Operands(x, _convolved(kernel=kernel)))

    def _arguments(self) -> dict[str, Any]:
        return {"mode": self._mode, "axes": self._axes, "correlate": self._correlate}

    @classmethod
    def _of(cls, x: Any, transfer: Callback | None, arguments: dict[str, Any]) -> Convolution:
        assert transfer is not None
        return cls(x, transfer.bound["kernel"], **arguments)

    def _check(self) -> None:
        """Raise PlanError where the kernel does not fit."""
        if lacking := [a for a in self._axes if a < self._beyond]:
            raise PlanError(
                f"{self._title}: the kernel's axes are the last ones of x and lack axis {lacking[0]}: "
                "give it more, as kernel[:, None] does"
            )
        larger = {a for a in self._axes if self._kernel_shape[a] > self._shape[a]}
        for axis, (n, m) in enumerate(zip(self._shape, self._kernel_shape)):
            if axis not in self._axes and m not in (1, n):
                raise PlanError(
                    f"{self._title}: the kernel has {m} elements along axis {axis}, which is not transformed: "
                    f"1 or {n} fit"
                )
            if axis in self._axes and m == 0:
                raise PlanError(f"{self._title}: the kernel has no elements along axis {axis}")
        if larger and self._mode == "circular":
            raise PlanError(f"{self._title}: along axis {min(larger)} the kernel is longer than the period: cut it")
        if larger and self._mode == "valid" and any(self._kernel_shape[a] < self._shape[a] for a in self._axes):
            raise PlanError(f"{self._title}: x or the kernel must be the larger one along all axes")

    def _extents(self, real: bool) -> dict[int, Extent]:
        return {
            a: extent_of(self._mode, self._shape[a], self._kernel_shape[a], real and a == self._axes[-1], self._on_gpu)
            for a in self._axes
        }

    def _problems(self, dtype: np.dtype) -> tuple[Problem, ...]:
        real = not (is_complex(dtype) or is_complex(self._kernel_dtype))
        forward, inverse, extents = *(("rfftn", "irfftn") if real else ("fftn", "ifftn")), self._extents(real)
        lengths = tuple(extents[a].padded for a in self._axes)
        there = resolve(forward, self._shape, lengths, self._axes)
        kept = replaced(self._shape, {a: extent.length for a, extent in extents.items()})
        return there, replace(resolve(inverse, there.spectrum_shape, lengths, self._axes), kept=kept)

    def _in_place(self, dtype: np.dtype) -> bool:
        return is_complex(dtype) or self._problems(dtype)[0].kind.family == "r2c"

    def _transfer(self, operands: Operands, dtype: np.dtype) -> Callback | None:
        """The product with the kernel's spectrum, turned to where the result begins."""
        assert operands.transfer is not None
        kernel, there = unwrapped(operands.transfer.bound["kernel"]), self._problems(dtype)[0]
        wanted = complex_of(dtype) if is_complex(self._kernel_dtype) else real_of(dtype)
        conversion = _CONVERSIONS[wanted] if wanted != self._kernel_dtype else None
        after = [_conjugated] if self._correlate else []
        if (turns := self._turns(there)) is not None:
            after.append(_shifted(turns=turns.astype(complex_of(dtype))))
        axes = tuple(a - self._beyond for a in there.axes)
        spectrum = _TRANSFORMS[there.kind.name](
            kernel,
            there.lengths,
            axes,
            prolog=conversion,
            epilog=functools.reduce(operator.or_, after) if after else None,
        )
        space_of(spectrum, Choices()).settle()
        return _convolved(kernel=constant(spectrum))

    def _turns(self, there: Problem) -> np.ndarray | None:
        """For each axis the factors of the kernel's spectrum that have the result begin at its start; None for ones."""
        starts = []
        for axis, extent in self._extents(there.kind.family == "r2c").items():
            back = self._kernel_shape[axis] - 1 if self._correlate and self._mode != "circular" else 0
            starts.append(extent.start - back)
        if not any(starts):
            return None
        numbers = np.arange(max(there.spectrum_shape[a] for a in there.axes))
        turns = [numbers * start % n / n for start, n in zip(starts, there.lengths)]
        return np.exp(2j * np.pi * np.array(turns))


def convolve(
    x: Any, kernel: Any, mode: str = "full", axes: Ints = None, *, out: Any = None, stream: Any = None, **choices: Any
) -> Any:
    """Convolve an array with a kernel by Fourier transforms, as `scipy.signal.fftconvolve` does, with callbacks inside.

    Parameters
    ----------
    x : array
        The input, as for `fft`.
    kernel : array
        Of the rank of `x`, or of less, for the last axes of `x`; larger or smaller than `x`, but no larger for
        "circular". It is converted to the precision of `x`.
    mode : {"full", "same", "valid", "circular"}
        All of the result, as much as `x` from the middle, what owes nothing to zeros beyond the edges, or one period.
    axes : int or sequence of int, optional
        Along which to convolve, by default all of the kernel's.
    out : array, optional
        Where the result goes; `x` itself will do where result and `x` have one shape and dtype.
    stream : optional
        On a GPU: the stream to queue on, as for `FFT.execute`; by default the current one of the framework of `x`.
    **choices
        What `Convolution.plan` takes: prolog, epilog, their inputs, execution, strategy, tune, workers, block_bytes,
        backend, options.

    Returns
    -------
    array
        Of the framework of `x`, on its device, in its precision (float64 of integers, float32 of float16); complex if
        `x` or the kernel is. Along transformed axes its extents are those of x and kernel together less one ("full"),
        those of x ("same", "circular"), or one more than the larger exceeds the smaller ("valid").

    Raises
    ------
    PlanError
        If mode, axes, the kernel, operands, `out` or `stream` do not fit, or a GPU's memory does not suffice.
    CallbackError
        If `kernel` is no array, or a callback cannot be compiled or has unbound operands.
    UnsupportedError
        For dtypes, arrays and places that are not supported.
    ToolchainError
        If there is no GPU for ``execution="cuda"``, or a library for it is missing or too old.

    Examples
    --------
    >>> import numpy as np
    >>> import mathfuse as mf
    >>> mf.fft.convolve(np.array([1.0, 2.0, 3.0]), np.array([1.0, 1.0])).round(6)
    array([1., 3., 5., 3.])
    """
    return once(Convolution(x, kernel, mode, axes), {"out": out, "stream": stream, **choices})


def correlate(
    x: Any, kernel: Any, mode: str = "full", axes: Ints = None, *, out: Any = None, stream: Any = None, **choices: Any
) -> Any:
    """Correlate an array with a kernel by Fourier transforms, as `scipy.signal.correlate` does, with callbacks inside.

    Element k of the "valid" result is the sum of ``x[k + i] * conj(kernel[i])`` over all i, and "full" begins with the
    kernel's last element on the first of `x`. Parameters, result and errors are those of `convolve`; of "circular"
    element k is that sum with `x` taken for periodic.

    Examples
    --------
    >>> import numpy as np
    >>> import mathfuse as mf
    >>> mf.fft.correlate(np.array([1.0, 2.0, 4.0]), np.array([1.0, 0.5]), mode="valid").round(6)
    array([2., 4.])
    """
    return once(Convolution(x, kernel, mode, axes, correlate=True), {"out": out, "stream": stream, **choices})
