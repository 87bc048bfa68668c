"""Elementwise kernels and the table: accesses, parameters, audits and launches, with no GPU."""

from __future__ import annotations

import ctypes
import re
from dataclasses import replace

import numpy as np
import pytest
from llvmlite import ir

import mathfuse as mf
from mathfuse.fusion.compiler.cpu.native import address_of, object_code
from mathfuse.fusion.compiler.cuda import table, toolchain
from mathfuse.fusion.compiler.cuda.artifacts import Compiled, audit_all
from mathfuse.fusion.compiler.cuda.interface import make_unit
from mathfuse.fusion.compiler.cuda.kernels import ElementwiseKernel
from mathfuse.fusion.compiler.cuda.tiling import THREADS, Tile, blocks_of, tile_of, vector_width
from mathfuse.fusion.compiler.cuda.units import Unit, analyse
from mathfuse.fusion.compiler.cuda.vectors import load_vector, store_vector
from mathfuse.fusion.compiler.emit.emitter import BYTES, Emitter
from mathfuse.fusion.compiler.emit.target import CPU
from mathfuse.runtime.errors import UnsupportedError

ARCHS = ("sm_80", "sm_90a", "sm_100", "sm_120")


def unit(callback, value_dtype: str, arch: str = "sm_90a", operands=None, ndim: int = 1, **options) -> Unit:
    made = make_unit(callback or mf.relu, "elementwise", value_dtype, operands or {}, arch, ndim=ndim)
    if callback is None:
        made = replace(made, signature=replace(made.signature, callback=None, operands=()))
    return replace(made, **options)


# --- vectors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", "bool uint8 int8 int16 uint16 float16 int32 float32 uint64 float64 complex64".split())
@pytest.mark.parametrize("lanes", [1, 2, 4, 8])
def test_vectors_keep_every_element(dtype, lanes):
    """What is packed is what is unpacked; run on this processor."""
    element = np.dtype(dtype)
    module = ir.Module(context=ir.Context())
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [BYTES, BYTES]), "mathfuse_run")
    builder = ir.IRBuilder(function.append_basic_block())
    emitter = Emitter(builder, CPU, True, 32)
    store_vector(emitter, function.args[1], element, load_vector(emitter, function.args[0], element, lanes, False))
    builder.ret_void()
    copy = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(address_of(object_code(str(module))))
    memory = np.zeros((2, 64 + lanes * element.itemsize), np.uint8)
    source, target = (row[-row.ctypes.data % 64 :][: lanes * element.itemsize].view(element) for row in memory)
    source[:] = (
        np.arange(lanes) % 2 if dtype == "bool" else np.random.default_rng(1).integers(0, 100, lanes) - lanes % 3
    )
    copy(source.ctypes.data, target.ctypes.data)
    np.testing.assert_array_equal(target, source)


WIDEST = {
    ("uint8", "uint8"): (8, "LDG.E.64", "STG.E.64"),
    ("float16", "float32"): (4, "LDG.E.64", "STG.E.128"),
    ("float32", "float32"): (4, "LDG.E.128", "STG.E.128"),
    ("uint8", "float32"): (4, "LDG.E", "STG.E.128"),
    ("int64", "float64"): (2, "LDG.E.128", "STG.E.128"),
    ("complex64", "complex64"): (2, "LDG.E.128", "STG.E.128"),
    ("complex64", "float32"): (2, "LDG.E.128", "STG.E.64"),
    ("complex128", "complex128"): (1, "LDG.E.128", "STG.E.128"),
}


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120"])
def test_flat_arrays_move_in_vectors(arch):
    units = {}
    for (source, result), (lanes, _, _) in WIDEST.items():
        assert vector_width(np.dtype(source).itemsize, np.dtype(result).itemsize) == lanes
        callback = mf.epilog(lambda value: abs(value)) if source == "complex64" and result == "float32" else None
        options = {"flat": True, "vector": lanes, "symbol": f"copy_{source}_{result}", "dtype": np.dtype(result)}
        units[source, result] = unit(callback, source, arch, **options)
    found = {pair: Compiled(made) for pair, made in units.items()}
    for pair, (_, load, store) in WIDEST.items():
        sass = found[pair].sass
        assert re.search(rf"\b{load}\.CONSTANT", sass.replace(".U8", "")), pair
        assert re.search(rf"\b{store}\b", sass), pair
        assert found[pair].audit.local_memory_bytes == 0, pair


# --- audits ----------------------------------------------------------------------------------------------------------


def weighted(value, index, weight):
    return value * weight + index[-1] * 0.5


def options() -> dict[str, dict]:
    flat = {"flat": True, "vector": 4, "ndim": 2, "order": (0, 1)}
    return {
        "strided": {"ndim": 3, "order": (0, 1, 2)},
        "transposed": {"ndim": 3, "order": (2, 0, 1)},
        "wide": {"ndim": 2, "order": (0, 1), "wide": True},
        "flat": flat,
        "flat_wide": {**flat, "wide": True},
        "whole_rows": {**flat, "whole_rows": True},
        "flat_in_place": {**flat, "in_place": True},
        "scaled": {**flat, "scale": "before"},
        "scaled_after": {**flat, "scale": "after"},
        "padded": {"ndim": 3, "order": (0, 1, 2), "padded": True},
        "padded_scaled": {"ndim": 2, "order": (1, 0), "padded": True, "scale": "after"},
        "narrow": {**flat, "dtype": np.dtype("float16")},
    }


@pytest.mark.parametrize("arch", ARCHS)
def test_32_bit_kernels_are_clean_in_all_options(arch):
    units = {
        f"{name}_{dtype}": unit(
            mf.epilog(weighted), dtype, arch, {"weight": "float32[1]"}, symbol=f"{name}_{dtype}", **chosen
        )
        for name, chosen in options().items()
        for dtype in ("float32", "uint8", "complex64")
        if not (name == "narrow" and dtype == "complex64")
    }
    found = audit_all(list(units.values()))
    wrong = {
        name: a
        for name, a in zip(units, found.values())
        if a.calls or a.helper_calls or a.float64_instructions or a.local_memory_bytes or a.spill_bytes
    }
    assert wrong == {}
    assert max(a.registers for a in found.values()) <= 128


@pytest.mark.parametrize("arch", ARCHS)
def test_parameters_are_constants(arch):
    """Of the kernel: no slot is read from global memory, and none is copied to local memory."""
    compiled = Compiled(unit(mf.scale(factor=0.5), "float32", arch, ndim=3, padded=True, scale="after"))
    loads = re.findall(r"\bLDG\.\S+", compiled.sass)
    assert len(loads) == len(re.findall(r"\bSTG\.\S+", compiled.sass))
    assert "c[0x0][" in compiled.sass and not re.search(r"\b(LDL|STL)\b", compiled.sass)


def test_a_kernel_has_so_many_parameters_as_the_driver_takes():
    made = unit(mf.scale, "float32", operands={"factor": "float32[8]"}, ndim=8)
    ((_, kind),) = made.signature.operands

    def with_operands(count: int) -> Unit:
        return replace(made, signature=replace(made.signature, operands=tuple((f"w{k}", kind) for k in range(count))))

    assert with_operands(26).layout.size <= 500
    with pytest.raises(UnsupportedError, match=r"has 40 operands, and 26 of their kind fit into the parameters of a"):
        _ = with_operands(40).layout


# --- launches --------------------------------------------------------------------------------------------------------


def test_tiles():
    assert tile_of(4, 20, 4) == Tile(4, 1)
    assert tile_of(8, 20, 1) == Tile(8, 2)
    assert tile_of(1, 20, 4) == Tile(1, 4)
    assert tile_of(1, 20, 16) == Tile(1, 1)
    assert tile_of(4, 400, 4) == Tile(2, 1)  # three copies would do: vectors come first
    assert tile_of(4, 10_000, 4) == Tile(1, 1)
    assert Tile(4, 2).elements == 8 * THREADS


def test_blocks():
    assert blocks_of(0, 2048, 132) == blocks_of(1, 2048, 132) == 1
    assert blocks_of(1000, 2048, 132) == 4
    assert blocks_of(100_000, 2048, 132) == 132
    assert blocks_of(2048 * 500, 2048, 132) == 500
    assert blocks_of(1 << 32, 2048, 132) == 1 << 21
    assert blocks_of(1 << 60, 2048, 132) == (1 << 31) - 1  # the most that a launch may have


def test_a_kernel_on_the_host():
    kernel = ElementwiseKernel(unit(mf.scale(factor=0.5), "uint8", ndim=2, order=(1, 0), scale="before"))
    assert (kernel.result_dtype, kernel.name, kernel.weak_bits) == (np.float32, "mathfuse_elementwise", 32)
    assert kernel.cubin.startswith(b"\x7fELF")
    slots = kernel.layout.slots
    assert list(slots) == [
        "count", "decode.divisor", "decode.multiplier", "decode.shifts", "source_block", "destination_block",
        "source_strides", "destination_strides", "scale", "shape", "factor",
    ]  # fmt: skip
    block = kernel.writer((3, 5)).block
    assert block.size == kernel.layout.size
    assert list(block[slots["count"] : slots["decode.multiplier"]]) == [15, 3, 1]  # axis 0 runs fastest
    assert kernel.grid(1000, 132) == (4, THREADS)


def test_no_elements():
    kernel = ElementwiseKernel(unit(mf.relu, "float32", ndim=2))
    assert kernel.writer((0, 5)).block[0] == 0


# --- the table -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ARCHS)
def test_the_table_kernel(arch):
    cubin = table.table_kernel(arch)
    sass = toolchain.disassemble(cubin)
    assert f".text.{table.NAME}" in sass and not re.search(r"\b(STL|CALL)\b", sass)


def test_a_table_takes_as_many_launches_as_it_needs():
    block = np.arange(1000)
    parameters = list(table.table_parameters(4096, block))
    assert [(p[0], p[1], p.size) for p in parameters] == [
        (4096, 480, 482),
        (4096 + 8 * 480, 480, 482),
        (4096 + 8 * 960, 40, 482),
    ]
    np.testing.assert_array_equal(np.concatenate([p[2 : 2 + p[1]] for p in parameters]), block)


def test_analysis_is_that_of_the_kernel():
    made = unit(mf.epilog(weighted), "uint8", operands={"weight": "float32[1]"}, ndim=2)
    found, kernel = analyse(made), ElementwiseKernel(made)
    assert (
        (found.result_dtype, found.accesses)
        == (kernel.result_dtype, kernel.accesses)
        == (
            np.float32,
            {"weight": ["broadcast"]},
        )
    )
