"""Back ends: which are there, which is taken and why; MKL where it is installed."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.fft

import mathfuse as mf
from mathfuse.fusion.transforms.cpu import backends
from mathfuse.fusion.transforms.cpu.backends import Backend, fastest, installed, load
from mathfuse.fusion.transforms.cpu.passes import Fft


def test_pocketfft_is_always_there():
    assert installed()[0] == "pocketfft"
    assert load("pocketfft") is scipy.fft


def test_what_is_missing_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(backends.BACKENDS, "mkl", "no_such_module")
    load.cache_clear()
    try:
        with pytest.raises(mf.ToolchainError, match=r"'mkl' is not installed .*pip install 'mathfuse\[cpu\]'"):
            mf.fft.fft(np.ones(4), backend="mkl")
    finally:
        load.cache_clear()


def test_the_only_one_is_taken_without_timing(monkeypatch):
    monkeypatch.setattr(backends, "installed", lambda: ("pocketfft",))
    fastest.cache_clear()
    chosen = fastest(Fft("fft", 8), (2, 8), 1, np.dtype(complex))
    assert (chosen.name, chosen.reason[:8]) == ("pocketfft", "the only")


def test_of_several_the_fastest_is_taken_once(monkeypatch):
    seconds = {"pocketfft": 2.0, "mkl": 1.0}
    timed = []
    monkeypatch.setattr(backends, "installed", lambda: tuple(seconds))
    monkeypatch.setattr(backends, "_time", lambda backend, *_: (timed.append(backend.name), seconds[backend.name])[1])
    fastest.cache_clear()
    for _ in range(2):
        chosen = fastest(Fft("fft", 16), (2, 16), 1, np.dtype(complex))
    assert chosen.name == "mkl"
    assert "pocketfft 2000000 µs, mkl 1000000 µs" in chosen.reason
    assert timed == ["pocketfft", "mkl"]
    fastest.cache_clear()


LAYOUTS = {
    "rows an odd number of reals apart": lambda x: odd_rows(x),
    "C": lambda x: x.copy(),
    "one line over and over": lambda x: np.broadcast_to(x[..., :1], x.shape),
    "Fortran": lambda x: np.asfortranarray(x),
    "rows of a wider array": lambda x: np.concatenate([x, x], -1)[..., : x.shape[-1]],
    "every other": lambda x: np.repeat(np.repeat(x, 2, 0), 2, -1)[::2, ..., ::2],
    "backwards": lambda x: x[::-1, ..., ::-1].copy()[::-1, ..., ::-1],
}


def odd_rows(x):
    rows = np.zeros((*x.shape[:-1], 2 * x.shape[-1] + 1), x.real.dtype)
    rows = rows[..., :-1].view(x.dtype) if x.dtype.kind == "c" else rows[..., : x.shape[-1]]
    rows[...] = x
    return rows


@pytest.mark.parametrize("name", installed())
@pytest.mark.parametrize("op", ["fft", "ifft", "rfft", "irfft"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(6, 10), (3, 4, 6)])
def test_every_back_end_is_scipys(name, op, layout, shape):
    random = np.random.default_rng(0)
    x = random.standard_normal(shape) + (0 if op == "rfft" else 1j * random.standard_normal(shape))
    for dtype in ("f4", "f8", "f2", "i4") if op == "rfft" else ("c8", "c16"):
        for axis in range(x.ndim):
            for length in (x.shape[axis] * (2 if op == "irfft" else 1), 5, 16):
                for norm in (None, "ortho", "forward"):
                    for overwrite in (False, layout != "one line over and over"):
                        block = LAYOUTS[layout](x.astype(dtype))
                        kept = block.copy()
                        expected = getattr(scipy.fft, op)(kept, length, axis, norm)
                        found = Backend(name, "")(Fft(op, length, norm), block, axis, overwrite)
                        assert found.dtype == expected.dtype
                        np.testing.assert_allclose(
                            found, expected, atol=1e-5 if expected.dtype.itemsize < 16 else 1e-12
                        )
                        assert overwrite or np.array_equal(block, kept)


@pytest.mark.parametrize("inside", [False, True])
def test_timing_checks_the_result(monkeypatch, inside):
    arguments = Fft("fft", 16), (16, 8), 0, np.dtype(np.complex64), inside
    assert 0 < backends._time(Backend("pocketfft", ""), *arguments) < math.inf
    wrong = SimpleNamespace(fft=lambda x, *_: 2 * x)
    monkeypatch.setattr(backends, "load", lambda name: wrong if name == "mkl" else scipy.fft)
    assert backends._time(Backend("mkl", ""), *arguments) == math.inf


@pytest.mark.parametrize("name", installed())
def test_plans_by_every_back_end(name):
    x = np.random.default_rng(0).standard_normal((9, 32)).astype(np.float32)
    plan = mf.fft.SpectralFilter(x, mf.scale(factor=2.0)).plan(backend=name)
    np.testing.assert_allclose(plan.execute(), 2 * x, atol=1e-5)
    assert ("fft(9)", f"{name}, as asked for") in plan.explain().details
