"""What a plan on a GPU runs: an engine for each layout of outputs, the operands' parameters, and addresses."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from mathfuse.fusion.plan import Explanation
from mathfuse.fusion.transforms import binding
from mathfuse.fusion.transforms.cuda import known
from mathfuse.fusion.transforms.cuda.choice import Place, choose, milliseconds, name_of
from mathfuse.fusion.transforms.cuda.engine import Engine, Values, engine
from mathfuse.fusion.transforms.cuda.layouts import Layout, dense
from mathfuse.fusion.transforms.cuda.program import Buffer, Fuse, Map, Program
from mathfuse.fusion.transforms.pipeline import Pipeline
from mathfuse.fusion.transforms.spaces import Request
from mathfuse.runtime import arrays
from mathfuse.runtime.cuda import cufft, driver
from mathfuse.runtime.cuda.arrays import DeviceArray, as_device, as_device_output, download, upload
from mathfuse.runtime.cuda.frameworks import HOST, Framework
from mathfuse.runtime.errors import PlanError

MOST_OUTPUTS = 64  # known outputs, each an address and a layout


@dataclass(frozen=True)
class Ready:
    """An engine with its parameters for outputs of one layout; `copy` takes results there that cannot be put there."""

    engine: Engine
    values: Values
    copy: Ready | None = None


class CudaPrepared:
    """Everything decided for one set of operands; safe from several threads and streams at once."""

    def __init__(self, place: Place, pipeline: Pipeline, request: Request) -> None:
        self._place, self._pipeline, self._request = place, pipeline, request
        self._framework, self._device = place.framework, place.device
        assert isinstance(request.x, DeviceArray)
        self._x = request.x
        shape, dtype = pipeline.out_shape, pipeline.out_dtype
        self._out = dense(shape, dtype, tuple(range(len(shape))))
        self._empty = self._out.size == 0
        self._new = self._framework.allocator(shape, dtype, self._device)
        held = [self._x, *(array.view for f in pipeline.functions.values() for array in f.arrays.values())]
        waits = type(self._framework).ready is not Framework.ready
        self._foreign = [array for array in held if type(array.framework).ready is not Framework.ready]
        self._delivers = waits or type(self._framework).hand_over is not Framework.hand_over
        self._written = [name for f in pipeline.functions.values() for name in f.assigned]
        self._rejected: tuple[tuple[str, str], ...] = ()
        self._outputs: dict[Hashable, Ready] = {}
        self._ready = self._choose()

    # --- decisions ---------------------------------------------------------------------------------------------------

    def _choose(self) -> Ready | None:
        if self._empty:
            self._reason, self._program = "there is nothing to compute", Program(Fuse(), (), ())
            return None
        choices = self._request.choices
        timed = choices.tune and not self._written  # operands that are written to would be written often
        chosen = choose(
            self._pipeline,
            Layout.of(self._x),
            self._out,
            self._place,
            choices.strategy,
            self._time if timed else None,
        )
        self._reason, self._rejected, self._program = chosen.reason, chosen.rejected, chosen.engine.program
        if choices.tune and self._written:
            self._reason += f"; not timed, since callbacks assign to {', '.join(self._written)}"
        return Ready(chosen.engine, chosen.engine.values(self._pipeline))

    def _time(self, candidate: Engine) -> float:
        values, stream = candidate.values(self._pipeline), self._framework.current_stream(self._device)
        with driver.device_guard(self._device):
            result, target = self._new()
            took = milliseconds(lambda: candidate.run(values, self._x.pointer, target, stream), self._device, stream)
        del result
        return took

    @property
    def explanation(self) -> Explanation:
        p, program = self._pipeline, self._program
        version = ".".join(map(str, cufft.version()))
        return Explanation(
            title=f"{self._request.title} → {p.out_dtype}{list(p.out_shape)}",
            strategy=name_of(program),
            reason=self._reason,
            rejected=self._rejected,
            passes=tuple(map(str, program.steps)),
            details=(("GPU", f"{driver.name(self._device)}, number {self._device}"), ("cuFFT", version)),
            workspace_bytes=self._ready.engine.workspace_bytes if self._ready else 0,
        )

    def keep(self, name: str, positional: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        """The engine in any case, and a shortcut if nothing has to be read anew at each call."""
        if self._ready is None:
            return
        known.keep(self._ready.engine)
        held = [array for f in self._pipeline.functions.values() for array in f.arrays.values()]
        fresh = self._x.copied or self._foreign or self._delivers
        if not fresh and not any(array.copied or array.view.framework is HOST for array in held):
            known.remember(name, positional, named, self._ready.engine, self._ready.values, self._new)

    # --- runs --------------------------------------------------------------------------------------------------------

    def run(self, out: Any = None, stream: Any = None, x: Any = None) -> Any:
        """Queue the work; `x` takes the place of the input, of the same layout."""
        framework, device = self._framework, self._device
        current = framework.current_stream(device)
        if stream is None:
            return self._run(out, current, x)
        handle = driver.stream_handle(stream)
        with driver.device_guard(device), framework.on_stream(handle, device):
            result = self._run(out, handle, x)
        if handle != current and framework is not HOST:
            with driver.device_guard(device):
                for array in (result, self._request.user_x if x is None else x):
                    framework.record(array, handle)
        return result

    def _run(self, out: Any, stream: int, x: Any) -> Any:
        with driver.device_guard(self._device):
            source = self._x.pointer if x is None else self._framework.pointer(x)
            if self._x.copied or self._framework is HOST:
                fresh = self._read(self._request.user_x if x is None else x, stream)
                source = fresh.pointer
            for array in self._foreign:
                array.framework.ready(array.owner, stream)
            if out is not None:
                self._into(out, source, stream)
                return out
            result, target = self._new()
            if self._ready:
                self._ready.engine.run(self._ready.values, source, target, stream)
            for array in self._foreign:
                array.framework.record(array.owner, stream)
            if self._delivers:
                result = self._framework.hand_over(result, stream)
                self._give_back(stream)
            return result

    def _read(self, x: Any, stream: int) -> DeviceArray:
        """The input as it is now, where the address that was planned for is that of a copy."""
        return upload(x, self._device, stream, "x") if self._framework is HOST else as_device(x, "x")

    def _give_back(self, stream: int) -> None:
        """What callbacks wrote to copies of NumPy arrays."""
        if self._framework is not HOST:
            return
        for function in self._pipeline.functions.values():
            for name in function.assigned:
                arrays.as_output(function.callback.bound[name])[...] = download(function.arrays[name].view, stream)

    # --- outputs -----------------------------------------------------------------------------------------------------

    def _into(self, out: Any, source: int, stream: int) -> None:
        if self._framework is HOST:
            view = arrays.as_output(out)
            binding.check_output(view, self._pipeline.out_shape, self._pipeline.out_dtype)
            view[...] = self._run(None, stream, None)
            return
        key = self._framework.layout_key(out), self._framework.pointer(out), source
        ready = self._outputs.get(key)
        if ready is None:
            ready = self._checked(out, source)
            if len(self._outputs) >= MOST_OUTPUTS:
                self._outputs.clear()
            self._outputs[key] = ready
        else:
            self._framework.written(out)
        if self._empty:
            return
        if ready.copy is None:
            ready.engine.run(ready.values, source, key[1], stream)
            return
        result, target = self._new()
        ready.engine.run(ready.values, source, target, stream)
        ready.copy.engine.run(ready.copy.values, target, key[1], stream)
        del result

    def _checked(self, out: Any, source: int) -> Ready:
        """How to reach an output; every error that it may cause."""
        view = as_device_output(out)
        if view.device != self._device:
            raise PlanError(f"out is on GPU {view.device}, the plan on GPU {self._device}")
        p, here = self._pipeline, Layout.of(view)
        binding.check_output(view, p.out_shape, p.out_dtype)
        x = Layout.of(self._x)
        moved = DeviceArray(source, x.shape, x.strides, x.dtype, self._device, self._framework, None)
        binding.check_overlap(view, moved, self._request.in_place)
        shared = binding.shares_operand(view, p.functions)
        if self._ready is None:
            return Ready(None, ())  # type: ignore[arg-type]  # nothing runs
        ready = self._ready
        if here != self._out:
            chosen = choose(p, x, here, self._place, name_of(self._program), None)
            ready = Ready(chosen.engine, chosen.engine.values(p))
        if shared or (arrays.overlaps(view, moved) and not ready.engine.program.in_place):
            copy = Program(Fuse(), (Map(None, Buffer("x", self._out), Buffer("out", here)),), ())
            copier = engine(copy, p, self._framework, self._device)
            return Ready(self._ready.engine, self._ready.values, Ready(copier, copier.values(p)))
        return ready
