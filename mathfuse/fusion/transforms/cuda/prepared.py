"""What a plan on a GPU runs: an engine, the operands' parameters, and the input's address."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from mathfuse.fusion.compiler.fingerprint import captured_arrays
from mathfuse.fusion.elementwise.binding import unwrapped
from mathfuse.fusion.elementwise.functions import Function
from mathfuse.fusion.elementwise.layouts import Layout, dense
from mathfuse.fusion.plan import Explanation
from mathfuse.fusion.transforms import binding
from mathfuse.fusion.transforms.cuda import known
from mathfuse.fusion.transforms.cuda.choice import Chosen, Place, choose, name_of
from mathfuse.fusion.transforms.cuda.configurations import block_for
from mathfuse.fusion.transforms.cuda.constants import arranged, turned_axis
from mathfuse.fusion.transforms.cuda.engine import Engine
from mathfuse.fusion.transforms.cuda.outputs import Outputs, Ready
from mathfuse.fusion.transforms.cuda.program import Program, moved_bytes
from mathfuse.fusion.transforms.cuda.timing import milliseconds
from mathfuse.fusion.transforms.pipeline import Pipeline
from mathfuse.fusion.transforms.spaces import Request
from mathfuse.fusion.tuning import ranked
from mathfuse.runtime import arrays
from mathfuse.runtime.cuda import cufft, driver, graphs
from mathfuse.runtime.cuda.arrays import DeviceArray, as_device, download, refill, upload
from mathfuse.runtime.cuda.frameworks import CUPY, HOST, TORCH, lacking_memory
from mathfuse.runtime.cuda.memory import PoolArray
from mathfuse.runtime.dtypes import dtype_name


class CudaPrepared:
    """Everything decided for one set of operands; safe from several threads and streams at once."""

    def __init__(self, place: Place, pipeline: Pipeline, request: Request) -> None:
        self._place, self._pipeline, self._request = place, pipeline, request
        self._framework, self._device = place.framework, place.device
        assert isinstance(request.x, DeviceArray)
        self._x = request.x
        shape, dtype = pipeline.out_shape, pipeline.out_dtype
        self._out = dense(shape, dtype, tuple(range(len(shape))))
        self._new = self._framework.allocator(shape, dtype, self._device)
        named = [(f, name, a.view) for f in pipeline.functions.values() for name, a in f.arrays.items()]
        held = [(f, name, view) for f, name, view in named if isinstance(view, DeviceArray)]
        self._held = [self._x, *(view for *_, view in held)]
        self._foreign = [view for view in self._held if view.framework not in (CUPY, TORCH, HOST)]
        self._uploaded = [view for *_, view in held if view.framework is HOST]
        self._copies = [(view, _users(f, name)) for f, name, view in held if view.copied]
        self._written = [name for f in pipeline.functions.values() for name in f.assigned]
        self._by_axis: dict[int, Pipeline] = {}  # with constants laid out for it
        self._chosen = self._choose(self._out) if self._out.size else None
        self._ready = self._with_values(self._chosen.engine) if self._chosen else None
        # Whether a run is nothing but the engine's: results need no hand-over, and nothing is read anew.
        anew = self._foreign or self._copies or self._x.copied
        self._plain = bool(self._ready and self._framework in (CUPY, TORCH) and not anew)
        fast = self._plain and not self._uploaded
        self._fast = (self._ready.engine, self._ready.values, self._x.pointer) if self._ready and fast else None
        self._current = self._framework.current_stream
        self._outputs = Outputs(pipeline, self._x, self._ready, self._out, self._for_output, request.in_place)

    # --- decisions ---------------------------------------------------------------------------------------------------

    def _choose(self, out: Layout) -> Chosen:
        tuning = self._request.tuning
        timed = tuning and not self._written  # operands that are written to would be written often
        chosen = self._choice(out, self._time if timed else None)
        if tuning and self._written:
            why = f"{chosen.reason}; not timed, since callbacks assign to {', '.join(self._written)}"
            return replace(chosen, reason=why)
        return chosen

    def _for_output(self, layout: Layout) -> Ready:
        assert self._chosen is not None
        return self._with_values(self._choice(layout, None).engine)

    def _choice(self, out: Layout, time: Callable[[Engine], float] | None) -> Chosen:
        strategy, tuning = self._request.choices.strategy, self._request.tuning
        return choose(self._pipeline, Layout.of(self._x), out, self._place, strategy, time, self._arranged, tuning)

    def _arranged(self, program: Program) -> Pipeline:
        """The pipeline with constants as a program reads them best, in a plan that runs often."""
        axis = turned_axis(program)
        if axis is None or not self._request.lasting:
            return self._pipeline
        if axis not in self._by_axis:
            with driver.device_guard(self._device):
                if driver.is_capturing(self._framework.current_stream(self._device)):
                    return self._pipeline
            self._by_axis[axis], copies = arranged(self._pipeline, axis, self._framework, self._device)
            self._uploaded += copies
        return self._by_axis[axis]

    def _with_values(self, engine: Engine) -> Ready:
        values = engine.values(self._arranged(engine.program))
        return Ready(engine, replace(values, owners=(*values.owners, self._x)))

    def _time(self, candidate: Engine) -> float:
        tuning = self._request.tuning
        assert tuning is not None
        values = candidate.values(self._arranged(candidate.program))
        stream = self._framework.current_stream(self._device)

        def run() -> None:
            candidate.run(values, self._x.pointer, target, stream)

        with driver.device_guard(self._device):
            with lacking_memory(self._out.nbytes):
                result, target = self._new()
            took = milliseconds(run, self._device, stream, tuning.iterations)
        del result  # it had to live until now
        return took

    @property
    def explanation(self) -> Explanation:
        p, chosen = self._pipeline, self._chosen
        title = f"{self._request.title} → {dtype_name(p.out_dtype)}{list(p.out_shape)}"
        if chosen is None:
            return Explanation(title, "sequence", "there is nothing to compute")
        operands = sum(array.view.nbytes for f in p.functions.values() for array in f.arrays.values())
        moved = operands + sum(map(moved_bytes, chosen.engine.program.steps))
        rate = driver.memory_bandwidth(self._device)
        arch = driver.architecture(self._device)
        blocks = [block_for(step, arch) for step in chosen.engine.program.transforms if step.block]
        kernels = [str(block.configuration) for block in blocks if block]
        return Explanation(
            title=title,
            strategy=name_of(chosen.engine.program),
            reason=chosen.reason,
            rejected=chosen.rejected,
            passes=tuple(map(str, chosen.engine.program.steps)),
            details=(
                ("GPU", f"{driver.name(self._device)}, number {self._device}"),
                ("cuFFT", ".".join(map(str, cufft.version()))),
                *((("configurations", ", ".join(kernels)),) if kernels else ()),
            ),
            workspace_bytes=chosen.engine.lane_bytes,
            moved_bytes=moved,
            limit_seconds=moved / rate if rate else 0.0,
            timings=tuple((str(row), row.milliseconds) for row in ranked(chosen.rows)),
        )

    def keep(self, name: str, positional: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        """The engine in any case, and for a call a shortcut if nothing has to be read anew at each."""
        if self._ready is None:
            return
        known.keep(self._ready.engine)
        for engine in self._outputs.engines():
            known.keep(engine)
        if self._request.tuning:
            known.forget_shortcuts()  # those of before the timing
        read = [(f, n, array.view) for f in self._pipeline.functions.values() for n, array in f.arrays.items()]
        on_gpu = all(isinstance(view, DeviceArray) for *_, view in read)  # not so: numbers in NumPy arrays without axes
        if name and self._plain and not self._uploaded and on_gpu:
            users = [(view.framework, _users(f, n)) for f, n, view in read]
            known.remember(name, positional, named, self._ready, self._new, users)

    # --- runs --------------------------------------------------------------------------------------------------------

    def run(self, out: Any = None, stream: Any = None) -> Any:
        """Queue the work on the current stream, or on `stream`."""
        current = self._current(self._device)
        if stream is None:
            if out is None and self._fast:  # the way of most calls, without a detour
                engine, values, x = self._fast
                result, target = self._new()
                engine.run(values, x, target, current)
                return result
            return self._here(out, current)
        handle = driver.stream_handle(stream)
        if handle == current:
            return self.run(out)
        with driver.device_guard(self._device), self._framework.on_stream(handle, self._device):
            result = self._here(out, handle)
            if self._framework is not HOST:
                self._framework.record(result, handle)
            for view in self._held:
                view.framework.record(view.owner, handle)
        return result

    def _here(self, out: Any, stream: int) -> Any:
        result = self._plainly(out, stream) if self._plain else self._with_care(out, stream)
        if self._uploaded:
            with driver.device_guard(self._device):
                for view in self._uploaded:
                    view.owner.used(stream)
        return result

    def _plainly(self, out: Any, stream: int) -> Any:
        ready, x = self._ready, self._x
        assert ready is not None
        if out is None:
            out, target = self._new()
        else:
            ready, target = self._outputs.find(out, x)
            assert ready is not None
            if ready.copy:
                return self._by_copy(ready, out, target, x, stream)
        ready.engine.run(ready.values, x.pointer, target, stream)
        return out

    def _with_care(self, out: Any, stream: int) -> Any:
        """Arrays of other libraries, copies of what cannot be read in place, NumPy arrays, and empty ones."""
        framework = self._framework
        with driver.device_guard(self._device):
            x = self._fresh(stream)
            if framework is HOST:
                self._renew(stream)
            for copy, user in self._copies:
                copy.framework.refresh(copy.owner, user)
            if out is None or framework is HOST:
                ready, (result, target) = self._ready, self._new()
            else:
                result, (ready, target) = out, self._outputs.find(out, x)
                framework.ready(out, stream)
            for array in self._foreign:
                array.framework.ready(array.owner, stream)
            if ready and ready.copy:
                self._by_copy(ready, out, target, x, stream)
            elif ready:
                ready.engine.run(ready.values, x.pointer, target, stream)
            for array in self._foreign:
                array.framework.record(array.owner, stream)
            if out is not None and framework not in (CUPY, TORCH, HOST):
                framework.record(out, stream)
            if framework is HOST:
                return self._to_host(framework.hand_over(result, stream), out, stream)
            return out if out is not None else framework.hand_over(result, stream)

    def _fresh(self, stream: int) -> DeviceArray:
        """The input as it is now, where what was planned for is a copy."""
        if self._framework is HOST:
            return upload(self._request.user_x, self._device, stream, "x")
        return as_device(self._request.user_x, "x") if self._x.copied else self._x

    def _renew(self, stream: int) -> None:
        """Copies of NumPy arrays that callbacks assign to as these are now: what is not assigned to must stay."""
        for function in self._pipeline.functions.values():
            for name in function.assigned:
                refill(function.arrays[name].view, unwrapped(function.callback.bound[name]), stream)

    def _by_copy(self, ready: Ready, out: Any, target: int, x: DeviceArray, stream: int) -> Any:
        assert ready.copy is not None
        result, between = self._new()
        ready.engine.run(ready.values, x.pointer, between, stream)
        ready.copy.engine.run(ready.copy.values, between, target, stream)
        with driver.device_guard(self._device):
            if driver.is_capturing(stream):  # a graph works in it at each replay
                graphs.hold(result)
            if isinstance(result, PoolArray):
                result.memory.used(stream)
        del result  # the order of streams keeps its memory until then
        return out

    def _to_host(self, result: Any, out: Any, stream: int) -> Any:
        """NumPy's result, and what callbacks wrote to copies of NumPy arrays."""
        for function in self._pipeline.functions.values():
            for name in function.assigned:
                arrays.as_output(unwrapped(function.callback.bound[name]))[...] = download(
                    function.arrays[name].view, stream
                )
        if out is None:
            return result
        view = arrays.as_output(out)
        binding.check_output(view, self._pipeline.out_shape, self._pipeline.out_dtype)
        view[...] = result
        return out


def _users(function: Function, name: str) -> Any:
    """An array of a callback as the user has it."""
    bound = function.callback.bound
    return unwrapped(bound[name]) if name in bound else captured_arrays(function.callback)[name]
