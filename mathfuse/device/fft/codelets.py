"""Butterflies: transforms of 2 to 16 elements in registers, emitted as LLVM instructions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from llvmlite import ir

from mathfuse.device.fft.shapes import split
from mathfuse.device.fft.twiddles import roots

FLOAT = {32: ir.FloatType(), 64: ir.DoubleType()}
Complex = tuple[ir.Value, ir.Value]


class Arithmetic:
    """Complex arithmetic in one precision; products and sums may be contracted.

    Parameters
    ----------
    builder
        Where the instructions go.
    bits
        32 or 64, of a component.
    """

    def __init__(self, builder: ir.IRBuilder, bits: int) -> None:
        self.builder, self.type, self.flags = builder, FLOAT[bits], ("contract",)

    def add(self, p: Complex, q: Complex) -> Complex:
        return self._real("fadd", p[0], q[0]), self._real("fadd", p[1], q[1])

    def subtract(self, p: Complex, q: Complex) -> Complex:
        return self._real("fsub", p[0], q[0]), self._real("fsub", p[1], q[1])

    def multiply(self, p: Complex, q: Complex) -> Complex:
        (a, b), (c, d) = p, q
        return (
            self._real("fsub", self._real("fmul", a, c), self._real("fmul", b, d)),
            self._real("fadd", self._real("fmul", a, d), self._real("fmul", b, c)),
        )

    def scale(self, p: Complex, factor: float) -> Complex:
        constant = self._constant(factor)
        return self._real("fmul", p[0], constant), self._real("fmul", p[1], constant)

    def rotate(self, p: Complex, sign: int) -> Complex:
        """``sign * i * p``."""
        return (self._negated(p[1]), p[0]) if sign > 0 else (p[1], self._negated(p[0]))

    def conjugate(self, p: Complex) -> Complex:
        return p[0], self._negated(p[1])

    def turn(self, p: Complex, numerator: int, denominator: int, sign: int) -> Complex:
        """``p * exp(sign * 2πi * numerator / denominator)``; quarter turns need no product."""
        quarters = 4 * numerator % (4 * denominator)
        if quarters % denominator == 0:
            for _ in range(quarters // denominator):
                p = self.rotate(p, sign)
            return p
        w = complex(roots(-sign * numerator, denominator))
        return self.multiply(p, (self._constant(w.real), self._constant(w.imag)))

    def dft(self, xs: Sequence[Complex], sign: int) -> list[Complex]:
        """``X[k] = Σ x[j] exp(sign * 2πi * j * k / n)``."""
        n = len(xs)
        first = split(n) if n > 1 else n
        if n == 1:
            return list(xs)
        if n == 2:
            return [self.add(xs[0], xs[1]), self.subtract(xs[0], xs[1])]
        if n == 4:
            a, b = self.add(xs[0], xs[2]), self.subtract(xs[0], xs[2])
            c, d = self.add(xs[1], xs[3]), self.rotate(self.subtract(xs[1], xs[3]), sign)
            return [self.add(a, c), self.add(b, d), self.subtract(a, c), self.subtract(b, d)]
        if first == n:
            return self._prime(xs, sign)
        return self._composed(xs, first, sign)

    def _composed(self, xs: Sequence[Complex], first: int, sign: int) -> list[Complex]:
        """Cooley and Tukey: transforms of every `first`-th element, twiddle factors, transforms across."""
        n, rest = len(xs), len(xs) // first
        inner = [self.dft(xs[q::first], sign) for q in range(first)]
        result: list[Complex] = list(xs)
        for k in range(rest):
            across = self.dft([self.turn(inner[q][k], q * k, n, sign) for q in range(first)], sign)
            result[k::rest] = across
        return result

    def _prime(self, xs: Sequence[Complex], sign: int) -> list[Complex]:
        """Of an odd prime length: sums and differences of opposite elements share their factors."""
        n, half = len(xs), len(xs) // 2
        sums = [self.add(xs[j], xs[n - j]) for j in range(1, half + 1)]
        differences = [self.subtract(xs[j], xs[n - j]) for j in range(1, half + 1)]
        result: list[Complex] = list(xs)
        for each in sums:
            result[0] = self.add(result[0], each)
        for k in range(1, half + 1):
            angles = [complex(roots(-j * k, n)) for j in range(1, half + 1)]  # cosine and sine
            even, odd = xs[0], self.scale(differences[0], angles[0].imag)
            for angle, each in zip(angles, sums):
                even = self.add(even, self.scale(each, angle.real))
            for angle, each in zip(angles[1:], differences[1:]):
                odd = self.add(odd, self.scale(each, angle.imag))
            turned = self.rotate(odd, sign)
            result[k], result[n - k] = self.add(even, turned), self.subtract(even, turned)
        return result

    def _constant(self, x: float) -> ir.Constant:
        return ir.Constant(self.type, float(np.float32(x)) if self.type == FLOAT[32] else x)

    def _negated(self, x: ir.Value) -> ir.Value:
        return self.builder.fsub(ir.Constant(self.type, -0.0), x)  # libNVVM's dialect has no fneg

    def _real(self, operation: str, x: ir.Value, y: ir.Value) -> ir.Value:
        return getattr(self.builder, operation)(x, y, flags=self.flags)
