"""What the `plan` of a transform takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mathfuse.epilogs import Callback
from mathfuse.fusion.transforms.backends import BACKENDS
from mathfuse.fusion.transforms.pipeline import Tuning
from mathfuse.runtime import settings
from mathfuse.runtime.errors import PlanError, UnsupportedError


@dataclass(frozen=True)
class Choices:
    """Options of `plan`, by keyword or in `options={…}`.

    Parameters
    ----------
    prolog, epilog : Callback, optional
        Applied to each element as it is read, and to each result before it is written.
    prolog_inputs, epilog_inputs : mapping, optional
        Their free operands, by name.
    execution : {None, "cpu", "cuda"}
        Where to run; None is where the input is.
    workers : int, optional
        Threads; by default all CPUs of this process, or ``MATHFUSE_NUM_WORKERS``.
    block_bytes : int, optional
        Bytes that a thread works on while they are hot; by default half of a core's L2 cache, or
        ``MATHFUSE_BLOCK_BYTES``.
    backend : {None, "pocketfft", "mkl"}
        The FFT library; None takes the fastest that is installed, timed once in a process.
    """

    prolog: Callback | None = None
    epilog: Callback | None = None
    prolog_inputs: Mapping[str, Any] | None = None
    epilog_inputs: Mapping[str, Any] | None = None
    execution: str | None = None
    workers: int | None = None
    block_bytes: int | None = None
    backend: str | None = None

    def __post_init__(self) -> None:
        if self.execution == "cuda":
            raise UnsupportedError('execution="cuda" is not in this version: use execution="cpu", or leave it out')
        if self.execution not in (None, "cpu"):
            raise PlanError(f'execution={self.execution!r}: it is None, "cpu" or "cuda"')
        if self.backend is not None and (not isinstance(self.backend, str) or self.backend not in BACKENDS):
            raise PlanError(f"backend={self.backend!r}: it is None or one of {', '.join(BACKENDS)}")
        for name, number in (("workers", self.workers), ("block_bytes", self.block_bytes)):
            if number is not None and not (
                isinstance(number, int | np.integer) and not isinstance(number, bool) and number >= 1
            ):
                raise PlanError(f"{name}={number!r}: it must be a whole number, 1 or more")

    def tuning(self) -> Tuning:
        """Threads and bytes, the environment's where none are asked for."""
        return Tuning(self.workers or settings.workers(), self.block_bytes or settings.block_bytes(), self.backend)
