"""`mathfuse tune FILE`: what the file may say, and that later plans know what was timed."""

from __future__ import annotations

import contextlib
import json

import numpy as np
import pytest

import mathfuse as mf
from mathfuse import cli
from mathfuse.cli.tune import planned, problems, random_array
from mathfuse.fusion.transforms.cuda import configurations, prepared
from mathfuse.runtime.dtypes import COMPLEX32
from mathfuse.runtime.errors import UnsupportedError
from tests.fusion.transforms.cuda.conftest import gpu  # noqa: F401 — a fixture

SOURCE = """
import mathfuse as mf

@mf.epilog
def weighted(value, index, w):
    return value * w[index]
"""
FFT = {"shape": [4, 16], "dtype": "complex64", "kind": "fft"}


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
        ("[" * 200_000, "is no JSON"),
        ({}, "holds no list of problems"),
        ([], "holds no list of problems"),
        ([3], "holds no list of problems"),
        ([{**FFT, "axis": 0}], "problem 1: 'axis' is none of axes, dtype,"),
        ([FFT, {"shape": [4]}], "problem 2: it lacks 'dtype'"),
        ([{"shape": [4], "dtype": "f4"}], "problem 1: it lacks 'kind'"),
        ([{**FFT, "transfer": "gaussian"}], "a filter, with 'transfer', has no 'kind'"),
    ],
)
def test_files_that_hold_no_problems(file, content, message, capsys):
    with pytest.raises(UnsupportedError, match=message):
        problems(file(content))
    assert cli.main(["tune", str(file(content))]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "value", [True, 3.5, "x", [], {}, [True, 16], [10**30], [1 << 31, 1 << 33], ["a"], "\x00:x", "\ud800", "O"]
)
@pytest.mark.parametrize("key", ["shape", "dtype", "kind", "norm", "axes", "s", "prolog", "epilog", "operands"])
def test_values_of_every_kind_are_an_objection_or_an_error(file, key, value):
    """Whatever a field holds: one line, no traceback."""
    path = file([{**FFT, key: value}])
    with contextlib.suppress(mf.MathFuseError):
        planned(*problems(path))


def test_null_is_as_if_it_was_not_there(file):
    assert problems(file([{**FFT, "axes": None, "epilog": None, "operands": None}])) == [FFT]


@pytest.mark.parametrize("operand", [None, True, [], [3], ["float32", -1], ["float32", True], "float32[4]", {}])
def test_operands_that_are_none(file, operand):
    with pytest.raises(UnsupportedError, match="operands is a mapping from names to numbers"):
        problems(file([{**FFT, "epilog": "scale", "operands": {"factor": operand}}]))


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        ({**FFT, "dtype": "single precision"}, "is no dtype"),
        ({"shape": [4], "dtype": "float32", "transfer": "gausian"}, "mathfuse has no callback gausian"),
        ({**FFT, "operands": {"w": 3}}, "no callback has an operand 'w'"),
    ],
)
def test_problems_that_cannot_be(problem, message):
    with pytest.raises(UnsupportedError, match=message):
        planned(problem)


def test_arrays_are_random():
    array = random_array("complex64", 3, 4)
    assert (array.shape, array.dtype) == ((3, 4), np.complex64)
    assert 0.5 <= array.real.min() < array.real.max() <= 1.5
    half = random_array("complex32", 3)
    assert half.dtype == COMPLEX32
    assert half["real"].min() >= 0.5


def test_iterations_are_at_least_one(file, capsys):
    with pytest.raises(SystemExit):
        cli.main(["tune", str(file([FFT])), "--iterations", "0"])
    assert "0 is no whole number above 0" in capsys.readouterr().err


def test_it_needs_a_gpu(file, monkeypatch, capsys):
    monkeypatch.setattr("mathfuse.runtime.cuda.driver.why_unavailable", lambda: "there is none")
    assert cli.main(["tune", str(file([FFT]))]) == 2
    assert "tuning needs a GPU: there is none" in capsys.readouterr().err


def test_later_plans_know_what_was_timed(gpu, file, tmp_path, monkeypatch, capsys):  # noqa: F811
    monkeypatch.setenv("MATHFUSE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(prepared, "milliseconds", lambda run, *_: run() or 0.125)
    monkeypatch.setattr(configurations, "CUTS", 1)
    monkeypatch.setattr(configurations, "TIMES", (1, 2))
    (tmp_path / "filters.py").write_text(SOURCE)
    (tmp_path / "leaves.py").write_text("import sys; sys.exit(3)")
    weighted = f"{tmp_path}/filters.py:weighted"
    fft = {**FFT, "shape": [6, 64], "epilog": weighted, "operands": {"w": ["float32", 6, 64]}}
    blur = {"shape": [32, 32], "dtype": "float32", "transfer": weighted, "operands": {"w": ["float32", 32, 17]}}
    bad = [{**FFT, "epilog": name} for name in ("none", "/nowhere.py:x", f"{tmp_path}/leaves.py:x")]
    assert cli.main(["tune", str(file([fft, *bad, blur])), "--iterations", "2"]) == 1
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert lines[0].startswith("1: fft of [6, 64] along [1] → complex64[6, 64]: 125.0 µs by ")
    assert lines[1].startswith("5: filter of [32, 32]")
    assert "mathfuse has no callback none" in shown.err
    assert "/nowhere.py" in shown.err
    assert "SystemExit" in shown.err
    assert "timed, best 125.0 µs" in shown.err

    names: dict = {}
    exec(SOURCE, names)
    x, w = gpu.array(np.ones((6, 64), np.complex64)), gpu.array(np.ones((6, 64), np.float32))
    assert mf.fft.FFT(x, kind="fft").plan(epilog=names["weighted"](w=w)).explain().timings[0][1] == 0.125
    image = gpu.array(np.ones((32, 32), np.float32))
    transfer = names["weighted"](w=gpu.array(np.ones((32, 17), np.float32)))
    assert mf.fft.SpectralFilter(image, transfer).plan().explain().timings[0][1] == 0.125
