"""The kernels of a library's call, recorded once and launched again with other addresses.

A call of cuFFT spends more time on the host than the launch of its kernels. So the call is captured into graphs, with
different addresses: the words that differ are where the addresses go, and the graph tells everything else.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import byref, c_int, c_int64, c_size_t, c_uint, c_void_p
from dataclasses import dataclass
from typing import Any

from mathfuse.runtime.cuda.devices import check, library, relaxed_capture
from mathfuse.runtime.cuda.kernels import Configuration
from mathfuse.runtime.errors import ToolchainError

# CUstreamCaptureMode, CUstream_flags, CUgraphNodeType, CUlaunchAttributeID
THREAD_LOCAL, NON_BLOCKING, KERNEL_NODE = 1, 1, 0
NOT_REPEATED = {"cooperative": 2, "cluster": 4}  # attributes that a plain launch would lose
SHIFTS = 1 << 20, 1 << 21  # between the addresses of the two captures; alignment stays as it is


class NodeParameters(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2."""

    _fields_ = [
        ("func", c_void_p),
        *((f"{part}Dim{axis}", c_uint) for part in ("grid", "block") for axis in "XYZ"),
        ("sharedMemBytes", c_uint),
        ("kernelParams", c_void_p),
        ("extra", c_void_p),
        ("kern", c_void_p),
        ("ctx", c_void_p),
    ]


@dataclass(frozen=True)
class Node:
    """One kernel of a graph: its function, its shape (grid, block, shared memory), the bytes of its parameters."""

    function: int
    shape: tuple[int, ...]
    parameters: tuple[bytes, ...]


Place = tuple[int, int, int, int]  # parameter, offset, 0 for the source and 1 for the target, distance from its address


class Recording:
    """Kernels to be launched in turn on a stream, with the places of two addresses in their parameters."""

    def __init__(self, nodes: list[Node], places: list[list[Place]], stream: int) -> None:
        self._launch = library().cuLaunchKernelEx
        self._alive: list[Any] = []
        self._calls: list[tuple[Any, ...]] = []
        self._source: list[tuple[c_int64, int]] = []
        self._target: list[tuple[c_int64, int]] = []
        for node, found in zip(nodes, places, strict=True):
            buffers = [ctypes.create_string_buffer(parameter, len(parameter)) for parameter in node.parameters]
            addresses = (c_void_p * max(1, len(buffers)))(*map(ctypes.addressof, buffers))
            configuration = Configuration(*node.shape, stream)
            self._alive += [buffers, addresses, configuration]
            self._calls.append((byref(configuration), c_void_p(node.function), ctypes.cast(addresses, c_void_p), None))
            for number, offset, side, distance in found:
                word = c_int64.from_buffer(buffers[number], offset)
                (self._target if side else self._source).append((word, distance))

    def run(self, source: int, target: int) -> None:
        """Launch with these addresses; the caller holds the device guard, and no other thread is here."""
        for word, distance in self._source:
            word.value = source + distance
        for word, distance in self._target:
            word.value = target + distance
        for call in self._calls:
            if status := self._launch(*call):
                check(status, "cuLaunchKernelEx")


def record(call: Callable[[int, int, int], None], source: int, target: int, stream: int) -> Recording | None:
    """The recording of ``call(source, target, stream)`` for `stream`; None where it is more than plain kernels.

    Nothing is run: `source` and `target` only tell how addresses are aligned, and whether they are the same. The caller
    holds the device guard.
    """
    shifts = SHIFTS if source != target else SHIFTS[:1] * 2
    try:
        with _stream() as scratch:
            first, again, moved = (
                _captured(lambda: call(source + near, target + far, scratch), scratch)  # noqa: B023 — called at once
                for near, far in ((0, 0), (0, 0), shifts)
            )
    except ToolchainError:
        return None
    if first is None or again is None or moved is None:
        return None
    places = find_places(first, again, moved, {shifts[1]: (1, target), shifts[0]: (0, source)})
    return None if places is None else Recording(first, places, stream)


def find_places(
    first: list[Node], again: list[Node], moved: list[Node], shifts: dict[int, tuple[int, int]]
) -> list[list[Place]] | None:
    """Where addresses stand in the parameters of each kernel; None where captures differ in anything else.

    Parameters
    ----------
    first, again, moved
        Captures: two with the same addresses, which differ only in padding that is never written, one with others.
    shifts
        By the distance that an address was moved: its side, and the address itself.
    """
    if len({tuple((n.function, n.shape, tuple(map(len, n.parameters))) for n in c) for c in (first, again, moved)}) > 1:
        return None
    found: list[list[Place]] = []
    for one, same, other in zip(first, again, moved):
        places: list[Place] = []
        for number, words in enumerate(zip(*(map(_words, capture.parameters) for capture in (one, same, other)))):
            for k, (before, twin, after) in enumerate(zip(*words)):
                if before == after or before != twin:
                    continue
                if after - before not in shifts:
                    return None
                side, address = shifts[after - before]
                places.append((number, 8 * k, side, before - address))
        found.append(places)
    return found


def _words(parameter: bytes) -> list[int]:
    """The parameter as 64-bit numbers, the last one filled up with zeros."""
    return [int.from_bytes(parameter[k : k + 8], "little", signed=True) for k in range(0, len(parameter), 8)]


@contextmanager
def _stream() -> Iterator[int]:
    handle = c_void_p()
    with relaxed_capture():
        check(library().cuStreamCreate(byref(handle), NON_BLOCKING), "cuStreamCreate")
        assert handle.value is not None
        try:
            yield handle.value
        finally:
            library().cuStreamDestroy_v2(handle)


def _captured(call: Callable[[], None], stream: int) -> list[Node] | None:
    graph = c_void_p()
    check(library().cuStreamBeginCapture_v2(stream, THREAD_LOCAL), "cuStreamBeginCapture")
    try:
        call()
    finally:
        status = library().cuStreamEndCapture(stream, byref(graph))
    check(status, "cuStreamEndCapture")
    try:
        nodes = _chain(graph)
        return None if nodes is None else _kernels(nodes)
    finally:
        library().cuGraphDestroy(graph)


def _chain(graph: c_void_p) -> list[int] | None:
    """The nodes in their order; None if they are not one behind the other."""
    count, edges = c_size_t(), c_size_t()
    check(library().cuGraphGetNodes(graph, None, byref(count)), "cuGraphGetNodes")
    nodes = (c_void_p * count.value)()
    check(library().cuGraphGetNodes(graph, nodes, byref(count)), "cuGraphGetNodes")
    check(library().cuGraphGetEdges(graph, None, None, byref(edges)), "cuGraphGetEdges")
    if not count.value or edges.value != count.value - 1:
        return None
    before, after = (c_void_p * edges.value)(), (c_void_p * edges.value)()
    check(library().cuGraphGetEdges(graph, before, after, byref(edges)), "cuGraphGetEdges")
    following = {int(one or 0): int(other or 0) for one, other in zip(before, after)}
    chain = [int(node or 0) for node in nodes if node not in following.values()]
    while chain[-1] in following:
        chain.append(following[chain[-1]])
    return chain if len(chain) == count.value else None


def _kernels(nodes: list[int]) -> list[Node] | None:
    kernels = []
    for node in nodes:
        kind = c_int()
        check(library().cuGraphNodeGetType(node, byref(kind)), "cuGraphNodeGetType")
        if kind.value != KERNEL_NODE:
            return None
        for attribute in NOT_REPEATED.values():
            value = (c_int * 16)()
            check(library().cuGraphKernelNodeGetAttribute(node, attribute, value), "cuGraphKernelNodeGetAttribute")
            if max(value[:3]) > 1 or (attribute == NOT_REPEATED["cooperative"] and value[0]):
                return None
        p = NodeParameters()
        check(library().cuGraphKernelNodeGetParams_v2(node, byref(p)), "cuGraphKernelNodeGetParams")
        if p.extra:
            return None
        function = c_void_p(p.func)
        if not p.func:
            check(library().cuKernelGetFunction(byref(function), p.kern), "cuKernelGetFunction")
        assert function.value is not None
        shape = p.gridDimX, p.gridDimY, p.gridDimZ, p.blockDimX, p.blockDimY, p.blockDimZ, p.sharedMemBytes
        kernels.append(Node(function.value, shape, _parameters(function.value, p.kernelParams)))
    return kernels


def _parameters(function: int, places: int | None) -> tuple[bytes, ...]:
    sizes: list[int] = []
    offset, size = c_size_t(), c_size_t()
    while not library().cuFuncGetParamInfo(function, len(sizes), byref(offset), byref(size)):
        sizes.append(size.value)
    addresses = ctypes.cast(places or 0, ctypes.POINTER(c_void_p))
    return tuple(ctypes.string_at(addresses[number], size) for number, size in enumerate(sizes))
