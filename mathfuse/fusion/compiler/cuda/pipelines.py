"""The exact prototypes through which GPU pipelines call a callback, and the function bodies that connect the two.

nvJitLink links a callback of another prototype without a word and leaves a call behind. So each entry here is one
function with the pipeline's own name and types, into which the callback is evaluated; only that function itself is left
to inline.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from llvmlite import ir

from mathfuse.fusion.compiler.cuda.division import Decoder
from mathfuse.fusion.compiler.emit.emitter import BYTES, FLOAT, I64, Emitter, Value
from mathfuse.fusion.compiler.emit.scalars import Scalar, of_dtype
from mathfuse.fusion.compiler.parameters import Layout
from mathfuse.fusion.compiler.reader import Reader
from mathfuse.fusion.compiler.signature import Signature
from mathfuse.runtime.errors import UnsupportedError

if TYPE_CHECKING:
    from mathfuse.fusion.compiler.lowering import Lowering  # the evaluator, which a known callback does without

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


def llvm_element(module: ir.Module, dtype: np.dtype) -> ir.Type:
    """How C++ passes an element by value: a scalar, or CUDA's ``float2`` or ``double2``."""
    bits = of_dtype(dtype).bits
    if dtype.kind == "f":
        return FLOAT[bits]
    struct = module.context.get_identified_type("struct.float2" if bits == 32 else "struct.double2")
    if struct.is_opaque:
        struct.set_body(FLOAT[bits], FLOAT[bits])
    return struct


def from_struct(emitter: Emitter, argument: ir.Value, scalar: Scalar) -> Value:
    if scalar.kind != "c":
        return Value(scalar, (argument,))
    return Value(scalar, tuple(emitter.builder.extract_value(argument, k) for k in (0, 1)))


def to_struct(emitter: Emitter, value: Value, llvm: ir.Type) -> ir.Value:
    if value.type.kind != "c":
        return value.parts[0]
    struct: ir.Value = ir.Constant(llvm, ir.Undefined)
    for k in (0, 1):
        struct = emitter.builder.insert_value(struct, value.parts[k], k)
    return struct


# --- layouts: what precedes the callback's own slots -----------------------------------------------------------------


def transform_layout(signature: Signature) -> Layout:
    """A cuFFT callback decodes the element's offset; a division an axis."""
    return Decoder.reserve(Layout(), signature.ndim).add_signature(signature)


def product_layout(signature: Signature) -> Layout:
    return Layout().add_signature(signature)


def elementwise_layout(signature: Signature) -> Layout:
    layout = Decoder.reserve(Layout(), signature.ndim)
    for name, count in (
        ("source_block", 1),
        ("destination_block", 1),
        ("source_strides", signature.ndim),
        ("destination_strides", signature.ndim),
    ):
        layout.add(name, count)
    return layout.add_signature(signature)


# --- bodies ----------------------------------------------------------------------------------------------------------


def build_transform_callback(
    lowering: Lowering, symbol: str, side: str, dtype: np.dtype, order: tuple[int, ...], wide: bool
) -> None:
    """cuFFT's callback: decode the offset, read or take the element, evaluate, return or store."""
    module, scalar = lowering.module, of_dtype(dtype)
    element = llvm_element(module, dtype)
    load = side == "prolog"
    arguments = [BYTES, I64, BYTES, BYTES] if load else [BYTES, I64, element, BYTES, BYTES]
    function = ir.Function(module, ir.FunctionType(element if load else ir.VoidType(), arguments), symbol)
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    emitter = lowering.emitter(builder)
    data, offset, info = function.args[0], function.args[1], function.args[-2]
    index = Decoder(Reader(emitter, info, lowering.layout), order, wide).index(offset)
    moved = lowering.signature.value_dtype if load else dtype  # a prolog may read another dtype than it returns
    address = emitter.offset(data, [offset], [I64(moved.itemsize)])
    value = emitter.load(address, moved, invariant=False) if load else from_struct(emitter, function.args[2], scalar)
    result = lowering.apply(builder, value, index, info)
    result = lowering.require(result, dtype, "what the transform reads" if load else "the transform's result", emitter)
    if load:
        builder.ret(to_struct(emitter, result, element))
    else:
        emitter.store(address, dtype, result)
        builder.ret_void()


def build_product_callback(lowering: Lowering, symbol: str, dtype: np.dtype) -> None:
    """The epilog of a product; a batch has one leading index."""
    element = llvm_element(lowering.module, dtype)
    function = ir.Function(lowering.module, ir.FunctionType(element, [element, I64, I64, I64, BYTES]), symbol)
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    emitter = lowering.emitter(builder)
    value, *position, info = function.args
    index = tuple(emitter.integer(i) for i in position)[3 - lowering.signature.ndim :]
    result = lowering.apply(builder, from_struct(emitter, value, of_dtype(dtype)), index, info)
    builder.ret(to_struct(emitter, lowering.require(result, dtype, "the product", emitter), element))


def build_elementwise_kernel(lowering: Lowering, symbol: str, dtype: np.dtype | None, wide: bool) -> np.dtype:
    """A kernel of its own, ``symbol(block, count)``: grid-stride over the logical elements in C order.

    Gives the dtype stored.
    """
    signature = lowering.signature
    function = ir.Function(lowering.module, ir.FunctionType(ir.VoidType(), [BYTES, I64]), symbol)
    _mark_kernel(lowering.module, function)
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    emitter = lowering.emitter(builder)
    block, count = function.args
    reader = Reader(emitter, block, lowering.layout)
    threads, blocks, thread, group = (
        builder.zext(emitter.call(f"llvm.nvvm.read.ptx.sreg.{name}.x", ir.IntType(32), []), I64)
        for name in ("ntid", "nctaid", "tid", "ctaid")
    )
    first = builder.add(builder.mul(group, threads), thread)
    step = builder.mul(threads, blocks)
    source, destination = reader.pointer("source_block"), reader.pointer("destination_block")
    strides = [list(reader.integers(f"{side}_strides", signature.ndim)) for side in ("source", "destination")]
    entry = builder.block
    head, body, after = (builder.append_basic_block(name) for name in ("head", "body", "after"))
    builder.branch(head)
    builder.position_at_end(head)
    linear = builder.phi(I64)
    linear.add_incoming(first, entry)
    builder.cbranch(builder.icmp_signed("<", linear, count), body, after)
    builder.position_at_end(body)
    index = Decoder(reader, tuple(range(signature.ndim)), wide).index(linear)
    positions = [i.parts[0] for i in index]
    value = emitter.load(emitter.offset(source, positions, strides[0]), signature.value_dtype, invariant=False)
    result = lowering.apply(builder, value, index, block)
    stored = dtype or lowering.result.dtype
    emitter.store(
        emitter.offset(destination, positions, strides[1]),
        stored,
        lowering.require(result, stored, "the result", emitter),
    )
    linear.add_incoming(builder.add(linear, step), builder.block)
    builder.branch(head)
    builder.position_at_end(after)
    builder.ret_void()
    return stored


def _mark_kernel(module: ir.Module, function: ir.Function) -> None:
    """Makes a function a kernel, and keeps the linker from dropping what nothing calls."""
    note = module.add_metadata([function, "kernel", ir.Constant(ir.IntType(32), 1)])
    module.add_named_metadata("nvvm.annotations", note)
    kept = ir.GlobalVariable(module, ir.ArrayType(BYTES, 1), "llvm.used")
    kept.linkage, kept.section = "appending", "llvm.metadata"
    kept.initializer = ir.Constant(kept.value_type, [function.bitcast(BYTES)])
