"""cuFFT's raw callback signature: exact prototypes, inlined, with no GPU; what a wrong use is told."""

from __future__ import annotations

import numpy as np
import pytest

import mathfuse as mf
from mathfuse.fusion.compiler.cuda import artifacts, toolchain
from mathfuse.fusion.compiler.cuda.audit import audit
from mathfuse.fusion.compiler.cuda.interface import make_unit
from mathfuse.runtime.errors import CallbackError, ToolchainError, UnsupportedError

ARCHS = ("sm_80", "sm_90a", "sm_100", "sm_120")
DTYPES = ("float32", "float64", "complex64", "complex128")


def read(data_in, offset, user_info, reserved):
    return data_in[offset] * user_info[offset] * 0.5


def write(data_out, offset, data, user_info, reserved):
    data_out[offset] = data * user_info[offset] + 1 / 3


COMPILE = {"prolog": (mf.fft.compile_prolog, read), "epilog": (mf.fft.compile_epilog, write)}


def raw(side: str, dtype: str, info: str, capability: object = "80") -> bytes:
    compile_raw, function = COMPILE[side]
    return compile_raw(function, dtype, info, compute_capability=capability)


@pytest.mark.parametrize("arch", ARCHS)
def test_all_eight_are_inlined_into_what_calls_cufft_s_prototypes(arch):
    """Linked by cuFFT's own mangled names into the stand-ins that audit every other callback."""
    places = [(side, dtype) for side in COMPILE for dtype in DTYPES]
    units = [make_unit(mf.scale(factor=1.0), "fft", dtype, {}, arch, side) for side, dtype in places]
    info = {dtype: np.empty(0, dtype).real.dtype.name for dtype in DTYPES}
    parts = [raw(side, dtype, info[dtype], arch) for side, dtype in places]
    kernels = toolchain.nvrtc("\n".join(artifacts.stand_in(u, number) for number, u in enumerate(units)), arch)
    cubin, log = toolchain.link([*parts, kernels], arch)
    found = audit(toolchain.disassemble(cubin), log)
    for number, (unit, (side, dtype)) in enumerate(zip(units, places)):
        seen = found[artifacts.kernel_of(unit, number)]
        assert (seen.calls, seen.helper_calls, seen.local_memory_bytes) == (0, 0, 0), (side, dtype)
        assert bool(seen.float64_instructions) == (dtype in ("float64", "complex128")), (side, dtype)


@pytest.mark.parametrize("capability", ["90", "9.0", "sm_90", (9, 0), 90])
def test_ways_to_write_a_compute_capability(capability):
    assert raw("epilog", "complex64", "float32", capability) == raw("epilog", "complex64", "float32", "sm_90")


def test_every_type_gives_code_of_its_own():
    kinds = [(dtype, info) for dtype in DTYPES for info in ("float32", "float64", "int32")]
    assert len({raw(side, *kind) for side in COMPILE for kind in kinds}) == 2 * len(kinds)


def few(data_in, offset):
    return data_in[offset]


def test_wrong_uses():
    with pytest.raises(CallbackError, match=r"few must take 4 parameters: \(data_in, offset, user_info, reserved\)"):
        mf.fft.compile_prolog(few, "complex64", "float32", compute_capability="80")
    with pytest.raises(UnsupportedError, match="cuFFT has no callbacks for int32; it has them for float32"):
        mf.fft.compile_prolog(read, "int32", "float32", compute_capability="80")
    with pytest.raises(UnsupportedError, match="user_info_dtype='S3' is not supported"):
        mf.fft.compile_prolog(read, "float32", "S3", compute_capability="80")
    with pytest.raises(ToolchainError, match="is not a GPU architecture"):
        mf.fft.compile_prolog(read, "float32", "float32", compute_capability="fast")
    with pytest.raises(CallbackError, match=r"complex value where what the transform reads is float32"):
        raw("prolog", "float32", "complex64")
