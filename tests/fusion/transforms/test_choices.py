"""What plans refuse before anything else: choices that do not fit, no GPU, what is no array."""

from __future__ import annotations

import numpy as np
import pytest

import mathfuse as mf
from mathfuse.runtime.cuda.driver import why_unavailable


@pytest.mark.skipif(not why_unavailable(), reason="there is a GPU")
@pytest.mark.parametrize(
    "run",
    [
        lambda x: mf.fft.fft(x, execution="cuda"),
        lambda x: mf.fft.spectral_filter(x, mf.gaussian(sigma=1.0), execution="cuda"),
        lambda x: mf.fft.FFT(x).plan(epilog=mf.scale(factor=2.0), execution="cuda", strategy="callback"),
    ],
)
def test_without_a_gpu_it_says_so(run):
    with pytest.raises(mf.ToolchainError, match=r'execution="cuda" needs a GPU: .*, or use execution="cpu"'):
        run(np.arange(8.0))


class OnAGpu:
    __cuda_array_interface__ = {"shape": (8,), "typestr": "<f4", "data": (4096, False), "version": 3}  # noqa: RUF012


@pytest.mark.skipif(not why_unavailable(), reason="there is a GPU")
@pytest.mark.parametrize("run", [mf.fft.fft, lambda x: mf.elementwise(mf.relu, x)])
def test_an_array_on_a_gpu_without_a_driver_is_what_it_says(run):
    with pytest.raises(mf.ToolchainError, match=r"^x is on a GPU, which cannot be used here: "):
        run(OnAGpu())


@pytest.mark.parametrize("strategy", ["callback", "sequence"])
def test_strategies_of_the_other_place(strategy):
    with pytest.raises(mf.PlanError, match=f"'{strategy}' does not run on an array in CPU memory: it is 'cpu'"):
        mf.fft.fft(np.arange(8.0), strategy=strategy)
    with pytest.raises(mf.PlanError, match=f"strategy='{strategy}' does not run with execution='cpu': it is 'cpu'"):
        mf.fft.fft(np.arange(8.0), strategy=strategy, execution="cpu")
    with pytest.raises(mf.PlanError, match="strategy='cpu' does not run with execution='cuda': it is 'kernel', 'cal"):
        mf.fft.fft(np.arange(8.0), strategy="cpu", execution="cuda")


@pytest.mark.parametrize("choices", [{"tune": 1}, {"tune": "yes"}, {"strategy": "fastest"}, {"strategy": 1}])
def test_choices_are_checked(choices):
    (name,) = choices
    with pytest.raises(mf.PlanError, match=f"{name}="):
        mf.fft.fft(np.arange(8.0), **choices)


@pytest.mark.parametrize(
    ("x", "message"), [(np.arange(8).astype(np.longdouble), "float64"), ([1.0, 2.0], "numpy.asarray")]
)
def test_what_is_no_array_of_ours(x, message):
    with pytest.raises(mf.UnsupportedError, match=message):
        mf.fft.fft(x)
