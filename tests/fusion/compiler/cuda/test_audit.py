"""What the linked machine code shows of many callbacks, in every pipeline and dtype they fit, for four architectures.

One link and one disassembly for each architecture and dtype: a disassembly alone takes a third of a second.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest

import mathfuse as mf
from mathfuse.fusion.compiler.cuda import artifacts
from mathfuse.fusion.compiler.cuda.audit import Audit
from mathfuse.fusion.compiler.cuda.interface import make_unit
from mathfuse.fusion.compiler.cuda.units import Unit

from .callbacks import CASES, FUNCTIONS, OPERATORS, READY_MADE, WIDE, Case

ARCHS = ("sm_80", "sm_90a", "sm_100", "sm_120")
SINGLE, DOUBLE = ("float32", "complex64"), ("float64", "complex128")


@pytest.fixture(scope="module", autouse=True)
def lowered_once():
    """The four architectures share one lowering: LLVM modules do not name the architecture."""
    lower = Unit.lower
    kept = functools.cache(lambda unit: lower(unit))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Unit, "lower", lambda unit: kept(dataclasses.replace(unit, arch="")))
        yield


def pipelines(case: Case, number: int, dtype: str) -> tuple[str, ...]:
    """All that the case fits; a mere function, and 64-bit code, is the same in each: they take turns."""
    everywhere = case in READY_MADE or (dtype in SINGLE and case not in FUNCTIONS)
    return case.pipelines if everywhere else (case.pipelines[number % len(case.pipelines)],)


def unit(case: Case, pipeline: str, dtype: str, arch: str, symbol: str) -> Unit:
    element = np.dtype(dtype)
    real = np.empty(0, element).real.dtype.name
    operands = {
        name: given.replace("same", dtype).replace("real", real) if isinstance(given, str) else given
        for name, given in case.operands.items()
    }
    name, _, side = pipeline.partition(" ")
    return make_unit(case.callback, name, element, operands, arch, side or None, case.ndim, case.axes, symbol=symbol)


@functools.cache
def audits(arch: str, dtype: str) -> dict[str, Audit]:
    """The audit of every case in its pipelines."""
    kind = np.dtype(dtype).kind
    units = {
        f"{case.name}, {pipeline}": unit(case, pipeline, dtype, arch, f"callback_{number}_{pipeline.replace(' ', '_')}")
        for number, case in enumerate(CASES)
        if kind in case.kinds
        for pipeline in pipelines(case, number, dtype)
    }
    found = artifacts.audit_all(list(units.values()))
    return {name: found[unit] for name, unit in units.items()}


def test_the_cases_are_told_apart_and_hold_every_ready_made_callback():
    assert len({case.name for case in CASES}) == len(CASES)
    ready_made = {name for name in mf.__all__ if isinstance(getattr(mf, name), mf.Callback)}
    assert {case.callback.links[0].function.__name__ for case in READY_MADE} == ready_made
    assert len(ready_made) == 20


@pytest.mark.parametrize("dtype", SINGLE + DOUBLE)
@pytest.mark.parametrize("arch", ARCHS)
def test_every_callback_is_inlined(arch, dtype):
    assert {name: audit.call_targets for name, audit in audits(arch, dtype).items() if audit.calls} == {}


@pytest.mark.parametrize("finding", ["helper_calls", "float64_instructions", "local_memory_bytes", "spill_bytes"])
@pytest.mark.parametrize("dtype", SINGLE)
@pytest.mark.parametrize("arch", ARCHS)
def test_32_bit_callbacks_stay_clean(arch, dtype, finding):
    assert {name: audit for name, audit in audits(arch, dtype).items() if getattr(audit, finding)} == {}


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float16"])
def test_narrow_elements_are_computed_in_float32(dtype):
    """Integers of up to 16 bits and float16, in an elementwise kernel."""
    units = [unit(case, "elementwise", dtype, "sm_90a", f"wide_{number}") for number, case in enumerate(WIDE)]
    found = artifacts.audit_all(units)
    assert {u.signature.callback.__name__: a for u, a in found.items() if a.calls or a.float64_instructions} == {}


def test_without_fastmath_nothing_but_helpers_is_called():
    """IEEE division and square root are the toolchain's own functions; nothing widens there, either."""
    strict = [dataclasses.replace(c, callback=c.callback.with_options(fastmath=False)) for c in READY_MADE + OPERATORS]
    units = [
        unit(case, case.pipelines[-1], dtype, "sm_90a", f"strict_{number}_{dtype}")
        for number, case in enumerate(strict)
        for dtype in SINGLE
        if np.dtype(dtype).kind in case.kinds
    ]
    found = artifacts.audit_all(units)
    assert {u.signature.callback: a for u, a in found.items() if a.calls or a.float64_instructions} == {}
    assert sum(bool(a.helper_calls) for a in found.values()) > 10


@pytest.mark.parametrize("arch", ARCHS)
def test_64_bit_callbacks_are_found_to_be_64_bit(arch):
    """The audit that finds nothing in 32 bits finds it here: no test above holds because nothing was looked at."""
    found = audits(arch, "float64")
    arithmetic = [audit for name, audit in found.items() if name.startswith(("value * 0.1,", "value / 3,", "gelu,"))]
    assert arithmetic and all(audit.float64_instructions for audit in arithmetic)
    assert any(audit.helper_calls for audit in found.values())


@pytest.mark.parametrize("arch", ARCHS)
def test_registers_are_counted(arch):
    assert all(8 <= audit.registers <= 64 for audit in audits(arch, "float32").values())
