"""What plans, known problems and captured graphs keep, and when that no longer holds, on a GPU that is played."""

from __future__ import annotations

import collections
import gc
import threading
import weakref

import numpy as np
import pytest

import mathfuse as mf
from mathfuse.fusion.elementwise.layouts import Layout, dense
from mathfuse.fusion.transforms import binding
from mathfuse.fusion.transforms.cuda import choice, engine, known, prepared
from mathfuse.fusion.transforms.cuda.builder import build
from mathfuse.fusion.transforms.cuda.code import units_of
from mathfuse.fusion.transforms.kinds import resolve
from mathfuse.fusion.transforms.pipeline import Pipeline
from mathfuse.runtime.cuda import cufft
from mathfuse.runtime.cuda.frameworks import EXCHANGE
from tests.runtime.cuda.fakes import Interface

from . import played

X = np.random.default_rng(0).standard_normal((6, 10)).astype(np.float32)
SPECTRUM = np.fft.rfft2(X.astype(float))


@mf.epilog
def gain(value, g):
    return value * g


@mf.epilog
def weighted(value, index, w):
    return value * w[index]


@pytest.fixture
def plain(gpu, monkeypatch):
    """Arrays are taken for CuPy's: they need no care, and calls are found again by shortcuts."""
    for module in (prepared, known):
        monkeypatch.setattr(module, "CUPY", EXCHANGE)
    return gpu


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


# --- known problems ---------------------------------------------------------------------------------------------------


def test_a_number_in_an_array_is_read_at_each_call(plain):
    x, g = plain.array(X), np.array(2.0)
    callback = gain(g=g)
    for factor in (2.0, 5.0):
        g[...] = factor
        close(plain.numpy(mf.fft.rfft2(x, epilog=callback)), factor * SPECTRUM)


def test_what_changes_under_its_identity_is_read_at_each_call(plain):
    x, inputs, axes = plain.array(X), collections.OrderedDict(g=2.0), collections.UserList([0])
    close(plain.numpy(mf.fft.rfft2(x, epilog=gain, epilog_inputs=inputs)), 2 * SPECTRUM)
    close(plain.numpy(mf.fft.fftn(x, axes=axes)), np.fft.fft(X, axis=0))
    inputs["g"], axes[:] = 5.0, [1]
    close(plain.numpy(mf.fft.rfft2(x, epilog=gain, epilog_inputs=inputs)), 5 * SPECTRUM)
    close(plain.numpy(mf.fft.fftn(x, axes=axes)), np.fft.fft(X, axis=1))


def test_an_operand_that_moved_is_followed(plain):
    x, w = plain.array(X), plain.array(np.full(SPECTRUM.shape, 2, np.float32))
    callback = weighted(w=w)
    close(plain.numpy(mf.fft.rfft2(x, epilog=callback)), 2 * SPECTRUM)
    assert known._shortcuts
    elsewhere = np.full(SPECTRUM.shape, 7, np.float32)
    w.__cuda_array_interface__ = Interface(elsewhere).__cuda_array_interface__
    close(plain.numpy(mf.fft.rfft2(x, epilog=callback)), 7 * SPECTRUM)


def test_the_name_of_an_argument_given_as_a_value_is_none_of_a_known_call(plain):
    x = plain.array(X)
    mf.fft.rfft(x, norm="ortho")
    with pytest.raises(mf.PlanError, match="'norm'"):
        mf.fft.rfft(x, "norm", "ortho")


def test_tuning_counts_for_known_problems_too(plain, monkeypatch, tmp_path):
    monkeypatch.setenv("MATHFUSE_CACHE_DIR", str(tmp_path))
    x, callback = plain.array(X), gain(g=2.0)

    def taken():
        mf.fft.rfft2(x, epilog=callback)
        return choice.name_of(next(iter(known._shortcuts.values()))[0].engine.program)

    before = taken()
    times = iter([1.0, 5.0, 5.0] if before == "callback" else [5.0, 1.0, 5.0])
    monkeypatch.setattr(prepared, "milliseconds", lambda *_: next(times))
    mf.fft.rfft2(x, epilog=callback, tune=True)
    assert {before, taken()} == {"callback", "sequence"}


def test_an_output_of_another_layout_is_planned_once(gpu, monkeypatch):
    made = []

    class Counted(played.Transform):
        def __init__(self, *arguments):
            made.append(1)
            super().__init__(*arguments)

    monkeypatch.setattr(cufft, "Transform", Counted)
    x, out = gpu.array(X), gpu.array(np.zeros(SPECTRUM.shape[::-1], np.complex64).T)
    callback, counts = gain(g=2.0), []
    for _ in range(3):
        mf.fft.rfft2(x, epilog=callback, out=out, strategy="sequence")
        gc.collect()
        counts.append(len(made))
    assert counts[0] == counts[-1]


# --- plans ------------------------------------------------------------------------------------------------------------


def test_only_what_is_assigned_changes_in_numpy_arrays(gpu):
    @mf.prolog
    def put(value, index, kept, first):
        kept[first + index[0], index[1]] = value
        return value

    kept = np.zeros((12, 10), np.float32)
    plans = [
        mf.fft.FFT(factor * X, kind="rfft2").plan(prolog=put(kept=kept, first=first), execution="cuda")
        for factor, first in ((1, 0), (2, 6))
    ]
    for plan in plans:
        plan.execute()
    np.testing.assert_array_equal(kept, np.concatenate([X, 2 * X]))


def test_an_output_of_another_library_is_held_until_it_is_written(gpu):
    x, out = gpu.array(X), gpu.array(np.zeros(SPECTRUM.shape, np.complex64))
    plan = mf.fft.FFT(x, kind="rfft2").plan()
    EXCHANGE._held.clear()
    plan.execute(out=out)
    assert any(array is out for _, array in EXCHANGE._held)


def test_the_stream_of_each_thread_has_a_lane_of_its_own(plain):
    plan = mf.fft.FFT(plain.array(X), kind="rfft2").plan(epilog=gain(g=2.0), strategy="callback")
    lanes = plan._prepared._ready.engine._lanes
    before = len(lanes)
    for _ in range(2):
        thread = threading.Thread(target=plan.execute, kwargs={"stream": 2})
        thread.start()
        thread.join()
    assert len(lanes) in (before + 1, before + 2)  # a number of a thread may be used again
    assert all(key[1] != threading.get_ident() for key in lanes if isinstance(key, tuple))


def test_each_way_has_a_name_of_its_own(gpu):
    for kind, dtype in (("ifftn", "int32"), ("ifft2", "float32"), ("ifft", "uint8"), ("fftn", "float16")):
        made = mf.fft.FFT(gpu.array(np.ones((6, 10), dtype)), kind=kind, norm="ortho").plan()._prepared
        labels = [
            choice.label(each) for each in choice.candidates(made._pipeline, Layout.of(made._x), made._out, "sm_90a")
        ]
        assert len(set(labels)) == len(labels)


def test_workspaces_of_all_streams_count(plain):
    x = plain.array(X)
    plan = mf.fft.FFT(x, kind="rfft2").plan(epilog=gain(g=2.0), strategy="callback")
    one = plan._prepared._ready.engine.lane_bytes
    for stream in (16, 32):
        plan.execute(stream=stream)
    assert plan._prepared._ready.engine.workspace_bytes == 3 * one > 0
    assert plan.explain().workspace_bytes == one


# --- captured graphs --------------------------------------------------------------------------------------------------


def test_lanes_of_graphs_are_held_until_plans_are_cleared(plain, monkeypatch):
    plan = mf.fft.FFT(plain.array(X), kind="rfft2").plan(epilog=gain(g=2.0), strategy="callback")
    ready, x = plan._prepared._ready, plan._prepared._x.pointer
    out = plain.array(np.zeros(SPECTRUM.shape, np.complex64))
    for number in (1, 1, 2):
        monkeypatch.setattr(engine.driver, "capture_of", lambda _, number=number: number)
        ready.engine._run_elsewhere(ready.values, x, out.array.ctypes.data, 0)
    lanes = [weakref.ref(lane) for lane in ready.engine._captures.values()]
    assert len(lanes) == 2
    del ready
    plan.free()
    gc.collect()
    assert all(lane() for lane in lanes)
    mf.clear_plans()
    gc.collect()
    assert not any(lane() for lane in lanes)


def test_memory_between_is_held_for_a_graph(plain, monkeypatch):
    x, between = plain.array(X.astype(np.complex64)), []
    plan = mf.fft.FFT(x, kind="fft2").plan(prolog=mf.prolog(lambda value: 2 * value), strategy="sequence")
    new = plan._prepared._new

    def seen():
        array, pointer = new()
        between.append(weakref.ref(array))
        return array, pointer

    plan._prepared._new = seen
    monkeypatch.setattr(engine.driver, "is_capturing", lambda _: True)
    plan.execute(out=x)
    gc.collect()
    assert between
    assert all(array() is not None for array in between)
    mf.clear_plans()
    assert not any(array() for array in between)


def test_filters_of_lengths_with_equal_half_spectra_have_code_of_their_own():
    """What a callback sees as `shape` is a constant of its code."""

    def keys(n):
        there = resolve("rfft", (n,))
        back = resolve("irfft", there.spectrum_shape, (n,))
        transfer = binding.bound(mf.gaussian(sigma=2.0), "epilog", None, lambda array, what: array)
        single = np.dtype(np.complex64)
        function = binding.placed(transfer, "transfer", single, there.spectrum_shape, (n,), (0,), single)
        real = np.dtype(np.float32)
        x = dense((n,), real, (0,))
        pipeline = Pipeline((there, back), {"transfer": function}, real, real)
        return [unit.key() for _, unit in units_of(build(pipeline, x, x, choice.BLOCKS), pipeline, "sm_90a")]

    assert set(keys(4)).isdisjoint(keys(5))
