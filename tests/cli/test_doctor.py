"""`mathfuse doctor`: the judgement is pure, so every state of an installation is a row here."""

from __future__ import annotations

import pytest

from mathfuse import cli
from mathfuse.cli import doctor
from mathfuse.cli.doctor import ABSENT, BROKEN, GROUPS, OK, PARTS, WARNING, Found

BASE = {part.name: Found("1.0") for part in PARTS if part.group == "base"}
COMPILER = {part.name: Found("13.0") for part in PARTS if part.group == "compiler"} | {"cuda-core": Found("1.2.2")}


def without(found, name):
    return {key: value for key, value in found.items() if key != name}


def judged(found, name):
    return doctor.judge(found)[name]


def test_every_part_has_a_group_and_every_group_a_part():
    assert {part.group for part in PARTS} == set(GROUPS)
    assert len({part.name for part in PARTS}) == len(PARTS)


def test_a_whole_installation_is_sound():
    findings = doctor.judge(BASE | COMPILER)
    assert {finding.status for finding in findings.values()} == {OK, ABSENT}
    assert doctor.compiler_complete(findings)


@pytest.mark.parametrize("name", BASE)
def test_a_missing_base_part_is_broken(name):
    finding = judged(without(BASE, name), name)
    assert (finding.status, finding.remedy) == (BROKEN, f"pip install {name}")


def test_cuda_parts_that_were_never_installed_are_optional():
    findings = doctor.judge(BASE)
    for part in PARTS:
        if part.group in ("compiler", "gpu"):
            assert findings[part.name].status == ABSENT
            assert findings[part.name].remedy == 'pip install "mathfuse[cu13]"'
    assert not doctor.compiler_complete(findings)


@pytest.mark.parametrize("name", without(COMPILER, "cuda-core"))  # whose absence means that none was wanted
def test_a_half_installed_compiler_is_broken(name):
    finding = judged(BASE | without(COMPILER, name), name)
    assert (finding.status, finding.remedy) == (BROKEN, 'pip install "mathfuse[cu13]"')


def test_libraries_that_another_package_brought_are_no_half_installation():
    findings = doctor.judge(BASE | {"cuda-bindings": Found("12.9.4"), "nvJitLink": Found("12.9.86")})
    assert findings["libNVVM"].status == ABSENT
    assert findings["libNVVM"].remedy == 'pip install "mathfuse[cu12]"'


def test_cuda_12_is_mended_with_cuda_12():
    found = BASE | without(COMPILER, "NVRTC") | {"cuda-bindings": Found("12.9.4")}
    assert judged(found, "NVRTC").remedy == 'pip install "mathfuse[cu12]"'


@pytest.mark.parametrize("name", ["libNVVM", "nvJitLink", "NVRTC"])
def test_two_versions_of_cuda_do_not_mix(name):
    finding = judged(BASE | COMPILER | {name: Found("12.9.86")}, name)
    assert finding.status == BROKEN
    assert "not that of cuda-bindings" in finding.detail
    assert 'mathfuse[cu13]"' in finding.remedy


def test_a_system_library_of_unknown_version_is_taken_as_it_is():
    finding = judged(BASE | COMPILER | {"nvJitLink": Found(place="/usr/local/cuda/lib64/libnvJitLink.so")}, "nvJitLink")
    assert (finding.status, finding.detail) == (OK, "/usr/local/cuda/lib64/libnvJitLink.so")


@pytest.mark.parametrize(
    ("numpy", "numba_cuda", "status"),
    [
        ("2.4.6", True, OK),
        ("2.5.0", True, BROKEN),
        ("2.10.1", True, BROKEN),
        ("2.5.0", False, OK),
        ("1.26.4", True, OK),
    ],
)
def test_numpy_that_numba_cuda_cannot_use(numpy, numba_cuda, status):
    found = BASE | {"numpy": Found(numpy)} | ({"numba-cuda": Found("0.30.4")} if numba_cuda else {})
    finding = judged(found, "numpy")
    assert finding.status == status
    assert finding.remedy == ('pip install "numpy<2.5"' if status == BROKEN else "")


@pytest.mark.parametrize(
    ("gpus", "cuda", "status", "words"),
    [
        (None, 13, ABSENT, "none found"),
        ([], 13, ABSENT, "none found"),
        (["NVIDIA H200, 580.65.06"], 13, OK, "NVIDIA H200, driver 580.65.06"),
        (["NVIDIA A100, 550.54.15"], 13, WARNING, 'pip install "mathfuse[cu12]"'),
        (["NVIDIA A100, 550.54.15"], 12, OK, "driver 550"),
        (["Tesla T4, 470.82"], 12, WARNING, "update the driver"),
    ],
)
def test_gpus_and_their_driver(gpus, cuda, status, words):
    finding = doctor.judge_gpus(gpus, cuda)
    assert finding.status == status
    assert words in str(finding)


@pytest.mark.parametrize(
    ("returncode", "error", "status", "detail"),
    [
        (0, "a warning", OK, "works"),
        (1, "ImportError: no", BROKEN, "ImportError: no"),
        (-11, "", BROKEN, "crashed (signal 11)"),
        (3, "", BROKEN, "exit code 3"),
    ],
)
def test_probes(returncode, error, status, detail):
    finding = doctor.judge_probe("CPU compiler", returncode, error)
    assert (finding.status, finding.detail) == (status, detail)


def test_a_probe_runs_in_a_process_of_its_own():
    assert doctor.probe("pass") == (0, "")
    assert doctor.probe("import nothing_like_it") == (1, "ModuleNotFoundError: No module named 'nothing_like_it'")
    assert doctor.probe("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")[0] == -11


def test_a_cache_that_can_be_made_is_sound_and_is_not_made(tmp_path, monkeypatch):
    monkeypatch.setenv("MATHFUSE_CACHE_DIR", str(tmp_path / "a" / "b"))
    assert doctor.judge_cache().status == OK
    assert not list(tmp_path.iterdir())


def test_a_cache_that_cannot_be_written_is_a_warning(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    for folder in (str(tmp_path / "file"), "/proc/x"):  # neither lets a folder be made
        monkeypatch.setenv("MATHFUSE_CACHE_DIR", folder)
        finding = doctor.judge_cache()
        assert finding.status == WARNING
        assert finding.detail.startswith(f"{folder}/artifacts is not used: ")
        assert "what cannot be kept is compiled each time" in finding.detail
        assert "MATHFUSE_CACHE_DIR" in finding.remedy


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("MATHFUSE_CACHE_DIR", "~no-such-user"),
        *((f"MATHFUSE_{name}", "abc") for name in ("CACHE_LIMIT", "PLAN_CACHE_LIMIT", "NUM_WORKERS", "BLOCK_BYTES")),
    ],
)
def test_a_bad_variable_is_one_failed_check_among_the_others(monkeypatch, capsys, variable, text):
    monkeypatch.setenv(variable, text)
    assert cli.main(["doctor"]) == 1
    shown = capsys.readouterr().out
    (broken,) = (line for line in shown.splitlines() if line.startswith("  broken"))
    assert f"environment variable {variable}: {text!r}" in broken.replace('"', "'")
    assert "CPU compiler   works" in shown
    assert " cache " in shown


@pytest.mark.parametrize(("cuda", "version"), [(12, "12.9.86"), (13, "13.5.37"), (0, "13.5.37")])
def test_of_two_wheels_the_one_of_the_same_cuda_counts(monkeypatch, cuda, version):
    installed = {"nvidia-nvjitlink": "13.5.37", "nvidia-nvjitlink-cu12": "12.9.86"}
    monkeypatch.setattr(doctor, "distribution_version", lambda name: installed.get(name, ""))
    (part,) = (part for part in PARTS if part.name == "nvJitLink")
    assert doctor.look(part, cuda) == Found(version)


def test_what_no_wheel_brought_is_looked_for_on_the_system(monkeypatch):
    monkeypatch.setattr(doctor, "distribution_version", lambda name: "")
    monkeypatch.setattr(doctor, "locate_library", lambda name: f"/usr/local/cuda/lib64/lib{name}.so" if name else "")
    (part,) = (part for part in PARTS if part.name == "nvJitLink")
    assert doctor.look(part, 13) == Found(place="/usr/local/cuda/lib64/libnvJitLink.so")
    (numba,) = (part for part in PARTS if part.name == "numba")
    assert doctor.look(numba, 13) is None


def test_this_installation_is_sound(capsys):
    assert cli.main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("mathfuse ")
    assert "CPU compiler   works" in shown
    assert "CUDA compiler  works" in shown


def test_something_broken_is_exit_code_1(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "probe", lambda code: (-11, ""))
    assert cli.main(["doctor"]) == 1
    assert "crashed" in capsys.readouterr().out
