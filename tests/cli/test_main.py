"""The `mathfuse` command as a whole: exit codes, one-line errors, the log."""

from __future__ import annotations

import argparse
import logging
import subprocess
import sys

import pytest

import mathfuse
from mathfuse import cli
from mathfuse.runtime.errors import CallbackError, MathFuseError


def failing(error):
    def run(_):
        raise error

    return run


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (MathFuseError("no good"), "no good"),
        (CallbackError("filters.py:3: print() cannot run\n    print(value)\n  leave it out"), "filters.py:3: print()"),
        (FileNotFoundError(2, "No such file or directory", "cat.png"), "cat.png: No such file or directory"),
    ],
)
def test_an_explained_error_is_one_line_and_exit_code_2(monkeypatch, capsys, error, line):
    monkeypatch.setattr(
        argparse.ArgumentParser, "parse_args", lambda *_: argparse.Namespace(run=failing(error), verbose=0)
    )
    assert cli.main([]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"mathfuse: {line}")
    assert shown.err.count("\n") == 1


def test_a_bug_keeps_its_traceback(monkeypatch):
    monkeypatch.setattr(
        argparse.ArgumentParser, "parse_args", lambda *_: argparse.Namespace(run=failing(KeyError("bug")), verbose=0)
    )
    with pytest.raises(KeyError):
        cli.main([])


@pytest.mark.parametrize("arguments", [[], ["brew"], ["demo"], ["cache"], ["compile", "f.py:g", "--emit", "elf"]])
def test_wrong_usage_is_exit_code_2(arguments, capsys):
    with pytest.raises(SystemExit) as exit_:
        cli.main(arguments)
    assert exit_.value.code == 2
    assert "usage: mathfuse" in capsys.readouterr().err


def test_python_m_mathfuse_tells_the_version():
    answer = subprocess.run([sys.executable, "-m", "mathfuse", "--version"], capture_output=True, text=True)
    assert answer.stdout == f"mathfuse {mathfuse.__version__}\n"


def test_verbose_logs_to_standard_error():
    code = (
        "import argparse; from mathfuse import cli; from mathfuse.runtime.log import logger;"
        "argparse.ArgumentParser.parse_args = lambda *_: argparse.Namespace("
        "  verbose=1, run=lambda _: logger.info('planned') or logger.debug('audited') or 0);"
        "raise SystemExit(cli.main([]))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert answer.returncode == 0
    assert answer.stderr == "mathfuse: planned\n"
    assert logging.getLogger("mathfuse").level == logging.NOTSET
