"""The stateful plans: one transform with its callbacks, and a filter between a transform and its inverse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from inspect import cleandoc
from typing import Any, TypeVar

import numpy as np

from mathfuse.epilogs import Callback, Constant, epilog
from mathfuse.epilogs.values import is_array, is_scalar
from mathfuse.fusion import saved
from mathfuse.fusion.compiler.emit.scalars import precision_of
from mathfuse.fusion.plan import Plan, Prepared, Self
from mathfuse.fusion.transforms import binding
from mathfuse.fusion.transforms.choices import Choices
from mathfuse.fusion.transforms.dispatch import space_of
from mathfuse.fusion.transforms.kinds import Ints, Problem, Shape, complex_of, compute_dtype, real_of, resolve
from mathfuse.fusion.transforms.pipeline import Function, Pipeline, Role
from mathfuse.fusion.transforms.spaces import Keeping, Request
from mathfuse.fusion.tuning import ITERATIONS, Progress, Tuning
from mathfuse.runtime import arrays
from mathfuse.runtime.dtypes import dtype_name, is_complex, is_float
from mathfuse.runtime.errors import CallbackError, PlanError, UnsupportedError

Made = TypeVar("Made", bound="TransformPlan")
SIDES = ("prolog", "epilog")


@dataclass(frozen=True)
class Operands:
    """The user's own objects."""

    x: Any
    transfer: Callback | None = None


@epilog
def multiply(value: Any, transfer: Any) -> Any:
    """A transfer array as a callback."""
    return value * transfer


def _documented(plan: Any, choices: type) -> str:
    """The docstring of `plan` with the parameters of `choices` in place of a reference to them."""
    parameters = cleandoc(choices.__doc__ or "").partition("----------\n")[2].partition("\n\n")[0]
    return cleandoc(plan.__doc__ or "").replace("**choices\n    The fields of the class's `choices`.", parameters)


class TransformPlan(Plan[Operands, Choices]):
    """What a transform and a filter share: everything but the problems."""

    choices = Choices
    lasting = True  # False: it will run once
    _tuning: Tuning | None = None  # while `autotune` plans anew

    def plan(self: Self, *, options: Mapping[str, Any] | None = None, **choices: Any) -> Self:
        return super().plan(options=options, **choices)

    plan.__doc__ = _documented(Plan.plan, Choices)

    def autotune(self: Made, *, iterations: int = ITERATIONS, progress: bool = False) -> Made:
        """Time every way to run on a GPU on the operands as they are, with every configuration of own kernels.

        The fastest is taken, and the timings are kept in the cache, from where later plans of the problem in this and
        other processes choose by them. What ``tune=True`` of `plan` times is a part of that: a few configurations, and
        none that was timed before. Where `plan` was asked for a strategy, only its own kernels are timed. On the CPU,
        and where callbacks assign to operands, nothing is.

        Parameters
        ----------
        iterations
            Timings of each way, of which the median counts.
        progress
            Show on standard error what is being timed.

        Returns
        -------
        Plan
            Itself.

        Raises
        ------
        PlanError
            Before `plan`, after `free`, or if `iterations` is no whole number above 0.
        """
        if not isinstance(iterations, int | np.integer) or isinstance(iterations, bool) or iterations < 1:
            raise PlanError(f"iterations={iterations!r}: it must be a whole number, 1 or more")
        with self._lock:
            held, choices = self._planned("autotune")
            shown = Progress() if progress else None
            self._tuning = Tuning(int(iterations), most=None, again=True, report=shown)
            try:
                self._install(held, choices)
            finally:
                self._tuning = None
                if shown:
                    shown.close()
        return self

    def _problems(self, dtype: np.dtype) -> tuple[Problem, ...]:
        """The transforms of an array that holds, or that the prolog turns into, `dtype`."""
        raise AssertionError("a plan supplies _problems")

    def _in_place(self, dtype: np.dtype) -> bool:
        """Whether the result may replace an input of `dtype`."""
        raise AssertionError("a plan supplies _in_place")

    def _transfer(self, operands: Operands, dtype: np.dtype) -> Callback | None:
        """What is done to the spectrum of data of `dtype`."""
        return operands.transfer

    def _prepare(self, operands: Operands, choices: Choices) -> Prepared:
        space = space_of(operands.x, choices)
        x = space.read(operands.x, "x")
        prolog = binding.bound(choices.prolog, "prolog", choices.prolog_inputs, space.read)
        epilog = binding.bound(choices.epilog, "epilog", choices.epilog_inputs, space.read)
        first = self._problems(x.view.dtype)[0]
        functions: dict[Role, Function] = {}
        dtype = x.view.dtype
        if prolog:
            functions["prolog"] = before = _prolog(prolog, x.view, first)
            dtype = before.stored
        dtype = compute_dtype(dtype)
        problems = self._problems(dtype)
        first, last = problems[0], problems[-1]
        if first.kind.family == "r2c" and dtype.kind == "c":
            nearest = "use a complex transform, such as fftn"
            if prolog:
                raise CallbackError(
                    f"prolog {prolog.callback} returns {dtype}, {self._title} takes real input: {nearest}"
                )
            raise UnsupportedError(f"{self._title} takes real input, x is {dtype_name(x.view.dtype)}: {nearest}")
        transfer = binding.bound(self._transfer(operands, dtype), "epilog", None, space.read)
        spectrum, real_result = complex_of(dtype), last.kind.family == "c2r"
        out_dtype = real_of(dtype) if real_result else spectrum
        if transfer:
            functions["transfer"] = _function(transfer, "transfer", spectrum, first, first.spectrum_shape, spectrum)
        if epilog:
            functions["epilog"] = after = _function(epilog, "epilog", out_dtype, last, last.out_shape)
            out_dtype = after.stored
            if real_result and is_complex(out_dtype):
                raise CallbackError(
                    f"epilog {epilog.callback} returns {dtype_name(out_dtype)}, the result of {self._title} is real"
                )
        binding.check_roles(functions, x.view)
        reads_source = prolog and any("source" in link.reserved for link in prolog.callback.links)
        in_place = self._in_place(dtype) and not reads_source
        tuning = self._tuning or (Tuning() if choices.tune else None)
        request = Request(self._title, operands.x, x, in_place, choices, self.lasting, tuning)
        return space.prepare(Pipeline(problems, functions, dtype, out_dtype), request)

    def keep(self, name: str, positional: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        """Have what was planned be found again at the next call of the function `name`, or by the next plan like it."""
        prepared = self._ready("keep")
        if isinstance(prepared, Keeping):
            prepared.keep(name, positional, named)

    def _arguments(self) -> dict[str, Any]:
        """What the class is called with beside its arrays, as JSON."""
        raise AssertionError("a plan supplies _arguments")

    @classmethod
    def _of(cls: type[Made], x: Any, transfer: Callback | None, arguments: dict[str, Any]) -> Made:
        """The plan called with an input, a transfer callback, and what `_arguments` told."""
        raise AssertionError("a plan supplies _of")

    def _told(self, operands: Operands, choices: Choices) -> dict[str, Any]:
        # What was chosen is taken again without asking timings; ways by cuFFT are several under one name.
        taken = self._ready("save").explanation.strategy
        strategy = choices.strategy or (taken if taken == "kernel" else None)
        plain = {name: value for name, value in vars(choices).items() if name.partition("_")[0] not in SIDES}
        prolog, epilog = _bound(choices)
        callbacks = {"prolog": prolog, "transfer": operands.transfer, "epilog": epilog}
        return {
            "x": binding.described(operands.x),
            "arguments": self._arguments(),
            "choices": {**plain, "strategy": strategy},
            "callbacks": saved.described(callbacks),
        }

    @classmethod
    def _remade(
        cls: type[Made], header: Mapping[str, Any], path: saved.FilePath, x: Any, operands: Mapping[str, Any]
    ) -> tuple[Made, dict[str, Any]]:
        if header["x"] != (given := binding.described(x)):
            raise PlanError(f"{path} is a plan for {header['x']}, and x is {given}: make a new {cls.__name__}")
        sides = saved.restored(header["callbacks"], operands, path)
        transfer = sides.pop("transfer", None)
        return cls._of(x, transfer, header["arguments"]), {**header["choices"], **sides}

    def _replace(
        self, operands: Operands, choices: Choices, x: Any, named: Mapping[str, Any]
    ) -> tuple[Operands, Choices]:
        if x is not None:
            before, now = binding.described(operands.x), binding.described(x)
            if before != now:
                raise PlanError(f"x was planned as {before} and cannot become {now}: make a new {type(self).__name__}")
        prolog, epilog = _bound(choices)
        callbacks = [callback for callback in (prolog, operands.transfer, epilog) if callback]
        known = list(dict.fromkeys(name for callback in callbacks for name in callback.operands))
        if unknown := [name for name in named if name not in known]:
            raise PlanError(
                f"there is no operand {unknown[0]!r} to reset; there are: {', '.join(known) or 'none'}; "
                "the input is the first argument, without a name"
            )
        prolog, transfer, epilog = (binding.rebound(each, named) for each in (prolog, operands.transfer, epilog))
        return (
            Operands(operands.x if x is None else x, transfer),
            replace(choices, prolog=prolog, epilog=epilog, prolog_inputs=None, epilog_inputs=None),
        )


def _bound(choices: Choices) -> tuple[Callback | None, Callback | None]:
    """Prolog and epilog with their inputs."""
    return (
        choices.prolog and choices.prolog(**(choices.prolog_inputs or {})),
        choices.epilog and choices.epilog(**(choices.epilog_inputs or {})),
    )


class FFT(TransformPlan):
    """One of SciPy's transforms as a plan, with a prolog and an epilog fused into it.

    Specify → `plan` → `execute` → `free`, also as a context manager. `plan` takes callbacks, their inputs,
    execution, strategy, tune. `reset_operands` puts other data in place of the input or of the callbacks'
    operands, without planning anew, and `explain` says what was chosen.

    A plan runs where its input is: on the CPU, or on the input's GPU, by cuFFT with the callbacks inlined or by cuFFT
    between generated kernels. There `execute` queues the work and waits for nothing, and a plan may be used from
    several threads and streams at once. Plans of CuPy and PyTorch arrays may be captured in CUDA graphs, with ``out=``
    or PyTorch's graph pool. A graph keeps the operands of its capture, whose arrays it reads live, and memory of its
    own; both are held, also after `free`, until `mathfuse.clear_plans`, after which it must not be replayed.

    Parameters
    ----------
    x : array
        The input: NumPy, PyTorch or JAX in CPU memory; CuPy, PyTorch, JAX or Numba on a CUDA GPU; or anything else
        with DLPack or ``__cuda_array_interface__``. Any rank above 0 and any strides, on a GPU with each element at a
        multiple of its size. It is read at each `execute` and never written but as `out`. float32 and complex64 are
        transformed in 32 bits, float64 and complex128 in 64, float16 and complex32 in 32, integers and bool as
        float64.
    axes : int or sequence of int, optional
        Transform axes, as in SciPy's function of the kind's name.
    s : int or sequence of int, optional
        Length of the transform along each axis: the input is cut before, or padded with zeros after, the
        prolog.
    kind : str
        "fft", "ifft", "fft2", "ifft2", "fftn", "ifftn", "rfft", "irfft", "rfft2", "irfft2", "rfftn" or "irfftn".
    norm : {None, "backward", "ortho", "forward"}
        Where the transform is scaled: by 1/n in the inverse (None, "backward"), by 1/n forward, by 1/√n in both.

    Raises
    ------
    PlanError
        If kind, axes, lengths or norm do not fit the input. `plan`: if operands or choices do not fit, an operand is on
        another GPU, or the GPU's memory does not suffice, which leaves the process usable.
    CallbackError
        `plan`: if a callback cannot be compiled, has unbound operands, or returns complex where the result is real.
    UnsupportedError
        For what is no array; `plan`: for dtypes, arrays and places that are not supported.
    ToolchainError
        `plan`: if ``execution="cuda"`` finds no GPU, or a library for it is missing or too old.

    Notes
    -----
    irfft, irfft2 and irfftn on a GPU: what the half spectrum of no real signal has should be 0, such as imaginary parts
    of the zero and the Nyquist frequency: SciPy ignores them, cuFFT leaves the result undefined (its documentation,
    "Complex-to-real").

    Examples
    --------
    >>> with FFT(image, kind="rfft2") as f:
    ...     f.plan(epilog=gaussian(sigma=8.0))
    ...     spectrum = f.execute()
    """

    def __init__(self, x: Any, axes: Ints = None, s: Ints = None, kind: str = "fftn", norm: str | None = None) -> None:
        self._problem = problem = resolve(kind, arrays.shape_of(x, "x"), s, axes, norm)
        super().__init__(f"{kind} of {list(problem.shape)} along {list(problem.axes)}", Operands(x))

    def _arguments(self) -> dict[str, Any]:
        p = self._problem
        return {"axes": p.axes, "s": p.lengths, "kind": p.kind.name, "norm": p.norm}

    @classmethod
    def _of(cls, x: Any, transfer: Callback | None, arguments: dict[str, Any]) -> FFT:
        return cls(x, **arguments)

    def _problems(self, dtype: np.dtype) -> tuple[Problem, ...]:
        return (self._problem,)

    def _in_place(self, dtype: np.dtype) -> bool:
        return self._problem.kind.family == "c2c" and dtype.kind == "c"


class SpectralFilter(TransformPlan):
    """A filter in the frequency domain: transform, multiply each frequency, transform back.

    Real input goes through half spectra and gives a real result, complex input a complex one, in the precision of the
    input. On the CPU the spectrum of real input is kept in the memory of the result, so no array of its size is
    allocated; on a GPU it has a place in the plan's workspace. Plans, streams, graphs and errors are as for `FFT`.

    Parameters
    ----------
    x : array
        The input, as for `FFT`; it may be on a GPU.
    transfer : Callback or array
        What is done to the spectrum: an epilog, which sees the index in the spectrum (for real input the half
        spectrum) and `shape`, the extents of the input; or an array that broadcasts to the spectrum, which it
        multiplies, the operand `transfer` of `reset_operands`; on a GPU either on that of `x` or in CPU memory, from
        where `plan` copies it. For real input it must be Hermitian-symmetric for the result to be meant; that is not
        checked.
    axes : int or sequence of int, optional
        Transform axes, by default all.

    Raises
    ------
    PlanError
        If axes do not fit the input; `plan`: if the transfer array does not.
    CallbackError
        If `transfer` is neither a callback nor an array.

    Examples
    --------
    >>> with SpectralFilter(image, gaussian(sigma=8.0)) as f:
    ...     blurred = f.plan().execute()
    """

    def __init__(self, x: Any, transfer: Any, axes: Ints = None) -> None:
        self._shape = arrays.shape_of(x, "x")
        self._axes = resolve("fftn", self._shape, None, axes).axes
        if not (isinstance(transfer, Callback | Constant) or is_array(transfer) or is_scalar(transfer)):
            name = getattr(transfer, "__name__", type(transfer).__name__)
            raise CallbackError(
                f"transfer={name} is no callback and no array: decorate a function with @mf.epilog, "
                "pass data as numpy.asarray(…)"
            )
        filtered = transfer if isinstance(transfer, Callback) else multiply(transfer=transfer)
        super().__init__(f"filter of {list(self._shape)} along {list(self._axes)}", Operands(x, filtered))

    def _arguments(self) -> dict[str, Any]:
        return {"axes": self._axes}

    @classmethod
    def _of(cls, x: Any, transfer: Callback | None, arguments: dict[str, Any]) -> SpectralFilter:
        return cls(x, transfer, **arguments)

    def _problems(self, dtype: np.dtype) -> tuple[Problem, ...]:
        forward, inverse = ("fftn", "ifftn") if is_complex(dtype) else ("rfftn", "irfftn")
        there = resolve(forward, self._shape, None, self._axes)
        lengths = tuple(self._shape[a] for a in self._axes)
        return there, resolve(inverse, there.spectrum_shape, lengths, self._axes)

    def _in_place(self, dtype: np.dtype) -> bool:
        return True


def _prolog(bound: binding.Bound, x: Any, problem: Problem) -> Function:
    """The prolog, storing a dtype that can be transformed; integers that it returns never widen what it reads."""
    free = _function(bound, "prolog", x.dtype, problem, x.shape, source=x)
    stored = free.stored if is_float(free.stored) else np.dtype(f"f{precision_of(x.dtype) // 8}")
    return replace(free, result_dtype=compute_dtype(stored))


def _function(
    bound: binding.Bound,
    role: Role,
    value_dtype: np.dtype,
    problem: Problem,
    extents: Shape,
    result_dtype: np.dtype | None = None,
    source: Any = None,
) -> Function:
    """A callback in its place, its result dtype found and its operands' shapes checked."""
    shape = {"prolog": problem.prolog_shape, "epilog": problem.epilog_shape}.get(role, problem.full_shape)
    return binding.placed(bound, role, value_dtype, extents, shape, problem.axes, result_dtype, source)
