"""NVIDIA's compilers: what is said when one is missing, too old, or asked for what it does not know."""

from __future__ import annotations

import importlib.metadata
import os
import sys

import pytest

import mathfuse as mf
from mathfuse.fusion.compiler.cuda import toolchain
from mathfuse.fusion.compiler.emit.target import CUDA
from mathfuse.runtime.errors import ToolchainError

EXTRA = r'pip install "mathfuse\[cu13\]"'
KERNEL = 'extern "C" __global__ void kernel(float* data) { data[threadIdx.x] *= 2; }'
FUNCTION = f"""
target triple = "nvptx64-nvidia-cuda"
target datalayout = "{CUDA.data_layout}"
define float @half(float %x) {{
  %y = fmul float %x, 5.000000e-01
  ret float %y
}}
"""


# --- architectures --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arch", "sm_75 sm_80 sm_86 sm_89 sm_90 sm_90a sm_100 sm_100a sm_100f sm_103a sm_120 sm_121f".split()
)
def test_names_of_architectures(arch):
    assert toolchain.checked_arch(arch) == arch
    assert toolchain.compute_of(arch) == "compute_" + arch.removeprefix("sm_").rstrip("af")


@pytest.mark.parametrize(
    "arch", ["sm_9", "sm_80a", "sm_90f", "sm_90b", "compute_80", "80", "SM_80", "sm_80 ", "", 80, None]
)
def test_names_of_none(arch):
    with pytest.raises(ToolchainError, match=r"is not a GPU architecture; write it like 'sm_80', 'sm_90a'"):
        toolchain.checked_arch(arch)


def test_an_architecture_that_no_library_knows():
    known = r"sm_130 is not known to this CUDA toolkit, which compiles for sm_\d+, .*sm_90, .*sm_120"
    with pytest.raises(ToolchainError, match=known + r".* \(libNVVM: "):
        mf.compile(mf.relu, "matmul", dtype="float32", arch="sm_130")
    with pytest.raises(ToolchainError, match=known + r".* \(NVRTC: "):
        toolchain.nvrtc(KERNEL, "sm_130")
    with pytest.raises(ToolchainError, match=known + "[^(]*$"):
        toolchain.link([toolchain.nvrtc(KERNEL, "sm_80")], "sm_130")


def test_without_nvrtc_the_message_is_the_library_s_own(monkeypatch):
    monkeypatch.setattr("cuda.bindings.nvrtc.nvrtcGetSupportedArchs", lambda: 1 / 0)
    with pytest.raises(ToolchainError, match=r"libNVVM failed for sm_130: (?s:.*)compute_130"):
        toolchain.nvvm(FUNCTION, "sm_130", lto=True, fastmath=True)


# --- missing and old libraries --------------------------------------------------------------------------------------


@pytest.fixture
def installed(monkeypatch):
    """``installed(name, version)`` pretends; version None means not at all."""
    real = importlib.metadata.version

    def pretend(name, version):
        def found(asked):
            if asked != name:
                return real(asked)
            if version is None:
                raise importlib.metadata.PackageNotFoundError(name)
            return version

        monkeypatch.setattr(importlib.metadata, "version", found)

    return pretend


@pytest.mark.parametrize(("module", "package"), [("cuda.core", "cuda-core"), ("cuda.bindings", "cuda-bindings")])
def test_a_missing_package(monkeypatch, installed, module, package):
    monkeypatch.setitem(sys.modules, module, None)
    installed(package, None)
    message = rf"libNVVM is reached through Python packages, and {package} is not installed: {EXTRA}"
    with pytest.raises(ToolchainError, match=message):
        toolchain.nvvm(FUNCTION, "sm_80", lto=True, fastmath=True)


@pytest.mark.parametrize(("package", "version"), [("cuda-core", "0.3.2"), ("cuda-bindings", "12.8.1")])
def test_a_package_that_is_too_old(monkeypatch, installed, package, version):
    """It fails in some way or other; the version says why."""

    def options(**_):
        raise TypeError("unexpected keyword argument 'use_libdevice'")

    monkeypatch.setattr("cuda.core.ProgramOptions", options)
    installed(package, version)
    with pytest.raises(ToolchainError, match=rf"{package} {version} is too old \(1\S+ is needed\): {EXTRA}.*libdevice"):
        toolchain.nvvm(FUNCTION, "sm_80", lto=True, fastmath=True)


@pytest.mark.parametrize(
    ("library", "entry", "use"),
    [
        (
            "libNVVM",
            "cuda.bindings.nvvm.ir_version",
            lambda: toolchain.nvvm(FUNCTION, "sm_80", lto=True, fastmath=True),
        ),
        ("NVRTC", "cuda.core.Program", lambda: toolchain.nvrtc(KERNEL, "sm_80")),
        ("nvJitLink", "cuda.bindings.nvjitlink.create", lambda: toolchain.link([b""], "sm_80")),
    ],
    ids=["libNVVM", "NVRTC", "nvJitLink"],
)
def test_a_missing_library(monkeypatch, library, entry, use):
    from cuda.pathfinder import DynamicLibNotFoundError

    def fail(*_, **__):
        raise DynamicLibNotFoundError(f'Failure finding "lib{library}.so": No such file')

    monkeypatch.setattr(entry, fail)
    with pytest.raises(ToolchainError, match=rf"^{library} was not found: {EXTRA} .* brings it \(Failure finding"):
        use()


def test_a_missing_library_has_no_part_in_keys(monkeypatch):
    from cuda import pathfinder

    real = pathfinder.load_nvidia_dynamic_lib

    def load(name):
        if name == "nvrtc":
            raise pathfinder.DynamicLibNotFoundError("Failure finding")
        return real(name)

    toolchain.identity.cache_clear()
    monkeypatch.setattr(pathfinder, "load_nvidia_dynamic_lib", load)
    try:
        assert "libnvvm" in toolchain.identity() and "nvrtc" not in toolchain.identity()
    finally:
        toolchain.identity.cache_clear()


def test_code_that_is_newer_than_the_linker(monkeypatch):
    """As nvJitLink 12.9 says of LTO-IR of CUDA 13."""
    from cuda.bindings import nvjitlink

    def complete(handle):
        raise nvjitlink.nvJitLinkError(nvjitlink.Result.ERROR_INTERNAL)

    monkeypatch.setattr(nvjitlink, "complete", complete)
    log = "ERROR 4 in nvvmAddNVVMContainerToProgram, may need newer version of nvJitLink library"
    monkeypatch.setattr(toolchain, "_log", lambda *_: log)
    with pytest.raises(
        ToolchainError, match=rf"nvJitLink is older than the libNVVM or NVRTC .* one CUDA release: {EXTRA}"
    ):
        toolchain.link([toolchain.nvrtc(KERNEL, "sm_80")], "sm_80")


# --- errors in what is compiled -------------------------------------------------------------------------------------


def test_the_tools_are_quoted():
    with pytest.raises(ToolchainError, match=r"libNVVM failed for sm_80: (?s:.*)expected"):
        toolchain.nvvm("define nonsense", "sm_80", lto=True, fastmath=True)
    with pytest.raises(ToolchainError, match=r"NVRTC failed for sm_80: (?s:.*)identifier \"nonsense\" is undefined"):
        toolchain.nvrtc("__device__ int f() { return nonsense; }", "sm_80")
    with pytest.raises(ToolchainError, match=r"nvJitLink failed for sm_80: (?s:.*)does not match type"):
        toolchain.link([b"nonsense"], "sm_80")
    with pytest.raises(
        ToolchainError, match=r"nvJitLink failed for sm_80: (?s:.*)Unresolved extern function '_Z7missingv'"
    ):
        toolchain.link([toolchain.nvrtc("void missing(); __global__ void k() { missing(); }", "sm_80")], "sm_80")
    with pytest.raises(ToolchainError, match=r"nvdisasm failed: nvdisasm fatal"):
        toolchain.disassemble(b"nonsense")


# --- options --------------------------------------------------------------------------------------------------------


def test_fastmath_is_in_the_code_and_not_in_the_link():
    """cuFFT links as it likes: what fastmath allows must be in the LTO-IR."""
    divide = FUNCTION.replace("fmul float %x, 5.000000e-01", "fdiv float 1.000000e+00, %x")
    ptx = {fast: toolchain.nvvm(divide, "sm_80", lto=False, fastmath=fast).decode() for fast in (True, False)}
    assert "div.full.ftz.f32" in ptx[True] or "rcp.approx.ftz.f32" in ptx[True]
    assert "rcp.rn.f32" in ptx[False] or "div.rn.f32" in ptx[False]


def test_the_link_reports_resources():
    cubin, log = toolchain.link([toolchain.nvrtc(KERNEL, "sm_120")], "sm_120")
    assert cubin.startswith(b"\x7fELF")
    assert "Compiling entry function 'kernel' for 'sm_120'" in log and "0 bytes stack frame" in log
    assert "EXIT" in toolchain.disassemble(cubin)


# --- nvdisasm -------------------------------------------------------------------------------------------------------


def test_the_order_in_which_nvdisasm_is_sought(monkeypatch, tmp_path):
    """What cuda-pathfinder finds (wheels, conda, CUDA_PATH, CUDA_HOME), then the PATH, then the usual place."""
    tools = {}
    for name in ("wheel", "path"):
        tools[name] = tmp_path / name / "nvdisasm"
        tools[name].parent.mkdir()
        tools[name].write_text("#!/bin/sh\n")
        tools[name].chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "path"), prepend=os.pathsep)
    monkeypatch.setattr("cuda.pathfinder.find_nvidia_binary_utility", lambda name: str(tools["wheel"]))
    assert toolchain.nvdisasm() == str(tools["wheel"])
    monkeypatch.setattr("cuda.pathfinder.find_nvidia_binary_utility", lambda name: None)
    assert toolchain.nvdisasm() == str(tools["path"])
    monkeypatch.setattr("shutil.which", lambda name, path=None: f"{path}/nvdisasm" if path else None)
    assert toolchain.nvdisasm() == "/usr/local/cuda/bin/nvdisasm"
    monkeypatch.setattr("shutil.which", lambda name, path=None: None)
    with pytest.raises(ToolchainError, match=rf"nvdisasm is needed .* was not found: {EXTRA}"):
        toolchain.nvdisasm()
