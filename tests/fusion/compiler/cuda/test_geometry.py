"""Callbacks in a constant geometry: the arithmetic run on this processor, and audits for four architectures."""

from __future__ import annotations

import ctypes
import re
from dataclasses import replace

import numpy as np
import pytest
from llvmlite import ir

import mathfuse as mf
from mathfuse.fusion.compiler.cpu.native import address_of, object_code
from mathfuse.fusion.compiler.cuda.artifacts import Compiled, audit_all
from mathfuse.fusion.compiler.cuda.decoding import constant_place
from mathfuse.fusion.compiler.cuda.geometry import Geometry
from mathfuse.fusion.compiler.cuda.interface import make_unit
from mathfuse.fusion.compiler.cuda.units import Unit, analyse
from mathfuse.fusion.compiler.emit.emitter import I64, Emitter
from mathfuse.fusion.compiler.emit.target import CPU
from mathfuse.fusion.compiler.parameters import Writer
from mathfuse.runtime.errors import CallbackError

from .shapes import dense

ARCHS = ("sm_80", "sm_90a", "sm_100", "sm_120")


# --- decoding --------------------------------------------------------------------------------------------------------

GEOMETRIES = [
    dense((7,)),
    dense((1, 1)),
    dense((3, 4, 5)),
    dense((16, 1, 256)),
    dense((5, 999_983)),
    Geometry((3, 4, 5), (1, 15, 3)),  # another order of the axes
    Geometry((4, 6), (20, 3)),  # gaps between rows and between elements
    Geometry((1 << 20, 3, 4099), (3 * 5000, 5000, 1)),
    Geometry((3, 1 << 20, 4099), (1 << 33, 1 << 13, 1)),
]


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_offsets_decode_by_constants(geometry):
    module = ir.Module(context=ir.Context())
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64, I64.as_pointer()]), "mathfuse_run")
    builder = ir.IRBuilder(function.append_basic_block())
    offset, index = function.args
    for axis, position in enumerate(constant_place(Emitter(builder, CPU, True, 32), geometry, offset).index):
        builder.store(position.parts[0], builder.gep(index, [I64(axis)]))
    builder.ret_void()
    decode = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_void_p)(address_of(object_code(str(module))))
    found, rng = np.empty(len(geometry.extents), np.int64), np.random.default_rng(3)
    corners = [[0] * len(found), [n - 1 for n in geometry.extents]]
    for place in [*corners, *(rng.integers(0, geometry.extents) for _ in range(200))]:
        decode(sum(int(i) * stride for i, stride in zip(place, geometry.strides)), found.ctypes.data)
        assert list(found) == list(place)


def test_the_width_of_the_arithmetic():
    assert [geometry.bits for geometry in GEOMETRIES[:-2]] == [32] * 7
    assert [geometry.bits for geometry in GEOMETRIES[-2:]] == [64, 64]
    assert (dense((1 << 16, 1 << 15)).bits, dense(((1 << 16) + 1, 1 << 15)).bits) == (32, 64)


# --- code ------------------------------------------------------------------------------------------------------------


def ramp(value, index, shape):
    total = 0.0
    for i, n in zip(index, shape):
        total += i / n
    return value * total


def unit(callback, side: str, dtype: str, geometry: Geometry, arch: str = "sm_90a", **options) -> Unit:
    """A unit; ``value_dtype`` is what lies in memory for a load."""
    value_dtype = options.pop("value_dtype", None)
    made = make_unit(callback or mf.relu, "fft", dtype, {}, arch, side, ndim=len(geometry.extents))
    signature = made.signature if callback else replace(made.signature, callback=None, operands=())
    if value_dtype:
        signature = replace(signature, value_dtype=np.dtype(value_dtype))
    return replace(made, signature=signature, geometry=geometry, **options)


def cases(arch: str) -> dict[str, Unit]:
    def case(name, callback, side, dtype, geometry, **options):
        return name, unit(callback, side, dtype, geometry, arch, symbol=name, **options)

    real = mf.prolog(ramp)
    return dict(
        [
            case("power_of_two", real, "prolog", "complex64", dense((64, 1024))),
            case("odd", real, "prolog", "complex64", dense((37, 97))),
            case("rank_3", real, "epilog", "complex64", dense((5, 60, 97))),
            case("transposed", real, "epilog", "float32", Geometry((5, 60, 97), (97, 5 * 97, 1))),
            case("padded", real, "prolog", "float32", dense((37, 128), limits=(37, 100))),
            case("padded_twice", real, "prolog", "complex64", dense((64, 128), limits=(60, 100), address=(800, 8))),
            case("elsewhere", real, "prolog", "complex64", dense((37, 97), address=(-8, 37 * 8), invariant=True)),
            case("broadcast", None, "prolog", "complex64", dense((37, 97), address=(0, 8))),
            case("pixels", None, "prolog", "float32", dense((37, 96), address=(288, 3)), value_dtype="uint8"),
            case("real_load", mf.hann, "prolog", "complex64", dense((7, 64), address=(256, 4)), value_dtype="float32"),
            case("half_load", mf.hann, "prolog", "float32", dense((7, 64), address=(128, 2)), value_dtype="float16"),
            case("real_store", mf.power_spectrum, "epilog", "complex64", dense((7, 64), address=(256, 4))),
            case("scaled", real, "epilog", "complex64", dense((7, 64), scale="before")),
            case("scaled_after", None, "epilog", "float32", dense((7, 64), scale="after", address=(512, -8))),
            case("cropped", real, "epilog", "float32", dense((7, 64), limits=(7, 60), address=(240, 4))),
        ]
    )


@pytest.mark.parametrize("arch", ARCHS)
def test_32_bit_callbacks_are_inlined_and_clean(arch):
    units = cases(arch)
    found = audit_all(list(units.values()))
    clean = {
        name: (a.calls, a.helper_calls, a.float64_instructions, a.local_memory_bytes, a.spill_bytes)
        for name, a in zip(units, found.values())
    }
    assert clean == dict.fromkeys(units, (0,) * 5)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_64_bit_callbacks_are_inlined(dtype):
    geometry = dense((5, 60, 97), scale="before", address=(-8, 16, 0))
    units = [unit(ramp_of(side), side, dtype, geometry, symbol=side) for side in ("prolog", "epilog")]
    found = audit_all(units)
    assert [(a.calls, a.local_memory_bytes) for a in found.values()] == [(0, 0)] * 2
    assert all(a.float64_instructions for a in found.values())


def ramp_of(side: str) -> mf.Callback:
    return mf.prolog(ramp) if side == "prolog" else mf.epilog(ramp)


def test_what_is_not_used_costs_nothing():
    """No index: no decoding, and no parameter is read but the scale; a known address is no load either."""
    plain = Compiled(unit(None, "epilog", "complex64", dense((5, 60, 97), scale="before"))).ptx
    assert len(re.findall(r"ld\.global", plain)) == 1 and "mul.hi" not in plain
    where = Compiled(unit(mf.epilog(lambda value, index: value * index[-1]), "epilog", "complex64", dense((5, 64)))).ptx
    assert not re.search(r"ld\.global|mul\.hi|mul\.wide\.u32 .*-", where) and re.search(r"and\.b(32|64) .*63", where)


def test_only_a_promise_makes_a_load_invariant():
    geometry = dense((5, 64), address=(8, 40))
    ptx = {
        invariant: Compiled(unit(None, "prolog", "complex64", replace(geometry, invariant=invariant))).ptx
        for invariant in (False, True)
    }
    assert "ld.global.v2" in ptx[False] and "ld.global.nc.v2" in ptx[True]


def test_nothing_is_loaded_outside_the_limits():
    """The load is behind a branch or a predicate, and so is the callback."""
    ptx = Compiled(unit(mf.prolog(ramp), "prolog", "float32", dense((37, 128), limits=(37, 100)))).ptx
    first = min(ptx.index("bra"), ptx.index("@%p"))
    assert ptx.index("setp") < first < ptx.index("ld.global.f32" if "ld.global.f32" in ptx else "ld.global.b32")
    full = Compiled(unit(None, "prolog", "float32", dense((37, 128), limits=(37, 128)))).ptx
    assert "setp" not in full


# --- slots, keys, types ----------------------------------------------------------------------------------------------


def test_slots():
    layout = unit(mf.scale(factor=2.0), "epilog", "complex64", dense((5, 64), address=(8, 40), scale="after")).layout
    assert layout.slots == {"origin": 0, "scale": 1, "shape": 2, "factor": 4}
    writer = Writer(layout, weak_bits=32)
    writer.real("scale", 0.25, 32)
    assert writer.block[1:2].view(np.float32)[0] == 0.25
    writer.real("scale", 0.1, 64)
    assert writer.block[1:2].view(np.float64)[0] == 0.1
    assert unit(None, "epilog", "complex64", dense((5, 64))).layout.slots == {"shape": 0}


def test_the_width_of_the_scale():
    geometry = dense((5, 64), scale="after")
    assert unit(None, "prolog", "complex64", geometry, value_dtype="int32").scale_bits == 32
    assert unit(None, "epilog", "float64", geometry).scale_bits == 64


def test_everything_in_a_geometry_counts():
    base = dense((5, 64))
    others = [
        dense((5, 128)),
        dense((5, 64), address=(8, 40)),
        dense((5, 64), limits=(5, 60)),
        dense((5, 64), scale="after"),
        replace(dense((5, 64), address=(8, 40)), invariant=True),
    ]
    keys = {unit(mf.relu, "epilog", "float32", geometry).key() for geometry in [base, *others]}
    keys.add(unit(mf.relu, "epilog", "float32", base, stored_dtype=np.dtype("float64")).key())
    keys.add(replace(unit(mf.relu, "epilog", "float32", base), geometry=None).key())
    assert len(keys) == len(others) + 3


@pytest.mark.parametrize(
    ("callback", "stored", "result"),
    [
        (mf.power_spectrum, None, "float32"),
        (mf.power_spectrum, "float64", "float64"),
        (mf.power_spectrum, "complex64", "complex64"),
        (mf.epilog(lambda value: abs(value) > 1), None, "bool"),
        (mf.epilog(lambda value: np.uint8(abs(value))), None, "uint8"),
        (None, None, "complex64"),
        (None, "complex128", "complex128"),
    ],
)
def test_what_an_epilog_stores(callback, stored, result):
    made = unit(callback, "epilog", "complex64", dense((5, 64)), stored_dtype=stored and np.dtype(stored))
    assert analyse(made).result_dtype == Compiled(made).result_dtype == result


def test_analysis_knows_operands_and_needs_no_compiler(monkeypatch):
    monkeypatch.setattr("mathfuse.fusion.compiler.cuda.toolchain.nvvm", None)

    @mf.epilog
    def record(value, index, log, weight):
        log[index] = value
        return value * weight

    made = make_unit(record, "fft", "complex64", {"log": "complex64[2]", "weight": "float32[1]"}, "sm_90a")
    found = analyse(replace(made, geometry=dense((5, 64))))
    assert (found.assigned, found.weak_bits, found.result_dtype) == (("log",), 32, np.complex64)
    assert found.accesses == {"log": [[0, 1]], "weight": ["broadcast"]}


def test_a_complex_result_where_real_is_stored():
    made = unit(None, "epilog", "complex64", dense((5, 64)), stored_dtype=np.dtype("float32"))
    with pytest.raises(CallbackError, match="complex value where the transform's result is float32"):
        analyse(made)
