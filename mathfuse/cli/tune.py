"""`mathfuse tune FILE`: time the ways to run a list of problems on the GPU; later plans of them choose by that."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mathfuse.runtime.errors import MathFuseError, ToolchainError, UnsupportedError

if TYPE_CHECKING:
    from mathfuse.epilogs import Callback

MOST_ELEMENTS = 1 << 40
CALLBACKS = ("prolog", "epilog", "transfer")
FORMAT = """\
FILE is a JSON list of problems. Each has the "shape" and the "dtype" of the input, an array in C order, and either what
mathfuse.fft.FFT takes ("kind" and, if wanted, "axes", "s", "norm") or a filter's "transfer" and, if wanted, "axes".
"prolog", "epilog" and "transfer" name callbacks: FILE.py:NAME, from the current directory, or NAME of one that mathfuse
has. "operands" are numbers, as later plans bind them (8.0 is another type than 8), or arrays as [DTYPE, EXTENT, ...]:

  [{"shape": [16384, 1024], "dtype": "complex64", "kind": "fft", "axes": [1],
    "epilog": "filters.py:weighted", "operands": {"w": ["float32", 16384, 1024]}},
   {"shape": [4096, 4096], "dtype": "float32", "transfer": "gaussian", "operands": {"sigma": 8.0}}]

Plans of arrays in another order, or with gaps, are other problems, which autotune() of such a plan times.
"""


def add_to(subparsers: Any) -> None:
    command = subparsers.add_parser(
        "tune",
        help="time the ways to run a list of problems on the GPU, for later plans to choose by",
        epilog=FORMAT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("file", metavar="FILE", help="the problems, as JSON")
    command.add_argument("--iterations", type=positive, default=9, help="timings of each way (default: 9)")
    command.add_argument("--quiet", action="store_true", help="do not show what is being timed")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from mathfuse.runtime.cuda.driver import why_unavailable

    found, failed = problems(Path(args.file)), 0
    if reason := why_unavailable():
        raise ToolchainError(f"tuning needs a GPU: {reason}")
    for number, problem in enumerate(found, 1):
        try:
            plan = planned(problem)
            plan.autotune(iterations=args.iterations, progress=not args.quiet)
            print(f"{number}: {line(plan)}", flush=True)
        except (MathFuseError, OSError, MemoryError) as error:
            failed += 1
            print(f"{number}: {json.dumps(problem)}: {' '.join(str(error).split())}", file=sys.stderr, flush=True)
    return 1 if failed else 0


# --- what the file says ----------------------------------------------------------------------------------------------


def problems(path: Path) -> list[dict[str, Any]]:
    """The problems of a file, without what is null in it.

    Raises
    ------
    UnsupportedError
        If it is no list of them; the message says where.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise UnsupportedError(f"{path} is no JSON: {error}") from None
    if not found or not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise UnsupportedError(f"{path} holds no list of problems: see mathfuse tune --help")
    found = [{key: value for key, value in each.items() if value is not None} for each in found]
    for number, each in enumerate(found, 1):
        if objection := _objection(each):
            raise UnsupportedError(f"{path}, problem {number}: {objection}")
    return found


def _objection(problem: Mapping[str, Any]) -> str:
    """What is wrong with a problem's form; empty if nothing is."""
    for key, value in problem.items():
        if key not in FIELDS:
            return f"{key!r} is none of {', '.join(sorted(FIELDS))}"
        holds, what = FIELDS[key]
        if not holds(value):
            return f"{key} is {what}, not {json.dumps(value)}"
    if missing := [key for key in ("shape", "dtype") if key not in problem]:
        return f"it lacks {missing[0]!r}"
    if "transfer" not in problem and "kind" not in problem:
        return "it lacks 'kind', as in \"fft\", or a filter's 'transfer'"
    if "transfer" in problem and (more := [key for key in ("kind", "s", "norm") if key in problem]):
        return f"a filter, with 'transfer', has no {more[0]!r}"
    return ""


def _is_whole(value: Any) -> bool:
    return type(value) is int and abs(value) < MOST_ELEMENTS


def _are_extents(value: Any) -> bool:
    if not isinstance(value, list) or len(value) > 32 or not all(_is_whole(n) and n >= 0 for n in value):
        return False
    size = 1
    for n in value:
        size *= n
    return size < MOST_ELEMENTS


def _are_numbers(value: Any) -> bool:
    return _is_whole(value) or (isinstance(value, list) and all(map(_is_whole, value)))


def _are_operands(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_operand, value.values()))


def _is_operand(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and isinstance(value[0], str) and _are_extents(value[1:])
    return type(value) in (int, float)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value.isprintable()


_TEXT: tuple[Callable[[Any], bool], str] = _is_text, "a text"
_NUMBERS: tuple[Callable[[Any], bool], str] = _are_numbers, "a whole number or a list of them"
FIELDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "shape": (_are_extents, "a list of whole numbers, at least 0 and not too large"),
    "operands": (_are_operands, 'a mapping from names to numbers, or to arrays as ["float32", 16, 16]'),
    **dict.fromkeys(("axes", "s"), _NUMBERS),
    **dict.fromkeys(("dtype", "kind", "norm", *CALLBACKS), _TEXT),
}


# --- plans -----------------------------------------------------------------------------------------------------------


def planned(problem: Mapping[str, Any]) -> Any:
    """The plan of a problem, with random data, on the current GPU."""
    import mathfuse as mf

    callbacks = {side: _callback(problem[side]) for side in CALLBACKS if side in problem}
    operands = problem.get("operands", {})
    if unknown := [name for name in operands if not any(name in each.operands for each in callbacks.values())]:
        raise UnsupportedError(f"no callback has an operand {unknown[0]!r}")
    made = {name: random_array(*value) if isinstance(value, list) else value for name, value in operands.items()}
    sides = {
        side: callback(**{name: value for name, value in made.items() if name in callback.operands})
        for side, callback in callbacks.items()
    }
    x, transfer = random_array(problem["dtype"], *problem["shape"]), sides.pop("transfer", None)
    given = {key: _given(problem[key]) for key in ("axes", "s", "kind", "norm") if key in problem}
    plan: Any = mf.fft.SpectralFilter(x, transfer, **given) if transfer else mf.fft.FFT(x, **given)
    return plan.plan(execution="cuda", **sides)


def line(plan: Any) -> str:
    """What was the fastest, and of how many."""
    explained = plan.explain()
    if not explained.timings:
        return f"{explained.title}: {explained.strategy}, {explained.reason}"
    name, ms = explained.timings[0]
    return f"{explained.title}: {1e3 * ms:.1f} µs by {name}, the fastest of {len(explained.timings)}"


def _callback(reference: str) -> Callback:
    import mathfuse as mf
    from mathfuse.cli.compile import is_callback, load

    found: Any = load(reference) if ":" in reference else getattr(mf, reference, None)
    if not is_callback(found):
        raise UnsupportedError(f"mathfuse has no callback {reference}; write FILE.py:NAME for one of yours")
    callback: Callback = found
    return callback


def random_array(name: str, *shape: int) -> Any:
    """Random numbers from 0.5 to 1.5 of a dtype and extents."""
    import numpy as np

    from mathfuse.runtime.dtypes import COMPLEX32, named

    found = np.random.default_rng(0).random(shape, np.float32) + np.float32(0.5)
    try:
        if (dtype := named(name)) != COMPLEX32:
            return found.astype(dtype)
    except (TypeError, ValueError):
        raise UnsupportedError(f"{name!r} is no dtype: write one of NumPy's, such as complex64, or complex32") from None
    half = np.zeros(shape, COMPLEX32)
    half["real"] = found
    return half


def _given(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def positive(text: str) -> int:
    """A whole number above 0."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is no whole number above 0")
    return number
