"""Offsets to multi-indices by multiplication: the arithmetic in Python, and generated code run on this processor."""

from __future__ import annotations

import ctypes
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llvmlite import ir

from mathfuse.fusion.compiler.cpu.native import address_of, object_code
from mathfuse.fusion.compiler.cuda import division
from mathfuse.fusion.compiler.cuda.decoding import Decoder
from mathfuse.fusion.compiler.cuda.division import divide, reciprocal
from mathfuse.fusion.compiler.emit.emitter import BYTES, I64, Emitter
from mathfuse.fusion.compiler.emit.target import CPU
from mathfuse.fusion.compiler.parameters import Layout, Writer
from mathfuse.fusion.compiler.reader import Reader


@pytest.mark.parametrize("bits", [32, 64])
@given(st.data())
def test_quotients(bits, data):
    largest = (1 << bits) - 1
    divisor = data.draw(st.integers(1, largest))
    near = data.draw(st.integers(0, largest // divisor)) * divisor  # rounding goes wrong beside multiples, if anywhere
    for n in {data.draw(st.integers(0, largest)), near, max(near - 1, 0), min(near + 1, largest), largest}:
        assert divide(n, divisor, bits) == n // divisor


@pytest.mark.parametrize("bits", [32, 64])
def test_every_power_of_two_and_its_neighbours(bits):
    corners = sorted({n for k in range(bits + 1) for n in ((1 << k) - 1, 1 << k, (1 << k) + 1) if 0 < n < 1 << bits})
    wrong = [(n, d) for n in corners for d in corners if divide(n, d, bits) != n // d]
    assert wrong == []


@pytest.mark.parametrize("bits", [32, 64])
@given(st.data())
def test_reciprocals_fit_their_slots(bits, data):
    multiplier, first, second = reciprocal(data.draw(st.integers(1, (1 << bits) - 1)), bits)
    assert 0 < multiplier < 1 << bits
    assert first in (0, 1) and 0 <= second < bits


def decoder(order: tuple[int, ...], wide: bool) -> tuple[Layout, ctypes._CFuncPtr]:
    """``decode(block, offset, index)`` as generated code, with libdevice's two multiplications written out."""
    module = ir.Module(context=ir.Context())
    for name, bits in (("__nv_umulhi", 32), ("__nv_umul64hi", 64)):
        small, double = ir.IntType(bits), ir.IntType(2 * bits)
        high = ir.Function(module, ir.FunctionType(small, [small, small]), name)
        builder = ir.IRBuilder(high.append_basic_block())
        product = builder.mul(*(builder.zext(argument, double) for argument in high.args))
        builder.ret(builder.trunc(builder.lshr(product, double(bits)), small))
    layout = division.reserve(Layout(), len(order))
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [BYTES, I64, I64.as_pointer()]), "mathfuse_run")
    builder = ir.IRBuilder(function.append_basic_block())
    block, offset, index = function.args
    reader = Reader(Emitter(builder, CPU, True, 32), block, layout)
    for axis, position in enumerate(Decoder(reader, order, wide).index(offset)):
        builder.store(position.parts[0], builder.gep(index, [I64(axis)]))
    builder.ret_void()
    prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p)
    return layout, prototype(address_of(object_code(str(module))))


@pytest.mark.parametrize(
    ("shape", "order", "wide"),
    [
        ((7,), (0,), False),
        ((1, 1, 1), (0, 1, 2), False),
        ((3, 4, 5), (0, 1, 2), False),
        ((3, 4, 5), (2, 0, 1), False),
        ((4096, 1, 999_983), (0, 1, 2), False),
        ((2, 65_536, 32_767), (1, 0, 2), False),
        ((3, 1 << 20, 4099), (0, 1, 2), True),
        ((1 << 40, 6, 7, 8), (3, 0, 1, 2), True),
    ],
)
def test_generated_code(shape, order, wide):
    """``order`` lists the axes from the largest storage stride to the smallest, as in a transposed array."""
    extents = [shape[axis] for axis in order]
    strides = [math.prod(extents[k + 1 :]) for k in range(len(extents))]
    layout, decode = decoder(order, wide)
    writer = Writer(layout, weak_bits=32)
    division.fill(writer, strides, wide)
    size, index = math.prod(shape), np.empty(len(shape), np.int64)
    rng = np.random.default_rng(7)
    for offset in {0, size // 2, max(size - 2, 0), size - 1, *map(int, rng.integers(0, size, 200))}:
        decode(writer.block.ctypes.data, offset, index.ctypes.data)
        places = [offset // stride % extent for stride, extent in zip(strides, extents)]
        assert dict(zip(order, places)) == dict(enumerate(index)), offset
