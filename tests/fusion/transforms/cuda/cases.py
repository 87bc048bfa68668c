"""Generated transforms with callbacks, each known by its number, and what float64 NumPy makes of them.

from tests.fusion.transforms.cuda.cases import case, check
print(check(case(123), CUPY))                              # the empty string, or what is wrong
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import scipy.fft

import mathfuse as mf
from mathfuse.fusion.transforms.kinds import KINDS, Problem, resolve
from tests.spaces import Space, half_spectrum, lines

SEED, COUNT = 20, 3200
LARGER = (16, 27, 64, 97, 100, 128, 1000)
MOST = 30_000  # elements
DTYPES = {"r2c": "float16 float32 float32 float64 uint8 int32", "c2r": "complex64 complex64 complex128 float32 uint8"}
DTYPES["c2c"] = DTYPES["r2c"] + " complex64 complex64 complex64 complex128"
SINGLE = ("float16", "float32", "complex64")
CAPTURED = np.array([0.5, 1.5, -1.0, 0.25, 2.0, -0.75, 1.0], np.float32)


# --- callbacks, and the same on whole arrays


@mf.prolog
def ramp(value, index, shape, axes):
    weight = 1.0
    for a in axes:
        weight += (index[a] + 1) / (shape[a] + 2)
    return value * weight


@mf.prolog
def rows(value, index, w):
    return value * w[index[-1]]


@mf.prolog
def table(value, index, w):
    return value * w[index]


@mf.prolog
def captured(value, index):
    return value * CAPTURED[index[-1] % 7]


@mf.prolog
def neighbour(value, index, source):
    return value - 0.5 * source[(*index[:-1], index[-1] - 1)]


@dataclass(frozen=True)
class Seen:
    """What a callback is given besides its elements, for whole arrays; `w` is its array operand."""

    index: list[np.ndarray]
    shape: tuple[int, ...]
    axes: tuple[int, ...]
    w: np.ndarray


@dataclass(frozen=True)
class Pair:
    """A callback, with the array in the space and a scalar to bind, and the same in NumPy.

    Parameters
    ----------
    operand
        The shape of the array for an index space; None where there is none.
    anywhere
        Whether half spectra stay half spectra.
    """

    bound: Callable[[Any, float], mf.Callback]
    numpy: Callable[[np.ndarray, Seen, float], np.ndarray]
    operand: Callable[[tuple[int, ...]], tuple[int, ...]] | None = None
    anywhere: bool = True


def _every_other(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(1 if a % 2 else n for a, n in enumerate(shape))


PAIRS = {
    "scale": Pair(lambda w, c: mf.scale(factor=c), lambda v, seen, c: v * c),
    "ramp": Pair(
        lambda w, c: ramp,
        lambda v, seen, c: v * (1 + sum((seen.index[a] + 1) / (seen.shape[a] + 2) for a in seen.axes)),
    ),
    "table": Pair(lambda w, c: table(w=w), lambda v, seen, c: v * seen.w, lambda shape: shape),
    "rows": Pair(lambda w, c: rows(w=w), lambda v, seen, c: v * seen.w, lambda shape: shape[-1:]),
    "broadcast": Pair(lambda w, c: mf.multiply(factor=w), lambda v, seen, c: v * seen.w, _every_other),
    "captured": Pair(lambda w, c: captured, lambda v, seen, c: v * CAPTURED.astype(float)[seen.index[-1] % 7]),
    "chain": Pair(
        lambda w, c: mf.scale(factor=c) | mf.add(term=w),
        lambda v, seen, c: v * c + seen.w,
        lambda shape: shape[-1:],
        anywhere=False,
    ),
    "neighbour": Pair(lambda w, c: neighbour, lambda v, seen, c: v - 0.5 * np.roll(v, 1, -1), anywhere=False),
    "power": Pair(lambda w, c: mf.power_spectrum, lambda v, seen, c: np.abs(v) ** 2),
}
PROLOGS = ["", "", "scale", "scale", "ramp", "table", "rows", "broadcast", "captured", "chain", "neighbour"]
EPILOGS = ["", "", "scale", "scale", "ramp", "table", "rows", "broadcast", "captured", "chain", "power"]

# How an array lies in memory; the last one begins one element off the alignment that allocators give.
LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "C": lambda x: x,
    "F": np.asfortranarray,
    "permuted": lambda x: np.ascontiguousarray(x.transpose(_turned(x))).transpose(np.argsort(_turned(x))),
    "sliced": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "every third": lambda x: np.repeat(x, 3, axis=0)[::3],
    "rows": lambda x: np.concatenate([x, x[..., :1], x[..., :1]], axis=-1)[..., : x.shape[-1]],
    "negative": lambda x: x[::-1].copy()[::-1],
    "negative last": lambda x: x[..., ::-1].copy()[..., ::-1],
    "broadcast": lambda x: np.broadcast_to(x[:1], x.shape),
    "offset": lambda x: x,
}
OUTPUTS = ["", "", "C", "F", "permuted", "sliced", "rows", "negative", "negative last", "offset"]


def _turned(x: np.ndarray) -> list[int]:
    return [*range(1, x.ndim), 0]


# --- cases


@dataclass(frozen=True)
class Case:
    """A transform or, with the kind "filter", a spectral filter; what is empty is left out."""

    number: int
    kind: str
    shape: tuple[int, ...]
    axes: tuple[int, ...]
    lengths: tuple[int, ...] | None
    norm: str | None
    dtype: str
    layout: str
    prolog: str
    epilog: str
    out: str
    strategy: str | None
    operands: str  # where array operands are: "device" or "host"
    stray: bool = False  # half spectra whose zero frequency is not real

    def __str__(self) -> str:
        told = [(field.name, getattr(self, field.name)) for field in fields(self)[1:]]
        return f"case {self.number}: " + " ".join(f"{name}={value}" for name, value in told if value not in ("", False))

    @property
    def problem(self) -> Problem:
        kind = {True: "rfftn", False: "fftn"}[self.dtype not in ("complex64", "complex128")]
        return resolve(kind if self.kind == "filter" else self.kind, self.shape, self.lengths, self.axes, self.norm)


def case(number: int) -> Case:
    """The case of a number: the same each time."""
    random = np.random.default_rng((SEED, number))

    def one(values: Any) -> Any:
        return values[random.integers(len(values))]

    def chance(share: float) -> bool:
        return bool(random.random() < share)

    kind = one([*KINDS, "filter", "filter"])
    family, wanted = ("c2c", None) if kind == "filter" else (KINDS[kind].family, KINDS[kind].rank)
    rank = max(one((1, 1, 2, 2, 2, 3, 3, 4, 5)), wanted or 1)
    shape = [int(n) for n in random.integers(1, 13 if rank < 4 else 6, rank)]
    axes = [int(a) for a in random.permutation(rank)[: wanted or random.integers(1, rank + 1, 2).max()]]
    if chance(0.25):
        shape = [min(n, 5) for n in shape]
        shape[one(range(rank))] = one(LARGER)
    others = [a for a in range(rank) if a not in axes]
    if others and chance(0.03):
        shape[one(others)] = 0
    lengths = None
    if chance(0.3) or (family == "c2r" and shape[axes[-1]] == 1):
        lengths = tuple(int(random.integers(1, 2 * shape[a] + 2)) for a in axes) if kind != "filter" else None
        if lengths and math.prod(lengths) * math.prod(shape[a] for a in others) > MOST:
            lengths = tuple(min(n, 9) for n in lengths)
    signed = tuple(a - rank if chance(0.5) else a for a in axes)
    dtype = one(DTYPES[family].split())
    prolog = one([name for name in PROLOGS if family != "c2r" or not name or PAIRS[name].anywhere])
    return Case(
        number=number,
        kind=kind,
        shape=tuple(shape),
        axes=signed,
        lengths=lengths,
        norm=None if kind == "filter" else one((None, None, "backward", "ortho", "forward")),
        dtype=dtype,
        layout=one([name for name in LAYOUTS if family != "c2r" or name != "broadcast"]),
        prolog=prolog,
        epilog=one(EPILOGS),
        out="in place" if family == "c2c" and lengths is None and chance(0.2) else one(OUTPUTS),
        strategy="sequence" if number % 10 else one(("callback", "callback", None)),
        operands=one(("device", "device", "host")),
        stray=family == "c2r" and len(axes) == 1 and dtype.startswith("c") and chance(0.2),
    )


def data(case: Case) -> np.ndarray:
    """The input, C-contiguous."""
    random = np.random.default_rng((SEED, case.number, 1))
    low, high = {"uint8": (0, 256), "int32": (-1000, 1000)}.get(case.dtype, (-4, 4))
    x = random.uniform(low, high, case.shape) + (1j * random.uniform(-4, 4, case.shape) if case.dtype[0] == "c" else 0)
    x, problem = x.astype(case.dtype), case.problem
    if problem.kind.family == "c2r":
        x = half_spectrum(x, problem.axes, problem.lengths, symmetric=not case.prolog)
        if case.stray:
            zero = (slice(None),) * problem.axes[-1] + (slice(1),)
            x[zero] += x[zero].real * 0.5j
    return x[:1].repeat(x.shape[0], 0) if case.layout == "broadcast" and x.size else x


def operand(case: Case, name: str, extents: tuple[int, ...], salt: int) -> np.ndarray:
    shape_of = PAIRS[name].operand
    random = np.random.default_rng((SEED, case.number, salt))
    return random.uniform(0.5, 1.5, shape_of(extents) if shape_of else ()).astype(np.float32)


def applied(case: Case, name: str, y: np.ndarray, shape: tuple[int, ...], salt: int) -> np.ndarray:
    if not name:
        return y
    w = operand(case, name, y.shape, salt).astype(float)
    seen = Seen(list(np.indices(y.shape, sparse=True)), shape, case.problem.axes, w)
    return PAIRS[name].numpy(y, seen, scalar(case))


def scalar(case: Case) -> float:
    return (0.5, 1.25, -2.0)[case.number % 3]


def expected(case: Case) -> np.ndarray:
    """In float64."""
    x, problem = data(case), case.problem
    y = applied(case, case.prolog, x.astype(complex if x.dtype.kind == "c" else float), problem.prolog_shape, 2)
    if case.kind != "filter":
        y = transformed(case.kind, y, problem)
        return applied(case, case.epilog, y, problem.full_shape, 3)
    axes, lengths = problem.axes, problem.lengths
    y = getattr(scipy.fft, problem.kind.name)(y, axes=axes) * weight(case)
    y = getattr(scipy.fft, "i" + problem.kind.name)(y, lengths, axes)
    return applied(case, case.epilog, y, problem.full_shape, 3)


def transformed(kind: str, y: np.ndarray, problem: Problem) -> np.ndarray:
    if KINDS[kind].rank == 1:
        return getattr(scipy.fft, kind)(y, problem.lengths[0], problem.axes[0], problem.norm)
    return getattr(scipy.fft, kind)(y, problem.lengths, problem.axes, problem.norm)


def weight(case: Case) -> np.ndarray:
    """The transfer function of a filter: a Gaussian of sigma 0.5, rounded where it is an array."""
    problem, found = case.problem, np.ones(())
    for a in problem.axes:
        f = np.fft.fftfreq(problem.shape[a])[: problem.spectrum_shape[a]]
        line = np.exp(-2 * np.pi**2 * 0.25 * f**2)
        found = found * line.reshape([-1 if b == a else 1 for b in range(len(problem.shape))])
    return found.astype(np.float32).astype(float) if case.number % 2 else found


def double(case: Case) -> bool:
    return case.dtype not in SINGLE


def result_dtype(case: Case) -> np.dtype | None:
    """None where it depends on what the prolog makes of integers."""
    if case.prolog and case.dtype in ("uint8", "int32"):
        return None
    real = case.epilog == "power" or case.problem.kind.family == "c2r"
    real = real or (case.kind == "filter" and case.problem.kind.family == "r2c")
    return np.dtype(("f4", "f8")[double(case)] if real else ("c8", "c16")[double(case)])


# --- checks


def fused(case: Case, space: Space) -> dict[str, Any]:
    """The choices of `plan`."""
    problem = case.problem
    ends = problem.shape if case.kind == "filter" else problem.out_shape
    found: dict[str, Any] = {}
    for role, name, extents, salt in (("prolog", case.prolog, case.shape, 2), ("epilog", case.epilog, ends, 3)):
        if name:
            w = operand(case, name, extents, salt)
            here = space.array(w) if case.operands == "device" else w
            found[role] = PAIRS[name].bound(here, scalar(case)).as_kind(role)
    return found


def output(case: Case, space: Space, x: Any, shape: tuple[int, ...]) -> Any:
    """Where the result is to go; None for an array of its own."""
    dtype = result_dtype(case)
    if not case.out or dtype is None:
        return None
    if case.out == "in place":
        return x if may_be_in_place(case, dtype, shape) else None
    empty = LAYOUTS[case.out](np.zeros(shape, dtype))
    return None if space.why_not(empty) else space.array(empty, offset=int(case.out == "offset"))


def may_be_in_place(case: Case, dtype: np.dtype, shape: tuple[int, ...]) -> bool:
    fits = (np.dtype(case.dtype), case.shape) == (dtype, shape) and case.layout != "broadcast"
    either = case.kind == "filter" or (case.problem.kind.family == "c2c" and dtype.kind == "c")
    return fits and either and case.prolog != "neighbour"


def specified(case: Case, x: Any, space: Space) -> Any:
    """The plan, not planned yet."""
    if case.kind != "filter":
        return mf.fft.FFT(x, case.axes, case.lengths, case.kind, case.norm)
    if case.number % 2:
        return mf.fft.SpectralFilter(x, space.array(weight(case).astype(np.float32)), case.axes)
    return mf.fft.SpectralFilter(x, mf.gaussian(sigma=0.5), case.axes)


def check(case: Case, space: Space) -> str:
    """What is wrong with the result of a case in a space, in one line; empty if nothing is."""
    try:
        return _wrong(case, space)
    except (
        mf.MathFuseError,
        ArithmeticError,
        AssertionError,
        LookupError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:
        return f"{case}\n    {type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _wrong(case: Case, space: Space) -> str:
    plain = data(case)
    lying = LAYOUTS[case.layout](plain)
    if space.why_not(lying):
        lying = plain
    x = space.array(lying, offset=int(case.layout == "offset"))
    wanted = expected(case)
    out = output(case, space, x, wanted.shape)
    choices = fused(case, space) | space.choices(case.strategy)
    with specified(case, x, space) as plan:
        result = plan.plan(**choices).execute(out)
        told = [] if out is None or result is out else ["the result is not out"]
        found = space.numpy(result).copy()
        if case.strategy != "sequence" and out is not x:  # what another run finds in its memory must not matter
            again = space.numpy(plan.execute(out))
            told += [] if np.array_equal(again, found, equal_nan=True) else ["another run differs"]
    dtype = result_dtype(case)
    if found.shape != wanted.shape or (dtype or found.dtype) != found.dtype:
        told.append(f"{found.dtype}{list(found.shape)}, not {dtype}{list(wanted.shape)}")
    elif found.size:
        error = np.abs(found - wanted).max() / (np.abs(wanted).max() + 1e-30)
        bound = 16 * np.finfo(found.dtype).eps * lines(max(plain.size, 2))
        told += [] if error <= bound else [f"error {error:.1e}, {error / bound:.1f} times the bound"]
    if out is not x and not np.array_equal(space.numpy(x), plain):
        told.append("the input changed")
    return f"{case}\n    {'; '.join(told)}" if told else ""
