"""The audit: what the linked machine code shows about a callback."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Functions that the toolchain itself calls: its division, square root, trigonometric reduction and 64-bit integer division.
HELPER = re.compile(r"__internal|__cuda_|__nv_")
SECTION = re.compile(r"^\s*\.section\s+\.text\.(\S+?),", re.MULTILINE)
INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)(.*)$", re.MULTILINE)
CALL_TARGET = re.compile(r"`\(([^)]+)\)")
FLOAT64 = re.compile(r"^(?:D(?:ADD|MUL|FMA|SETP|MNMX|SET|MMA)\b.*|MUFU\.\w*64H?.*|.*\.F64\b.*)")
LOCAL = re.compile(r"^(?:LDL|STL)\b")
USED = re.compile(
    r"Compiling entry function '(?P<name>[^']+)'.*?(?P<stack>\d+) bytes stack frame.*?Used (?P<registers>\d+) registers",
    re.DOTALL,
)


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
        Stack frame and spills of a thread.
    registers
        Registers a thread.
    call_targets
        Names of everything called.
    """

    calls: int
    helper_calls: int
    float64_instructions: int
    local_memory_bytes: int
    registers: int
    call_targets: tuple[str, ...] = ()


def audit(sass: str, log: str) -> dict[str, Audit]:
    """An :class:`Audit` for each kernel, from nvdisasm's listing and nvJitLink's log with ptxas' report."""
    report = {m["name"]: m for m in USED.finditer(log)}
    audits = {}
    for name, text in _kernels(sass).items():
        instructions = [(m[1], m[2]) for m in INSTRUCTION.finditer(text)]
        targets = tuple(_target(rest) for op, rest in instructions if op.startswith("CALL"))
        helpers = sum(bool(HELPER.search(target)) for target in targets)
        resources = report.get(name)
        stack = int(resources["stack"]) if resources else 0
        if not stack and any(LOCAL.match(op) for op, _ in instructions):
            stack = 4  # at least one word is moved through local memory
        audits[name] = Audit(
            calls=len(targets) - helpers,
            helper_calls=helpers,
            float64_instructions=sum(bool(FLOAT64.match(op)) for op, _ in instructions),
            local_memory_bytes=stack,
            registers=int(resources["registers"]) if resources else 0,
            call_targets=targets,
        )
    return audits


def _target(operands: str) -> str:
    """The symbol in a CALL's operands, or the whole of them (an indirect call)."""
    match = CALL_TARGET.search(operands)
    return match[1] if match else operands.strip(" ;")


def _kernels(sass: str) -> dict[str, str]:
    """The listing cut into sections of code."""
    marks = [(m[1], m.start()) for m in SECTION.finditer(sass)]
    ends = [start for _, start in marks[1:]] + [len(sass)]
    return {name: sass[start:end] for (name, start), end in zip(marks, ends)}
