"""NVIDIA's compiler libraries, through cuda.core and cuda.bindings: libNVVM, NVRTC, nvJitLink, and the disassembler. No driver needed."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from mathfuse.runtime.errors import ToolchainError

EXTRAS = 'pip install "mathfuse[cu13]" (or [cu12])'


@contextmanager
def _needing(what: str) -> Iterator[None]:
    """Turns a missing or failing library into a ToolchainError that names it."""
    try:
        yield
    except ToolchainError:
        raise
    except ImportError as error:
        raise ToolchainError(f"{what} is needed and not installed: {EXTRAS} ({error})") from error
    except Exception as error:
        if "NotFound" in type(error).__name__ or "Unable to load" in str(error) or "not found" in str(error).lower():
            raise ToolchainError(f"{what} was not found: {EXTRAS} ({error})") from error
        raise ToolchainError(f"{what} failed: {error}") from error


def nvvm(text: str, arch: str, *, lto: bool, fastmath: bool) -> bytes:
    """Compiles NVVM IR with libNVVM: LTO-IR, or PTX as bytes."""
    with _needing("libNVVM (through cuda-core)"):
        from cuda.bindings import nvvm as binding
        from cuda.core import Program, ProgramOptions

        version = ", ".join(f"i32 {n}" for n in binding.ir_version())
        text += f"\n!nvvmir.version = !{{!1000000}}\n!1000000 = !{{{version}}}\n"
        options = ProgramOptions(
            arch=compute_of(arch),
            link_time_optimization=lto or None,
            ftz=fastmath,
            prec_div=not fastmath,
            prec_sqrt=not fastmath,
            fma=fastmath,
            use_libdevice=True,
        )
        code = Program(text, "nvvm", options).compile("ltoir" if lto else "ptx").code
    return bytes(code)


def nvrtc(source: str, arch: str) -> bytes:
    """Compiles CUDA C++ to LTO-IR with NVRTC."""
    with _needing("NVRTC (through cuda-core)"):
        from cuda.core import Program, ProgramOptions

        options = ProgramOptions(
            arch=arch, std="c++17", link_time_optimization=True, device_as_default_execution_space=True
        )
        return bytes(Program(source, "c++", options).compile("ltoir").code)


def link(parts: Sequence[bytes], arch: str) -> tuple[bytes, str]:
    """Links LTO-IR with nvJitLink: ``(cubin, log)``; the log has ptxas' resource report.

    No option on precision is given, as in a link inside cuFFT: what fastmath allows is in the LTO-IR already.
    """
    with _needing("nvJitLink"):
        from cuda.bindings import nvjitlink

        flags = [f"-arch={arch}", "-lto", "-Xptxas=-v", "-verbose"]
        handle = nvjitlink.create(len(flags), flags)
        try:
            try:
                for number, part in enumerate(parts):
                    nvjitlink.add_data(handle, nvjitlink.InputType.LTOIR, part, len(part), f"part{number}")
                nvjitlink.complete(handle)
            except nvjitlink.nvJitLinkError as error:
                raise ToolchainError(
                    f"nvJitLink failed for {arch}: {error}\n{_log(nvjitlink, handle, 'error')}"
                ) from error
            cubin = bytearray(nvjitlink.get_linked_cubin_size(handle))
            nvjitlink.get_linked_cubin(handle, cubin)
            return bytes(cubin), _log(nvjitlink, handle, "info")
        finally:
            nvjitlink.destroy(handle)


def _log(nvjitlink: ModuleType, handle: int, kind: str) -> str:
    size = getattr(nvjitlink, f"get_{kind}_log_size")(handle)
    text = bytearray(size)
    if size:
        getattr(nvjitlink, f"get_{kind}_log")(handle, text)
    return text.decode(errors="replace").strip("\0")


def disassemble(cubin: bytes) -> str:
    """The machine code of a cubin as nvdisasm prints it."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run([nvdisasm(), "-c", file.name], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ToolchainError(f"nvdisasm failed: {done.stderr.strip()}")
    return done.stdout


@functools.cache
def nvdisasm() -> str:
    """Path of the disassembler: NVIDIA's wheel, the PATH, or a CUDA toolkit."""
    with _needing("nvdisasm"):
        import importlib.metadata

        for name in ("nvidia-cuda-nvdisasm", "nvidia-cuda-nvdisasm-cu12", "nvidia-cuda-nvcc", "nvidia-cuda-nvcc-cu12"):
            try:
                files = importlib.metadata.files(name) or []
            except importlib.metadata.PackageNotFoundError:
                continue
            for file in files:
                path = Path(str(file.locate()))
                if path.name == "nvdisasm" and path.exists():
                    return str(path)
        found = shutil.which("nvdisasm") or shutil.which("nvdisasm", path="/usr/local/cuda/bin")
        if found:
            return found
    raise ToolchainError(f"nvdisasm is needed to read machine code and was not found: {EXTRAS} brings it")


ARCH = re.compile(r"sm_(\d{2,3})([af]?)")


def checked_arch(arch: str) -> str:
    """``arch`` if it is a name like ``sm_90a``, else an error that shows one."""
    if not isinstance(arch, str) or not ARCH.fullmatch(arch):
        raise ToolchainError(
            f"{arch!r} is not a GPU architecture; write it like 'sm_80', 'sm_90a', 'sm_100' or 'sm_120'"
        )
    return arch


def compute_of(arch: str) -> str:
    """libNVVM's name of an architecture; LTO-IR of the plain variant links for the ``a`` variant, too."""
    match = ARCH.fullmatch(checked_arch(arch))
    assert match
    return f"compute_{match[1]}"
