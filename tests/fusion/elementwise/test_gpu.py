"""`mf.elementwise` on a real GPU, in every framework: layouts, streams, threads, graphs, what a call costs."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings

import mathfuse as mf
from mathfuse.fusion.elementwise import cuda
from mathfuse.runtime.cuda.driver import device_guard, synchronize
from tests.spaces import CUPY, HOST, TORCH
from tests.test_elementwise import COMPLEX, REAL, arrays, close, everything, neighbours, recorded, reference, weighted

pytestmark = pytest.mark.gpu

RNG = np.random.default_rng(11)
on_gpu = pytest.mark.parametrize("space", [CUPY, TORCH], ids=repr)
every = pytest.mark.parametrize("space", [CUPY, TORCH, HOST], ids=repr)


def where(space):
    """What a call is told, so that it runs on the GPU."""
    return {"execution": "cuda"} if space is HOST else {}


@every
@settings(max_examples=60)
@given(x=arrays())
def test_every_dtype_and_layout(space, x):
    if space.why_not(x):
        return
    table = np.linspace(0, 1, x.size, dtype="float32").reshape(x.shape)
    found = mf.elementwise(everything(table=space.array(table)), space.array(x), **where(space))
    assert space.has(found)
    close(space.numpy(found), reference(everything(table=table.astype(float)), x))


@every
@pytest.mark.parametrize("dtype", REAL + COMPLEX)
@pytest.mark.parametrize("size", [1, 1000, 1 << 20])
def test_flat_arrays_of_every_size(space, dtype, size):
    x = RNG.integers(0, 100, size).astype(dtype)
    for offset in (0, 1):
        found = mf.elementwise(mf.scale(factor=2), space.array(x, offset), **where(space))
        np.testing.assert_array_equal(space.numpy(found), mf.elementwise(mf.scale(factor=2), x))


@on_gpu
def test_no_elements_and_no_axes(space):
    found = mf.elementwise(mf.relu, space.array(np.zeros((0, 3), "float32")))
    assert tuple(found.shape) == (0, 3)
    found = mf.elementwise(mf.scale(factor=2.0), space.array(np.array(3.0)))
    assert tuple(found.shape) == ()
    assert float(found) == 6


@on_gpu
def test_out_and_in_place(space):
    x, w = (RNG.random((30, 40), dtype="float32") for _ in range(2))
    for _ in range(2):
        ours, weights = space.array(x), space.array(w)
        out = space.array(np.zeros((40, 30), "float32").T)
        assert mf.elementwise(weighted(w=weights), ours, out=out) is out
        np.testing.assert_array_equal(space.numpy(out), x * w)
        assert mf.elementwise(weighted(w=weights), ours, out=weights) is weights
        np.testing.assert_array_equal(space.numpy(weights), x * w)
        assert mf.elementwise(mf.scale(factor=2.0), ours, out=ours) is ours
        np.testing.assert_array_equal(space.numpy(ours), 2 * x)
        mf.elementwise(weighted(w=ours), ours, out=ours)
        np.testing.assert_array_equal(space.numpy(ours), 4 * x * x)
    with pytest.raises(mf.PlanError, match="out overlaps the input"):
        mf.elementwise(mf.relu, ours[:-1], out=ours[1:])
    with pytest.raises(mf.PlanError, match="out overlaps the input"):
        mf.elementwise(neighbours, ours[0], out=ours[0])
    with pytest.raises(mf.PlanError, match="out has dtype float32"):
        mf.elementwise(mf.scale(factor=1j), ours, out=ours)


@every
def test_source_and_assigned_operands(space):
    x = RNG.random(5000)
    for _ in range(2):
        found = mf.elementwise(neighbours, space.array(x), **where(space))
        np.testing.assert_array_equal(space.numpy(found), x - np.roll(x, -1))
        seen = space.array(np.zeros(5000))
        found = mf.elementwise(recorded, space.array(x), inputs={"seen": seen}, **where(space))
        np.testing.assert_array_equal(space.numpy(found), 2 * x)
        np.testing.assert_array_equal(space.numpy(seen), x)


@on_gpu
def test_operands_are_read_live_and_host_operands_at_each_call(space):
    x, w = np.ones((20, 30), "float32"), np.ones((20, 30), "float32")
    ours, live = space.array(x), space.array(w)
    for k in range(1, 4):
        w[...] = k
        mf.elementwise(mf.scale(factor=float(k)), space.array(x), out=live)
        np.testing.assert_array_equal(space.numpy(mf.elementwise(weighted(w=live), ours)), x * k)
        np.testing.assert_array_equal(space.numpy(mf.elementwise(weighted(w=w), ours)), x * k)


@on_gpu
def test_a_second_call_prepares_nothing(space):
    x = space.array(RNG.random((8, 8), dtype="float32"))
    mf.elementwise(mf.scale(factor=1.0), x)
    before = len(cuda._prepared)
    for k in range(4):
        mf.elementwise(mf.scale(factor=float(k)), space.array(np.ones((8, 8), "float32")))
    assert len(cuda._prepared) == before


@on_gpu
def test_streams(space):
    x = RNG.random(1 << 20, dtype="float32")
    ours = space.array(x)
    library = space.library.cuda
    with device_guard(0):
        synchronize(0)
    for make in (library.Stream, library.Stream, lambda: 0):
        stream = make()
        results = [mf.elementwise(mf.scale(factor=float(k)), ours, stream=stream) for k in range(8)]
        if stream:
            stream.synchronize()
        for k, result in enumerate(results):
            np.testing.assert_array_equal(space.numpy(result), x * np.float32(k))


def test_the_current_stream_is_the_frameworks():
    torch = TORCH.library
    x, stream = torch.zeros(1 << 22, device="cuda"), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        filled = x.fill_(3)  # waits behind the sleep, so that another stream would read zeros
        found = mf.elementwise(mf.scale(factor=2.0), filled)
    stream.synchronize()
    assert bool((found == 6).all())


@on_gpu
def test_threads(space):
    x = RNG.random(5000, dtype="float32")
    ours, failures = space.array(x), []

    def work(k):
        stream = space.library.cuda.Stream()
        for _ in range(50):
            found = mf.elementwise(mf.scale(factor=float(k)), ours, stream=stream)
            stream.synchronize()
            failures.extend([] if np.array_equal(space.numpy(found), x * np.float32(k)) else [k])

    threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_captured_graph_keeps_its_numbers():
    torch = TORCH.library
    x = torch.ones(1000, device="cuda")
    out = torch.empty_like(x)
    mf.elementwise(mf.scale(factor=1.0), x, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        mf.elementwise(mf.scale(factor=3.0), x, out=out)
        pooled = mf.elementwise(mf.scale(factor=4.0), x)
    mf.elementwise(mf.scale(factor=5.0), x, out=out)
    graph.replay()
    assert bool((out == 3).all())
    assert bool((pooled == 4).all())


def test_torch():
    torch = TORCH.library
    x = torch.randn(10, 10, dtype=torch.complex64, device="cuda")
    for _ in range(2):
        found = mf.elementwise(mf.scale(factor=2.0), x.conj())
        torch.testing.assert_close(found, 2 * x.conj().resolve_conj())
    with pytest.raises(mf.UnsupportedError, match="requires grad"):
        mf.elementwise(mf.relu, torch.ones(3, device="cuda", requires_grad=True))
    out = torch.zeros(3, device="cuda")
    for _ in range(2):
        version = out._version
        mf.elementwise(mf.relu, torch.ones(3, device="cuda"), out=out)
        assert out._version > version
    with pytest.raises(mf.PlanError, match="copies NumPy arrays only"):
        mf.elementwise(mf.relu, torch.ones(3), execution="cuda")


def test_jax():
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("this JAX has no GPU")
    x = RNG.random((30, 40), dtype="float32")
    for k in range(1, 4):
        ours = jax.numpy.asarray(x) * k
        found = mf.elementwise(weighted(w=jax.numpy.asarray(x)), ours)
        assert isinstance(found, jax.Array)
        np.testing.assert_allclose(np.asarray(found), k * x * x, rtol=1e-6)
        np.testing.assert_allclose(np.asarray(found + 1), k * x * x + 1, rtol=1e-6)
    with pytest.raises(mf.UnsupportedError, match="read-only"):
        mf.elementwise(mf.relu, ours, out=ours)


def test_numba():
    numba = pytest.importorskip("numba.cuda")
    x = RNG.random((30, 40), dtype="float32")
    for _ in range(2):
        found = mf.elementwise(mf.scale(factor=2.0), numba.to_device(x))
        np.testing.assert_array_equal(found.copy_to_host(), 2 * x)


@on_gpu
def test_what_a_call_costs(space, record_property):
    """About 10 µs of the host's time; the bound is generous, for machines that do other things too."""
    x = space.array(np.ones((32, 32), "float32"))
    callbacks = {"no operand": mf.relu, "a number": mf.scale(factor=2.0), "an array": weighted(w=x)}
    for name, callback in callbacks.items():
        mf.elementwise(callback, x)
        times = []
        for _ in range(20):
            begin = time.perf_counter()
            for _ in range(100):
                mf.elementwise(callback, x)
            times.append((time.perf_counter() - begin) / 100)
        microseconds = 1e6 * min(times)
        record_property(name, microseconds)
        print(f"{space}, {name}: {microseconds:.1f} µs")
        assert microseconds < 40
