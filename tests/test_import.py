"""`import mathfuse` is quick, light, and shows every public name."""

from __future__ import annotations

import subprocess
import sys

import pytest

import mathfuse
import mathfuse.epilogs

HEAVY = ("numba", "llvmlite", "scipy", "cupy", "torch", "jax", "cuda", "matplotlib", "PIL")


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize("statement", ["import mathfuse", "import mathfuse; mathfuse.epilog, mathfuse.CallbackError"])
def test_nothing_heavy_is_imported(statement):
    loaded = python(f"import sys; {statement}; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))")
    assert not set(loaded.split()) & set(HEAVY)


def test_a_known_plan_on_a_gpu_waits_for_no_import_of_a_compiler_or_scipy():
    statement = "import mathfuse.fft, mathfuse.fusion.transforms.cuda.space"
    loaded = python(f"import sys; {statement}; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))")
    assert not set(loaded.split()) & set(HEAVY)


def test_import_takes_under_100_ms_more_than_numpy():
    code = "import numpy, time; t = time.perf_counter(); import mathfuse; print(time.perf_counter() - t)"
    assert min(float(python(code)) for _ in range(5)) < 0.1


@pytest.mark.parametrize("name", mathfuse.__all__)
def test_every_public_name_is_there(name):
    assert getattr(mathfuse, name) is getattr(mathfuse, name)
    assert name in dir(mathfuse)


def test_the_callbacks_and_helpers_are_those_of_epilogs():
    internal = {"Link", "evaluate"}
    public = {name for name, home in mathfuse._HOME.items() if home == "mathfuse.epilogs"}
    assert public == set(mathfuse.epilogs.__all__) - internal


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'epilogue'"):
        _ = mathfuse.epilogue
