"""`elementwise` on a GPU: a launch is prepared once for each layout, and further calls fill in addresses."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mathfuse.epilogs import Callback, Constant
from mathfuse.epilogs.values import is_scalar
from mathfuse.fusion.compiler.cuda.kernels import ElementwiseKernel
from mathfuse.fusion.compiler.fingerprint import captured_arrays, watch
from mathfuse.fusion.elementwise import binding
from mathfuse.fusion.elementwise.functions import Function
from mathfuse.fusion.elementwise.gpu import Gpu
from mathfuse.fusion.elementwise.kernels import loaded
from mathfuse.fusion.elementwise.layouts import Layout, dense
from mathfuse.fusion.elementwise.maps import kernel_unit, kernel_writer, signature_of
from mathfuse.runtime import arrays
from mathfuse.runtime.cuda import driver, graphs
from mathfuse.runtime.cuda.arrays import DeviceArray, as_device_output, download, upload
from mathfuse.runtime.cuda.frameworks import EXCHANGE, HOST, TORCH, Framework
from mathfuse.runtime.errors import PlanError
from mathfuse.runtime.log import logger

MOST_PREPARED = 256  # launches; of more, those that were prepared first go
IMMUTABLE = (float, int, bool, complex)


def run(callback: Callback, x: Any, inputs: Mapping[str, Any] | None, out: Any, stream: Any) -> Any:
    """Queue ``out[i] = callback(x[i])``; gives `out`, or a new array of the framework of `x`."""
    if out is not None and arrays.framework_of(x) == "numpy":
        view, result = arrays.as_output(out), run(callback, x, inputs, None, stream)
        binding.check_output(view, result.shape, result.dtype)
        view[...] = result
        return out
    key = _key(callback, inputs, x, out)
    prepared = find(key, callback)
    if prepared:
        result = prepared.run(callback, x, inputs, out, stream)
        if result is not None:
            return result
    return _first(callback, x, inputs, out, stream, key)


def again(callback: Callback, x: Any, inputs: Mapping[str, Any] | None, out: Any, stream: Any) -> Any:
    """The same if a launch is prepared for it and nothing speaks against it, else None: the way with the least cost."""
    prepared = find(_key(callback, inputs, x, out), callback)
    return prepared.run(callback, x, inputs, out, stream) if prepared else None


def _first(callback: Callback, x: Any, inputs: Mapping[str, Any] | None, out: Any, stream: Any, key: Hashable) -> Any:
    """The same from the beginning: every check, and the code, which is kept under `key`."""
    gpu = Gpu.of(x)
    with driver.device_guard(gpu.device):
        current = gpu.framework.current_stream(gpu.device)
        handle = current if stream is None else driver.stream_handle(stream)
        with gpu.framework.on_stream(handle, gpu.device):
            target = None if out is None else as_device_output(out)
            source = gpu.read(x, "x", handle) if gpu.framework is not HOST else upload(x, gpu.device, handle, "x")
            assert isinstance(source, DeviceArray)
            function = _function(gpu, callback, _spread(source), inputs, handle)
            if target is not None:
                _check_target(gpu, target, source, function)
            held = {name: a.view for name, a in function.arrays.items() if isinstance(a.view, DeviceArray)}
            prepared = Prepared(gpu, function, source, target, held)
            values = {**function.callback.bound, **prepared.captured}
            users = prepared.users(x, out, values)
            read = (source, target, *held.values())
            if not any(array is not None and array.copied for array in read):
                _learn(users, read)
                key = key or _key(callback, inputs, x, out)
                if key and key == _key(callback, inputs, x, out):  # some arrays have no key that equals another
                    _keep(key, prepared, callback)
            if gpu.framework is HOST:
                logger.info("x, %d bytes, is copied to the GPU and the result back", source.nbytes)
            pointers = [0 if array is None else array.pointer for array in read]
            copies = {k: a for k, a in enumerate(read) if a is not None and a.framework is HOST}
            return prepared.queue(users, pointers, copies, values, handle, handle != current)


def _function(gpu: Gpu, callback: Callback, x: DeviceArray, inputs: Mapping[str, Any] | None, stream: int) -> Function:
    """The callback on every element of `x`, all checked."""
    bound = binding.bound(callback, callback.kind, inputs, lambda a, what: gpu.read(a, what, stream), "callback")
    assert bound is not None
    axes = tuple(range(x.ndim))
    function = binding.placed(bound, callback.kind, x.dtype, x.shape, x.shape, axes, source=x)
    for name in function.assigned:
        if function.arrays[name].view.framework is HOST and gpu.framework is not HOST:
            raise PlanError(f"{function.callback} assigns to {name!r}, which must be on the GPU, as x is")
    return function


def _check_target(gpu: Gpu, out: DeviceArray, x: DeviceArray, function: Function) -> None:
    if out.device != gpu.device:
        raise PlanError(f"out is on GPU {out.device} and x on GPU {gpu.device}: give memory there")
    binding.check_output(out, x.shape, function.stored)
    binding.check_overlap(out, x, not function.reads_source)
    binding.shares_operand(out, function)


def _spread(array: DeviceArray) -> DeviceArray:
    """An array without axes as one with one element along one."""
    return array if array.ndim else replace(array, shape=(1,), strides=(array.itemsize,))


# --- what a prepared launch depends on --------------------------------------------------------------------------------

_prepared: dict[Hashable, Prepared] = {}
_lock = threading.Lock()
_frameworks: dict[type, Framework] = {np.ndarray: HOST}  # of the types of arrays met so far


def find(key: Hashable, callback: Callback) -> Prepared | None:
    """The launch that was prepared for calls like this one, if the callback's surroundings are still the same."""
    if key is None:
        return None
    prepared = _prepared.get(key) or _prepared.get((key, id(callback)))
    return prepared if prepared and prepared.unchanged() else None


def _key(callback: Callback, inputs: Mapping[str, Any] | None, x: Any, out: Any) -> Hashable:
    """Equal for calls that differ in addresses and numbers only; it holds no array. None while a type is not known."""
    source = _frameworks.get(type(x))
    target = source if out is None else _frameworks.get(type(out))
    if source is None or target is None or driver.why_unavailable():
        return None
    parts: list[Hashable] = [source.layout_key(x)]
    for link in callback.links:
        parts += id(link.function), link.fastmath, link.precision
        for name, value in link.bindings:
            parts += name, _described(value)
    if inputs:
        parts += [(name, _described(value)) for name, value in inputs.items()]
    if out is not None:
        try:
            parts += target.layout_key(out), source.pointer(x) == target.pointer(out)
        except RuntimeError:  # tensors without memory, which are refused later
            return None
    if source is HOST:
        parts.append(driver.current_device())
    return tuple(parts)


def _described(value: Any) -> Hashable:
    """Layout of an array, type of a number; of what is not known something that equals nothing."""
    kind: type = type(value)
    if kind in IMMUTABLE:
        return kind.__name__
    framework = _frameworks.get(kind)
    if framework is not None:
        return framework.layout_key(value)
    if isinstance(value, Constant):
        return "constant", _described(value.array)
    return kind.__name__ if is_scalar(value) else object()


def _learn(users: Sequence[Any], read: Sequence[DeviceArray | None]) -> None:
    for user, array in zip(users, read):
        if array is not None and array.framework is not HOST:
            _frameworks.setdefault(type(user), array.framework)


def _keep(key: Hashable, prepared: Prepared, callback: Callback) -> None:
    """Have a launch be found again; one with arrays that the callback captured goes when the callback goes."""
    if prepared.captured:
        key = key, id(callback)
        prepared.owner = weakref.ref(callback, lambda _: _prepared.pop(key, None))
    with _lock:
        _prepared.pop(key, None)
        _prepared[key] = prepared
        while len(_prepared) > MOST_PREPARED:
            _prepared.pop(next(iter(_prepared)), None)


# --- a launch ---------------------------------------------------------------------------------------------------------

X, OUT, FIRST = 0, 1, 2  # numbers of the arrays of a launch: the input, the result, then the operands


@dataclass(frozen=True)
class Argument:
    """An array of a launch.

    Parameters
    ----------
    framework
        None of what is copied to the GPU at each call.
    reach
        Where the bytes that it covers begin and end, from its address on.
    slots
        Where the parameters hold its address.
    """

    framework: Framework | None
    reach: tuple[int, int]
    slots: tuple[int, ...]

    @classmethod
    def of(cls, array: DeviceArray | None, slots: Sequence[int]) -> Argument:
        if array is None:
            return cls(None, (0, 0), tuple(slots))
        low, high = (end - array.pointer for end in array.bounds)
        return cls(None if array.framework is HOST else array.framework, (low, high), tuple(slots))

    @property
    def foreign(self) -> bool:
        """Whether other streams than the framework's current one may write to it or free it."""
        return isinstance(self.framework, type(EXCHANGE))


class Prepared:
    """A launch with everything filled in but addresses and numbers; threads may share it.

    It holds no array but those that its callback captured.
    """

    owner: weakref.ref[Callback]

    def __init__(
        self,
        gpu: Gpu,
        function: Function,
        x: DeviceArray,
        out: DeviceArray | None,
        operands: Mapping[str, DeviceArray],
    ) -> None:
        self.gpu, self.names = gpu, tuple(operands)
        self._functions = [link.function for link in function.callback.links]  # their ids stay theirs
        self.captured, self.unchanged = captured_arrays(function.callback), watch(function.callback)
        self._new = gpu.framework.allocator(x.shape, function.stored, gpu.device) if out is None else None
        self._launch: driver.Launch | None = None
        self._lock = threading.Lock()
        self._assigned = tuple(name for name in operands if name in function.assigned)
        self._numbers: dict[str, Any] = {}  # as they were written last
        slots: dict[str, int] = {}
        if x.size:
            source, in_place = Layout.of(_spread(x)), out is not None and arrays.same_view(out, x)
            target = dense(source.shape, function.stored) if out is None else Layout.of(_spread(out))
            slots = self._prepare(function, source, target, in_place)
        places = [
            ("source_block", "source.pointer"),
            ("destination_block",),
            *((f"{name}.pointer",) for name in operands),
        ]
        self._arguments = [
            Argument.of(array, [slots[place] for place in names if place in slots])
            for array, names in zip((x, out, *operands.values()), places)
        ]
        self._slots = [(number, slot) for number, each in enumerate(self._arguments) for slot in each.slots]
        self._foreign = [number for number, argument in enumerate(self._arguments) if argument.foreign]
        pointers = [array.pointer if array else 0 for array in (x, out, *operands.values())]
        self._apart = [
            (a, b, alike, pointers[a] - pointers[b])  # as these lie they do no harm
            for a, b, alike in _apart(function, x, out, operands)
        ]

    def _prepare(self, function: Function, source: Layout, target: Layout, in_place: bool) -> dict[str, int]:
        device = self.gpu.device
        signature = signature_of(function, source.dtype, len(source.shape))
        unit = kernel_unit(signature, source, target, driver.architecture(device), in_place=in_place)
        kernel = ElementwiseKernel(unit)
        self._writer = kernel_writer(kernel, source, target, function)
        self._numbers = {name: None for name, kind in signature.operands if kind.is_scalar}
        grid = kernel.grid(target.size, driver.multiprocessors(device))
        self._launch = driver.Launch(loaded(kernel, device), *grid, self._writer.block)
        return kernel.layout.slots

    def run(self, callback: Callback, x: Any, inputs: Mapping[str, Any] | None, out: Any, stream: Any) -> Any:
        """The result; None if arrays overlap that must not, or that did not overlap when the launch was prepared."""
        gpu, values = self.gpu, callback.bound
        if inputs or self.captured:
            values = {**values, **(inputs or {}), **self.captured}
        users = self.users(x, out, values)
        with driver.device_guard(gpu.device):
            current = gpu.framework.current_stream(gpu.device)
            if stream is None:
                return self._run(users, values, current, False)
            handle = driver.stream_handle(stream)
            with gpu.framework.on_stream(handle, gpu.device):
                return self._run(users, values, handle, handle != current)

    def _run(self, users: Sequence[Any], values: Mapping[str, Any], stream: int, elsewhere: bool) -> Any:
        pointers, copies = self._addresses(users, stream)
        if self._apart and self._clash(pointers):
            return None
        return self.queue(users, pointers, copies, values, stream, elsewhere)

    def users(self, x: Any, out: Any, values: Mapping[str, Any]) -> list[Any]:
        """The arrays of a call as the user has them, in their order."""
        return [x, out, *[binding.unwrapped(values[name]) for name in self.names]]

    def _addresses(self, users: Sequence[Any], stream: int) -> tuple[list[int], dict[int, DeviceArray]]:
        """Of each array on the GPU, and copies of those that are not there, by number."""
        pointers: list[int] = [0] * len(users)
        copies: dict[int, DeviceArray] = {}
        for number, (argument, array) in enumerate(zip(self._arguments, users)):
            if argument.framework is not None:
                pointers[number] = argument.framework.pointer(array)
            elif array is not None:
                copies[number] = copy = upload(array, self.gpu.device, stream)
                pointers[number] = copy.pointer
        out = self._arguments[OUT].framework
        if out is not None and (out is not TORCH or not users[OUT].is_inference()):
            out.written(users[OUT])
        return pointers, copies

    def _clash(self, pointers: Sequence[int]) -> bool:
        """Whether arrays may overlap that must not."""
        for a, b, alike, distance in self._apart:
            (low, high), (from_, to) = self._arguments[a].reach, self._arguments[b].reach
            begin, end = max(pointers[a] + low, pointers[b] + from_), min(pointers[a] + high, pointers[b] + to)
            if begin < end and distance != pointers[a] - pointers[b] and not (alike and pointers[a] == pointers[b]):
                return True
        return False

    def queue(
        self,
        users: Sequence[Any],
        pointers: list[int],
        copies: Mapping[int, DeviceArray],
        values: Mapping[str, Any],
        stream: int,
        elsewhere: bool,
    ) -> Any:
        """Launch on `stream`, current in the framework; the caller holds the device guard.

        `elsewhere` tells whether the framework works on another stream outside this call.
        """
        framework, result = self.gpu.framework, users[OUT]
        for number in self._foreign:
            self._arguments[number].framework.ready(users[number], stream)  # type: ignore[union-attr]
        if self._new:
            result, pointers[OUT] = self._new()
        if self._launch:
            self._start(self._launch, pointers, values, stream)
            if stream and driver.is_capturing(stream):
                graphs.hold(self)
        for copy in copies.values():
            copy.owner.used(stream)
        if elsewhere or self._foreign:
            for number, argument in enumerate(self._arguments):
                if argument.framework is not None and (elsewhere or argument.foreign):
                    argument.framework.record(users[number], stream)
        if not self._new:
            return result
        if elsewhere and framework is not HOST:
            framework.record(result, stream)
        result = framework.hand_over(result, stream)
        if framework is HOST:  # what callbacks wrote to copies
            for name in self._assigned:
                number = FIRST + self.names.index(name)
                arrays.as_output(users[number])[...] = download(copies[number], stream)
        return result

    def _start(self, launch: driver.Launch, pointers: Sequence[int], values: Mapping[str, Any], stream: int) -> None:
        block, numbers = launch.parameters, self._numbers
        with self._lock:
            for number, slot in self._slots:
                block[slot] = pointers[number]
            for name, before in numbers.items():
                value = binding.unwrapped(values[name])
                if value is not before:
                    self._writer.operand(name, value)
                    numbers[name] = value if type(value) in IMMUTABLE else None
            launch(stream)


def _apart(
    function: Function, x: DeviceArray, out: DeviceArray | None, operands: Mapping[str, DeviceArray]
) -> Iterator[tuple[int, int, bool]]:
    """Pairs of arrays that must not overlap, and whether they may be one and the same."""
    numbers = {name: FIRST + k for k, name in enumerate(operands)}
    if out is not None:
        yield OUT, X, not function.reads_source and _like(out, x)
        for name, array in operands.items():
            yield OUT, numbers[name], name in function.own and _like(out, array)
    for name in operands:
        if name in function.assigned:
            yield numbers[name], X, False
            yield from ((numbers[name], number, False) for other, number in numbers.items() if other != name)


def _like(a: DeviceArray, b: DeviceArray) -> bool:
    """Whether two arrays at one address would have the same elements."""
    return arrays.same_view(a, replace(b, pointer=a.pointer))
