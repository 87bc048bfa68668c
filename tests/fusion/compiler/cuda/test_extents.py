"""Operands of constant extents: addresses and results on this processor, and the code for four architectures."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from llvmlite import ir

import mathfuse as mf
from mathfuse.fusion.compiler.cpu.native import address_of, object_code
from mathfuse.fusion.compiler.cuda.artifacts import Compiled, audit_all
from mathfuse.fusion.compiler.cuda.decoding import constant_place
from mathfuse.fusion.compiler.cuda.geometry import Geometry, Shape
from mathfuse.fusion.compiler.cuda.interface import make_unit
from mathfuse.fusion.compiler.cuda.units import Unit, analyse
from mathfuse.fusion.compiler.emit.emitter import BYTES, I64, Emitter, Value
from mathfuse.fusion.compiler.emit.scalars import INT
from mathfuse.fusion.compiler.emit.target import CPU
from mathfuse.fusion.compiler.language.operands import Operand
from mathfuse.fusion.compiler.parameters import Writer
from mathfuse.fusion.compiler.signature import OperandType, fixed, operand_type
from mathfuse.runtime.cuda.arrays import c_strides

from . import emulator
from .shapes import dense, with_extents

RNG = np.random.default_rng(23)
ARCHS = ("sm_80", "sm_90a", "sm_100", "sm_120")


# --- types -----------------------------------------------------------------------------------------------------------


def of(array: Any) -> Shape | None:
    return fixed(operand_type(array), array).extents


def test_arrays_without_gaps_have_constant_extents_and_strides():
    x = np.zeros((3, 4, 5), np.float32)
    assert of(x) == (3, 4, 5) and of(x[0]) == (4, 5) and of(x[:, :, None]) == (3, 4, 1, 5)
    assert of(x[::2][:1]) == (1, 4, 5) and of(x[:, :1, :1][:1]) == (1, 1, 1)
    for turned in (x, x.T, np.asfortranarray(x), x.transpose(1, 0, 2), x.transpose(0, 2, 1)):
        found = fixed(operand_type(turned), turned)
        assert (found.extents, found.strides) == (turned.shape, turned.strides)
        assert found.contiguous == (turned.strides[-1] == 4)
    for other in (x[::2], x[:, 1:], x[..., ::-1], np.broadcast_to(x[:1], x.shape)):
        assert fixed(operand_type(other), other) == operand_type(other)


def test_strides_along_an_axis_of_one_element_do_not_count():
    x = np.zeros((3, 8), np.float32)[:, :1][:, :, None]
    assert of(x) is None
    y = np.zeros((6, 8), np.float32)[2:3, ::8]
    assert fixed(operand_type(y), y) == OperandType("float32", 2, True, False, (1, 1), (4, 4))


def test_numbers_stay_as_they_are():
    assert fixed(operand_type(1.5), None) == OperandType("float")


def test_extents_are_part_of_the_key_but_not_of_the_layout():
    made = unit(lambda value, w: value * w, dense((5, 64)), {"w": np.zeros((5, 64), np.float32)})
    others = [with_extents(made, {"w": np.zeros(shape, np.float32)}) for shape in ((5, 64), (1, 64), (5, 1))]
    assert len({u.key() for u in [made, *others]}) == 4
    assert all(u.layout.slots == made.layout.slots for u in others)


# --- addresses -------------------------------------------------------------------------------------------------------

ADDRESSES: list[tuple[Geometry, Shape, int]] = [
    (dense((300, 70, 1000)), c_strides((300, 70, 1000), 4), 32),  # a multiple of the offset
    (dense((300, 70, 1000)), (0, 4000, 4), 32),  # of what is left of it
    (dense((300, 70, 1000)), (4000, 0, 4), 32),
    (dense((300, 70, 1000)), (-280000, 4000, -4), 32),
    (dense((3, 1, 1000)), (4000, 7, 4), 32),
    (dense((3000, 700, 1000)), c_strides((3000, 700, 1000), 16), 32),  # 32 bits hold elements, not bytes
    (dense((3000, 700, 1000)), (11200000, 0, 16), 32),
    (dense((3, 1 << 20, 4099)), c_strides((3, 1 << 20, 4099), 8), 64),
    (dense((3, 1 << 20, 4099)), (0, 4099 * 8, 8), 64),
    (dense((1 << 20, 1 << 10)), (1 << 15, 24), 64),  # more than 2^31 elements apart in a view of fewer
    (Geometry((300, 70, 1000), (1, 300, 21000)), (4, 1200, 84000), 32),
    (Geometry((300, 70, 1000), (80000, 1100, 1)), c_strides((300, 70, 1000), 8), 32),
    (dense((1, 1)), (4, 4), 32),
]


@pytest.mark.parametrize(("geometry", "strides", "bits"), ADDRESSES, ids=str)
def test_addresses(geometry, strides, bits):
    module = ir.Module(context=ir.Context())
    function = ir.Function(module, ir.FunctionType(I64, [I64]), "mathfuse_run")
    builder = ir.IRBuilder(function.append_basic_block())
    emitter = Emitter(builder, CPU, True, 32)
    place = constant_place(emitter, geometry, function.args[0])
    indices, pointer = [i.parts[0] for i in place.index], builder.inttoptr(I64(1 << 45), BYTES)
    address = place.address(emitter, pointer, indices, [I64(s) for s in strides], bits)
    builder.ret(builder.ptrtoint(address, I64))
    run = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64)(address_of(object_code(str(module))))
    corners = [[0] * len(strides), [n - 1 for n in geometry.extents]]
    for where in [*corners, *(RNG.integers(0, geometry.extents) for _ in range(200))]:
        offset = sum(int(i) * stride for i, stride in zip(where, geometry.strides))
        assert run(offset) - (1 << 45) == sum(int(i) * stride for i, stride in zip(where, strides))


def test_the_width_of_the_arithmetic():
    def bits(*extents: int, bounded: bool = True) -> int:
        shape = tuple(Value(INT, (I64(n),)) for n in extents)
        return Operand("w", np.dtype("f4"), I64(0), shape, (), bounded=bounded).bits

    assert bits(1 << 16, (1 << 15) - 1) == bits(1, 1, 7) == bits(0, 1 << 30) == 32
    assert bits(1 << 16, 1 << 15) == bits(7, bounded=False) == 64
    extent = ir.Function(ir.Module(context=ir.Context()), ir.FunctionType(I64, [I64]), "f").args[0]
    assert Operand("w", np.dtype("f4"), I64(0), (Value(INT, (extent,)),), ()).bits == 64

    def address_bits(extents: Shape, address: Shape) -> int:
        return dense(extents, address=address).address_bits

    assert address_bits((1 << 10, 1 << 10, 1 << 10), c_strides((1 << 10,) * 3, 16)) == 32
    assert address_bits((1 << 11, 1 << 10, 1 << 10), c_strides((1 << 11, 1 << 10, 1 << 10), 16)) == 32
    assert address_bits((1 << 12, 1 << 10, 1 << 10), c_strides((1 << 12, 1 << 10, 1 << 10), 16)) == 64
    assert address_bits((1 << 20, 1 << 10), (-(1 << 15), 3)) == 64
    assert address_bits((4, 8), (0, 0)) == 64  # there is nothing to compute


# --- results ---------------------------------------------------------------------------------------------------------


def unit(function: Callable, geometry: Geometry, operands: dict[str, Any], arch: str = "sm_90a", **options) -> Unit:
    dtype = options.pop("dtype", "float32")
    made = make_unit(mf.epilog(function), "fft", dtype, operands, arch, "epilog", ndim=len(geometry.extents))
    return replace(made, geometry=geometry, symbol=options.pop("symbol", "f"), **options)


# A callback, the shape of w in an index space (a, b, c), and what NumPy has for w at every place.
CASES: dict[str, tuple[Callable, Callable[[int, int, int], Shape], Callable]] = {
    "own": (lambda value, index, w: value * w[index], lambda a, b, c: (a, b, c), lambda w, i, j, k: w),
    "here": (lambda value, w: value * w, lambda a, b, c: (a, b, c), lambda w, i, j, k: w),
    "a batch": (lambda value, w: value * w, lambda a, b, c: (1, b, c), lambda w, i, j, k: w),
    "of lower rank": (lambda value, w: value * w, lambda a, b, c: (b, c), lambda w, i, j, k: w),
    "a row": (lambda value, w: value * w, lambda a, b, c: (c,), lambda w, i, j, k: w),
    "a column": (lambda value, w: value * w, lambda a, b, c: (a, 1, 1), lambda w, i, j, k: w),
    "the middle": (lambda value, w: value * w, lambda a, b, c: (b, 1), lambda w, i, j, k: w),
    "the ends": (lambda value, w: value * w, lambda a, b, c: (a, 1, c), lambda w, i, j, k: w),
    "one": (lambda value, w: value * w, lambda a, b, c: (1, 1), lambda w, i, j, k: w),
    "transposed": (
        lambda value, index, w: value * w[index[2], index[0], index[1]],
        lambda a, b, c: (c, a, b),
        lambda w, i, j, k: w[k, i, j],
    ),
    "a diagonal": (
        lambda value, index, w: value * w[index[2], index[2]],
        lambda a, b, c: (c, c),
        lambda w, i, j, k: w[k, k],
    ),
    "of higher rank": (
        lambda value, index, w: value * w[index[0], index[1], index[2], 1] + w[index[0], 0, index[1], index[2] % 3],
        lambda a, b, c: (a, max(b, 1), max(c, b), 3),
        lambda w, i, j, k: (w[i, j, k, 1], w[i, 0, j, k % 3]),
    ),
    "constants": (
        lambda value, index, w: value * w[index[1], -1, index[2], 2],
        lambda a, b, c: (b, 4, c, 5),
        lambda w, i, j, k: w[j, -1, k, 2],
    ),
    "computed": (
        lambda value, index, shape, w: value * w[index[0], (index[2] + 3) % shape[2]],
        lambda a, b, c: (a, c),
        lambda w, i, j, k: w[i, (k + 3) % w.shape[1]],
    ),
    "from the end": (
        lambda value, index, w: value * w[-1 - index[2], index[1]],
        lambda a, b, c: (c, b),
        lambda w, i, j, k: w[-1 - k, j],
    ),
    "its extents": (
        lambda value, index, w: value * w[w.shape[0] - 1 - index[0]] * w.size,
        lambda a, b, c: (a,),
        lambda w, i, j, k: w[w.shape[0] - 1 - i] * w.size,
    ),
    "too small": (
        lambda value, index, w: value * w[index[0] + 0, index[2] + 1],
        lambda a, b, c: (a, c),
        lambda w, i, j, k: np.pad(w, ((0, 0), (0, 1)), constant_values=np.nan)[i, k + 1],
    ),
    "far outside": (
        lambda value, index, w: value * w[index[2] * 1_000_000_007 - 5],
        lambda a, b, c: (4,),
        lambda w, i, j, k: np.full(k.shape, np.nan),
    ),
}
GEOMETRIES = {
    "dense": dense((3, 5, 14)),
    "another order": Geometry((3, 5, 14), (14, 42, 1)),
    "gaps": Geometry((3, 5, 14), (200, 30, 2)),
    "half": dense((1, 5, 14)),
    "ones": dense((3, 1, 14)),
    "rows": dense((3, 5, 1)),
    "nothing to decode": dense((1, 1, 1)),
}


def run(made: Unit, x: np.ndarray, operands: dict[str, Any]) -> np.ndarray:
    """The elements that a store callback leaves for ``x``."""
    geometry = made.geometry
    assert geometry is not None
    offsets = sum(place * stride for place, stride in zip(np.indices(geometry.extents), geometry.strides))
    writer = Writer(made.layout, analyse(made).weak_bits)
    writer.integers("shape", *geometry.extents)
    for name, value in operands.items():
        writer.operand(name, value)
    memory, store = np.zeros(geometry.largest + 1, x.dtype), emulator.callback(made)
    for where, offset in np.ndenumerate(offsets):
        store(memory.ctypes.data, int(offset), x[where].reshape(1), writer.block)
    return memory[offsets]


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("name", CASES)
def test_results(name, geometry):
    function, shape, reference = CASES[name]
    extents = GEOMETRIES[geometry].extents
    operands = {"w": RNG.uniform(1, 2, shape(*extents)).astype(np.float32)}
    x = RNG.uniform(1, 2, extents).astype(np.float32)
    made = with_extents(unit(function, GEOMETRIES[geometry], operands), operands)
    assert made.signature.operands[0][1].extents == operands["w"].shape
    w = reference(operands["w"], *np.indices(extents))
    expected = x * w[0] + w[1] if isinstance(w, tuple) else x * w
    np.testing.assert_allclose(run(made, x, operands), expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "float16", "int64", "float64", "complex64"])
def test_elements_of_any_size(dtype):
    geometry, x = GEOMETRIES["dense"], RNG.uniform(1, 2, (3, 5, 14)).astype(np.complex64)
    operands = {"w": RNG.integers(0, 100, (3, 5, 14)).astype(dtype), "v": RNG.integers(0, 9, (5, 14)).astype(dtype)}
    made = unit(lambda value, w, v: value * w + v, geometry, operands, dtype="complex64")
    options = {"stored_dtype": np.dtype("complex64")}
    found = run(replace(with_extents(made, operands), **options), x, operands)
    np.testing.assert_allclose(found, x * operands["w"] + operands["v"], rtol=1e-5)


LAYOUTS = {
    "every other": lambda w: np.repeat(w, 2, axis=2)[:, :, ::2],
    "backwards": lambda w: np.ascontiguousarray(w[::-1])[::-1],
    "broadcast": lambda w: np.broadcast_to(w[:1], w.shape),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_operands_of_other_layouts_have_strides_at_run_time(layout):
    w = LAYOUTS[layout](RNG.uniform(1, 2, (3, 5, 14)).astype(np.float32))
    x = RNG.uniform(1, 2, w.shape).astype(np.float32)
    made = unit(lambda value, w: value * w, dense(w.shape), {"w": w})
    assert with_extents(made, {"w": w}).key() == made.key()
    np.testing.assert_allclose(run(made, x, {"w": w}), x * w, rtol=1e-6)


def test_operands_that_are_written():
    def record(value, index, log, last):
        log[index] = value
        last[index[2], index[1]] = index[2]
        log[index[0], index[1], index[2] + 1] = 7  # outside at the end of a row, where nothing is written
        return value + log[index]

    x = RNG.uniform(1, 2, (3, 5, 14)).astype(np.float32)
    operands = {"log": np.zeros_like(x), "last": np.zeros((14, 5), np.float32)}
    made = with_extents(unit(record, dense(x.shape), operands), operands)
    np.testing.assert_allclose(run(made, x, operands), 2 * x)
    np.testing.assert_array_equal(operands["log"], x)
    np.testing.assert_array_equal(operands["last"], np.indices((14, 5))[0])


def test_a_source_of_constant_extents():
    x = RNG.uniform(1, 2, (3, 5, 14)).astype(np.float32)
    geometry = dense(x.shape)

    def follow(value, index, shape, source):
        return value + 2 * source[index[0], index[1], (index[2] + 1) % shape[2]] + source[index]

    made = make_unit(mf.prolog(follow), "fft", "float32", {}, "sm_90a", "prolog", ndim=3)
    assert made.signature.source is not None
    kind = fixed(made.signature.source, x)
    made = replace(made, signature=replace(made.signature, source=kind), geometry=geometry, symbol="f")
    writer = Writer(made.layout, analyse(made).weak_bits)
    writer.integers("shape", *x.shape)
    writer.operand("source", x)
    load, found, value = emulator.callback(made), np.empty_like(x), np.zeros(1, np.float32)
    for offset in range(x.size):
        load(x.ctypes.data, offset, value, writer.block)
        found.flat[offset] = value[0]
    np.testing.assert_allclose(found, 2 * x + 2 * np.roll(x, -1, axis=2), rtol=1e-6)


# --- code ------------------------------------------------------------------------------------------------------------

SHAPES = [(2048, 8192), (65536, 256), (3276, 5, 1024), (2396, 7, 1000), (2048, 4097)]
MNEMONIC = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)", re.MULTILINE)


def typed(function: Callable, extents: Shape, arch: str = "sm_90a", **operands: Shape) -> Unit:
    """A unit for complex64 with float32 operands of these shapes."""
    made = unit(function, dense(extents), {name: f"float32[{len(shape)}]" for name, shape in operands.items()}, arch)
    made = replace(made, dtype=np.dtype("complex64"), symbol=None)
    kinds = tuple((name, fixed(kind, np.empty(operands[name], "f4"))) for name, kind in made.signature.operands)
    signature = replace(made.signature, value_dtype=np.dtype("complex64"), operands=kinds)
    return replace(made, signature=signature)


@pytest.mark.parametrize("extents", SHAPES, ids=str)
def test_an_operand_of_the_transform_s_shape_is_read_at_its_offset(extents):
    """The same instructions as for a flat array: nothing is decoded."""
    size = int(np.prod(extents))
    flat = Compiled(typed(lambda value, index, w: value * w[index], (size,), w=(size,)))
    own = Compiled(typed(lambda value, index, w: value * w[index], extents, w=extents))
    assert MNEMONIC.findall(own.sass) == MNEMONIC.findall(flat.sass)
    assert own.audit.registers == flat.audit.registers


@pytest.mark.parametrize("extents", SHAPES, ids=str)
def test_nothing_but_pointers_is_read_from_the_block(extents):
    made = typed(lambda value, w, row: value * w * row, extents, w=(*extents[:-1], 1), row=extents[-1:])
    ptx = Compiled(made).ptx
    assert len(re.findall(r"ld\.global", ptx)) == 4  # two pointers, two elements
    assert not re.search(r"(mul|mad)\.lo\.s64|div|rem|selp", ptx)


def test_a_batch_of_equal_operands_needs_one_division():
    ptx = Compiled(typed(lambda value, w: value * w, (2396, 7, 1000), w=(1, 7, 1000))).ptx
    assert len(re.findall(r"mul\.hi|mul\.wide\.u32 .*-?\d{6,}", ptx)) == 1


@pytest.mark.parametrize("strides", [(28000, 4000, 4), (56000, 8000, 8)])
def test_an_address_of_our_own_in_the_transform_s_order_needs_no_index(strides):
    geometry = dense((2396, 7, 1000), address=strides)
    real = unit(lambda value: value * 2, geometry, {}, stored_dtype=np.dtype("float32"))
    assert not re.search(r"mul\.hi|mul\.wide\.u32|div|rem", Compiled(real).ptx)


def clean_cases(arch: str) -> dict[str, Unit]:
    units: dict[str, Unit] = {}
    for geometry in ("dense", "gaps", "ones"):
        extents = GEOMETRIES[geometry].extents
        for number, (function, shape, _) in enumerate(CASES.values()):
            operands = {"w": np.zeros(shape(*extents), np.float32)}
            symbol = f"case_{number}_{geometry}"
            made = unit(function, GEOMETRIES[geometry], operands, arch, symbol=symbol)
            units[symbol] = with_extents(made, operands)
    return units


@pytest.mark.parametrize("arch", ARCHS)
def test_code_is_inlined_and_clean(arch):
    units = clean_cases(arch)
    found = {made.symbol: a for made, a in audit_all(list(units.values())).items()}
    findings = {
        name: (a.calls, a.helper_calls, a.float64_instructions, a.local_memory_bytes, a.spill_bytes)
        for name, a in found.items()
    }
    assert findings == dict.fromkeys(units, (0,) * 5)
