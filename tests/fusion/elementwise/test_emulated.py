"""`mf.elementwise` on a GPU that this processor plays: what is prepared, found again, checked and copied."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest

import mathfuse as mf
from mathfuse.fusion.elementwise import cuda
from mathfuse.runtime.cuda.arrays import as_device, download
from mathfuse.runtime.cuda.frameworks import EXCHANGE
from tests.runtime.cuda.fakes import Capsule, Interface

RNG = np.random.default_rng(3)
OFFSETS = np.arange(5, dtype="f")


@mf.epilog
def weighted(value, index, shape, w, gain=1.0):
    return value * w[index] * gain + index[0] * shape[-1]


@mf.epilog
def counted(value, index, seen):
    seen[index] = value + 1
    return value * 2


@mf.prolog
def shifted(value, index, source, shape):
    return value + source[mf.wrapped_index(index[0] + 1, shape[0]), index[1]]


@mf.epilog
def captured(value, index):
    return value + OFFSETS[index[-1]]


def numpy(array):
    return download(as_device(array), 0)


def weigh(x, w, gain=1.0):
    return x * w * gain + np.arange(x.shape[0])[:, None] * x.shape[1]


@pytest.fixture
def x():
    return RNG.random((4, 5), dtype="f")


@pytest.mark.parametrize(
    "view", [lambda x: x, lambda x: x.T, lambda x: x[::-1, 1::2], lambda x: np.broadcast_to(x[:1], x.shape)]
)
def test_every_layout(launches, x, view):
    x = view(x)
    w = RNG.random(x.shape, dtype="f")
    found = mf.elementwise(weighted(w=Interface(w), gain=2.0), Interface(x))
    np.testing.assert_allclose(numpy(found), weigh(x, w, 2.0), rtol=1e-5)
    assert len(launches) == 1


def test_a_launch_serves_other_addresses_and_numbers(launches, x):
    w = RNG.random(x.shape, dtype="f")
    for k in range(1, 4):
        found = mf.elementwise(weighted(w=Interface(w * k), gain=float(k)), Interface(x + k), stream=7)
        np.testing.assert_allclose(numpy(found), weigh(x + k, w * k, k), rtol=1e-5)
        assert len(cuda._prepared) == 1
    mf.elementwise(weighted, Interface(x), inputs={"w": Interface(w), "gain": 3})  # an integer is another type
    assert len(cuda._prepared) == 2
    mf.elementwise(weighted(w=Interface(w)), Interface(np.asfortranarray(x)))
    assert len(cuda._prepared) == 3
    assert launches == [7, 7, 7, 0, 0]


def test_the_number_of_prepared_launches_is_bounded(launches, monkeypatch):
    monkeypatch.setattr(cuda, "MOST_PREPARED", 2)
    for n in range(1, 5):
        mf.elementwise(mf.relu, Interface(np.zeros(n, "f")))
    assert len(cuda._prepared) == 2


def test_arrays_without_a_key_are_prepared_anew(launches, driver):
    for k in (1, 2):
        x = np.full(3, k, "f")
        driver.device_of[x.ctypes.data] = 1
        found = mf.elementwise(mf.scale(factor=2.0), Capsule(x))
        np.testing.assert_array_equal(numpy(found), 2 * x)
    assert not cuda._prepared
    assert launches == [0, 0]


def test_nothing_of_the_user_is_kept(launches, x):
    class Owner(Interface):
        pass

    w, y, out = Owner(x + 1), Owner(x), Owner(x * 0)
    gone = [weakref.ref(each) for each in (w, y, out)]
    mf.elementwise(weighted(w=w), y, out=out)
    mf.elementwise(weighted(w=w), y, out=out)
    del w, y, out
    EXCHANGE._held.clear()  # until the stream is past them
    gc.collect()
    assert len(cuda._prepared) == 1
    assert [each() for each in gone] == [None] * 3


def test_captured_arrays_are_read_live_and_go_with_the_callback(launches, x):
    offsets = np.arange(5, dtype="f")

    @mf.epilog
    def added(value, index):
        return value + offsets[index[-1]]

    for factor in (1, 2):
        np.testing.assert_allclose(numpy(mf.elementwise(added, Interface(x))), x + offsets)
        offsets *= factor + 1
    assert len(cuda._prepared) == 1
    del added
    gc.collect()
    assert not cuda._prepared


def test_a_global_that_is_bound_anew_counts_at_the_next_call(launches, x, monkeypatch):
    np.testing.assert_allclose(numpy(mf.elementwise(captured, Interface(x))), x + OFFSETS)
    monkeypatch.setitem(globals(), "OFFSETS", np.full(5, 7, "f"))
    np.testing.assert_allclose(numpy(mf.elementwise(captured, Interface(x))), x + 7)


def test_in_place_and_into_an_operand(launches, x):
    w = RNG.random(x.shape, dtype="f")
    for _ in range(2):
        expected, own = weigh(x, w), Interface(x)
        assert mf.elementwise(weighted(w=Interface(w)), own, out=own) is own
        np.testing.assert_allclose(x, expected, rtol=1e-5)
    expected = weigh(x, w)
    mf.elementwise(weighted(w=Interface(w)), Interface(x), out=Interface(w))
    np.testing.assert_allclose(w, expected, rtol=1e-5)
    out = np.zeros((5, 4), "f").T
    mf.elementwise(mf.relu, Interface(x), out=Interface(out))
    np.testing.assert_array_equal(out, x)


def test_what_overlaps_is_found_in_later_calls_too(launches):
    memory, w = np.zeros((9, 5), "f"), np.ones((4, 5), "f")
    for offset in (4, 5):
        mf.elementwise(weighted(w=Interface(w)), Interface(memory[:4]), out=Interface(memory[offset : offset + 4]))
    with pytest.raises(mf.PlanError, match="out overlaps the input"):
        mf.elementwise(weighted(w=Interface(w)), Interface(memory[:4]), out=Interface(memory[2:6]))
    mf.elementwise(shifted, Interface(memory[:4]), out=Interface(memory[4:8]))
    with pytest.raises(mf.PlanError, match="out overlaps the input"):
        mf.elementwise(shifted, Interface(memory[:4]), out=Interface(memory[:4]))
    mf.elementwise(counted(seen=Interface(w)), Interface(memory[:4]))
    with pytest.raises(mf.PlanError, match="assigns to 'seen', which overlaps the input"):
        mf.elementwise(counted(seen=Interface(memory[1:5])), Interface(memory[:4]))


def test_what_lies_between_is_found_again(launches):
    memory = np.random.default_rng(0).standard_normal((4, 10)).astype("f")
    expected, found = np.maximum(memory[:, :5], 0), set()
    for _ in range(2):
        mf.elementwise(mf.relu, Interface(memory[:, :5]), out=Interface(memory[:, 5:]))
        np.testing.assert_array_equal(memory[:, 5:], expected)
        found |= set(cuda._prepared.values())
    assert len(found) == 1
    with pytest.raises(mf.PlanError, match="out overlaps the input"):
        mf.elementwise(mf.relu, Interface(memory[:, :5]), out=Interface(memory[:, 4:9]))


def test_kernels_in_graphs_are_held_until_plans_are_cleared(launches, x, monkeypatch):
    monkeypatch.setattr(cuda.driver, "is_capturing", lambda _: True)
    mf.elementwise(mf.relu, Interface(x), stream=16)
    held = weakref.ref(next(iter(cuda._prepared.values())))
    cuda._prepared.clear()
    gc.collect()
    assert held() is not None
    mf.clear_plans()
    gc.collect()
    assert held() is None


def test_source_and_assigned_operands(launches, x):
    for _ in range(2):
        np.testing.assert_allclose(numpy(mf.elementwise(shifted, Interface(x))), x + np.roll(x, -1, 0))
        seen = np.zeros_like(x)
        np.testing.assert_allclose(numpy(mf.elementwise(counted(seen=Interface(seen)), Interface(x))), 2 * x)
        np.testing.assert_allclose(seen, x + 1)
    with pytest.raises(mf.PlanError, match="assigns to 'seen', which must be on the GPU"):
        mf.elementwise(counted(seen=seen), Interface(x))


def test_numpy_is_copied_there_and_back(launches, x):
    for _ in range(2):
        seen, out = np.zeros_like(x), np.zeros_like(x)
        found = mf.elementwise(counted(seen=seen), x, execution="cuda")
        assert isinstance(found, np.ndarray)
        np.testing.assert_allclose(found, 2 * x)
        np.testing.assert_allclose(seen, x + 1)
        assert mf.elementwise(mf.relu, x, out=out, execution="cuda") is out
        np.testing.assert_array_equal(out, x)
    with pytest.raises(mf.PlanError, match="out has dtype float64"):
        mf.elementwise(mf.relu, x, out=x.astype(float), execution="cuda")


def test_host_operands_are_copied_at_each_call(launches, x):
    w = RNG.random(x.shape, dtype="f")
    for _ in range(2):
        np.testing.assert_allclose(numpy(mf.elementwise(weighted(w=w), Interface(x))), weigh(x, w), rtol=1e-5)
        w *= 2
        gain = np.array(w[0, 0])
        found = mf.elementwise(weighted(w=w, gain=gain), Interface(x))
        np.testing.assert_allclose(numpy(found), weigh(x, w, gain), rtol=1e-5)


def test_no_elements_and_no_axes(launches):
    assert numpy(mf.elementwise(mf.relu, Interface(np.zeros((0, 3))))).shape == (0, 3)
    assert launches == []
    found = numpy(mf.elementwise(mf.scale(factor=2.0), Interface(np.array(3.0))))
    assert found.shape == ()
    assert found == 6
    np.testing.assert_array_equal(mf.elementwise(mf.relu, np.array(3.0), execution="cuda"), 3)


def test_where_arrays_must_be(launches, driver, x):
    elsewhere = np.ones_like(x)
    driver.device_of[elsewhere.ctypes.data] = 1
    with pytest.raises(mf.PlanError, match="operand 'w' is on GPU 1 and x on GPU 0"):
        mf.elementwise(weighted(w=Interface(elsewhere)), Interface(x))
    with pytest.raises(mf.PlanError, match="out is on GPU 1 and x on GPU 0"):
        mf.elementwise(mf.relu, Interface(x), out=Interface(elsewhere))
    with pytest.raises(mf.UnsupportedError, match="read-only"):
        mf.elementwise(mf.relu, Interface(x), out=Interface(x.copy(), readonly=True))
    with pytest.raises(mf.PlanError, match="no stream"):
        mf.elementwise(mf.relu, Interface(x), stream="mine")


def test_threads(launches, x):
    failures = []

    def work(k):
        for _ in range(20):
            found = numpy(mf.elementwise(mf.scale(factor=float(k)), Interface(x)))
            failures.extend([] if np.allclose(found, k * x) else [k])

    threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
