"""`mathfuse compile FILE.py:NAME`: finding the callback, reading operands, sending the result where it belongs."""

from __future__ import annotations

import dataclasses
import io
import json
import sys

import pytest

import mathfuse
from mathfuse import cli
from mathfuse.cli.compile import load, operand
from mathfuse.runtime.errors import CallbackError, UnsupportedError

SOURCE = """
import helper
import mathfuse as mf

@mf.epilog
def halve(value):
    return value * helper.HALF

def plain(value):
    return value
"""


@dataclasses.dataclass
class Audit:
    calls: int = 0
    registers: int = 12


@dataclasses.dataclass
class Compiled:
    ltoir: bytes = b"\x00LTO"
    ptx: str = "// PTX\n"
    sass: str = "// SASS"
    audit: Audit = dataclasses.field(default_factory=Audit)


@pytest.fixture
def source(tmp_path):
    (tmp_path / "helper.py").write_text("HALF = 0.5\n")
    path = tmp_path / "filters.py"
    path.write_text(SOURCE)
    return path


@pytest.fixture
def compiler(monkeypatch):
    """A compiler that remembers what it was asked for."""
    calls = []

    def compile_(callback, pipeline, **options):
        calls.append((callback, pipeline, options))
        return Compiled()

    monkeypatch.setattr(mathfuse, "compile", compile_)
    return calls


def test_load_finds_the_callback_and_the_modules_beside_its_file(source):
    callback = load(f"{source}:halve")
    assert isinstance(callback, mathfuse.Callback)
    assert callback.function(3.0) == 1.5
    assert str(source.parent) not in sys.path


@pytest.mark.parametrize("reference", ["filters.py", "filters.py:", ":halve", "filters.py:a b", "filters.py:a.b"])
def test_a_malformed_reference(reference):
    with pytest.raises(UnsupportedError, match=r"write FILE\.py:NAME"):
        load(reference)


def test_a_name_that_is_no_callback(source):
    with pytest.raises(CallbackError, match=r"plain in .* is not a callback; decorate it .*\(callbacks: halve\)"):
        load(f"{source}:plain")
    with pytest.raises(CallbackError, match=r"has no name double \(callbacks: halve\)"):
        load(f"{source}:double")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\ny = x / 0\n", r":2: ZeroDivisionError: division by zero"),
        ("def f(:\n", r":1: SyntaxError: "),
        ("import mathfuse as mf\n@mf.epilog\ndef f(*a):\n    return 0\n", r"\*"),
    ],
)
def test_a_file_that_does_not_run_names_the_line(tmp_path, text, message):
    path = tmp_path / "broken.py"
    path.write_text(text)
    with pytest.raises(CallbackError, match=message):
        load(f"{path}:f")


def test_a_missing_file_and_one_that_is_not_python(tmp_path, capsys):
    assert cli.main(["compile", f"{tmp_path}/nowhere.py:f"]) == 2
    assert capsys.readouterr().err == f"mathfuse: {tmp_path}/nowhere.py: No such file or directory\n"
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(UnsupportedError, match="not a Python file"):
        load(f"{tmp_path}/notes.txt:f")


@pytest.mark.parametrize(("text", "value"), [("0.5", 0.5), ("3", 3), ("-2e3", -2e3), ("1j", 1j), ("True", True)])
def test_number_operands_keep_their_type(text, value):
    name, got = operand(f"sigma={text}")
    assert name == "sigma"
    assert type(got) is type(value)
    assert got == value


@pytest.mark.parametrize("text", ["bias=float32[2]", " bias = float32[2] "])
def test_operand_types_are_passed_on(text):
    assert operand(text) == ("bias", "float32[2]")


@pytest.mark.parametrize("text", ["sigma", "=3", "sigma=", "a b=1"])
def test_malformed_operands(text):
    with pytest.raises(UnsupportedError, match=r"write NAME=DTYPE\[RANK\]"):
        operand(text)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--operand", "gain=0.5"], "no operand 'gain'"),
        (["--operand", "gain=float99[1]"], "no operand 'gain'"),
        (["--dtype", "float33"], "float33"),
        (["--arch", "h200"], "'h200' is not a GPU architecture"),
    ],
)
def test_what_the_compiler_refuses_is_one_line(source, capsys, options, message):
    assert cli.main(["compile", f"{source}:halve", *options]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_options_reach_the_compiler(source, compiler, capfdbinary):
    options = (
        "--pipeline matmul --dtype float32 --arch sm_80 --operand gate=float32[2] --operand a=0.5 --axes 0,-1 --ndim 3"
    )
    assert cli.main(["compile", f"{source}:halve", *options.split(), "--side", "epilog"]) == 0
    callback, pipeline, asked = compiler[0]
    assert callback.function.__name__ == "halve"
    assert pipeline == "matmul"
    assert asked == {
        "dtype": "float32",
        "operands": {"gate": "float32[2]", "a": 0.5},
        "arch": "sm_80",
        "side": "epilog",
        "ndim": 3,
        "axes": (0, -1),
    }
    assert json.loads(capfdbinary.readouterr().out) == {"calls": 0, "registers": 12}


@pytest.mark.parametrize(("what", "content"), [("ptx", b"// PTX\n"), ("sass", b"// SASS\n"), ("ltoir", b"\x00LTO")])
def test_emit_to_a_file_or_a_pipe(source, compiler, tmp_path, capfdbinary, what, content):
    assert cli.main(["compile", f"{source}:halve", "--emit", what]) == 0
    assert capfdbinary.readouterr().out == content
    assert cli.main(["compile", f"{source}:halve", "--emit", what, "--output", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out").read_bytes() == content


def test_binary_never_goes_to_a_terminal(source, compiler, monkeypatch, capsys):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stdout", Terminal())
    assert cli.main(["compile", f"{source}:halve", "--emit", "ltoir"]) == 2
    assert "give --output FILE" in capsys.readouterr().err


@pytest.mark.parametrize("what", ["audit", "ptx", "ltoir", "sass"])
def test_the_real_compiler(source, capfdbinary, what):
    assert cli.main(["compile", f"{source}:halve", "--dtype", "complex64", "--arch", "sm_90a", "--emit", what]) == 0
    out = capfdbinary.readouterr().out
    if what == "audit":
        audit = json.loads(out)
        assert [audit[key] for key in ("calls", "helper_calls", "float64_instructions", "local_memory_bytes")] == [
            0
        ] * 4
        assert audit["registers"] > 0
    else:
        assert {"ptx": b".target sm_90", "sass": b"EXIT", "ltoir": b""}[what] in out
        assert len(out) > 100
