"""Where addresses stand in a kernel's parameters, found from captures; and recordings of cuFFT's kernels."""

from __future__ import annotations

import struct
from contextlib import contextmanager

import numpy as np
import pytest

from mathfuse.runtime.cuda import cufft, recording
from mathfuse.runtime.cuda.recording import ATTEMPTS, SHIFTS, Node, find_places, record
from mathfuse.runtime.errors import ToolchainError

X, Y = 1 << 40, 1 << 41
MOVED = {SHIFTS[1]: (1, Y), SHIFTS[0]: (0, X)}


def node(*words, function=7, shape=(1, 1, 1, 32, 1, 1, 0), tail=b""):
    return Node(function, shape, (struct.pack(f"<{len(words)}q", *words) + tail,))


def test_addresses_are_where_captures_differ():
    first, moved = node(5, X, Y + 64, 9), node(5, X + SHIFTS[0], Y + 64 + SHIFTS[1], 9)
    assert find_places([first, first], [moved, moved], MOVED) == [(0, 8, 0, 0), (0, 16, 1, 64)]


def test_an_address_may_stand_in_many_places():
    first, moved = node(X, X + 8, Y), node(X + SHIFTS[0], X + 8 + SHIFTS[0], Y + SHIFTS[1])
    assert find_places([first, first], [moved, moved], MOVED) == [(0, 0, 0, 0), (0, 8, 0, 8), (0, 16, 1, 0)]


def test_padding_that_is_never_written_counts_for_nothing():
    moves = X + SHIFTS[0], Y + SHIFTS[1]
    first, again, moved, last = node(X, Y, 1), node(X, Y, 2), node(*moves, 3), node(*moves, 4)
    for befores, afters in (([first, again], [moved, moved]), ([first, first], [moved, last])):
        assert find_places(befores, afters, MOVED) == [(0, 0, 0, 0), (0, 8, 1, 0)]


@pytest.mark.parametrize(
    "moved",
    [
        node(X + SHIFTS[0], Y + SHIFTS[1], 2),
        node(X + SHIFTS[0] + 8, Y + SHIFTS[1], 1),
        node(X + SHIFTS[0], Y + SHIFTS[1], 1, function=8),
        node(X + SHIFTS[0], Y + SHIFTS[1], 1, shape=(2, 1, 1, 32, 1, 1, 0)),
        node(X + SHIFTS[0], Y + SHIFTS[1], 1, 4),
        node(X + SHIFTS[0], Y + SHIFTS[1], 1, tail=b"1234"),
    ],
)
def test_captures_that_differ_in_anything_else_are_no_recording(moved):
    first = node(X, Y, 1)
    assert find_places([first, first], [moved, moved], MOVED) is None


@pytest.mark.parametrize("moved", [node(X + SHIFTS[0], Y), node(X, Y + SHIFTS[1]), node(X, Y)])
def test_an_address_that_is_nowhere_is_no_recording(moved):
    first = node(X, Y)
    assert find_places([first, first], [moved, moved], MOVED) is None


def test_in_place_there_is_one_address():
    first, moved = node(X, X), node(X + SHIFTS[0], X + SHIFTS[0])
    assert find_places([first, first], [moved, moved], {SHIFTS[0]: (0, X)}) == [(0, 0, 0, 0), (0, 8, 0, 0)]


def test_a_last_word_may_be_short():
    tail = {"tail": b"\x01\x02\x03\x04"}
    first, moved = node(X, Y, **tail), node(X + SHIFTS[0], Y + SHIFTS[1], **tail)
    assert find_places([first, first], [moved, moved], MOVED) == [(0, 0, 0, 0), (0, 8, 1, 0)]


def unlucky(failures, monkeypatch):
    """Captures of a kernel of which the first attempts meet what cannot be told from another kernel, or fail."""
    attempts = iter(failures)

    @contextmanager
    def stream():
        nonlocal attempt
        attempt = next(attempts, None)
        yield 3

    def captured(call, stream):
        call()
        if attempt is ToolchainError:
            raise ToolchainError("captures are broken")
        return None if attempt == "two kernels" else node(*seen[-1], int(attempt == "padding" and seen[-1] != (X, Y)))

    attempt, seen = None, []
    monkeypatch.setattr(recording, "_stream", stream)
    monkeypatch.setattr(recording, "_captured", captured)
    monkeypatch.setattr(recording, "_replay", lambda node, places, stream: places)
    return record(lambda source, target, stream: seen.append((source, target)), X, Y, 0)


@pytest.mark.parametrize("failures", [[], ["padding"], [ToolchainError], ["padding", ToolchainError]])
def test_an_unlucky_attempt_is_made_again(failures, monkeypatch):
    assert unlucky(failures, monkeypatch) == [(0, 0, 0, 0), (0, 8, 1, 0)]


@pytest.mark.parametrize("failures", [["two kernels"], ["padding"] * ATTEMPTS, [ToolchainError] * ATTEMPTS])
def test_what_stays_different_is_no_recording(failures, monkeypatch):
    assert unlucky(failures, monkeypatch) is None


def call_of(transform):
    def call(source: int, target: int, stream: int) -> None:
        transform.set_stream(stream)
        transform.run(source, target, forward=True)
        transform.set_stream(0)

    return call


def planned(n: int) -> cufft.Transform:
    view = cufft.View((n,), 1, n)
    return cufft.Transform(cufft.Call("c2c", False, (n,), 8, view, view), (), 0)


@pytest.mark.gpu
def test_what_is_freed_during_a_capture_does_not_break_it():
    cupy = pytest.importorskip("cupy")
    left = [cupy.cuda.Memory(256) for _ in range(4 * ATTEMPTS)]
    call = call_of(planned(64))

    def freeing(source: int, target: int, stream: int) -> None:
        left.pop()  # as Python's garbage collector may
        call(source, target, stream)

    assert record(freeing, X, Y, 0) is not None


@pytest.mark.gpu
@pytest.mark.parametrize("n", [64, 1000, 4096])
def test_a_recorded_transform_gives_the_same_bits(n):
    cupy = pytest.importorskip("cupy")
    transform = planned(n)
    work = cupy.empty(transform.work_bytes + 16, cupy.uint8)
    transform.set_work_area(work.data.ptr)
    run = record(call_of(transform), X, Y, 0)
    assert run is not None
    for seed in range(3):
        x = cupy.asarray(np.random.default_rng(seed).standard_normal((8, n)).astype(np.complex64))
        found, expected = cupy.zeros_like(x), cupy.zeros_like(x)
        run(x.data.ptr, found.data.ptr)
        transform.run(x.data.ptr, expected.data.ptr, forward=True)
        np.testing.assert_array_equal(cupy.asnumpy(found), cupy.asnumpy(expected))
