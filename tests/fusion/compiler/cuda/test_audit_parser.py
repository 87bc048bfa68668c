"""The audit's reading of listings and logs: lines as nvdisasm and ptxas print them, for four architectures."""

from __future__ import annotations

import pytest

from mathfuse.fusion.compiler.cuda.audit import Audit, audit
from mathfuse.runtime.errors import ToolchainError

SECTION = """
//--------------------- .text.{name}          --------------------------
	.section	.text.{name},"ax",@progbits
	.align	128
        .global         {name}
        .type           {name},@function
        .size           {name},(.L_x_9 - {name})
        .other          {name},@"STO_CUDA_ENTRY STV_DEFAULT"
{name}:
.text.{name}:
{code}
.L_x_9:
"""
REPORT = """ptxas info    : Compiling entry function '{name}' for 'sm_90a'
ptxas info    : Function properties for {name}
ptxas         .     {stack} bytes stack frame, {stores} bytes spill stores, {loads} bytes spill loads
ptxas info    : Used {registers} registers, used 1 barriers, 360 bytes cmem[0]
ptxas info    : Compile time = 17.455 ms
"""


def listing(*instructions: str, name: str = "kernel") -> str:
    code = "\n".join(
        text if text.endswith(":") else f"        /*{16 * number:04x}*/                   {text}"
        for number, text in enumerate(instructions)
    )
    return SECTION.format(name=name, code=code)


def report(name: str = "kernel", stack: int = 0, stores: int = 0, loads: int = 0, registers: int = 24) -> str:
    return REPORT.format(name=name, stack=stack, stores=stores, loads=loads, registers=registers)


def read(*instructions: str) -> Audit:
    return audit(listing(*instructions), report())["kernel"]


@pytest.mark.parametrize(
    "instruction",
    [
        "DADD R8, R8, R14 ;",
        "@!P0 DMUL R2, R6, 8.98846567431157953865e+307 ;",
        "DMUL.RP R8, R14, R8 ;",
        "@!P2 DFMA R10, R10, 2, -R18 ;",
        "DSETP.GTU.AND P0, PT, |R8|, +INF , PT ;",
        "DMNMX R2, R4, R6, !PT ;",
        "DMMA.884 R4, R2, R6, R4 ;",
        "MUFU.RCP64H R9, R7 ;",
        "@P1 MUFU.RSQ64H R9, R3 ;",
        "F2F.F64.F32 R10, R10 ;",
        "@P0 F2F.F32.F64 R0, R2 ;",
        "I2F.F64 R2, R0 ;",
        "I2F.F64.S64 R14, R14 ;",
        "I2F.F64.U32 R4, R4 ;",
        "F2I.S64.F64.FLOOR R18, R2 ;",
        "F2I.F64.TRUNC R0, R2 ;",
        "FRND.F64.FLOOR R2, R2 ;",
        "RED.E.ADD.F64.RN.STRONG.GPU [R2.64], R4 ;",
        "REDG.E.ADD.F64.RN.STRONG.GPU desc[UR4][R2.64], R4 ;",
    ],
)
def test_float64(instruction):
    assert read("S2R R0, SR_TID.X ;", instruction, "EXIT ;").float64_instructions == 1


@pytest.mark.parametrize(
    "instruction",
    [
        "LDG.E.64 R8, desc[UR4][R8.64] ;",
        "STG.E.128 desc[UR6][R2.64], R4 ;",
        "IMAD.WIDE.U32 R10, R3, UR4, R10 ;",
        "ULDC.64 UR6, c[0x0][0x210] ;",
        "@!UPT UIADD3 URZ, URZ, URZ, URZ ;",
        "@UP0 UMOV UR4, 0x1 ;",
        "BRA.U !UP0, `(.L_x_3) ;",
        "DEPBAR.LE SB0, 0x0 ;",
        "FFMA R0, RZ, R7, R3 ;",
        "MUFU.RCP R3, R2 ;",
        "@P0 MUFU.EX2 R3, R2 ;",
        "F2F.BF16.F32 R0, R0 ;",
        "I2F.U64 R0, R2 ;",
        "I2FP.F32.S32 R0, R2 ;",
        "F2I.S64.TRUNC R2, R0 ;",
        "LDC.64 R4, c[0x0][0x380] &req={0} ;",
        "HFMA2.MMA R3, -RZ, RZ, 0, 0 ;",
        "@P0 BRA P2, `(.L_x_1) ;",
        "RET.REL.NODEC R2 `(kernel) ;",
        'BRX R4 -0x210                                     (*"BRANCH_TARGETS .L_x_1,.L_x_2"*);',
        # Leaving a loop on sm_80.
        "@P0 CALL.REL.NOINC `(.L_x_980) ;",
    ],
)
def test_neither_float64_nor_a_call(instruction):
    assert read(instruction, "EXIT ;") == Audit(0, 0, 0, 0, 0, 24)


@pytest.mark.parametrize(
    ("instruction", "target"),
    [
        ("CALL.REL.NOINC `($k_call$_Z5plainfPv) ;", "$k_call$_Z5plainfPv"),
        ("@!P0 CALL.ABS.NOINC `(cufftJITCallbackStoreComplex) ;", "cufftJITCallbackStoreComplex"),
        ("CALL.REL.NOINC R6 `(k_indirect) ;", "k_indirect"),
        ("@P0 CALL.ABS R4 ;", "R4"),
        ("CALL.ABS.NOINC 0x0 ;", "0x0"),
        ("BRA `(callback) ;", "callback"),
        ("JMP `(callback) ;", "callback"),
        ("CALL.REL.NOINC `(my__internal_function) ;", "my__internal_function"),
    ],
)
def test_calls(instruction, target):
    found = read("MOV R0, 0x220 ;", instruction, "EXIT ;")
    assert (found.calls, found.helper_calls, found.call_targets) == (1, 0, (target,))


@pytest.mark.parametrize(
    "target",
    [
        "$__internal_0_$__cuda_sm20_div_rn_f64_full",
        "$__internal_2_$__cuda_sm3x_div_rn_noftz_f32_slowpath",
        "$__internal_1_$__cuda_sm20_dsqrt_rn_f64_mediumpath_v1",
        "$kernel$__internal_trig_reduction_slowpathd$219",
        "__cuda_sm20_rem_s64",
        "__nv_sinf",
    ],
)
def test_helper_calls(target):
    found = read(f"@P1 CALL.REL.NOINC `({target}) ;", "EXIT ;", ".L_x_1:", "BRA `(.L_x_1) ;")
    assert (found.calls, found.helper_calls, found.call_targets) == (0, 1, (target,))


def test_resources_by_ptxas_report():
    log = "ptxas info    : 16 bytes gmem\n" + report(stack=328, stores=416, loads=460, registers=32)
    found = audit(listing('STL [R1+0x20], R21                        (*"SpillRefill"*);', "LDL R25, [R25] ;"), log)
    assert found == {"kernel": Audit(0, 0, 0, local_memory_bytes=328, spill_bytes=876, registers=32)}


def test_frames_of_called_functions_count():
    callee = """ptxas info    : Function properties for _Z3recfi
ptxas         .     56 bytes stack frame, 20 bytes spill stores, 20 bytes spill loads
"""
    log = report(name="other", stack=8) + report() + callee
    found = audit(listing("EXIT ;", name="other") + listing("EXIT ;"), log)
    assert [(a.local_memory_bytes, a.spill_bytes) for a in (found["kernel"], found["other"])] == [(56, 40), (8, 0)]


def test_each_kernel_has_its_own_audit():
    sass = listing("DADD R8, R8, R14 ;", name="a") + listing("CALL.REL.NOINC `(f) ;", name="b") + "//--- SYMBOLS ---\n"
    found = audit(sass, report("b", registers=40) + report("a", registers=16))
    assert found == {"a": Audit(0, 0, 1, 0, 0, 16), "b": Audit(1, 0, 0, 0, 0, 40, ("f",))}


def test_a_function_with_a_section_of_its_own_is_no_kernel():
    function = listing("RET.ABS.NODEC R20 ;", name="_Z1fv").replace('@"STO_CUDA_ENTRY STV_DEFAULT"', "@STV_DEFAULT")
    assert list(audit(listing("EXIT ;") + function, report())) == ["kernel"]


@pytest.mark.parametrize(("sass", "log"), [("", report()), (listing("EXIT ;"), "")])
def test_a_listing_and_a_log_of_different_kernels(sass, log):
    with pytest.raises(ToolchainError, match="do not tell of the same kernels: kernel"):
        audit(sass, log)
