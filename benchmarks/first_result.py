"""``python -m benchmarks.first_result CASE [FILE]``: seconds to the first result of a known plan in a new process.

The clock starts with a ready CUDA context and the input in its memory. The plan is loaded from a file or, without one,
planned with what the cache has. For the benchmark `plans`, which starts such processes.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import mathfuse as mf
from benchmarks.fft_callbacks import weighted

SIGMA, TOLERANCE = 8.0, 1e-5


@dataclass(frozen=True)
class Case:
    """Complex transforms with an epilog along the last axis; without a strategy a filter of images."""

    shape: tuple[int, ...]
    strategy: str | None = None

    @property
    def known(self) -> float:
        """The number in the callback of the known plan: what an epilog adds, or the rate of a filter's decay."""
        return 0.0 if self.strategy else 2 * math.pi**2 * SIGMA**2

    def __str__(self) -> str:
        count, length = self.shape[0], self.shape[-1]
        return f"N = {length}, strategy {self.strategy}" if self.strategy else f"filter of {count} × {length}²"


def operands(case: Case, xp: Any) -> tuple[Any, Any]:
    """Random input, and the weights of an epilog, in CuPy's or NumPy's memory."""
    random, count = np.random.default_rng(0), math.prod(case.shape)
    x = random.standard_normal(2 * count if case.strategy else count, np.float32)
    x = x.view(np.complex64) if case.strategy else x
    w = random.random(case.shape, np.float32) if case.strategy else None
    return xp.asarray(x.reshape(case.shape)), None if w is None else xp.asarray(w)


def planned(case: Case, x: Any, w: Any, callback: Any = None) -> Any:
    """The known plan, or that of another callback."""
    if case.strategy:
        return mf.fft.FFT(x, kind="fft").plan(epilog=callback or weighted(w=w), strategy=case.strategy)
    return mf.fft.SpectralFilter(x, callback or mf.gaussian(sigma=SIGMA), axes=(1, 2)).plan()


def loaded(case: Case, path: str, x: Any, w: Any) -> Any:
    """The known plan of a file."""
    return mf.fft.FFT.load(path, x, w=w) if case.strategy else mf.fft.SpectralFilter.load(path, x)


def timed(make: Callable[[], Any], synchronize: Callable[[], None]) -> tuple[float, Any]:
    """Seconds until the plan that `make` gives has a result, and that."""
    synchronize()
    start = time.perf_counter()
    y = make().execute()
    synchronize()
    return time.perf_counter() - start, y


def checked(case: Case, x: Any, w: Any, y: Any, number: float, xp: Any) -> float:
    """The largest error of a result, over the largest value, for the number in its callback.

    Raises
    ------
    ArithmeticError
        If it is wrong.
    """
    part = slice(None, None, max(1, len(x) // 64))
    if case.strategy:
        exact = xp.fft.fft(x[part].astype("complex128")) * w[part] + number
    else:
        fy, fx = xp.fft.fftfreq(x.shape[1])[:, None], xp.fft.rfftfreq(x.shape[2])
        spectrum = xp.fft.rfft2(x[part].astype("float64")) * xp.exp(-number * (fy * fy + fx * fx))
        exact = xp.fft.irfft2(spectrum, x.shape[1:])
    error = float(abs(y[part] - exact).max() / abs(exact).max())
    if not error <= TOLERANCE:
        raise ArithmeticError(f"{case}: wrong by {error:.2e}, more than {TOLERANCE:.0e}")
    return error


def main(text: str, path: str | None = None) -> None:
    import cupy as cp

    case = Case(**json.loads(text))
    x, w = operands(case, cp)
    make = (lambda: planned(case, x, w)) if path is None else (lambda: loaded(case, path, x, w))
    seconds, y = timed(make, cp.cuda.runtime.deviceSynchronize)
    print(json.dumps({"s": seconds, "error": checked(case, x, w, y, case.known, cp)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
