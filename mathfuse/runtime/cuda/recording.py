"""The kernel of a library's call, recorded once and launched again with other addresses.

A call of cuFFT takes the host a quarter longer than the launch of the one kernel that most transforms are. So the call
is captured into graphs, with different addresses: the words that differ are where the addresses go, and the graph tells
everything else. Calls of several kernels gain nothing and are left alone.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import byref, c_int, c_int64, c_size_t, c_uint, c_void_p
from dataclasses import dataclass

from mathfuse.runtime.cuda.devices import check, library, relaxed_capture
from mathfuse.runtime.cuda.kernels import Configuration
from mathfuse.runtime.errors import ToolchainError

# CUstreamCaptureMode, CUstream_flags, CUgraphNodeType, CUlaunchAttributeID
RELAXED, NON_BLOCKING, KERNEL_NODE = 2, 1, 0  # relaxed: what Python's garbage collector frees may not break a capture
COOPERATIVE, CLUSTER = 2, 4  # what a plain launch would lose
SHIFTS = 1 << 20, 1 << 21  # between the addresses of two captures; alignment stays as it is
ATTEMPTS = 3  # padding holds anything, also what looks as if two kernels differed

Replay = Callable[[int, int], None]  # given other addresses
Place = tuple[int, int, int, int]  # parameter, offset, 0 for the source and 1 for the target, distance from its address


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
    """A kernel of a graph: its function, its shape (grid, block, shared memory), the bytes of its parameters."""

    function: int
    shape: tuple[int, ...]
    parameters: tuple[bytes, ...]


def record(call: Callable[[int, int, int], None], source: int, target: int, stream: int) -> Replay | None:
    """What launches the kernel of ``call(source, target, stream)`` on `stream`; None where it is not one plain kernel.

    Nothing is run: `source` and `target` only tell how addresses are aligned, and whether they are the same. The caller
    holds the device guard, also when it launches, and then is alone.
    """
    shifts = SHIFTS if source != target else SHIFTS[:1] * 2
    sides = {shifts[1]: (1, target), shifts[0]: (0, source)}
    for _ in range(ATTEMPTS):
        try:
            with _stream() as scratch:
                captured = [
                    _captured(lambda: call(source + near, target + far, scratch), scratch)  # noqa: B023 — called at once
                    for near, far in 2 * ((0, 0), shifts)
                ]
        except ToolchainError:
            continue
        nodes = [node for node in captured if node]
        if len(nodes) < len(captured):
            return None
        if (places := find_places(nodes[::2], nodes[1::2], sides)) is not None:
            return _replay(nodes[0], places, stream)
    return None


def _replay(node: Node, places: list[Place], stream: int) -> Replay:
    """The launch of a node on a stream, with addresses put in their places."""
    held = ctypes.create_string_buffer(b"".join(node.parameters))  # alive by the words in it
    starts = list(itertools.accumulate(map(len, node.parameters[:-1]), initial=0))
    words = [(c_int64.from_buffer(held, starts[k] + offset), side, distance) for k, offset, side, distance in places]
    arguments = (c_void_p * len(starts))(*(ctypes.addressof(held) + start for start in starts))
    parameters, shape = ctypes.cast(arguments, c_void_p), byref(Configuration(*node.shape, stream))
    launch, function = library().cuLaunchKernelEx, c_void_p(node.function)

    def run(source: int, target: int) -> None:
        for word, side, distance in words:
            word.value = (target if side else source) + distance
        if status := launch(shape, function, parameters, None):
            check(status, "cuLaunchKernelEx")

    return run


def find_places(first: list[Node], moved: list[Node], shifts: dict[int, tuple[int, int]]) -> list[Place] | None:
    """Where addresses stand in the parameters of a kernel; None where captures differ in more, or one is missing.

    Parameters
    ----------
    first, moved
        Captures with the same addresses, which differ only in padding that is never written, and as many with others.
    shifts
        By the distance that an address was moved: its side, and the address itself.
    """
    if len({(n.function, n.shape, tuple(map(len, n.parameters))) for n in (*first, *moved)}) > 1:
        return None
    places: list[Place] = []
    for number in range(len(first[0].parameters)):
        befores, afters = (zip(*(_words(node.parameters[number]) for node in nodes)) for nodes in (first, moved))
        for k, (before, after) in enumerate(zip(map(set, befores), map(set, afters))):
            if before == after or len(before) > 1 or len(after) > 1:
                continue
            (old,), (new,) = before, after
            if new - old not in shifts:
                return None
            side, address = shifts[new - old]
            places.append((number, 8 * k, side, old - address))
    return places if {side for _, _, side, _ in places} == {side for side, _ in shifts.values()} else None


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


def _captured(call: Callable[[], None], stream: int) -> Node | None:
    """The one node of a captured call; None if there are more, or it is more than a plain launch."""
    graph = c_void_p()
    check(library().cuStreamBeginCapture_v2(stream, RELAXED), "cuStreamBeginCapture")
    try:
        call()
    finally:
        status = library().cuStreamEndCapture(stream, byref(graph))
    check(status, "cuStreamEndCapture")
    try:
        count, node, kind = c_size_t(1), c_void_p(), c_int()
        check(library().cuGraphGetNodes(graph, None, byref(count)), "cuGraphGetNodes")
        if count.value != 1:
            return None
        check(library().cuGraphGetNodes(graph, byref(node), byref(count)), "cuGraphGetNodes")
        check(library().cuGraphNodeGetType(node, byref(kind)), "cuGraphNodeGetType")
        return _kernel(node) if kind.value == KERNEL_NODE else None
    finally:
        library().cuGraphDestroy(graph)


def _kernel(node: c_void_p) -> Node | None:
    for attribute in (COOPERATIVE, CLUSTER):
        value = (c_int * 16)()  # CUlaunchAttributeValue
        check(library().cuGraphKernelNodeGetAttribute(node, attribute, value), "cuGraphKernelNodeGetAttribute")
        if any(value[:3]) and tuple(value[:3]) != (1, 1, 1):
            return None
    p, function = NodeParameters(), c_void_p()
    check(library().cuGraphKernelNodeGetParams_v2(node, byref(p)), "cuGraphKernelNodeGetParams")
    if p.extra:
        return None
    function.value = p.func
    if not p.func:
        check(library().cuKernelGetFunction(byref(function), p.kern), "cuKernelGetFunction")
    assert function.value is not None
    shape = p.gridDimX, p.gridDimY, p.gridDimZ, p.blockDimX, p.blockDimY, p.blockDimZ, p.sharedMemBytes
    return Node(function.value, shape, _parameters(function.value, p.kernelParams))


def _parameters(function: int, places: int | None) -> tuple[bytes, ...]:
    sizes: list[int] = []
    offset, size = c_size_t(), c_size_t()
    while not library().cuFuncGetParamInfo(function, len(sizes), byref(offset), byref(size)):
        sizes.append(size.value)
    addresses = ctypes.cast(places or 0, ctypes.POINTER(c_void_p))
    return tuple(ctypes.string_at(addresses[number], size) for number, size in enumerate(sizes))
