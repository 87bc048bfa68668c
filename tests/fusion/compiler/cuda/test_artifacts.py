"""Artifacts and their keys: what makes another one, what does not, and that a known callback compiles nothing."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mathfuse as mf
from mathfuse.fusion.compiler import key
from mathfuse.fusion.compiler.cpu.kernels import host
from mathfuse.fusion.compiler.cuda import artifacts, toolchain
from mathfuse.fusion.compiler.cuda.interface import make_unit

ROOT = Path(__file__).parents[4]


def ratio(x, y):
    """The helper that Numba's own caches would keep in the form it was first compiled in."""
    return x / (x * x + y)


def quotient(value):
    return ratio(value, 0.1)


def unit(callback, pipeline="elementwise", dtype="float32", operands=None, arch="sm_80", **options):
    return make_unit(callback, pipeline, dtype, operands or {}, arch, **options)


# --- one helper, many artifacts -------------------------------------------------------------------------------------


def test_one_helper_under_two_architectures_fastmath_on_and_off_and_two_dtypes():
    """Eight artifacts in one process, each right: in the order that a stale helper would show in."""
    made = {}
    for arch in ("sm_80", "sm_100"):
        for fastmath in (True, False):
            for dtype in ("float32", "float64"):
                callback = mf.epilog(quotient, fastmath=fastmath)
                made[arch, fastmath, dtype] = artifacts.Compiled(unit(callback, "matmul", dtype, arch=arch))
    assert len({compiled.ltoir for compiled in made.values()}) == 8
    for (arch, fastmath, dtype), compiled in made.items():
        division = {
            ("float32", True): "div.full.ftz.f32",
            ("float32", False): "div.rn.f32",
            ("float64", True): "div.rn.f64",
            ("float64", False): "div.rn.f64",
        }
        assert f".target {arch}" in compiled.ptx
        assert re.findall(r"\bdiv\.\S+", compiled.ptx) == [division[dtype, fastmath]]
        assert (".f64" in compiled.ptx) == (dtype == "float64")
        assert bool(re.search(rf"\bfma\.rn\.(ftz\.)?f{dtype[-2:]}", compiled.ptx)) == fastmath
    symbols = {place: f"q{number}" for number, place in enumerate(made)}
    for arch in ("sm_80", "sm_100"):
        units = {
            (fastmath, dtype): unit(mf.epilog(quotient, fastmath=fastmath), "matmul", dtype, arch=arch, symbol=name)
            for (a, fastmath, dtype), name in symbols.items()
            if a == arch
        }
        found = artifacts.audit_all(list(units.values()))
        assert [found[u].calls for u in units.values()] == [0, 0, 0, 0]
        assert {place: bool(found[u].helper_calls) for place, u in units.items()} == {
            (True, "float32"): False,
            (False, "float32"): True,
            (True, "float64"): True,
            (False, "float64"): True,
        }
        assert {place: bool(found[u].float64_instructions) for place, u in units.items()} == {
            place: place[1] == "float64" for place in units
        }


def test_an_artifact_is_the_same_whatever_was_compiled_before(tmp_path):
    """A process of its own, with a cache of its own, gives the bytes of this one, which knows other forms."""
    code = (
        "import sys, mathfuse as mf; from tests.fusion.compiler.cuda.test_artifacts import quotient\n"
        "sys.stdout.buffer.write(mf.compile(mf.epilog(quotient), 'matmul', dtype='float32', arch='sm_80').ltoir)"
    )
    mf.compile(mf.epilog(quotient, fastmath=False), "matmul", dtype="float64", arch="sm_120")
    here = mf.compile(mf.epilog(quotient), "matmul", dtype="float32", arch="sm_80").ltoir
    there = in_another_process(code, tmp_path)
    assert there.stdout == here


# --- the cache ------------------------------------------------------------------------------------------------------


def in_another_process(code: str, cache: Path) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MATHFUSE_CACHE_DIR": str(cache)}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True)


def compiled_lines(records) -> list[str]:
    return [record.getMessage() for record in records if record.getMessage().startswith("compiled ")]


def test_the_second_time_nothing_is_compiled(caplog, monkeypatch, tmp_path):
    monkeypatch.setenv("MATHFUSE_CACHE_DIR", str(tmp_path))
    caplog.set_level(logging.INFO, "mathfuse")
    first = mf.compile(mf.gaussian(sigma=8.0), "fft", dtype="complex64", arch="sm_90a")
    shown = first.audit, first.result_dtype, first.weak_bits
    lines = compiled_lines(caplog.records)
    assert [line.split(" [")[0] for line in lines] == [
        "compiled gaussian(sigma=8.0) for fft, sm_90a",
        "compiled gaussian(sigma=8.0) in a stand-in kernel",
    ]
    caplog.clear()
    forbid_compilers(monkeypatch)
    second = mf.compile(mf.gaussian(sigma=2.5), "fft", dtype="complex64", arch="sm_90a")
    assert (second.audit, second.result_dtype, second.weak_bits) == shown
    assert second.ltoir == first.ltoir and second.metadata == first.metadata
    assert compiled_lines(caplog.records) == []


def forbid_compilers(monkeypatch) -> None:
    def fail(*_, **__):
        raise AssertionError("a compiler was called")

    for name in ("nvvm", "nvrtc", "link"):
        monkeypatch.setattr(toolchain, name, fail)


def test_a_second_process_compiles_nothing(tmp_path):
    code = (
        "import logging, mathfuse as mf\n"
        "logging.basicConfig(level=logging.INFO)\n"
        "for dtype in ('float32', 'complex128'):\n"
        "    print(mf.compile(mf.scale(factor=0.1) | mf.power_spectrum, 'elementwise', dtype=dtype).audit)"
    )
    first, second = (in_another_process(code, tmp_path) for _ in range(2))
    assert first.stderr.count(b"compiled ") == 4
    assert second.stderr == b""
    assert second.stdout == first.stdout


# --- keys -----------------------------------------------------------------------------------------------------------

TAPS = np.ones(5, np.float32)


def shift(value, index, taps):
    return value * taps[index[0]]


BASE = {"callback": mf.epilog(shift), "operands": {"taps": "float32[1]"}}
OTHERS = {
    "another function": {"callback": mf.epilog(lambda value, index, taps: value + taps[index[0]])},
    "fastmath": {"callback": mf.epilog(shift, fastmath=False)},
    "precision": {"callback": mf.epilog(shift, precision="float64")},
    "architecture": {"arch": "sm_90"},
    "architecture-specific": {"arch": "sm_90a"},
    "pipeline": {"pipeline": "matmul"},
    "side of a transform": {"pipeline": "fft", "side": "prolog"},
    "other side of a transform": {"pipeline": "fft", "side": "epilog"},
    "dtype": {"dtype": "float64"},
    "rank": {"ndim": 2},
    "axes": {"ndim": 2, "axes": (0,)},
    "dtype of an operand": {"operands": {"taps": "float16[1]"}},
    "rank of an operand": {"operands": {"taps": "float32[2]"}},
    "strided operand": {"operands": {"taps": np.ones(10, np.float32)[::2]}},
    "constant operand": {"operands": {"taps": mf.constant(TAPS)}},
    "symbol": {"symbol": "other"},
}


def test_everything_that_changes_the_code_changes_the_key():
    keys = {name: unit(**{**BASE, **changed}).key() for name, changed in OTHERS.items()}
    keys["base"] = unit(**BASE).key()
    assert len(set(keys.values())) == len(OTHERS) + 1


@pytest.mark.parametrize(
    "given", [TAPS, np.zeros(1000, np.float32), np.ones((3, 4), np.float32)[1]], ids=["ones", "longer", "a row"]
)
def test_values_and_extents_do_not_change_the_key(given):
    assert unit(**{**BASE, "operands": {"taps": given}}).key() == unit(**BASE).key()


def test_bound_scalars_change_the_key_by_kind_only():
    keys = [unit(mf.scale(factor=factor)).key() for factor in (0.1, 2.0, np.float32(3), 1, 2, np.int8(3), 1j, True)]
    assert len(set(keys[:3])) == len(set(keys[3:6])) == 1
    assert len(set(keys)) == 4


LEVEL = 0.5


def test_captured_numbers_count_by_value(monkeypatch):
    callback = mf.epilog(lambda value: value * LEVEL)
    before = unit(callback).key()
    monkeypatch.setitem(globals(), "LEVEL", 0.25)
    assert unit(callback).key() != before


@pytest.mark.parametrize("name", ["llvmlite", "numba", "cuda-core", "cuda-bindings"])
def test_versions_of_packages_count(name, monkeypatch):
    version = key.importlib.metadata.version
    before = unit(mf.relu).key()
    monkeypatch.setattr(key.importlib.metadata, "version", lambda n: "99.9" if n == name else version(n))
    forget()
    try:
        assert unit(mf.relu).key() != before
        assert f"{name} 99.9" in unit(mf.relu).key()
    finally:
        forget()


def forget():
    key.versions.cache_clear()
    toolchain.identity.cache_clear()


def test_the_libraries_themselves_and_our_own_sources_count(monkeypatch):
    known = unit(mf.relu).key()
    assert re.search(r"libnvvm\.so\S* \d+, libnvrtc\.so\S* \d+, libnvJitLink\.so\S* \d+", known)
    monkeypatch.setattr(toolchain, "identity", lambda: "libnvvm.so.99 1")
    other = unit(mf.relu).key()
    monkeypatch.setattr(key, "library_digest", lambda: "0" * 16)
    assert len({known, other, unit(mf.relu).key()}) == 3


def test_keys_for_this_processor_name_no_cuda_library():
    made = key.artifact_key("cpu", unit(mf.relu).signature, host())
    assert re.search(r"llvmlite \d.*numba \d", made)
    assert not re.search("cuda|nv", made.replace(host(), ""))
