"""The states of a plan, with the smallest pipeline there is: a number times a number."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from mathfuse.fusion.plan import Explanation, Plan
from mathfuse.runtime.errors import PlanError


@dataclass(frozen=True)
class Choices:
    factor: float = 1.0
    delay: float = 0.0


@dataclass(frozen=True)
class Product:
    x: float
    choices: Choices

    @property
    def explanation(self) -> Explanation:
        return Explanation(
            title="a product",
            strategy="python",
            reason="it is small",
            rejected=(("cuda", "no GPU"),),
            passes=("multiply",),
            details=(("factor", str(self.choices.factor)),),
            workspace_bytes=1024,
        )

    def run(self, out: Any, stream: Any = None) -> float:
        time.sleep(self.choices.delay)
        return self.x * self.choices.factor


class Multiply(Plan[float, Choices]):
    choices = Choices

    def __init__(self, x: float) -> None:
        super().__init__(f"times {x}", x)

    def _prepare(self, operands: float, choices: Choices) -> Product:
        if choices.factor < 0:
            raise PlanError("negative")
        return Product(operands, choices)

    def _replace(self, operands: float, choices: Choices, x: Any, named: Mapping[str, Any]) -> tuple[float, Choices]:
        return operands if x is None else x, replace(choices, **named)


def test_specify_plan_execute_reset_free():
    with Multiply(3.0) as m:
        assert m.plan(factor=2.0) is m
        assert m.execute() == 6
        assert m.reset_operands(5.0) is m
        assert m.execute() == 10
        assert m.reset_operands(factor=4.0).execute() == 20
        assert m.plan(options={"factor": 1.0}).execute() == 5
    m.free()


@pytest.mark.parametrize("use", ["execute", "explain", "reset_operands"])
def test_use_before_plan(use):
    with pytest.raises(PlanError, match=rf"Multiply\.{use} needs a plan: call plan"):
        getattr(Multiply(1.0), use)()


@pytest.mark.parametrize("use", ["plan", "execute", "explain", "reset_operands", "__enter__"])
def test_use_after_free(use):
    m = Multiply(1.0).plan()
    m.free()
    with pytest.raises(PlanError, match="this Multiply was freed: make a new one"):
        getattr(m, use)()


def test_unknown_options_are_named_with_the_known_ones():
    with pytest.raises(PlanError, match="no option 'fctor'; it has factor, delay"):
        Multiply(1.0).plan(fctor=2.0)
    with pytest.raises(PlanError, match="'speed'"):
        Multiply(1.0).plan(options={"speed": 2.0})


def test_a_failed_plan_leaves_the_old_one():
    m = Multiply(3.0).plan(factor=2.0)
    for wrong in (lambda: m.plan(factor=-1.0), lambda: m.reset_operands(7.0, factor=-1.0)):
        with pytest.raises(PlanError, match="negative"):
            wrong()
    assert m.execute() == 6


def test_repr_tells_the_state():
    m = Multiply(3.0)
    assert repr(m) == "<Multiply times 3.0: not planned>"
    assert repr(m.plan()) == "<Multiply times 3.0: strategy python>"
    m.free()
    assert repr(m) == "<Multiply times 3.0: freed>"


def test_explanation_reads_as_text():
    assert str(Multiply(3.0).plan(factor=2.0).explain()).split("\n  ") == [
        "a product",
        "strategy python: it is small",
        "not cuda: no GPU",
        "pass 1: multiply",
        "factor: 2.0",
        "workspace: 1,024 bytes",
    ]


def test_what_runs_finishes_while_others_plan_and_free():
    m = Multiply(3.0).plan(factor=2.0, delay=0.05)
    results = []
    threads = [threading.Thread(target=lambda: results.append(m.execute())) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.01)
    m.plan(factor=5.0)
    assert m.execute() == 15
    m.free()
    for thread in threads:
        thread.join()
    assert results == [6.0] * 4
