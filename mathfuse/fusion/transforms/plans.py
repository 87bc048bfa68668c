"""The stateful plans: one transform with its callbacks, and a filter between a transform and its inverse."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Any

import numpy as np

from mathfuse.epilogs import Callback
from mathfuse.epilogs.ready_made import multiply
from mathfuse.fusion.compiler.emit.scalars import precision_of
from mathfuse.fusion.plan import Explanation, Plan
from mathfuse.fusion.transforms import binding
from mathfuse.fusion.transforms.choices import Choices
from mathfuse.fusion.transforms.cpu import CpuStrategy
from mathfuse.fusion.transforms.kinds import Ints, Shape, complex_of, compute_dtype, real_of, replaced, resolve
from mathfuse.fusion.transforms.passes import Pass, Role, filter_passes, transform_passes
from mathfuse.fusion.transforms.pipeline import Call, Function, Pipeline
from mathfuse.runtime import arrays
from mathfuse.runtime.arrays import HostArray
from mathfuse.runtime.errors import CallbackError, PlanError, UnsupportedError


@dataclass(frozen=True)
class Outline:
    """A computation but for its callbacks."""

    passes: Callable[[Collection[Role]], list[Pass]]
    axes: Shape
    prolog_shape: Shape  # logical extents that a prolog sees
    full_shape: Shape  # and the other callbacks
    spectrum_shape: Shape
    out_shape: Shape
    real_input: bool = False  # of necessity
    real_result: bool = False
    in_place: bool = False  # whether the result may replace the input
    call: Call | None = None  # the same without callbacks


@dataclass(frozen=True)
class Operands:
    """The user's own objects."""

    x: Any
    transfer: Callback | None = None


@dataclass(frozen=True)
class Prepared:
    """A strategy, and what is needed to take outputs and to hand results over."""

    strategy: CpuStrategy
    title: str
    user_x: Any
    x: HostArray
    in_place: bool
    operands: Mapping[str, HostArray]

    @property
    def explanation(self) -> Explanation:
        return self.strategy.explain(self.title)

    def run(self, out: Any) -> Any:
        if self.x.copied:  # what cannot be read in place is read anew for each run
            self.x.view[...] = arrays.as_host(self.user_x, "x").view
        if out is None:
            return self.x.restore(self.strategy.run())
        pipeline = self.strategy.pipeline
        view = binding.output(out, pipeline.out_shape, pipeline.out_dtype)
        binding.check_overlap(view, self.x.view, self.in_place)
        if binding.shares_operand(view, self.operands, pipeline.functions):
            view[...] = self.strategy.run()
        else:
            self.strategy.run(view)
        return out


class TransformPlan(Plan[Operands, Choices]):
    """What a transform and a filter share: everything but the outline."""

    choices = Choices

    def _outline(self, shape: Shape, dtype: np.dtype) -> Outline:
        """What is computed of an array of `shape` that holds, or that the prolog turns into, `dtype`."""
        raise AssertionError("a plan supplies _outline")

    def _prepare(self, operands: Operands, choices: Choices) -> Prepared:
        x = arrays.as_host(operands.x, "x")
        prolog = binding.bound(choices.prolog, "prolog", choices.prolog_inputs)
        transfer = binding.bound(operands.transfer, "epilog")
        epilog = binding.bound(choices.epilog, "epilog", choices.epilog_inputs)
        outline = self._outline(x.view.shape, x.view.dtype)
        functions: dict[Role, Function] = {}
        dtype = x.view.dtype
        if prolog:
            functions["prolog"] = before = _prolog(prolog, x.view, outline)
            dtype = before.stored
        dtype = compute_dtype(dtype)
        outline = self._outline(x.view.shape, dtype)
        if outline.real_input and dtype.kind == "c":
            nearest = "use a complex transform, such as fftn"
            if prolog:
                raise CallbackError(
                    f"prolog {prolog.callback} returns {dtype}, {self._title} takes real input: {nearest}"
                )
            raise UnsupportedError(f"{self._title} takes real input, x is {dtype}: {nearest}")
        spectrum = complex_of(dtype)
        out_dtype = real_of(dtype) if outline.real_result else spectrum
        if transfer:
            functions["transfer"] = _function(transfer, "transfer", spectrum, outline, outline.spectrum_shape, spectrum)
        if epilog:
            functions["epilog"] = after = _function(epilog, "epilog", out_dtype, outline, outline.out_shape)
            out_dtype = after.stored
            if outline.real_result and out_dtype.kind == "c":
                raise CallbackError(
                    f"epilog {epilog.callback} returns {out_dtype}, the result of {self._title} is real"
                )
        pipeline = Pipeline(
            passes=tuple(outline.passes(functions)),
            functions=functions,
            spectrum_shape=outline.spectrum_shape,
            spectrum_dtype=spectrum,
            out_shape=outline.out_shape,
            out_dtype=out_dtype,
            real_axis=outline.axes[-1],
            halved=outline.real_result,
            call=None if functions else outline.call,
            tuning=choices.tuning(),
        )
        strategy = CpuStrategy(pipeline, x.view)
        reads_source = prolog and any("source" in link.reserved for link in prolog.callback.links)
        hosts = {name: host for each in (prolog, transfer, epilog) if each for name, host in each.hosts.items()}
        return Prepared(strategy, self._title, operands.x, x, outline.in_place and not reads_source, hosts)

    def _replace(
        self, operands: Operands, choices: Choices, x: Any, named: Mapping[str, Any]
    ) -> tuple[Operands, Choices]:
        if x is not None:
            before, now = binding.described(operands.x), binding.described(x)
            if before != now:
                raise PlanError(f"x was planned as {before} and cannot become {now}: make a new {type(self).__name__}")
        prolog = choices.prolog and choices.prolog(**(choices.prolog_inputs or {}))
        epilog = choices.epilog and choices.epilog(**(choices.epilog_inputs or {}))
        callbacks = [callback for callback in (prolog, operands.transfer, epilog) if callback]
        known = list(dict.fromkeys(name for callback in callbacks for name in callback.operands))
        if unknown := [name for name in named if name not in known]:
            raise PlanError(
                f"there is no operand {unknown[0]!r} to reset; there are: x, {', '.join(known)}".rstrip(", ")
            )
        prolog, transfer, epilog = (binding.rebound(each, named) for each in (prolog, operands.transfer, epilog))
        return (
            Operands(operands.x if x is None else x, transfer),
            replace(choices, prolog=prolog, epilog=epilog, prolog_inputs=None, epilog_inputs=None),
        )


class FFT(TransformPlan):
    """One of SciPy's transforms as a plan, with a prolog and an epilog fused into it.

    Specify → `plan` → `execute` → `free`, also as a context manager. `reset_operands` puts other data in place of the
    input or of the callbacks' operands, and `explain` says what was chosen.

    Parameters
    ----------
    x : array
        The input: NumPy, PyTorch or JAX in CPU memory, or any array with DLPack; any rank above 0 and any strides. It
        is read at each `execute` and never written. float32 and complex64 are transformed in 32 bits, float64 and
        complex128 in 64, float16 as float32, integers and bool as float64.
    axes : int or sequence of int, optional
        Transform axes, as in SciPy's function of the kind's name.
    s : int or sequence of int, optional
        Length of the transform along each axis: the input is cut or padded with zeros, after the prolog.
    kind : str
        "fft", "ifft", "fft2", "ifft2", "fftn", "ifftn", "rfft", "irfft", "rfft2", "irfft2", "rfftn" or "irfftn".
    norm : {None, "backward", "ortho", "forward"}
        Where the transform is scaled: by 1/n in the inverse (None, "backward"), by 1/n forward, by 1/√n in both.

    Raises
    ------
    PlanError
        If axes, lengths or norm do not fit the input.

    Examples
    --------
    >>> with FFT(image, kind="rfft2") as f:
    ...     f.plan(epilog=gaussian(sigma=8.0))
    ...     spectrum = f.execute()
    """

    def __init__(self, x: Any, axes: Ints = None, s: Ints = None, kind: str = "fftn", norm: str | None = None) -> None:
        self._problem = problem = resolve(kind, arrays.as_host(x, "x").view.shape, s, axes, norm)
        super().__init__(f"{kind} of {list(problem.shape)} along {list(problem.axes)}", Operands(x))

    def _outline(self, shape: Shape, dtype: np.dtype) -> Outline:
        problem = self._problem
        return Outline(
            passes=lambda roles: transform_passes(problem, roles),
            axes=problem.axes,
            prolog_shape=problem.prolog_shape,
            full_shape=problem.full_shape,
            spectrum_shape=problem.spectrum_shape,
            out_shape=problem.out_shape,
            real_input=problem.kind.family == "r2c",
            real_result=problem.kind.family == "c2r",
            in_place=problem.kind.family == "c2c" and dtype.kind == "c",
            call=Call(problem.kind.along_real_axis + "n", problem.lengths, problem.axes, problem.norm),
        )


class SpectralFilter(TransformPlan):
    """A filter in the frequency domain: transform, multiply each frequency, transform back.

    Real input goes through half spectra and gives a real result, complex input a complex one, in the precision of the
    input. The spectrum of real input is kept in the memory of the result, so no array of its size is allocated.

    Parameters
    ----------
    x : array
        The input, as for `FFT`.
    transfer : Callback or array
        What is done to the spectrum: an epilog, which sees the index in the spectrum (for real input the half
        spectrum) and `shape`, the extents of the input; or an array that broadcasts to the spectrum, which it
        multiplies. For real input it must be Hermitian-symmetric for the result to be meant; that is not checked.
    axes : int or sequence of int, optional
        Transform axes, by default all.

    Raises
    ------
    PlanError
        If axes or the transfer array do not fit the input.

    Examples
    --------
    >>> with SpectralFilter(image, gaussian(sigma=8.0)) as f:
    ...     blurred = f.plan().execute()
    """

    def __init__(self, x: Any, transfer: Any, axes: Ints = None) -> None:
        host = arrays.as_host(x, "x")
        self._axes = resolve("fftn", host.view.shape, None, axes).axes
        if isinstance(transfer, FunctionType):
            raise CallbackError(f"transfer={transfer.__name__} is no callback: decorate the function with @mf.epilog")
        filtered = transfer if isinstance(transfer, Callback) else multiply(factor=transfer)
        super().__init__(f"filter of {list(host.view.shape)} along {list(self._axes)}", Operands(x, filtered))

    def _outline(self, shape: Shape, dtype: np.dtype) -> Outline:
        axes, real = self._axes, dtype.kind != "c"
        last = axes[-1]
        return Outline(
            passes=lambda roles: filter_passes(shape, axes, real, roles),
            axes=axes,
            prolog_shape=shape,
            full_shape=shape,
            spectrum_shape=replaced(shape, {last: shape[last] // 2 + 1}) if real else shape,
            out_shape=shape,
            real_result=real,
            in_place=True,
        )


def _prolog(bound: binding.Bound, x: np.ndarray, outline: Outline) -> Function:
    """The prolog, storing a dtype that can be transformed; integers that it returns never widen what it reads."""
    free = _function(bound, "prolog", x.dtype, outline, x.shape, source=x)
    stored = free.stored if free.stored.kind in "fc" else np.dtype(f"f{precision_of(x.dtype) // 8}")
    return replace(free, result_dtype=compute_dtype(stored))


def _function(
    bound: binding.Bound,
    role: Role,
    value_dtype: np.dtype,
    outline: Outline,
    extents: Shape,
    result_dtype: np.dtype | None = None,
    source: np.ndarray | None = None,
) -> Function:
    """A callback in its place, its result dtype found and its operands' shapes checked."""
    shape = outline.prolog_shape if role == "prolog" else outline.full_shape
    free = Function(bound.callback, value_dtype, result_dtype, extents, shape, outline.axes, bound.operands, source)
    found = free.analysis()
    binding.check_reads(bound, role, found.accesses, extents)
    binding.check_assigned(bound, role, found.assigned, source)
    own = binding.read_at_own_index(bound, found.accesses, extents) - set(found.assigned)
    return replace(free, result_dtype=found.result_dtype, assigned=frozenset(found.assigned), own=own)
