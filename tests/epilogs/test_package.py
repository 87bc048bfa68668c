"""The room as a whole: its names, and what importing it costs."""

from __future__ import annotations

import os
import subprocess
import sys

import mathfuse
import mathfuse.epilogs as mf


def python(code, **variables):
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(mathfuse.__file__)), **variables}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    ).stdout


def test_all_is_explicit_and_sorted():
    assert mf.__all__ == sorted(mf.__all__)
    assert all(hasattr(mf, name) for name in mf.__all__)


def test_the_public_names_reach_the_package():
    shared = set(mf.__all__) & set(mathfuse.__all__)
    assert {"Callback", "Constant", "constant", "epilog", "prolog", "gaussian", "signed_frequency"} <= shared
    assert all(getattr(mathfuse, name) is getattr(mf, name) for name in shared)


def test_no_compiler_and_no_pickler_is_imported():
    loaded = python("import sys, mathfuse.epilogs; print(*sys.modules)").split()
    assert not {"numba", "llvmlite", "cuda", "cloudpickle", "scipy"} & set(loaded)
    assert not [name for name in loaded if name.startswith("mathfuse.fusion")]


def test_importing_it_takes_less_than_10_ms_more_than_numpy(tmp_path):
    compiled = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(tmp_path)}
    clock = "import numpy, time; t = time.perf_counter(); import mathfuse.epilogs; print(time.perf_counter() - t)"
    assert min(float(python(clock, **compiled)) for _ in range(5)) < 0.010
