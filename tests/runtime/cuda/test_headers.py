"""The tables against NVIDIA's headers, where they are found: prototypes, constants, and one structure."""

from __future__ import annotations

import ctypes
import os
import re
from pathlib import Path

import pytest

from mathfuse.runtime.cuda import cufft, devices, kernels, memory, streams

# What a C type is called in the table: handles and addresses are all pointers.
_INTEGERS = {
    "int": "i",
    "unsigned int": "u",
    "long long int": "l",
    "size_t": "n",
    "CUdeviceptr": "d",
    "cufftHandle": "i",
    "cufftType": "i",
    "cufftXtCallbackType": "i",
    "CUdevice": "i",
    "CUdevice_attribute": "i",
    "CUfunction_attribute": "i",
    "CUpointer_attribute": "i",
    "CUresult": "i",
    "CUkernelNodeAttrID": "i",
    "CUstreamCaptureMode": "i",
    "float": "f",
}
OLDEST = {"cuStreamGetCaptureInfo"}  # under its plain name a library has the oldest version, which is declared last
_HANDLES = {"CUcontext", "CUmodule", "CUfunction", "CUkernel", "CUstream", "CUevent", "cudaStream_t"}
_HANDLES |= {"CUgraph", "CUgraphNode"}


def header(name: str) -> str:
    """Its text, without comments."""
    for folder in _folders():
        if (path := folder / name).is_file():
            return re.sub(r"/\*.*?\*/|//[^\n]*", "", path.read_text(errors="replace"), flags=re.DOTALL)
    pytest.skip(f"{name} is not installed")


def _folders():
    try:
        from cuda.pathfinder import find_nvidia_header_directory
    except ImportError:  # from cuda-pathfinder 1.2 on
        found = []
    else:
        found = [find_nvidia_header_directory(name) for name in ("cufft", "cudart")]
    yield from (Path(folder) for folder in found if folder)
    if toolkit := os.environ.get("CUDA_PATH"):
        yield Path(toolkit) / "include"
    yield from sorted(Path("/usr/local").glob("cuda*/include"), reverse=True)


def prototype(text: str, result: str, name: str) -> str:
    """The letters of a function's arguments as its header has them."""
    found = re.findall(rf"\b{result}\s+\w*API\s+{name}\s*\(([^;]*?)\)\s*;", text)
    assert found, f"{name} is not in the header"
    return "".join(_letter(argument) for argument in found[-1 if name in OLDEST else 0].split(","))


def _letter(argument: str) -> str:
    kind = re.sub(r"\bconst\b", "", argument)
    if "*" in kind:
        return "s" if re.match(r"\s*char\s*\*", kind) and "name" in kind and "const" in argument else "*"
    kind = " ".join(kind.split()[:-1])
    return "p" if kind in _HANDLES else _INTEGERS[kind]


def same(ours: str, theirs: str) -> bool:
    """Whether two prototypes are one; addresses that are handed over and addresses that are filled look the same."""
    return ours.replace("p", "*") == theirs.replace("p", "*")


def constant(text: str, name: str) -> int:
    """An enumerator's or macro's number."""
    match = re.search(rf"\b{name}\s*=?\s*(0x[0-9a-fA-F]+|\d+)", text)
    assert match, f"{name} is not in the header"
    return int(match[1], 0)


@pytest.mark.parametrize("name", devices.PROTOTYPES)
def test_the_driver_s_prototypes(name):
    text = header("cuda.h")
    plain = name.removesuffix("_v2")
    # cuda.h maps a plain name to its second version by a macro and declares the plain one; some have no macro.
    declared = plain if plain == name or re.search(rf"#define {plain}\s+.*{name}|{plain} +__CUDA", text) else name
    letters = prototype(text, "CUresult", declared)
    assert same(devices.PROTOTYPES[name], letters), letters


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT", devices.MULTIPROCESSOR_COUNT),
        ("CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE", devices.L2_CACHE_SIZE),
        ("CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE", devices.MEMORY_CLOCK_RATE),
        ("CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH", devices.MEMORY_BUS_WIDTH),
        ("CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR", devices.CAPABILITY_MAJOR),
        ("CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR", devices.CAPABILITY_MINOR),
        ("CUDA_ERROR_OUT_OF_MEMORY", devices.OUT_OF_MEMORY),
        ("CUDA_ERROR_NOT_READY", devices.NOT_READY),
        ("CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", devices.STREAM_CAPTURE_IMPLICIT),
        ("CU_STREAM_CAPTURE_MODE_RELAXED", devices.CAPTURE_RELAXED),
        ("CU_STREAM_CAPTURE_STATUS_NONE", devices.CAPTURE_STATUS_NONE),
        ("CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK", kernels.MAX_THREADS_PER_BLOCK),
        ("CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES", kernels.LOCAL_SIZE_BYTES),
        ("CU_FUNC_ATTRIBUTE_NUM_REGS", kernels.NUM_REGS),
        ("CU_EVENT_DISABLE_TIMING", streams.DISABLE_TIMING),
        ("CU_POINTER_ATTRIBUTE_MEMORY_TYPE", memory.MEMORY_TYPE),
        ("CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL", memory.DEVICE_ORDINAL),
        ("CU_MEMORYTYPE_HOST", memory.HOST_MEMORY),
    ],
)
def test_the_driver_s_numbers(name, number):
    assert constant(header("cuda.h"), name) == number


def test_the_launch_configuration():
    (body,) = re.findall(r"typedef struct CUlaunchConfig_st \{(.*?)\} CUlaunchConfig;", header("cuda.h"), re.DOTALL)
    theirs = [line.split() for line in body.replace("*", " * ").split(";") if line.strip()]
    ours = [(name, kind) for name, kind in kernels.Configuration._fields_]
    assert [words[-1] for words in theirs] == [name for name, _ in ours]
    assert [words[0] == "unsigned" for words in theirs] == [kind is ctypes.c_uint for _, kind in ours]


@pytest.mark.parametrize("name", [*cufft.PROTOTYPES, "cufftXtSetJITCallback"])
def test_cufft_s_prototypes(name):
    text = header("cufft.h") + header("cufftXt.h")
    letters = prototype(text, "cufftResult", name)
    ours = cufft.PROTOTYPES.get(name, cufft.SET_CALLBACK_PROTOTYPE)
    assert same(ours, letters), letters


_TYPES = {
    ("c2c", False): "CUFFT_C2C",
    ("r2c", False): "CUFFT_R2C",
    ("c2r", False): "CUFFT_C2R",
    ("c2c", True): "CUFFT_Z2Z",
    ("r2c", True): "CUFFT_D2Z",
    ("c2r", True): "CUFFT_Z2D",
}
_ELEMENTS = {"complex64": "COMPLEX", "complex128": "COMPLEX_DOUBLE", "float32": "REAL", "float64": "REAL_DOUBLE"}


def test_cufft_s_numbers():
    text = header("cufft.h")
    for key, name in _TYPES.items():
        assert constant(text, name) == cufft.TYPES[key]
    assert constant(text, "CUFFT_INVERSE") == cufft.INVERSE
    assert re.search(r"#define CUFFT_FORWARD\s+-1\b", text)
    results = {name: int(number, 16) for name, number in re.findall(r"(CUFFT_[A-Z_]+)\s*=\s*(0x[0-9A-F]+)", text)}
    listed = re.search(r"typedef enum cufftResult_t \{(.*?)\}", text, re.DOTALL)
    for name in re.findall(r"CUFFT_\w+", listed[1]):
        assert name == "CUFFT_SUCCESS" or cufft.RESULTS[results[name]] == name


def test_cufft_s_callback_types():
    text = header("cufftXt.h")
    for (side, element), number in cufft.CALLBACKS.items():
        name = f"CUFFT_CB_{'LD' if side == 'prolog' else 'ST'}_{_ELEMENTS[element]}"
        assert constant(text, name) == number
