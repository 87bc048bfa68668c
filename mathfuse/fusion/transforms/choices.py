"""What the `plan` of a transform takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mathfuse.epilogs import Callback
from mathfuse.fusion.transforms.cpu.backends import BACKENDS
from mathfuse.runtime.errors import PlanError
from mathfuse.runtime.words import either

EXECUTIONS = ("cpu", "cuda")
STRATEGIES = {"cpu": ("cpu",), "cuda": ("kernel", "callback", "sequence")}
_WHERE = {"cpu": "on an array in CPU memory", "cuda": "on an array on a GPU"}


@dataclass(frozen=True)
class Choices:
    """Options of `plan`, by keyword or in `options={…}`.

    Those for the place where a plan does not run have no effect, but for a strategy, which must exist there.

    Parameters
    ----------
    prolog, epilog : Callback, optional
        Applied to each element as it is read, and to each result before it is written.
    prolog_inputs, epilog_inputs : mapping, optional
        Their free operands, by name. On a GPU, operands in CPU memory are copied there by `plan` and `reset_operands`,
        those on the GPU are read as they are at each `execute`.
    execution : {None, "cpu", "cuda"}
        Where to run; None is where the input is. NumPy arrays with "cuda" are copied to the current GPU and back at
        each `execute`, which waits; for arrays of other frameworks in CPU memory it is a PlanError.
    strategy : {None, "kernel", "callback", "sequence", "cpu"}
        How to run. On a GPU "kernel" are own kernels, one axis after the other, with everything inlined, for axes of up
        to 16384 elements (8192 in float64) without prime factors above 13 or many of 7 to 13, and of longer complex
        ones in two or three passes; a filter goes there and back along one axis in one pass, or in three or five.
        "callback" is cuFFT with
        callbacks inlined, as many as it can take, and "sequence" is cuFFT between generated elementwise kernels; with
        nothing to fuse, the latter is cuFFT alone. None takes the fastest: by timings, if the problem was tuned before,
        else by a rule of costs.
    tune : bool
        On a GPU: time the ways there are, and a few configurations of own kernels, which runs each a dozen times at
        least, take the fastest, and remember it in the cache for this problem, this GPU and this version of cuFFT; what
        is remembered is not timed again. `autotune` times all configurations. Where a strategy is asked for, its own
        kernels only are timed; nothing is where a callback assigns to an operand.
    workers : int, optional
        On the CPU: threads, 256 at most; by default all CPUs of this process, or ``MATHFUSE_NUM_WORKERS``.
    block_bytes : int, optional
        On the CPU: bytes that a thread works on while they are hot; by default half of a core's L2 cache, or
        ``MATHFUSE_BLOCK_BYTES``.
    backend : {None, "pocketfft", "mkl"}
        On the CPU: the FFT library; None takes the fastest that is installed, timed once in a process.

    Raises
    ------
    PlanError
        For values that are none of these.
    """

    prolog: Callback | None = None
    epilog: Callback | None = None
    prolog_inputs: Mapping[str, Any] | None = None
    epilog_inputs: Mapping[str, Any] | None = None
    execution: str | None = None
    strategy: str | None = None
    tune: bool = False
    workers: int | None = None
    block_bytes: int | None = None
    backend: str | None = None

    def __post_init__(self) -> None:
        known = dict.fromkeys(name for names in STRATEGIES.values() for name in names)
        for name, value, table in (
            ("execution", self.execution, EXECUTIONS),
            ("strategy", self.strategy, known),
            ("backend", self.backend, BACKENDS),
        ):
            if value is not None and (not isinstance(value, str) or value not in table):
                raise PlanError(f"{name}={value!r}: it is None or one of {', '.join(table)}")
        for name, number in (("workers", self.workers), ("block_bytes", self.block_bytes)):
            if number is not None and not (
                isinstance(number, int | np.integer) and not isinstance(number, bool) and number >= 1
            ):
                raise PlanError(f"{name}={number!r}: it must be a whole number, 1 or more")
        if not isinstance(self.tune, bool | np.bool_):
            raise PlanError(f"tune={self.tune!r}: it is True or False")

    def check(self, execution: str) -> None:
        """Raise PlanError for a strategy that does not exist where the plan runs.

        Options for the other place are no error: one program may serve both.
        """
        if self.strategy is not None and self.strategy not in STRATEGIES[execution]:
            there = either(*map(repr, STRATEGIES[execution]))
            place = f"with execution={execution!r}" if self.execution else _WHERE[execution]
            raise PlanError(f"strategy={self.strategy!r} does not run {place}: it is {there}")
