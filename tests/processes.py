"""Python processes that tests start: many at once, and one that is killed while it writes a file."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
READY = "print('ready', flush=True); sys.stdin.readline()\n"
STUCK = """
import os, sys
def stuck(source, target, replace=os.replace):
    if not str(target).endswith("SUFFIX"):
        return replace(source, target)
    print("writing", flush=True)
    sys.stdin.read()
os.replace = stuck
"""


def together(script: str, count: int, *arguments: object) -> None:
    """Run ``script NUMBER ARGUMENTS`` in many processes, which go on together at its line ``#go``; all must succeed."""
    script = "import sys\n" + script.replace("#go\n", READY)
    started = [_start(script, number, *arguments) for number in range(count)]
    heads = [process.stdout.readline() for process in started if process.stdout]
    for process in started:
        if process.stdin and process.poll() is None:
            process.stdin.write("go\n")
            process.stdin.flush()
    outputs = [head + process.communicate(timeout=120)[0] for head, process in zip(heads, started)]
    assert [process.returncode for process in started] == [0] * count, "\n".join(outputs)


def killed_while_it_writes(suffix: str, script: str, *arguments: object) -> None:
    """Run ``script ARGUMENTS`` and kill it when a file that ends in `suffix` is written, but not under its name."""
    process = _start(STUCK.replace("SUFFIX", suffix) + script, *arguments)
    assert process.stdout
    assert process.stdout.readline() == "writing\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()


def _start(script: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT
    )
