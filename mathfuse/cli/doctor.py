"""`mathfuse doctor`: what is installed, what is missing, which pip command mends it, and whether compiling works.

Looking (`look`, `find_gpus`, `probe`) is kept apart from judging (`judge` and the tables above it), which is pure.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mathfuse.cli.cache import size
from mathfuse.fusion.compiler.cuda import toolchain
from mathfuse.runtime import settings
from mathfuse.runtime.errors import ToolchainError, UnsupportedError
from mathfuse.runtime.words import counted

OK, ABSENT, WARNING, BROKEN = "ok", "absent", "warning", "broken"


@dataclass(frozen=True)
class Part:
    """Something that may be installed: a distribution, or a library or program that a wheel or the system brings."""

    name: str
    group: str
    wheels: tuple[str, ...] = ()  # distributions that carry it, of one CUDA version or another
    library: str = ""  # its name for cuda-pathfinder
    disassembler: bool = False


@dataclass(frozen=True)
class Group:
    """How much a set of parts matters: `needed` is "always", "together" (all, once an anchor is there) or "never"."""

    title: str
    needed: str
    remedy: str  # {name} is the part, {cuda} the major version of CUDA
    anchors: tuple[str, ...] = ()


@dataclass(frozen=True)
class Found:
    """Where a part was seen, and its version where a distribution tells it."""

    version: str = ""
    place: str = ""

    @property
    def major(self) -> int:
        head = self.version.partition(".")[0]
        return int(head) if head.isdigit() else 0


@dataclass(frozen=True)
class Finding:
    name: str
    status: str
    detail: str
    remedy: str = ""

    def __str__(self) -> str:
        line = f"  {self.status:8} {self.name:14} {self.detail}"
        return f"{line}: {self.remedy}" if self.remedy else line


GROUPS = {
    "base": Group("Base", "always", "pip install {name}"),
    "compiler": Group("CUDA compiler (needs no GPU)", "together", 'pip install "mathfuse[cu{cuda}]"', ("cuda-core",)),
    "gpu": Group("CUDA libraries (for running on a GPU)", "never", 'pip install "mathfuse[cu{cuda}]"'),
    "cpu": Group("CPU transforms", "never", 'pip install "mathfuse[cpu]"'),
    "demo": Group("Demo", "never", 'pip install "mathfuse[demo]"'),
    "arrays": Group("Array libraries", "never", "pip install {name}"),
}

PARTS = (
    *(
        Part(name, "base", (name,))
        for name in ("numba", "llvmlite", "numpy", "scipy", "platformdirs", "filelock", "cloudpickle")
    ),
    *(Part(name, "compiler", (name,)) for name in ("cuda-core", "cuda-bindings")),
    Part("libNVVM", "compiler", ("nvidia-nvvm", "nvidia-cuda-nvcc-cu12"), library="nvvm"),
    Part("nvJitLink", "compiler", ("nvidia-nvjitlink", "nvidia-nvjitlink-cu12"), library="nvJitLink"),
    Part("NVRTC", "compiler", ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12"), library="nvrtc"),
    Part("nvdisasm", "compiler", ("nvidia-cuda-nvdisasm",), disassembler=True),
    Part("cuFFT", "gpu", ("nvidia-cufft", "nvidia-cufft-cu12"), library="cufft"),
    Part("cuBLAS", "gpu", ("nvidia-cublas", "nvidia-cublas-cu12"), library="cublasLt"),
    Part("numba-cuda", "gpu", ("numba-cuda",)),
    Part("cupy", "gpu", ("cupy-cuda13x", "cupy-cuda12x", "cupy")),
    Part("mkl_fft", "cpu", ("mkl_fft",)),
    Part("matplotlib", "demo", ("matplotlib",)),
    Part("torch", "arrays", ("torch",)),
    Part("jax", "arrays", ("jax",)),
)

# Two versions that do not work together: the test on what was found, what to say, and what to do.
CONFLICTS: tuple[tuple[str, Callable[[Mapping[str, Found]], bool], str, str], ...] = (
    (
        "numpy",
        lambda found: "numba-cuda" in found and release(found["numpy"].version) >= (2, 5),
        "numba-cuda uses names that numpy 2.5 removed",
        'pip install "numpy<2.5"',
    ),
    *(
        (
            name,
            lambda found, name=name: bool(found[name].major) and found[name].major != cuda_major(found),
            "its CUDA version is not that of cuda-bindings",
            'pip install "mathfuse[cu{cuda}]"',
        )
        for name in ("libNVVM", "nvJitLink", "NVRTC")
    ),
)

# Oldest driver of each CUDA major version (CUDA Toolkit release notes, minor-version compatibility).
OLDEST_DRIVER = {12: 525, 13: 580}

PROBE_SECONDS = 300
CPU_PROBE = """
import numpy as np, mathfuse as mf
x = np.arange(12, dtype=np.complex64).reshape(3, 4)
assert np.allclose(mf.fft.fft2(x, epilog=mf.scale(factor=0.5)), np.fft.fft2(x) / 2)
"""
CUDA_PROBE = """
import mathfuse as mf
audit = mf.compile(mf.gaussian(sigma=1.0), pipeline="fft", dtype="complex64", arch="sm_90a").audit
assert audit.calls == 0, audit
"""


def add_to(subparsers: Any) -> None:
    command = subparsers.add_parser("doctor", help="what is installed, what is missing, and whether compiling works")
    command.set_defaults(run=run)


def run(_: argparse.Namespace) -> int:
    import mathfuse

    system = f"{platform.system()} {platform.machine()}"
    print(f"mathfuse {mathfuse.__version__}, Python {platform.python_version()}, {system}")
    cuda = Found(distribution_version("cuda-bindings")).major
    found = {part.name: seen for part in PARTS if (seen := look(part, cuda))}
    findings = judge(found)
    for key, group in GROUPS.items():
        show(group.title, (findings[part.name] for part in PARTS if part.group == key))
    gpus = judge_gpus(find_gpus(), cuda_major(found))
    checks = [judge_probe("CPU compiler", *probe(CPU_PROBE))]
    if compiler_complete(findings):
        checks.append(judge_probe("CUDA compiler", *probe(CUDA_PROBE)))
    checks += [judge_cache(), *judge_environment()]
    show("GPU", [gpus])
    show("Checks", checks)
    return int(any(finding.status == BROKEN for finding in (*findings.values(), gpus, *checks)))


def show(title: str, findings: Iterable[Finding]) -> None:
    print(f"\n{title}", *findings, sep="\n")


def judge(found: Mapping[str, Found]) -> dict[str, Finding]:
    """A finding for every part, from what was found where; pure."""
    findings = {part.name: judge_part(part, found) for part in PARTS}
    for name, clash, detail, remedy in CONFLICTS:
        if name in found and clash(found):
            remedy = remedy.format(cuda=cuda_major(found))
            findings[name] = Finding(name, BROKEN, f"{found[name].version}: {detail}", remedy)
    return findings


def judge_part(part: Part, found: Mapping[str, Found]) -> Finding:
    group = GROUPS[part.group]
    if seen := found.get(part.name):
        return Finding(part.name, OK, "  ".join(filter(None, (seen.version, seen.place))))
    remedy = group.remedy.format(name=part.name, cuda=cuda_major(found))
    needed = group.needed == "always" or (group.needed == "together" and any(name in found for name in group.anchors))
    return Finding(part.name, *((BROKEN, "missing") if needed else (ABSENT, "not installed (optional)")), remedy)


def compiler_complete(findings: Mapping[str, Finding]) -> bool:
    return all(findings[part.name].status == OK for part in PARTS if part.group == "compiler")


def judge_gpus(gpus: list[str] | None, cuda: int) -> Finding:
    """`gpus` are "name, driver version" lines of nvidia-smi; None where that program is missing or fails."""
    if not gpus:
        return Finding("GPU", ABSENT, "none found (optional; compiling and auditing need none)")
    oldest = min(int(line.rpartition(",")[2].strip().partition(".")[0]) for line in gpus)
    detail = "; ".join(
        f"{name.strip()}, driver {driver.strip()}" for name, _, driver in (g.rpartition(",") for g in gpus)
    )
    if oldest < OLDEST_DRIVER[cuda]:
        older = max((major for major, driver in OLDEST_DRIVER.items() if driver <= oldest), default=0)
        remedy = f'pip install "mathfuse[cu{older}]"' if older else "update the driver"
        return Finding("GPU", WARNING, f"{detail}: too old for CUDA {cuda}", remedy)
    return Finding("GPU", OK, detail)


def judge_probe(name: str, returncode: int, error: str) -> Finding:
    """A probe's outcome; a process that a signal ended (a crash in a library) has a negative return code."""
    if returncode == 0:
        return Finding(name, OK, "works")
    crash = f"crashed (signal {-returncode})" if returncode < 0 else ""
    return Finding(name, BROKEN, "; ".join(filter(None, (crash, error))) or f"exit code {returncode}")


def judge_cache() -> Finding:
    from mathfuse.runtime.cache import NOT_KEPT, default_store

    try:
        facts = default_store().info()
    except UnsupportedError as error:
        return Finding("cache", BROKEN, str(error))
    if facts.trouble:
        detail = f"{facts.path} is not used: {facts.trouble}; {NOT_KEPT}"
        return Finding("cache", WARNING, detail, "set MATHFUSE_CACHE_DIR to a folder of yours")
    entries = counted(facts.entries, "entry", "entries")
    return Finding("cache", OK, f"{facts.path}, {entries}, {size(facts.bytes)} of {size(facts.limit_bytes)}")


def judge_environment() -> list[Finding]:
    """What is wrong with the variables that the cache does not read."""
    findings = []
    for read in (settings.plan_cache_bytes, settings.workers, settings.block_bytes):
        try:
            read()
        except UnsupportedError as error:
            findings.append(Finding("environment", BROKEN, str(error)))
    return findings


def cuda_major(found: Mapping[str, Found]) -> int:
    """The major version of CUDA that an installation is for: that of cuda-bindings, else 13."""
    return (found.get("cuda-bindings") or Found()).major or max(OLDEST_DRIVER)


def release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def look(part: Part, cuda: int) -> Found | None:
    """Find a part: by its distributions' metadata (of CUDA version `cuda` first), else where the compiler finds it."""
    installed = [Found(version) for wheel in part.wheels if (version := distribution_version(wheel))]
    if installed:
        return max(installed, key=lambda seen: seen.major == cuda)
    place = locate_library(part.library) or locate_disassembler(part.disassembler)
    return Found(place=place) if place else None


def distribution_version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def locate_library(name: str) -> str:
    if not name:
        return ""
    try:
        from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib
    except ImportError:
        return ""
    try:
        return load_nvidia_dynamic_lib(name).abs_path or ""
    except DynamicLibNotFoundError:
        return ""


def locate_disassembler(wanted: bool) -> str:
    if not wanted:
        return ""
    try:
        return toolchain.nvdisasm()
    except ToolchainError:
        return ""


def find_gpus() -> list[str] | None:
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip().splitlines()


def probe(code: str) -> tuple[int, str]:
    """Run `code` in a process of its own with an empty cache; its return code and the last line of its errors.

    Settings of the environment do not reach it: `judge_environment` tells which are wrong.
    """
    settings_off = {name: text for name, text in os.environ.items() if not name.startswith("MATHFUSE_")}
    with tempfile.TemporaryDirectory() as cache:
        environment = {**settings_off, "MATHFUSE_CACHE_DIR": cache}
        try:
            answer = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=PROBE_SECONDS
            )
        except subprocess.TimeoutExpired:
            return 1, f"no answer within {PROBE_SECONDS} s"
    lines = answer.stderr.strip().splitlines()
    return answer.returncode, lines[-1] if lines else ""
