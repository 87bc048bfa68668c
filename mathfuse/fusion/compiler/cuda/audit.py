"""The audit: what the linked machine code shows about a callback."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mathfuse.runtime.errors import ToolchainError

# Functions that the toolchain itself calls: division, square root, trigonometric reduction, 64-bit integer division.
HELPER = re.compile(r"(?:^|\$)__(?:internal|cuda|nv)_")
SECTION = re.compile(r"^\s*\.section\s+\.text\.(\S+?),", re.MULTILINE)
INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)(.*)$", re.MULTILINE)
SYMBOL = re.compile(r"`\(([^)]+)\)")
FLOAT64 = re.compile(r"U?D(?:ADD|MUL|FMA|SETP|MNMX|SET|MMA)\b|MUFU\.\w*64|\S*\.F64")
# ptxas' report: a kernel, then the functions that it calls, each with its frame.
ENTRY = re.compile(r"Compiling entry function '([^']+)'")
FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")


@dataclass(frozen=True)
class Audit:
    """What the machine code of a callback's pipeline shows.

    Attributes
    ----------
    calls
        Calls to user or library functions: a callback that was not inlined. Always 0 for a fused callback.
    helper_calls
        Calls to the toolchain's own math helpers, such as IEEE division.
    float64_instructions
        D-instructions, conversions from and to float64, and 64-bit special functions.
    local_memory_bytes
        Stack frames of a thread: arrays in local memory and spilled registers, by ptxas' report.
    spill_bytes
        What is stored to and loaded from spilled registers; part of the traffic to local memory.
    registers
        Registers a thread.
    call_targets
        Names of everything called.
    """

    calls: int
    helper_calls: int
    float64_instructions: int
    local_memory_bytes: int
    spill_bytes: int
    registers: int
    call_targets: tuple[str, ...] = ()


def audit(sass: str, log: str) -> dict[str, Audit]:
    """An :class:`Audit` for each kernel, from nvdisasm's listing and nvJitLink's log with ptxas' report.

    Raises
    ------
    ToolchainError
        The log and the listing do not tell of the same kernels.
    """
    code, report = _kernels(sass), _reports(log)
    if missing := sorted(code.keys() ^ report.keys()):
        raise ToolchainError(f"the listing and ptxas' report do not tell of the same kernels: {', '.join(missing)}")
    return {name: _audit(text, report[name]) for name, text in code.items()}


def _audit(text: str, report: str) -> Audit:
    instructions = [(m[1], m[2]) for m in INSTRUCTION.finditer(text)]
    targets = tuple(target for target in (_target(*instruction) for instruction in instructions) if target)
    helpers = sum(bool(HELPER.search(target)) for target in targets)
    frames = [tuple(map(int, m.groups())) for m in FRAME.finditer(report)]
    return Audit(
        calls=len(targets) - helpers,
        helper_calls=helpers,
        float64_instructions=sum(bool(FLOAT64.match(op)) for op, _ in instructions),
        local_memory_bytes=sum(stack for stack, _, _ in frames),
        spill_bytes=sum(stores + loads for _, stores, loads in frames),
        registers=max(int(m[1]) for m in REGISTERS.finditer(report)),
        call_targets=targets,
    )


def _target(op: str, operands: str) -> str:
    """What an instruction calls: a symbol or, in an indirect call, the operands; nothing for any other instruction.

    A branch to a function is a call that does not come back, and a CALL of a label is a branch (so does ptxas leave
    loops on sm_80).
    """
    if not op.startswith(("CALL", "BRA", "JMP")):
        return ""
    symbol = SYMBOL.search(operands)
    if symbol:
        return "" if symbol[1].startswith(".L_") else symbol[1]
    return operands.strip(" ;") if op.startswith("CALL") else ""


def _kernels(sass: str) -> dict[str, str]:
    """Name and text of every kernel in a listing."""
    _, *parts = SECTION.split(sass)
    return {name: text for name, text in zip(parts[::2], parts[1::2]) if "STO_CUDA_ENTRY" in text}


def _reports(log: str) -> dict[str, str]:
    """Name and ptxas' report of every kernel in a log."""
    _, *parts = ENTRY.split(log)
    return dict(zip(parts[::2], parts[1::2]))
