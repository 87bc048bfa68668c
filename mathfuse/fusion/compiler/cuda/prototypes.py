"""The exact prototypes through which GPU pipelines call a callback.

nvJitLink links a callback of another prototype without a word and leaves a call behind.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mathfuse.runtime.errors import UnsupportedError

# cuFFT documentation, "LTO load and store callback routines": the C++ names are found by their mangled form.
CUFFT_NAMES = {"float32": "Real", "float64": "DoubleReal", "complex64": "Complex", "complex128": "DoubleComplex"}
CPP_TYPES = {"float32": "float", "float64": "double", "complex64": "float2", "complex128": "double2"}
MANGLED_TYPES = {"float32": "f", "float64": "d", "complex64": "6float2", "complex128": "7double2"}


@dataclass(frozen=True)
class Prototype:
    """A C++ device function: how it is declared, what it is called once mangled, and how a pipeline calls it.

    ``declaration`` has the place ``{name}`` for the function's name, ``stand_in`` the body of a kernel that calls it as
    the pipeline does; ``data`` and ``info`` are its parameters.
    """

    name: str
    symbol: str
    declaration: str
    stand_in: str


def cufft_prototype(side: str, dtype: np.dtype) -> Prototype:
    """cuFFT's load (``side="prolog"``) or store (``"epilog"``) callback for elements of ``dtype``."""
    if str(dtype) not in CUFFT_NAMES:
        raise UnsupportedError(f"cuFFT has no callbacks for {dtype}; it has them for {', '.join(CUFFT_NAMES)}")
    kind, element = CUFFT_NAMES[str(dtype)], CPP_TYPES[str(dtype)]
    if side == "prolog":
        name = f"cufftJITCallbackLoad{kind}"
        return Prototype(
            name,
            f"_Z{len(name)}{name}PvyS_S_",
            f"__device__ {element} {{name}}(void* data, unsigned long long offset, void* info, void* shared);",
            f"(({element}*)data)[count + thread] = {{name}}(data, thread, info, shared);",
        )
    name, mangled = f"cufftJITCallbackStore{kind}", MANGLED_TYPES[str(dtype)]
    return Prototype(
        name,
        f"_Z{len(name)}{name}Pvy{mangled}S_S_",
        f"__device__ void {{name}}(void* data, unsigned long long offset, {element} value, void* info, void* shared);",
        f"{{name}}(data, thread, (({element}*)data)[count + thread], info, shared);",
    )


def transfer_prototype(dtype: np.dtype) -> Prototype:
    """What is done to an element of a spectrum between two transforms of one kernel: which line, and which of it."""
    element, name = CPP_TYPES[str(dtype)], f"mathfuse_transfer_{dtype}"
    return Prototype(
        name,
        f"_Z{len(name)}{name}{MANGLED_TYPES[str(dtype)]}yyPv",
        f"__device__ {element} {{name}}({element} value, unsigned long long line, unsigned long long number, "
        "void* info);",
        f"(({element}*)data)[thread] = {{name}}((({element}*)data)[count + thread], blockIdx.y, thread, info);",
    )


def matmul_prototype(dtype: np.dtype) -> Prototype:
    """The epilog of a matrix product: the accumulator at (row, column) of one matrix of the batch, before rounding."""
    if str(dtype) not in CPP_TYPES:
        raise UnsupportedError(f"a product is not computed in {dtype}; compute types are {', '.join(CPP_TYPES)}")
    element, name = CPP_TYPES[str(dtype)], f"mathfuse_epilog_{dtype}"
    return Prototype(
        name,
        f"_Z{len(name)}{name}{MANGLED_TYPES[str(dtype)]}xxxPKv",
        f"__device__ {element} {{name}}({element} value, long long batch, long long row, long long column, "
        "const void* info);",
        f"(({element}*)data)[thread] = {{name}}((({element}*)data)[count + thread], blockIdx.z, blockIdx.y, thread, "
        "info);",
    )
