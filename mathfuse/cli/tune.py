"""`mathfuse tune FILE`: time the ways to run a list of problems on the GPU; later plans of them choose by that."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mathfuse.runtime.errors import MathFuseError, UnsupportedError

if TYPE_CHECKING:
    from mathfuse.epilogs import Callback

TRANSFORM, FILTER = ("axes", "s", "kind", "norm"), ("axes",)
SIDES = ("prolog", "epilog")
KNOWN = {"shape", "dtype", "transfer", "operands", *TRANSFORM, *SIDES}
FORMAT = """\
FILE is a JSON list of problems. Each has the input's "shape" and "dtype", and either what mathfuse.fft.FFT takes
("kind", "axes", "s", "norm") or a filter's "transfer" and "axes". "prolog", "epilog" and "transfer" name callbacks:
FILE.py:NAME, or NAME of one that mathfuse has. "operands" are numbers, or arrays as [DTYPE, EXTENT, ...]:

  [{"shape": [16384, 1024], "dtype": "complex64", "kind": "fft", "axes": [1],
    "epilog": "filters.py:weighted", "operands": {"w": ["float32", 16384, 1024]}},
   {"shape": [4096, 4096], "dtype": "float32", "transfer": "gaussian", "operands": {"sigma": 8.0}}]
"""


def add_to(subparsers: Any) -> None:
    command = subparsers.add_parser(
        "tune",
        help="time the ways to run a list of problems on the GPU, for later plans to choose by",
        epilog=FORMAT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("file", metavar="FILE", help="the problems, as JSON")
    command.add_argument("--iterations", type=int, default=9, help="timings of each way (default: 9)")
    command.add_argument("--quiet", action="store_true", help="do not show what is being timed")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    failed = 0
    for number, problem in enumerate(problems(Path(args.file)), 1):
        try:
            plan = planned(problem)
            plan.autotune(iterations=args.iterations, progress=not args.quiet)
            print(f"{number}: {line(plan)}", flush=True)
        except MathFuseError as error:
            failed += 1
            print(f"{number}: {json.dumps(problem)}: {' '.join(str(error).split())}", flush=True)
    return 1 if failed else 0


def problems(path: Path) -> list[dict[str, Any]]:
    """The problems of a file.

    Raises
    ------
    UnsupportedError
        If it is no list of them; the message says where.
    """
    try:
        found = json.loads(path.read_text())
    except ValueError as error:
        raise UnsupportedError(f"{path} is no JSON: {error}") from None
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise UnsupportedError(f"{path} holds no list of problems: see mathfuse tune --help")
    for number, each in enumerate(found, 1):
        if unknown := [key for key in each if key not in KNOWN]:
            raise UnsupportedError(f"{path}, problem {number}: {unknown[0]!r} is none of {', '.join(sorted(KNOWN))}")
        if missing := [key for key in ("shape", "dtype") if key not in each]:
            raise UnsupportedError(f"{path}, problem {number} lacks {missing[0]!r}")
    return found


def planned(problem: Mapping[str, Any]) -> Any:
    """The plan of a problem, with random data, on the current GPU."""
    import mathfuse as mf

    x = random_array([problem["dtype"], *extents(problem["shape"])])
    operands = {name: operand(name, value) for name, value in problem.get("operands", {}).items()}
    choices = {side: bound(problem[side], operands) for side in SIDES if side in problem}
    if "transfer" in problem:
        transfer = bound(problem["transfer"], operands)
        plan: Any = mf.fft.SpectralFilter(x, transfer, **{key: problem[key] for key in FILTER if key in problem})
    else:
        plan = mf.fft.FFT(x, **{key: problem[key] for key in TRANSFORM if key in problem})
    return plan.plan(execution="cuda", **choices)


def line(plan: Any) -> str:
    """What was the fastest, and of how many."""
    explained = plan.explain()
    if not explained.timings:
        return f"{explained.title}: {explained.strategy}, {explained.reason}"
    name, ms = explained.timings[0]
    return f"{explained.title}: {1e3 * ms:.1f} µs by {name}, the fastest of {len(explained.timings)}"


def bound(reference: str, operands: Mapping[str, Any]) -> Callback:
    """A callback with those of the operands that it has."""
    import mathfuse as mf
    from mathfuse.cli.compile import is_callback, load

    callback: Any = load(reference) if ":" in reference else getattr(mf, reference, None)
    if not is_callback(callback):
        raise UnsupportedError(f"mathfuse has no callback {reference}; write FILE.py:NAME for one of yours")
    given = {name: value for name, value in operands.items() if name in callback.operands}
    bound_: Callback = callback(**given)
    return bound_


def operand(name: str, value: Any) -> Any:
    """A number, or random numbers for [DTYPE, EXTENT, ...]."""
    if isinstance(value, list):
        return random_array(value)
    if isinstance(value, int | float):
        return value
    raise UnsupportedError(f'operand {name!r} is {value!r}: write a number, or an array as ["float32", 16, 16]')


def random_array(described: list[Any]) -> Any:
    """Random numbers from 0.5 to 1.5 of a dtype and extents."""
    import numpy as np

    dtype, *shape = described
    try:
        kind = np.dtype(dtype)
    except TypeError:
        raise UnsupportedError(f"{dtype!r} is no dtype: write one of NumPy's, such as complex64") from None
    found = np.random.default_rng(0).random(extents(shape), np.float32) + np.float32(0.5)
    return found.astype(kind)


def extents(shape: Any) -> tuple[int, ...]:
    if not isinstance(shape, list) or not all(isinstance(n, int) and n >= 0 for n in shape):
        raise UnsupportedError(f"{shape!r} is no shape: write a list of whole numbers")
    return tuple(shape)
