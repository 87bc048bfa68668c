"""GPU code run on this processor: the same LLVM instructions, thread after thread.

For callbacks without functions of libdevice or instructions of PTX.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from mathfuse.fusion.compiler.cpu.native import address_of, object_code
from mathfuse.fusion.compiler.cuda.tiling import THREADS
from mathfuse.fusion.compiler.cuda.units import Unit

REGISTER = "llvm.nvvm.read.ptx.sreg.{}.x"
HIGH = """
define {t} @"{name}"({t} %x, {t} %y) {{
  %a = zext {t} %x to {d}
  %b = zext {t} %y to {d}
  %c = mul {d} %a, %b
  %e = lshr {d} %c, {bits}
  %f = trunc {d} %e to {t}
  ret {t} %f
}}
"""
GRID = """
define void @mathfuse_run([{size} x i64]* %block, i32 %blocks)
{{
entry:
  store i32 %blocks, i32* @register.nctaid
  br label %outer
outer:
  %b = phi i32 [0, %entry], [%b.next, %outer.end]
  store i32 %b, i32* @register.ctaid
  br label %inner
inner:
  %t = phi i32 [0, %outer], [%t.next, %inner]
  store i32 %t, i32* @register.tid
  call void @"{name}"([{size} x i64]* byval([{size} x i64]) align 8 %block)
  %t.next = add i32 %t, 1
  %t.more = icmp ult i32 %t.next, {threads}
  br i1 %t.more, label %inner, label %outer.end
outer.end:
  %b.next = add i32 %b, 1
  %b.more = icmp ult i32 %b.next, %blocks
  br i1 %b.more, label %outer, label %exit
exit:
  ret void
}}
"""
STRUCT = {"complex64": "%struct.float2", "complex128": "%struct.double2", "float32": "float", "float64": "double"}
LOAD = """
define void @mathfuse_run(i8* %data, i64 %offset, {element}* %value, i8* %info)
{{
  %x = call {element} @"{name}"(i8* %data, i64 %offset, i8* %info, i8* null)
  store {element} %x, {element}* %value
  ret void
}}
"""
STORE = """
define void @mathfuse_run(i8* %data, i64 %offset, {element}* %value, i8* %info)
{{
  %x = load {element}, {element}* %value
  call void @"{name}"(i8* %data, i64 %offset, {element} %x, i8* %info, i8* null)
  ret void
}}
"""


def native(text: str, entry: str, callbacks: Sequence[str] = ()) -> int:
    """The address of ``entry`` beside GPU code, linked with that of callbacks."""
    parts = [llvm.parse_assembly(part) for part in (here(text) + entry, *map(here, callbacks))]
    for part in parts[1:]:
        parts[0].link_in(part)
    return address_of(object_code(str(parts[0])))


def here(text: str) -> str:
    """GPU code as code for this processor, with the GPU's registers and multiplications written out."""
    text = re.sub(r"^(target |!nvvm.annotations).*$", "", text, flags=re.MULTILINE)
    text = re.sub(r", !invariant.load !\d+", "", text)  # once inlined, the parameters are copied to what is read so
    for register in ("tid", "ctaid", "nctaid"):
        known = f'@"{REGISTER.format(register)}"'
        body = f"{{\n  %x = load i32, i32* @register.{register}\n  ret i32 %x\n}}"
        text = re.sub(rf"declare i32 {re.escape(known)}\(\).*", f"define i32 {known}() {body}", text)
        text = text.replace(known, f"@{register}") + f"\n@register.{register} = internal global i32 0\n"
    for name, bits in (("__nv_umulhi", 32), ("__nv_umul64hi", 64)):
        high = HIGH.format(name=name, t=f"i{bits}", d=f"i{2 * bits}", bits=bits)
        text = re.sub(rf'declare i{bits} @"{name}"\(.*', high, text)
    return text


def kernel(unit: Unit) -> Callable[[np.ndarray, int], None]:
    """``run(block, blocks)``: every thread of every block, one after another."""
    size = unit.layout.size
    entry = GRID.format(size=size, name=unit.name, threads=THREADS)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32)(native(unit.lower()[0], entry))
    return lambda block, blocks: function(block.ctypes.data, blocks)


def callback(unit: Unit) -> Callable[[int, int, np.ndarray, np.ndarray], None]:
    """``run(data, offset, value, block)``: what cuFFT would do for one element; ``value`` is given or taken."""
    assert unit.dtype is not None
    entry = (LOAD if unit.side == "prolog" else STORE).format(element=STRUCT[str(unit.dtype)], name=unit.name)
    pointer: Any = ctypes.c_void_p
    function = ctypes.CFUNCTYPE(None, pointer, ctypes.c_uint64, pointer, pointer)(native(unit.lower()[0], entry))
    return lambda data, offset, value, block: function(data, offset, value.ctypes.data, block.ctypes.data)
