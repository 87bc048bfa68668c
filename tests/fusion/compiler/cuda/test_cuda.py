"""``mathfuse.compile``: prototypes, memory accesses, arguments; and the audit where there is something to find."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import mathfuse as mf
from mathfuse import cli
from mathfuse.cli.compile import load
from mathfuse.fusion.compiler.cuda import artifacts, toolchain
from mathfuse.fusion.compiler.cuda.audit import Audit, audit
from mathfuse.fusion.compiler.cuda.interface import make_unit
from mathfuse.fusion.compiler.cuda.units import PIPELINES
from mathfuse.runtime.errors import CallbackError, PlanError, ToolchainError, UnsupportedError

ROOT = Path(__file__).parents[4]
ARCHS = ("sm_80", "sm_90a", "sm_100", "sm_120")
DTYPES = ("float32", "float64", "complex64", "complex128")


# --- prototypes -----------------------------------------------------------------------------------------------------

# The mangled names of cuFFT's eight LTO callbacks, and of the epilogs that a product calls.
SYMBOLS = {
    ("fft", "prolog", "float32"): "_Z24cufftJITCallbackLoadRealPvyS_S_",
    ("fft", "prolog", "float64"): "_Z30cufftJITCallbackLoadDoubleRealPvyS_S_",
    ("fft", "prolog", "complex64"): "_Z27cufftJITCallbackLoadComplexPvyS_S_",
    ("fft", "prolog", "complex128"): "_Z33cufftJITCallbackLoadDoubleComplexPvyS_S_",
    ("fft", "epilog", "float32"): "_Z25cufftJITCallbackStoreRealPvyfS_S_",
    ("fft", "epilog", "float64"): "_Z31cufftJITCallbackStoreDoubleRealPvydS_S_",
    ("fft", "epilog", "complex64"): "_Z28cufftJITCallbackStoreComplexPvy6float2S_S_",
    ("fft", "epilog", "complex128"): "_Z34cufftJITCallbackStoreDoubleComplexPvy7double2S_S_",
    ("matmul", "epilog", "float32"): "_Z23mathfuse_epilog_float32fxxxPKv",
    ("matmul", "epilog", "float64"): "_Z23mathfuse_epilog_float64dxxxPKv",
    ("matmul", "epilog", "complex64"): "_Z25mathfuse_epilog_complex646float2xxxPKv",
    ("matmul", "epilog", "complex128"): "_Z26mathfuse_epilog_complex1287double2xxxPKv",
}


@pytest.mark.parametrize("arch", ARCHS)
def test_every_prototype_links_by_its_mangled_name_and_is_inlined(arch):
    """The stand-in kernels declare C++ functions; NVRTC mangles their names itself."""
    units = [make_unit(mf.scale(factor=3), pipeline, dtype, {}, arch, side) for pipeline, side, dtype in SYMBOLS]
    assert [unit.prototype.symbol for unit in units] == list(SYMBOLS.values())
    found = artifacts.audit_all(units)
    assert [(a.calls, a.helper_calls, a.local_memory_bytes) for a in found.values()] == [(0, 0, 0)] * len(SYMBOLS)


def test_ltoir_alone_has_the_symbol():
    compiled = mf.compile(mf.relu, "matmul", dtype="float32", arch="sm_80")
    assert re.search(r"\.visible \.func +\(\.param.*\) _Z23mathfuse_epilog_float32fxxxPKv\(", compiled.ptx)
    assert ".target sm_80" in compiled.ptx


# --- memory ---------------------------------------------------------------------------------------------------------

WIDTH = {"float32": "", "float64": ".64", "complex64": ".64", "complex128": ".128"}


@pytest.fixture(scope="module", params=["sm_80", "sm_90a", "sm_120"])
def accesses(request):
    """By dtype and pipeline: the loads and stores of a kernel that multiplies by an array."""

    def unit(dtype, pipeline):
        symbol = f"{pipeline}_{dtype}"
        made = make_unit(mf.multiply, pipeline, dtype, {"factor": f"{dtype}[1]"}, request.param, symbol=symbol)
        return replace(made, in_place=True)  # what a kernel of its own reads elsewhere is a constant, too

    units = {(dtype, pipeline): unit(dtype, pipeline) for dtype in DTYPES for pipeline in PIPELINES}
    sass = toolchain.disassemble(artifacts.link_units([artifacts.Compiled(unit) for unit in units.values()]).payload)
    _, *parts = re.split(r"\.section\s+\.text\.(\w+),", sass)
    sections = dict(zip(parts[::2], parts[1::2]))
    return {
        key: re.findall(r"\b(?:LD|ST)(?:\.|G\.)E\S*", sections[artifacts.kernel_of(unit, number)])
        for number, (key, unit) in enumerate(units.items())
    }


@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_an_element_moves_as_one_access(accesses, dtype, pipeline):
    """Of global memory; so many loads as stores, since a thread takes several elements."""
    found, width = accesses[dtype, pipeline], WIDTH[dtype]
    stores = [name for name in found if name.startswith("ST")]
    loads = [name for name in found if name.startswith("LD") and not name.endswith(".CONSTANT")]
    assert set(stores) == {f"STG.E{width}"}
    assert loads == [f"LDG.E{width}"] * len(stores)
    assert f"LDG.E{width}.CONSTANT" in found  # the operand, never written to


@pytest.mark.parametrize("dtype", DTYPES)
def test_operands_are_loaded_as_invariant(dtype):
    """Vectors of two for complex types: one access of 8 or 16 bytes."""
    ptx = mf.compile(mf.multiply, "elementwise", dtype=dtype, operands={"factor": f"{dtype}[1]"}, arch="sm_80").ptx
    pair, bits = (".v2" if "complex" in dtype else "", {"float32": 32, "complex64": 32}.get(dtype, 64))
    assert f"ld.global.nc{pair}.f{bits}" in ptx
    assert f"st.global{pair}.f{bits}" in ptx


def test_an_operand_that_is_assigned_to_is_not_invariant():
    @mf.epilog
    def accumulate(value, index, total):
        total[index[0]] = total[index[0]] + value
        return value

    @mf.epilog
    def read(value, index, total):
        return value + total[index[0]]

    options = {"dtype": "float32", "operands": {"total": "float32[1]"}, "arch": "sm_80"}
    assert "ld.global.nc.f32" not in mf.compile(accumulate, "matmul", **options).ptx
    assert "ld.global.nc.f32" in mf.compile(read, "matmul", **options).ptx


def test_a_prolog_reads_elements_of_their_own_size():
    """Pixels in, float32 out: one byte at ``data + offset``."""
    transform = make_unit(mf.scale(factor=0.5), "fft", "float32", {}, "sm_80", "prolog")
    pixels = replace(transform, signature=replace(transform.signature, value_dtype=np.dtype("uint8")))
    compiled = artifacts.Compiled(pixels)
    assert "ld.global.u8" in compiled.ptx and "LDG.E.U8" in compiled.sass
    assert "shl.b64" not in compiled.ptx and "shl.b64" in artifacts.Compiled(transform).ptx  # the offset in elements
    assert (compiled.audit.calls, compiled.audit.float64_instructions) == (0, 0)


# --- the audit where there is something to find ---------------------------------------------------------------------

# What a compiler that does not know the prototype makes of it: a complex argument as two floats, void as a pointer.
WRONG_PROTOTYPE = """
extern "C" void* _Z28cufftJITCallbackStoreComplexPvy6float2S_S_(
    void* data, unsigned long long offset, float real, float imag, void* info, void* shared)
{ ((float2*)data)[offset] = make_float2(2 * real, 2 * imag); return nullptr; }
"""
FAULTY_KERNELS = """
__noinline__ float library(float x, float* info) { return x * 3.f + info[0]; }
extern "C" __global__ void not_inlined(float* data, float* info) { data[threadIdx.x] = library(data[0], info); }
extern "C" __global__ void local_array(float* data, int* index)
{
    float values[32], sum = 0;
    for (int k = 0; k < 32; k++) values[k] = data[k] * k;
    for (int k = 0; k < 32; k++) sum += values[index[k] & 31];
    data[threadIdx.x] = sum;
}
extern "C" __global__ void __launch_bounds__(1024) spilling(float* data)
{
    float values[96];
    #pragma unroll
    for (int k = 0; k < 96; k++) values[k] = data[k * threadIdx.x];
    __syncthreads();
    #pragma unroll
    for (int k = 0; k < 96; k++) data[k * threadIdx.x + blockIdx.x] = values[k] * values[(k * 7) % 96];
}
"""


@pytest.mark.parametrize("arch", ARCHS)
def test_a_wrong_prototype_shows_as_a_call(arch):
    unit = make_unit(mf.scale(factor=2.0), "fft", "complex64", {}, arch)
    parts = [toolchain.nvrtc(source, arch) for source in (WRONG_PROTOTYPE, artifacts.stand_in(unit))]
    cubin, log = toolchain.link(parts, arch)
    assert audit(toolchain.disassemble(cubin), log)[artifacts.kernel_of(unit)].calls == 1


@pytest.mark.parametrize("arch", ARCHS)
def test_calls_and_local_memory_are_found(arch):
    cubin, log = toolchain.link([toolchain.nvrtc(FAULTY_KERNELS, arch)], arch)
    found = audit(toolchain.disassemble(cubin), log)
    assert (found["not_inlined"].calls, found["not_inlined"].helper_calls) == (1, 0)
    assert "library" in found["not_inlined"].call_targets[0]
    assert (found["local_array"].local_memory_bytes, found["local_array"].spill_bytes) == (128, 0)
    assert found["spilling"].spill_bytes >= 2 * 4 and found["spilling"].local_memory_bytes >= 4
    assert {name: f.calls for name, f in found.items()} == {"not_inlined": 1, "local_array": 0, "spilling": 0}


@pytest.mark.parametrize("arch", ARCHS)
def test_double_precision_and_ieee_division_are_found(arch):
    def widened(value):
        return value + 0.1 * np.float64(value)

    def divide(value):
        return value / (value + 1)

    callbacks = {
        "float64": mf.epilog(widened),
        "precision": mf.epilog(lambda value: value * 0.1, precision="float64"),
        "ieee": mf.epilog(divide, fastmath=False),
        "fast": mf.epilog(divide),
    }
    units = {
        name: make_unit(callback, "matmul", "float32", {}, arch, symbol=name) for name, callback in callbacks.items()
    }
    found = artifacts.audit_all(list(units.values()))
    float64, precision, ieee, fast = (found[unit] for unit in units.values())
    assert float64.float64_instructions >= 3 and precision.float64_instructions >= 3  # product and two conversions
    assert (ieee.calls, ieee.helper_calls, ieee.float64_instructions) == (0, 1, 0)
    assert (fast.calls, fast.helper_calls, fast.float64_instructions) == (0, 0, 0)


def test_many_elementwise_kernels_in_one_cubin():
    """Each by a symbol of its own, between callbacks of other pipelines."""
    places = [("elementwise", "float64"), ("fft", "float32"), ("elementwise", "float32"), ("matmul", "float64")]
    units = [
        make_unit(mf.scale(factor=2.0), pipeline, dtype, {}, "sm_90a", symbol=f"{pipeline}_{dtype}")
        for pipeline, dtype in places
    ]
    found = artifacts.audit_all(units)
    assert list(found) == units
    assert [bool(audit.float64_instructions) for audit in found.values()] == [True, False, False, True]
    assert artifacts.kernel_of(make_unit(mf.relu, "elementwise", "float32", {}, "sm_80")) == "mathfuse_elementwise"


# --- the object -----------------------------------------------------------------------------------------------------


def test_what_compile_gives():
    compiled = mf.compile(mf.gaussian(sigma=8.0), "fft", dtype="complex64", arch="sm_90a")
    assert isinstance(compiled.audit, Audit)
    assert (compiled.audit.calls, compiled.audit.float64_instructions, compiled.result_dtype) == (0, 0, np.complex64)
    assert compiled.ltoir and compiled.cubin.startswith(b"\x7fELF") and "EXIT" in compiled.sass
    shown = r"<Compiled gaussian\(sigma=8\.0\): fft epilog, complex64 to complex64, sm_90a, \d+ bytes of LTO-IR>"
    assert re.fullmatch(shown, repr(compiled))
    assert repr(mf.compile(mf.power_spectrum, "elementwise", dtype="complex64")).startswith(
        "<Compiled power_spectrum(): elementwise, complex64 to float32, sm_90a, "
    )


@pytest.mark.parametrize(
    ("dtype", "stored"),
    [("uint8", "float32"), ("int32", "float64"), ("float16", "float32"), ("complex128", "complex128")],
)
def test_elementwise_kernels_take_any_number(dtype, stored):
    compiled = mf.compile(mf.scale(factor=0.5), "elementwise", dtype=dtype)
    assert (compiled.result_dtype, compiled.audit.calls) == (stored, 0)


def test_compile_is_imported_at_first_use():
    """And with it no compiler: a known callback needs none."""
    code = "import sys, mathfuse; print(*sys.modules); mathfuse.compile; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    before, after = (set(line.split()) for line in done.stdout.splitlines())
    assert "mathfuse.fusion.compiler.cuda.interface" in after - before
    assert not {"numba", "cuda.core", "cuda.bindings"} & after


# --- arguments ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    ["float32[2]", np.ones((2, 3), np.float32), mf.constant(np.ones((2, 3), np.float32))],
    ids=["type", "array", "constant"],
)
def test_array_operands_by_type_or_value(given):
    compiled = mf.compile(mf.multiply, "elementwise", dtype="float32", operands={"factor": given})
    assert compiled.unit.signature.ndim == 2
    ((name, kind),) = compiled.unit.signature.operands
    assert (name, kind.dtype, kind.ndim, kind.contiguous) == ("factor", "float32", 2, True)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        *(("float", "float"), (0.5, "float"), (np.float64(0.5), "float"), (np.float32(2), "float"), (float, "float")),
        *(("int", "int"), (3, "int"), (np.int8(3), "int"), ("complex", "complex"), (1j, "complex")),
        *(("bool", "bool"), (True, "bool")),
    ],
)
def test_scalar_operands_by_type_or_value(given, kind):
    ((_, found),) = make_unit(mf.scale, "fft", "complex64", {"factor": given}, "sm_80").signature.operands
    assert (found.dtype, found.is_scalar) == (kind, True)


def test_bound_values_and_types_together():
    """A type given for an operand that is bound takes its place."""
    callback = mf.normalise(mean=0.5)
    unit = make_unit(callback, "matmul", "float32", {"deviation": "float32[1]"}, "sm_80")
    assert [(name, kind.dtype) for name, kind in unit.signature.operands] == [
        ("deviation", "float32"),
        ("mean", "float"),
    ]
    unit = make_unit(callback, "matmul", "float32", {"deviation": 2, "mean": "float64[2]"}, "sm_80")
    assert [(name, kind.dtype) for name, kind in unit.signature.operands] == [("deviation", "int"), ("mean", "float64")]


def test_rank_and_axes_by_default():
    def shape(pipeline, **options):
        signature = make_unit(mf.hann, pipeline, "float32", {}, "sm_80", **options).signature
        return signature.ndim, signature.axes

    assert shape("fft") == (1, (0,))
    assert shape("fft", ndim=3) == (3, (0, 1, 2))
    assert shape("fft", ndim=3, axes=(-1, 0)) == (3, (2, 0))
    assert shape("elementwise", ndim=2, axes=[np.int64(1)]) == (2, (1,))
    assert shape("matmul") == (2, (0, 1))
    assert shape("matmul", ndim=3) == (3, (1, 2))


def test_a_prolog_reads_the_whole_input():
    @mf.prolog
    def difference(value, index, source):
        return value - source[index[0] - 1]

    unit = make_unit(difference, "fft", "float64", {}, "sm_80")
    assert (unit.side, unit.signature.source.dtype, unit.signature.source.ndim) == ("prolog", "float64", 1)
    with pytest.raises(CallbackError, match="only a prolog can read `source`"):
        mf.compile(difference, side="epilog")


def plain(value):
    return value


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"callback": plain}, CallbackError, r"plain is not a callback; decorate the function with @mf\.epilog"),
        ({"pipeline": "conv"}, UnsupportedError, "there is no pipeline 'conv'; there are fft, matmul, elementwise"),
        ({"side": "left"}, UnsupportedError, "there is no side 'left'; there are prolog, epilog"),
        ({"dtype": "S3"}, UnsupportedError, "dtype='S3' is not supported; write one of .*float32"),
        ({"dtype": "float16"}, UnsupportedError, "cuFFT has no callbacks for float16; it has them for float32"),
        ({"pipeline": "matmul", "dtype": "int8"}, UnsupportedError, "a product is not computed in int8"),
        ({"operands": {"sigma": 1.0}}, PlanError, r"bias\(bias\) has no operand 'sigma'; it has bias"),
        ({"operands": {}}, PlanError, r"operand 'bias' is not bound; give its value.* --operand bias="),
        ({"operands": {"bias": "float32"}}, PlanError, r"bias='float32' is no type of operand; write 'float32\[1\]'"),
        ({"operands": {"bias": np.float32}}, PlanError, r"is no type of operand; write 'float32\[1\]'"),
        ({"operands": {"bias": "float32[0]"}}, PlanError, "is no type of operand"),
        ({"operands": {"bias": "float33[1]"}}, UnsupportedError, "bias='float33' is not supported; write one of"),
        ({"operands": {"bias": [1, 2]}}, CallbackError, r"pass numpy\.asarray\(bias\)"),
        ({"ndim": 0}, PlanError, "ndim=0: the rank of the index space is an integer from 1 to 64"),
        ({"ndim": 999}, PlanError, "ndim=999: the rank of the index space is an integer from 1 to 64"),
        ({"ndim": 2.0}, PlanError, r"ndim=2\.0: the rank"),
        ({"axes": (1,)}, PlanError, r"axes=\(1,\): there is no axis 1 in an index of rank 1; give ndim, too"),
        ({"axes": (0, -2), "ndim": 2}, PlanError, r"axes=\(0, -2\) names an axis twice"),
        ({"axes": 0}, PlanError, "axes=0: write a sequence of integers"),
        ({"axes": (0.5,)}, PlanError, r"axes=\(0\.5,\): write a sequence of integers"),
        (
            {"pipeline": "matmul", "dtype": "float32", "ndim": 1},
            UnsupportedError,
            "a row, a column and at most one batch",
        ),
        (
            {"pipeline": "matmul", "dtype": "float32", "operands": {"bias": "float32[4]"}},
            UnsupportedError,
            "reshape the batch to one axis",
        ),
        ({"arch": "hopper"}, ToolchainError, "'hopper' is not a GPU architecture; write it like 'sm_80'"),
    ],
)
def test_wrong_arguments(options, error, message):
    options = {"callback": mf.bias, "operands": {"bias": 1.0}, **options}
    if options["callback"] is plain:
        options["operands"] = {}
    with pytest.raises(error, match=message):
        mf.compile(**options)


def test_a_complex_result_where_the_product_is_real():
    with pytest.raises(CallbackError, match=r"complex value where the product is float32; return value\.real"):
        mf.compile(mf.epilog(lambda value: value * 1j), "matmul", dtype="float32")


# --- the command ----------------------------------------------------------------------------------------------------


def test_the_command_end_to_end(tmp_path, capfdbinary):
    """A callback with a helper and a typed operand; the command gives what the API gives."""
    path = tmp_path / "filters.py"
    path.write_text(
        "import mathfuse as mf\n\ndef half(x):\n    return x * 0.5\n\n"
        "@mf.epilog\ndef halve(value, index, gate):\n    return half(value) * gate[index[-1]]\n"
    )

    def emit(what, dtype, *more):
        options = ["--operand", "gate=float32[1]", "--emit", what, "--dtype", dtype, *more]
        assert cli.main(["compile", f"{path}:halve", *options]) == 0
        return capfdbinary.readouterr().out

    found = json.loads(emit("audit", "complex64", "--arch", "sm_100"))
    assert (found["calls"], found["float64_instructions"], found["local_memory_bytes"]) == (0, 0, 0)
    assert b"cufftJITCallbackStoreComplex" in emit("ptx", "complex64")
    assert b"LDG.E.64" in emit("sass", "complex64", "--pipeline", "elementwise")
    options = {"dtype": "float32", "operands": {"gate": "float32[1]"}, "arch": "sm_80"}
    expected = mf.compile(load(f"{path}:halve"), "matmul", **options).ltoir
    assert emit("ltoir", "float32", "--pipeline", "matmul", "--arch", "sm_80") == expected
