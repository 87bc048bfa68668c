"""GPU blocks whose threads meet at barriers, run on this processor: a thread of its own for each.

For code without functions of libdevice and instructions of PTX, as in `emulator`.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import re
import threading
from collections.abc import Callable, Sequence

import numpy as np

from mathfuse.fusion.compiler.cuda.blockcode import lower
from mathfuse.fusion.compiler.cuda.blocks import NAME, SLOTS, BlockKernel
from tests.fusion.compiler.cuda import emulator

REGISTERS = ("tid", "ctaid")
ENTRY = """
define void @mathfuse_run([{size} x i64]* %block, i32 %tid, i32 %ctaid, i32 (i8*)* %wait, i8* %barrier)
{{
  call void @"{name}"([{size} x i64]* byval([{size} x i64]) align 8 %block, i32 %tid, i32 %ctaid,
                      i32 (i8*)* %wait, i8* %barrier)
  ret void
}}
"""
BARRIER_BYTES = 64  # a pthread_barrier_t takes 32


def kernel(made: BlockKernel, callbacks: Sequence[str] = ()) -> Callable[[np.ndarray, int], None]:
    """``run(block, blocks)``: each block with all its threads, one block after another; `callbacks` are modules."""
    text, entry = with_threads(lower(made), NAME, made.shared_bytes), ENTRY.format(size=len(SLOTS), name=NAME)
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p)(
        emulator.native(text, entry, callbacks)
    )
    threads = made.block.threads
    libc = ctypes.CDLL(ctypes.util.find_library("c"))
    wait = ctypes.cast(libc.pthread_barrier_wait, ctypes.c_void_p)

    def launch(block: np.ndarray, blocks: int) -> None:
        barrier = ctypes.create_string_buffer(BARRIER_BYTES)
        assert libc.pthread_barrier_init(barrier, None, threads) == 0
        for number in range(blocks):
            team = [
                threading.Thread(target=run, args=(block.ctypes.data, thread, number, wait, ctypes.addressof(barrier)))
                for thread in range(threads)
            ]
            for each in team:
                each.start()
            for each in team:
                each.join()
        libc.pthread_barrier_destroy(barrier)

    return launch


def with_threads(text: str, name: str, shared_bytes: int) -> str:
    """The module with the registers of a thread and the barrier as parameters, and shared memory of its own."""
    text = re.sub(
        rf'(define void @"{name}"\(.*?)\)\s*\{{',
        r"\1, i32 %tid, i32 %ctaid, i32 (i8*)* %wait, i8* %barrier) {",
        text,
        count=1,
        flags=re.DOTALL,
    )
    for register in REGISTERS:
        read = rf'call i32 @"llvm.nvvm.read.ptx.sreg.{register}.x"\(\)(, !range !\d+)?'
        text = re.sub(read, f"add i32 %{register}, 0", text)
        text = re.sub(rf'^declare i32 @"llvm.nvvm.read.ptx.sreg.{register}.x".*$', "", text, flags=re.MULTILINE)
    text = re.sub(r'call void @"llvm.nvvm.barrier0"\(\)', "call i32 %wait(i8* %barrier)", text)
    text = re.sub(r'^declare void @"llvm.nvvm.barrier0".*$', "", text, flags=re.MULTILINE)
    text = re.sub(
        r'(@"mathfuse_shared") = external addrspace\(3\) global \[0 x i8\]',
        rf"\1 = internal addrspace(3) global [{max(shared_bytes, 1)} x i8] zeroinitializer",
        text,
    )
    return text.replace("[0 x i8] addrspace(3)*", f"[{max(shared_bytes, 1)} x i8] addrspace(3)*")
