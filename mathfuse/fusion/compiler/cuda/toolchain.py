"""NVIDIA's compilers through cuda.core and cuda.bindings: libNVVM, NVRTC, nvJitLink, and the disassembler.

No driver is needed.
"""

from __future__ import annotations

import functools
import importlib.metadata
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from mathfuse.fusion.compiler.key import versions
from mathfuse.runtime.errors import ToolchainError

EXTRAS = 'pip install "mathfuse[cu13]" (or [cu12])'
OLDEST = {"cuda-core": (1, 2), "cuda-bindings": (12, 9), "cuda-pathfinder": (1, 4)}
# libNVVM reads LLVM 7's dialect up to Hopper, a modern one for what came after; they differ in how `byval` is written.
FIRST_MODERN, TYPED_BYVAL = 100, re.compile(r"\bbyval\([^()]*\)")
ARCH = re.compile(r"sm_(?:(\d{2,3})|(9\d|1\d\d)a|(1\d\d)f)")


# --- errors ---------------------------------------------------------------------------------------------------------


@contextmanager
def _needing(library: str, arch: str = "") -> Iterator[None]:
    """Turns whatever goes wrong in a library into a ToolchainError that says what to do."""
    try:
        yield
    except ToolchainError:
        raise
    except Exception as error:
        raise ToolchainError(_diagnosis(library, arch, error)) from error


def _diagnosis(library: str, arch: str, error: Exception) -> str:
    """What is wrong with a library, from the most to the least certain; the tool's own words come last."""
    text = str(error).replace("\0", "").strip()
    if packages := _unfit_packages():
        return f"{library} is reached through Python packages, and {packages}: {EXTRAS} ({text})"
    if isinstance(error, ImportError) or text.startswith("Failure finding"):  # so begin cuda-pathfinder's messages
        return f"{library} was not found: {EXTRAS} brings it ({text})"
    if "may need newer version of nvJitLink" in text:
        return (
            f"{library} is older than the libNVVM or NVRTC that made the code; "
            f"all must be of one CUDA release: {EXTRAS} ({text})"
        )
    if arch and (unknown := _unknown(arch)):
        return f"{unknown} ({library}: {text})"
    return f"{library} failed{f' for {arch}' if arch else ''}: {text}"


def _unfit_packages() -> str:
    """Which of the Python packages are missing or too old, or nothing."""
    unfit = []
    for name, oldest in OLDEST.items():
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            unfit.append(f"{name} is not installed")
            continue
        if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < oldest:
            unfit.append(f"{name} {version} is too old ({'.'.join(map(str, oldest))} is needed)")
    return ", ".join(unfit)


def _unknown(arch: str) -> str:
    """What to say of an architecture that the installed toolkit does not know; nothing of others, or without NVRTC."""
    try:
        from cuda.bindings import nvrtc

        known = nvrtc.nvrtcGetSupportedArchs()[1]
    except Exception:  # whoever needs NVRTC will say so
        return ""
    names = ", ".join(f"sm_{number}" for number in known)
    return "" if _number(arch) in known else f"{arch} is not known to this CUDA toolkit, which compiles for {names}"


# --- compilers ------------------------------------------------------------------------------------------------------


def nvvm(text: str, arch: str, *, lto: bool, fastmath: bool) -> bytes:
    """Compiles NVVM IR with libNVVM: LTO-IR, or PTX as bytes."""
    with _needing("libNVVM", arch):
        from cuda.bindings import nvvm as binding
        from cuda.core import Program, ProgramOptions

        version = ", ".join(f"i32 {n}" for n in binding.ir_version())
        if _number(arch) < FIRST_MODERN:
            text = TYPED_BYVAL.sub("byval", text)
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
    with _needing("NVRTC", arch):
        from cuda.core import Program, ProgramOptions

        options = ProgramOptions(
            arch=arch, std="c++17", link_time_optimization=True, device_as_default_execution_space=True
        )
        return bytes(Program(source, "c++", options).compile("ltoir").code)


def link(parts: Sequence[bytes], arch: str) -> tuple[bytes, str]:
    """Links LTO-IR with nvJitLink: ``(cubin, log)``; the log has ptxas' resource report.

    No option on precision is given, as in a link inside cuFFT: what fastmath allows is in the LTO-IR already.
    """
    with _needing("nvJitLink", arch):
        from cuda.bindings import nvjitlink

        if unknown := _unknown(arch):  # nvJitLink 12.9 would crash
            raise ToolchainError(unknown)
        flags = [f"-arch={arch}", "-lto", "-Xptxas=-v", "-verbose", "-no-cache"]  # a cached link has no report
        handle = nvjitlink.create(len(flags), flags)
        try:
            for number, part in enumerate(parts):
                nvjitlink.add_data(handle, nvjitlink.InputType.LTOIR, part, len(part), f"part{number}")
            nvjitlink.complete(handle)
            cubin = bytearray(nvjitlink.get_linked_cubin_size(handle))
            nvjitlink.get_linked_cubin(handle, cubin)
            return bytes(cubin), _log(nvjitlink, handle, "info")
        except nvjitlink.nvJitLinkError as error:
            raise RuntimeError(f"{error}\n{_log(nvjitlink, handle, 'error')}") from error
        finally:
            nvjitlink.destroy(handle)


def _log(nvjitlink: ModuleType, handle: int, kind: str) -> str:
    text = bytearray(getattr(nvjitlink, f"get_{kind}_log_size")(handle))
    if text:
        getattr(nvjitlink, f"get_{kind}_log")(handle, text)
    return text.decode(errors="replace").strip("\0")


# --- disassembler ---------------------------------------------------------------------------------------------------


def disassemble(cubin: bytes) -> str:
    """The machine code of a cubin as nvdisasm prints it."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run([nvdisasm(), "-c", file.name], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ToolchainError(f"nvdisasm failed: {done.stderr.strip()} ({nvdisasm()})")
    return done.stdout


def nvdisasm() -> str:
    """Path of the disassembler: NVIDIA's wheel, conda, CUDA_PATH or CUDA_HOME, then the PATH, then /usr/local/cuda."""
    with _needing("nvdisasm"):
        from cuda import pathfinder

        found = (
            pathfinder.find_nvidia_binary_utility("nvdisasm")
            or shutil.which("nvdisasm")
            or shutil.which("nvdisasm", path="/usr/local/cuda/bin")
        )
    if not found:
        raise ToolchainError(f"nvdisasm is needed to read machine code and was not found: {EXTRAS} brings it")
    return found


# --- names and versions ---------------------------------------------------------------------------------------------


def checked_arch(arch: str) -> str:
    """``arch`` if it is a name like ``sm_90a``, else an error that shows one."""
    if not isinstance(arch, str) or not ARCH.fullmatch(arch):
        raise ToolchainError(
            f"{arch!r} is not a GPU architecture; write it like 'sm_80', 'sm_90a', 'sm_100' or 'sm_120'"
        )
    return arch


def compute_of(arch: str) -> str:
    """libNVVM's name of an architecture; LTO-IR of the plain variant links for the ``a`` variant, too."""
    return f"compute_{_number(arch)}"


def _number(arch: str) -> int:
    return int(checked_arch(arch).strip("sm_af"))


@functools.cache
def identity() -> str:
    """What the compiler libraries are, wherever they come from: packages, names of the files, and their sizes.

    A library that is missing has no part in it.
    """
    found = [versions("cuda-core", "cuda-bindings")]
    with _needing("libNVVM"):
        from cuda import pathfinder

        for name in ("nvvm", "nvrtc", "nvJitLink"):
            try:
                path = Path(pathfinder.load_nvidia_dynamic_lib(name).abs_path).resolve()
            except pathfinder.DynamicLibNotFoundError:
                continue
            found.append(f"{path.name} {path.stat().st_size}")
    return ", ".join(found)
