"""From a bound callback and types to instructions: reserved parameters, the links of a chain, and the result's type."""

from __future__ import annotations

from collections.abc import Callable as Function
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir

from mathfuse.fusion.compiler.emit.emitter import I64, Emitter, Value
from mathfuse.fusion.compiler.emit.scalars import Scalar, of_dtype, precision_of, resolve
from mathfuse.fusion.compiler.emit.target import Target
from mathfuse.fusion.compiler.fingerprint import captured_arrays
from mathfuse.fusion.compiler.language.evaluator import Evaluator
from mathfuse.fusion.compiler.language.frames import Again, Knowledge
from mathfuse.fusion.compiler.language.frontend import quote
from mathfuse.fusion.compiler.language.operands import Accesses, Operand
from mathfuse.fusion.compiler.language.places import Place
from mathfuse.fusion.compiler.parameters import Layout
from mathfuse.fusion.compiler.reader import Reader
from mathfuse.fusion.compiler.signature import Signature
from mathfuse.runtime.errors import CallbackError


@dataclass(frozen=True)
class Facts:
    """What lowering found out: the result's type, how operands are touched, the width of weak scalars in the block."""

    result: Scalar
    accesses: Accesses
    weak_bits: int

    def metadata(self) -> dict[str, Any]:
        """What a plan needs of it, as JSON keeps it."""
        patterns = {
            name: [list(p) if isinstance(p, tuple) else p for p in found]
            for name, found in self.accesses.patterns.items()
        }
        return {"weak_bits": self.weak_bits, "accesses": patterns, "assigned": sorted(self.accesses.assigned)}


class Lowering:
    """Emits a callback's links into a function that a pipeline builds.

    Parameters
    ----------
    module, signature, target, layout
        Where, what, for which machine, and where its parameters stand.
    knowledge
        What earlier runs learned.
    """

    def __init__(
        self, module: ir.Module, signature: Signature, target: Target, layout: Layout, knowledge: Knowledge
    ) -> None:
        self.module, self.signature, self.target, self.layout, self.knowledge = (
            module,
            signature,
            target,
            layout,
            knowledge,
        )
        self.changed, self.accesses, self.result = False, Accesses(), of_dtype(signature.value_dtype)

    def emitter(self, builder: ir.IRBuilder, fastmath: bool = True) -> Emitter:
        return Emitter(builder, self.target, fastmath, self.knowledge.weak_bits)

    def apply(self, builder: ir.IRBuilder, value: Value, place: Place, block: ir.Value) -> Value:
        """The chain's result on ``value`` at ``place``; nothing weak is left in its type."""
        callback, bits = self.signature.callback, precision_of(self.signature.value_dtype)
        if callback is None:
            return value
        emitter = self.emitter(builder)
        reader = Reader(emitter, block, self.layout)
        operands = {name: reader.operand(name, kind) for name, kind in self.signature.operands}
        known = self.signature.shape
        shape = map(I64, known) if known else reader.integers("shape", self.signature.ndim)
        reserved: dict[str, Any] = {
            "index": place.index,
            "shape": tuple(emitter.integer(extent) for extent in shape),
            "axes": self.signature.axes,
        }
        if self.signature.source:
            reserved["source"] = reader.operand("source", self.signature.source)
        captured = {id(array): operands[name] for name, array in captured_arrays(callback).items()}
        result: Any = value
        for number, link in enumerate(callback.links):
            result = self._link(link, number, builder, result, place, {**reserved, **operands}, captured)
        wide = any(link.precision == "float64" for link in callback.links)
        wide = wide and result.type.is_float and result.type.computed == result.type
        self.result = Scalar(result.type.kind, bits) if wide else resolve(result.type, bits)
        return emitter.convert(result, self.result)

    def _link(
        self,
        link: Any,
        number: int,
        builder: ir.IRBuilder,
        value: Any,
        place: Place,
        known: dict[str, Any],
        captured: dict[int, Operand],
    ) -> Any:
        emitter, wide = self.emitter(builder, link.fastmath), link.precision == "float64"
        if wide:
            if self.knowledge.weak_bits < 64:
                raise self.knowledge.wide()
            if isinstance(value, Value) and value.type.is_float:
                value = emitter.convert(value, Scalar(value.type.kind, 64))
        evaluator = Evaluator(emitter, place, self.knowledge, lambda array: captured[id(array)], wide)
        known = {"value": value, **known}
        result = evaluator.evaluate(link.function, {name: known[name] for name in link.parameters}, number)
        self.take(evaluator)
        return result

    def take(self, evaluator: Evaluator) -> None:
        """Keeps what an evaluation found."""
        self.changed |= evaluator.changed
        for name, patterns in evaluator.accesses.patterns.items():
            self.accesses.patterns.setdefault(name, set()).update(patterns)
        self.accesses.assigned |= evaluator.accesses.assigned

    def require(self, value: Value, dtype: np.dtype, where: str, emitter: Emitter) -> Value:
        """``value`` in the type of ``dtype``, which the pipeline prescribes; complex for real is an error."""
        to = of_dtype(dtype)
        if value.type.kind == "c" and to.kind != "c":
            links = self.signature.callback.links if self.signature.callback else ()
            place = quote(links[-1].function) + "\n" if links else ""
            raise CallbackError(
                f"{place}The callback returns a complex value where {where} is {dtype}; "
                "return value.real, value.imag or abs(value)"
            )
        return emitter.convert(value, to)


def lower(
    signature: Signature, target: Target, layout: Layout, build: Function[[Lowering], None]
) -> tuple[ir.Module, Facts]:
    """Runs ``build`` until a run teaches nothing new: types of variables, width of weak floats, assigned operands."""
    knowledge = Knowledge(precision_of(signature.value_dtype))
    for _ in range(100):
        module = ir.Module(name="mathfuse", context=ir.Context())
        module.triple, module.data_layout = target.triple, target.data_layout
        lowering = Lowering(module, signature, target, layout, knowledge)
        try:
            build(lowering)
        except Again as again:
            knowledge = again.knowledge
            continue
        if lowering.changed or not lowering.accesses.assigned <= knowledge.assigned:
            knowledge.assigned |= lowering.accesses.assigned
            continue
        return module, Facts(lowering.result, lowering.accesses, knowledge.weak_bits)
    raise CallbackError("The types of the callback's variables do not settle; give each variable one type")
