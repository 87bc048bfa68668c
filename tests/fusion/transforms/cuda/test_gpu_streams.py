"""Streams, threads and CUDA graphs: each execution has the operands it was queued with."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import mathfuse as mf
from tests.spaces import CUPY, TORCH, on_gpu

pytestmark = pytest.mark.gpu
strategies = pytest.mark.parametrize("strategy", ["kernel", "callback", "sequence"])
SHAPE = (32, 48)
THREADS, ROUNDS = 8, 10


@mf.prolog
def dimmed(value, index, level):
    return value * level


@mf.epilog
def weighted(value, index, w, gain):
    return value * w[index] * gain


def sample(seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    return (random.uniform(-1, 1, SHAPE) + 1j * random.uniform(-1, 1, SHAPE)).astype(np.complex64)


def weight(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.5, 1.5, SHAPE).astype(np.float32)


X, WEIGHTS = sample(0), [weight(seed) for seed in range(1, 1 + THREADS)]
SPECTRUM = np.fft.fft2(X.astype(complex))


def close(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5 * max(np.abs(expected).max(), 1))


def planned(space, strategy, x=X, w=WEIGHTS[0], gain=1.0):
    plan = mf.fft.FFT(space.array(x), kind="fft2")
    plan.plan(prolog=dimmed(level=1.0), epilog=weighted(w=space.array(w), gain=gain), strategy=strategy)
    assert plan.explain().strategy == strategy
    return plan


def empty(space):
    return space.array(np.zeros(SHAPE, np.complex64))


# --- streams


@on_gpu
@strategies
def test_operands_may_change_while_work_is_queued(space, strategy):
    """On two streams at once, which get no further before everything is queued."""
    plan = planned(space, strategy)
    weights, streams = [space.array(w) for w in WEIGHTS], [space.stream(), space.stream()]
    for stream in streams:
        plan.execute(stream=stream)  # plans of cuFFT's may wait for the GPU
    space.synchronize()
    for stream in streams:
        space.delay(stream)
    results = []
    for number, w in enumerate(weights):
        plan.reset_operands(w=w, gain=float(number), level=2.0)
        results.append(plan.execute(stream=streams[number % 2]))
    plan.reset_operands(gain=-1.0)
    space.synchronize()
    for number, result in enumerate(results):
        close(space.numpy(result), 2 * number * SPECTRUM * WEIGHTS[number])


@on_gpu
@strategies
def test_streams_are_taken_in_every_form(space, strategy):
    plan, stream, out = planned(space, strategy), space.stream(), empty(space)
    space.synchronize()
    expected = SPECTRUM * WEIGHTS[0]
    for each in (None, stream, space.handle(stream), 0):
        found = plan.execute(stream=each)
        assert plan.execute(out=out, stream=each) is out
        space.synchronize()
        close(space.numpy(found), expected)
        close(space.numpy(out), expected)
        out[...] = 0
        space.synchronize()
    with space.on(stream):
        found = plan.execute()
    stream.synchronize()
    close(space.numpy(found), expected)
    with pytest.raises(mf.PlanError, match="is no stream"):
        plan.execute(stream="fast")


@on_gpu
def test_work_is_queued_on_the_current_stream(space):
    """Behind what fills the input there."""
    plan = planned(space, "sequence")
    x, stream = space.array(np.zeros_like(X)), space.stream()
    filled = space.array(X)
    plan.reset_operands(x)
    with space.on(stream):
        plan.execute()
    space.synchronize()
    space.delay(stream)
    with space.on(stream):
        x[...] = filled
        found = plan.execute()
        blurred = mf.fft.fft2(x)
    stream.synchronize()
    close(space.numpy(found), SPECTRUM * WEIGHTS[0])
    close(space.numpy(blurred), SPECTRUM)


@on_gpu
@strategies
def test_more_streams_than_a_plan_has_memory_for(space, strategy):
    plan = planned(space, strategy)
    streams = [space.stream() for _ in range(20)]
    for _ in range(2):
        results = [plan.execute(stream=stream) for stream in streams]
        space.synchronize()
        for result in results:
            close(space.numpy(result), SPECTRUM * WEIGHTS[0])


# --- threads


def in_threads(work) -> None:
    """`work` of 0, 1, … on as many threads at once; the first error of one is raised."""
    together = threading.Barrier(THREADS)

    def begin(number: int) -> None:
        together.wait(60)
        work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(begin, range(THREADS)))


@on_gpu
@strategies
@pytest.mark.parametrize("own_stream", [False, True])
def test_one_plan_on_many_threads(space, strategy, own_stream):
    plan = planned(space, strategy)
    outs = [empty(space) for _ in range(THREADS)]
    space.synchronize()

    def work(number: int) -> None:
        stream = space.stream() if own_stream else None
        results = [plan.execute(stream=stream)]
        for _ in range(ROUNDS):
            plan.execute(out=outs[number], stream=stream)
        results.append(plan.execute(stream=stream))
        (stream or space).synchronize()
        for each in (*results, outs[number]):
            close(space.numpy(each), SPECTRUM * WEIGHTS[0])

    in_threads(work)


@on_gpu
@strategies
@pytest.mark.parametrize("own_stream", [False, True])
def test_plans_of_one_problem_on_many_threads(space, strategy, own_stream):
    """They share code and cuFFT plans, but no operands."""
    inputs, weights = [space.array(sample(k)) for k in range(THREADS)], [space.array(w) for w in WEIGHTS]
    space.synchronize()

    def work(number: int) -> None:
        stream = space.stream() if own_stream else None
        plan = mf.fft.FFT(inputs[number], kind="fft2")
        plan.plan(prolog=dimmed(level=1.0), epilog=weighted(w=weights[number], gain=1.0), strategy=strategy)
        results = []
        for turn in range(ROUNDS):
            plan.reset_operands(w=weights[turn % THREADS], gain=float(number + turn))
            results.append(plan.execute(stream=stream))
        (stream or space).synchronize()
        spectrum = np.fft.fft2(sample(number).astype(complex))
        for turn, result in enumerate(results):
            close(space.numpy(result), spectrum * WEIGHTS[turn % THREADS] * (number + turn))

    in_threads(work)


@on_gpu
def test_functions_on_many_threads(space):
    inputs = [space.array(sample(k)) for k in range(THREADS)]
    space.synchronize()

    def work(number: int) -> None:
        for turn in range(ROUNDS):
            found = mf.fft.fft2(inputs[number], epilog=mf.scale(factor=float(turn)), strategy="sequence")
            close(space.numpy(found), np.fft.fft2(sample(number)) * turn)

    in_threads(work)


# --- graphs


@on_gpu
@strategies
def test_a_graph_keeps_the_operands_of_its_capture(space, strategy):
    x = space.array(X)
    plan, out = planned(space, strategy), empty(space)
    plan.reset_operands(x, level=2.0)
    replay = space.capture(lambda: plan.execute(out=out))
    expected = 2 * SPECTRUM * WEIGHTS[0]
    replay()
    close(space.numpy(out), expected)
    plan.reset_operands(w=space.array(WEIGHTS[1]), gain=5.0, level=1.0)
    for _ in range(3):
        eager = plan.execute()
        out[...] = 0
        space.synchronize()
        replay()
        close(space.numpy(out), expected)
        close(space.numpy(eager), 5 * SPECTRUM * WEIGHTS[1])
        close(space.numpy(plan.execute()), 5 * SPECTRUM * WEIGHTS[1])
    x *= 3  # arrays are read live by replays, too
    space.synchronize()
    replay()
    close(space.numpy(out), 3 * expected)


@on_gpu
@strategies
def test_graphs_of_one_plan(space, strategy):
    """Each has its operands; several executions in one graph, too; a plan may be freed."""
    plan, outs = planned(space, strategy), [empty(space) for _ in range(3)]
    weights = [space.array(w) for w in WEIGHTS[:3]]

    def both() -> None:
        for number in (1, 2):
            plan.reset_operands(w=weights[number])
            plan.execute(out=outs[number])

    first = space.capture(lambda: plan.execute(out=outs[0]))
    second = space.capture(both)
    plan.reset_operands(w=space.array(WEIGHTS[3]))
    for replay in (first, second, first, second, second, first):
        for out in outs:
            out[...] = 0
        space.synchronize()
        replay()
        for number, out in enumerate(outs):
            ran = (number == 0) == (replay is first)
            close(space.numpy(out), SPECTRUM * WEIGHTS[number] * ran)
    close(space.numpy(plan.execute()), SPECTRUM * WEIGHTS[3])
    plan.free()
    first()
    close(space.numpy(outs[0]), SPECTRUM * WEIGHTS[0])


@on_gpu
@strategies
def test_the_first_execution_may_be_captured(space, strategy):
    """On a stream that the plan has not met: nothing that a capture forbids is done there."""
    plan, out = planned(space, strategy), empty(space)
    replay = space.capture(lambda: plan.execute(out=out))
    replay()
    close(space.numpy(out), SPECTRUM * WEIGHTS[0])


@on_gpu
def test_functions_can_be_captured(space):
    x, out = space.array(X), empty(space)
    double = mf.scale(factor=2.0)
    mf.fft.fft2(x, epilog=double, out=out)
    replay = space.capture(lambda: mf.fft.fft2(x, epilog=double, out=out))
    out[...] = 0
    space.synchronize()
    replay()
    close(space.numpy(out), 2 * SPECTRUM)


def test_results_of_a_captured_plan_come_from_torchs_graph_pool():
    plan, results = planned(TORCH, "sequence"), []
    replay = TORCH.capture(lambda: results.append(plan.execute()))
    replay()
    close(TORCH.numpy(results[0]), SPECTRUM * WEIGHTS[0])


def test_a_filter_is_captured():
    cupy = CUPY.library
    image = np.random.default_rng(0).random((40, 60)).astype(np.float32)
    blur = mf.fft.SpectralFilter(CUPY.array(image), mf.gaussian(sigma=1.0)).plan()
    out = cupy.zeros_like(CUPY.array(image))
    expected = CUPY.numpy(blur.execute()).copy()
    replay = CUPY.capture(lambda: blur.execute(out=out))
    blur.reset_operands(sigma=3.0)
    replay()
    np.testing.assert_allclose(CUPY.numpy(out), expected, atol=1e-6)
