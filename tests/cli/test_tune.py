"""`mathfuse tune FILE`: what the file may say, and that later plans know what was timed."""

from __future__ import annotations

import json

import numpy as np
import pytest

import mathfuse as mf
from mathfuse import cli
from mathfuse.cli.tune import operand, planned, problems
from mathfuse.fusion.transforms.cuda import configurations, prepared
from mathfuse.runtime.errors import UnsupportedError
from tests.fusion.transforms.cuda.conftest import gpu  # noqa: F401 — a fixture

SOURCE = """
import mathfuse as mf

@mf.epilog
def weighted(value, index, w):
    return value * w[index]
"""


@pytest.fixture
def file(tmp_path):
    def write(content):
        path = tmp_path / "problems.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return write


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is no JSON"),
        ({}, "holds no list of problems"),
        ([3], "holds no list of problems"),
        ([{"shape": [4], "dtype": "f4", "axis": 0}], "problem 1: 'axis' is none of axes, dtype,"),
        ([{"shape": [4], "dtype": "f4"}, {"shape": [4]}], "problem 2 lacks 'dtype'"),
    ],
)
def test_files_that_hold_no_problems(file, content, message, capsys):
    with pytest.raises(UnsupportedError, match=message):
        problems(file(content))
    assert cli.main(["tune", str(file(content))]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        ({"shape": 4, "dtype": "float32"}, "4 is no shape"),
        ({"shape": [4], "dtype": "single precision"}, "is no dtype"),
        ({"shape": [4], "dtype": "float32", "transfer": "gausian"}, "mathfuse has no callback gausian"),
        ({"shape": [4], "dtype": "float32", "operands": {"w": "float32[4]"}}, "operand 'w' is 'float32"),
    ],
)
def test_problems_that_cannot_be(problem, message):
    with pytest.raises(UnsupportedError, match=message):
        planned(problem)


def test_operands_are_numbers_or_random_arrays():
    assert operand("sigma", 8.0) == 8.0
    array = operand("w", ["complex64", 3, 4])
    assert (array.shape, array.dtype) == ((3, 4), np.complex64)
    assert 0.5 <= array.real.min() < array.real.max() <= 1.5


def test_later_plans_know_what_was_timed(gpu, file, tmp_path, monkeypatch, capsys):  # noqa: F811
    monkeypatch.setenv("MATHFUSE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(prepared, "milliseconds", lambda run, *_: run() or 0.125)
    monkeypatch.setattr(configurations, "CUTS", 1)
    monkeypatch.setattr(configurations, "TIMES", (1, 2))
    (tmp_path / "filters.py").write_text(SOURCE)
    fft = {"shape": [6, 64], "dtype": "complex64", "kind": "fft", "epilog": f"{tmp_path}/filters.py:weighted",
           "operands": {"w": ["float32", 6, 64]}}  # fmt: skip
    blur = {"shape": [32, 32], "dtype": "float32", "transfer": fft["epilog"], "operands": {"w": ["float32", 32, 17]}}
    assert cli.main(["tune", str(file([fft, blur, {**blur, "transfer": "none"}])), "--iterations", "2"]) == 1
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert lines[0].startswith("1: fft of [6, 64] along [1] → complex64[6, 64]: 125.0 µs by ")
    assert lines[1].startswith("2: filter of [32, 32]")
    assert "mathfuse has no callback none" in lines[2]
    assert "timed, best 125.0 µs" in shown.err

    names: dict = {}
    exec(SOURCE, names)
    x, w = gpu.array(np.ones((6, 64), np.complex64)), gpu.array(np.ones((6, 64), np.float32))
    assert mf.fft.FFT(x, kind="fft").plan(epilog=names["weighted"](w=w)).explain().timings[0][1] == 0.125
    image = gpu.array(np.ones((32, 32), np.float32))
    transfer = names["weighted"](w=gpu.array(np.ones((32, 17), np.float32)))
    assert mf.fft.SpectralFilter(image, transfer).plan().explain().timings[0][1] == 0.125
