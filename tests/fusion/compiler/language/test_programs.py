"""Programs made at random: compiled and in plain Python they agree."""

from __future__ import annotations

import random

import numpy as np
import pytest

import mathfuse as mf

from .harness import define, run

HEAD = """
def helper(x, y):
    if x > y:
        return x - y
    return y

def function(value, index, k):
    i, a, b, c, d = 1, value, index[0], 0.5, 2
"""
X = np.array([0.75, -1.5, 2.25, 0.1])


class Writer:
    """Writes one program; `choose` and `chance` decide."""

    def __init__(self, seed: int) -> None:
        source = random.Random(seed)
        self.choose, self.chance = source.choice, source.random
        self.lines: list[str] = []
        self.budget = 24

    def program(self) -> str:
        self.block(1, loop=False)
        return HEAD + "\n".join(self.lines) + "\n    return a + b * 0.5 + c * 0.25 + d\n"

    def variable(self) -> str:
        return self.choose("abcd")

    def number(self, depth: int = 0) -> str:
        if depth > 2 or self.chance() < 0.45:
            return self.choose(["a", "b", "c", "d", "value", "index[0]", "i", "k", "2", "0.5", "-1", "3"])
        p, q, r = (self.number(depth + 1) for _ in range(3))
        return self.choose(
            [
                f"({p} {self.choose('+-*')} {q})",
                f"({p} / 4)",
                f"min({p}, {q})",
                f"({p} if {self.truth(depth + 1)} else {q})",
                f"helper({p}, {q})",
                f"({p}, {q}, {r})[index[0] % 3]",
                f"abs({p})",
            ]
        )

    def truth(self, depth: int = 0) -> str:
        if depth > 2 or self.chance() < 0.6:
            return (
                f"{self.number(depth + 1)} {self.choose(['<', '<=', '>', '>=', '==', '!='])} {self.number(depth + 1)}"
            )
        p, q = self.truth(depth + 1), self.truth(depth + 1)
        return self.choose([f"({p} and {q})", f"({p} or {q})", f"not ({p})"])

    def block(self, indent: int, loop: bool) -> None:
        for _ in range(self.choose([1, 2, 3, 4])):
            self.budget -= 1
            deep = indent > 3 or self.budget < 0
            kinds = (
                [self.assignment] * 4
                + [self.leave]
                + ([] if deep else [self.branch, self.branch, self.loop, self.count])
            )
            self.choose(kinds)(indent, loop)

    def write(self, indent: int, text: str) -> None:
        self.lines.append("    " * indent + text)

    def assignment(self, indent: int, loop: bool) -> None:
        x, y, p, q = self.variable(), self.variable(), self.number(), self.number()
        text = [
            f"{x} = {p}",
            f"{x} += {p}",
            f"{x} -= {p}",
            f"{x}, {y} = {p}, {q}",
            f"t = ({p}, {q}); {x} = t[0] + t[1]",
        ]
        self.write(indent, self.choose([*text, f"f = lambda z, q={x}: z + q * 0.5; {y} = f({p})"]))

    def leave(self, indent: int, loop: bool) -> None:
        self.write(indent, f"if {self.truth()}:")
        self.write(indent + 1, self.choose([f"return {self.number()}", "break", "continue"] if loop else ["pass"]))

    def branch(self, indent: int, loop: bool) -> None:
        self.write(indent, f"if {self.truth()}:")
        self.block(indent + 1, loop)
        if self.chance() < 0.5:
            self.write(indent, "else:")
            self.block(indent + 1, loop)

    def loop(self, indent: int, loop: bool) -> None:
        over = ["range(3)", "range(index[0] + 1)", "range(20)", "range(index[0], 5)", "range(2, index[0] - 3, -1)"]
        over += ["(*index, 1)", "(value, 2, a)"]
        head = f"for i in {self.choose(over)}:" if self.chance() < 0.8 else "for i, z in zip((1, b), (c, 0.5)):"
        self.write(indent, head)
        self.block(indent + 1, loop=True)
        self.write(indent + 1, "a, b, c = a * 0.25, b * 0.25, c * 0.25")
        if self.chance() < 0.3:
            self.write(indent, "else:")
            self.block(indent + 1, loop)

    def count(self, indent: int, loop: bool) -> None:
        n = f"n{len(self.lines)}"
        self.write(indent, f"{n} = 0")
        self.write(indent, f"while {n} < index[0] + 2 and {self.truth()}:")
        self.write(indent + 1, f"{n} += 1")
        self.block(indent + 1, loop=True)
        self.write(indent + 1, "a, b, d = a * 0.25, b * 0.25, d * 0.25")


@pytest.mark.parametrize("seed", range(30))
def test_random_program(seed):
    source = Writer(seed).program()
    function = define(source)
    expected = [float(function(float(v), (i,), 1.25)) for i, v in enumerate(X)]
    found = run(mf.epilog(function, fastmath=False), X, result="float64", k=1.25)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9, err_msg=source)
