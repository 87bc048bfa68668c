"""The plans of transforms and filters: live operands, other operands, threads, explanations, memory."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import pickle
import re
import threading
import tracemalloc

import numpy as np
import pytest
import scipy.fft

import mathfuse as mf
from tests.spaces import everywhere


@mf.epilog
def weighted(value, index, w, gain=1.0):
    return value * w[index] * gain


@pytest.fixture
def image():
    return np.random.default_rng(0).standard_normal((30, 42)).astype(np.float32)


@pytest.fixture
def weight():
    return np.random.default_rng(1).random((30, 22)).astype(np.float32)


@everywhere
def test_arrays_are_read_live(space, image, weight):
    image, weight = space.array(image), space.array(weight)
    with mf.fft.FFT(image, kind="rfft2") as f:
        f.plan(epilog=weighted, epilog_inputs={"w": weight})
        first = space.numpy(f.execute())
        weight *= 2
        image *= 2
        np.testing.assert_allclose(space.numpy(f.execute()), 4 * first, rtol=1e-5)


def test_foreign_byte_order(image):
    foreign = mf.fft.FFT(image.astype(">f4"), kind="rfft2").plan()
    np.testing.assert_allclose(foreign.execute(), scipy.fft.rfft2(image), rtol=1e-4, atol=1e-4)


def test_arrays_that_must_be_copied_are_read_live_too(image):
    foreign = image.astype(">f4")
    f = mf.fft.FFT(foreign, kind="rfft2").plan()
    first = f.execute()
    foreign *= 2
    np.testing.assert_allclose(f.execute(), 2 * first, rtol=1e-5)


@everywhere
def test_other_operands(space, image, weight):
    f = mf.fft.FFT(space.array(image), kind="rfft2").plan(epilog=weighted(w=space.array(weight)))
    first = space.numpy(f.execute())
    for x, operands, expected in (
        (None, {"gain": 3.0}, 3 * first),
        (None, {"w": space.array(weight / 3)}, first),
        (space.array(-image), {}, -first),
        (space.array(np.asfortranarray(image)), {}, first),
    ):
        found = space.numpy(f.reset_operands(x, **operands).execute())
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@everywhere
@pytest.mark.parametrize(
    ("reset", "message"),
    [
        (lambda f, x, w: f.reset_operands(x[:-1]), r"x was planned as \S*float32 of shape \(30, 42\)"),
        (lambda f, x, w: f.reset_operands(x + 1j), r"cannot become \S*complex64"),
        (lambda f, x, w: f.reset_operands(w=w.T), r"'w' was planned as \S*float32 of shape \(30, 22\)"),
        (lambda f, x, w: f.reset_operands(w=2.0), "'w' .* a float"),
        (lambda f, x, w: f.reset_operands(gain=w), "'gain' was planned as a float"),
        (lambda f, x, w: f.reset_operands(weight=w), "no operand 'weight' to reset; there are: w, gain; the input is"),
        (lambda f, x, w: f.reset_operands(x=x), "no operand 'x' to reset; there are: w, gain; the input is the first"),
        (lambda f, x, w: f.reset_operands(gain=10**400), "operand 'gain' does not fit int64"),
    ],
)
def test_other_operands_that_do_not_fit(space, image, weight, reset, message):
    image, weight = space.array(image), space.array(weight)
    f = mf.fft.FFT(image, kind="rfft2").plan(epilog=weighted(w=weight))
    with pytest.raises(mf.MathFuseError, match=message):
        reset(f, image, weight)
    f.execute()


@everywhere
def test_a_filter_takes_another_transfer_array(space, image, weight):
    weight[:, [0, -1]] = weight[:1, :1]  # Hermitian-symmetric
    image, weight = space.array(image), space.array(weight)
    f = mf.fft.SpectralFilter(image, weight).plan()
    first = space.numpy(f.execute())
    found = space.numpy(f.reset_operands(transfer=2 * weight).execute())
    np.testing.assert_allclose(found, 2 * first, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("transfer", "name"),
    [
        (None, "NoneType"),
        ([1.0, 2.0], "list"),
        ("low", "str"),
        ({}, "dict"),
        (np.sin, "sin"),
        (np.ndarray, "ndarray"),
        (lambda value: value, "<lambda>"),
    ],
)
def test_what_is_no_transfer_is_named_so(transfer, name):
    with pytest.raises(
        mf.CallbackError, match=rf"^transfer={name} is no callback and no array: decorate .* with @mf\.epilog"
    ):
        mf.fft.spectral_filter(np.ones((4, 8)), transfer)


@pytest.mark.parametrize(
    ("transfer", "message"),
    [
        (np.ones((3, 3)), r"^transfer multiply.* indexes 'transfer' as shape \(4, 5\), but it has shape \(3, 3\)"),
        (np.ones((2, 4, 5)), "operand 'transfer' has 3 dimensions"),
        (np.array(["a"]), "operand 'transfer' has dtype <U1"),
    ],
)
def test_a_transfer_array_that_does_not_fit_is_named_so(transfer, message):
    with pytest.raises(mf.MathFuseError, match=message):
        mf.fft.spectral_filter(np.ones((4, 8)), transfer)


@pytest.mark.parametrize("plan", [mf.fft.FFT, mf.fft.SpectralFilter])
def test_the_help_of_plan_tells_every_option(plan):
    told = plan.plan.__doc__
    for field in dataclasses.fields(plan.choices):
        assert re.search(rf"^(\w+, )?{field.name}(, \w+)? : ", told, re.MULTILINE), field.name
    assert "threads" in told
    assert told.index("Parameters\n") < told.index("\noptions\n") < told.index("Returns\n")


@everywhere
def test_one_plan_from_many_threads(space, image, weight):
    f = mf.fft.FFT(space.array(image), kind="rfft2").plan(epilog=weighted(w=space.array(weight)), block_bytes=1024)
    expected, found = space.numpy(f.execute()), []
    threads = [threading.Thread(target=lambda: found.extend(f.execute() for _ in range(8))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 48
    assert all(np.array_equal(space.numpy(each), expected) for each in found)


@everywhere
def test_one_callback_in_plans_of_other_shapes_dtypes_and_axes(space):
    random = np.random.default_rng(0)
    g = mf.gaussian(sigma=0.7)
    for shape, dtype, axes in (((8, 6), "f4", (0, 1)), ((4, 5, 6), "f8", (1,)), ((4, 5, 6), "c8", (0, 2))):
        x = random.standard_normal(shape).astype(dtype)
        kind = "fftn" if dtype == "c8" else "rfftn"
        found = space.numpy(mf.fft.FFT(space.array(x), axes, kind=kind).plan(epilog=g).execute())
        expected = getattr(scipy.fft, kind)(x, axes=axes)
        for a in axes:
            n = x.shape[a]
            f = np.abs(np.fft.fftfreq(n))[: expected.shape[a]] if a == axes[-1] else np.fft.fftfreq(n)
            weight = np.exp(-2 * np.pi**2 * 0.49 * f**2)
            expected = expected * weight.reshape([-1 if b == a else 1 for b in range(x.ndim)])
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


def test_explanations_say_what_runs(image, weight):
    text = str(mf.fft.FFT(image, kind="rfft2").plan(epilog=weighted(w=weight), workers=3).explain())
    for part in ("rfft2 of [30, 42]", "complex64[30, 22]", "strategy cpu", "fft(30) → epilog → out", "threads: 3"):
        assert part in text
    filtered = mf.fft.SpectralFilter(image, weight).plan(workers=2)
    assert "transfer → ifft(30)" in filtered.explain().passes[1]
    assert filtered.explain().workspace_bytes < image.nbytes + 2**23
    assert repr(filtered) == "<SpectralFilter filter of [30, 42] along [0, 1]: strategy cpu>"


def test_without_callbacks_the_library_is_called_once(image, monkeypatch):
    calls = []
    monkeypatch.setattr(scipy.fft, "rfftn", lambda *given: calls.append(given[1:]) or np.zeros((30, 22), np.complex64))
    f = mf.fft.FFT(image, kind="rfft2").plan(workers=3, backend="pocketfft")
    assert f.execute().shape == (30, 22)
    assert calls == [((30, 42), (0, 1), None, False, 3)]
    assert f.explain().passes == ("scipy.fft.rfftn",)
    assert f.execute(out=np.empty((30, 22), np.complex64)).any()
    assert len(calls) == 1


@everywhere
def test_an_epilog_may_write_an_operand(space, image):
    @mf.epilog
    def recorded(value, index, seen):
        seen[index] = abs(value)
        return value

    seen = space.array(np.zeros((30, 22), np.float32))
    found = mf.fft.rfft2(space.array(image), epilog=recorded(seen=seen))
    np.testing.assert_allclose(space.numpy(seen), np.abs(space.numpy(found)), rtol=1e-5)


def test_a_filter_allocates_no_spectrum():
    x = np.random.default_rng(0).standard_normal((1024, 1024)).astype(np.float32)
    f = mf.fft.SpectralFilter(x, mf.gaussian(sigma=2.0)).plan(workers=2, block_bytes=1 << 17)
    f.execute()
    tracemalloc.start()
    f.execute()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < x.nbytes + 2 * 4 * (1 << 17)


@everywhere
def test_constant_indices_are_checked_at_plan(space):
    x, table = space.array(np.ones((4, 4), np.float32)), space.array(np.arange(3, dtype=np.float32))
    for fits in (0, 2, -1, -3):
        fixed = mf.epilog(lambda value, table, fits=fits: value * 0 + table[fits])  # `fits` is an operand
        captured = fits
        constant = mf.epilog(lambda value, table, captured=captured: value + table[captured])
        for callback, extreme in ((fixed, np.max), (constant, np.min)):
            found = space.numpy(mf.fft.rfft2(x, epilog=callback(table=table), **space.cheap))
            assert extreme(found.real) == table[fits]
    for wrong in (3, 10**9, -4):

        def far(value, table):
            return value + table[wrong]  # noqa: B023

        with pytest.raises(mf.PlanError, match=r"indexes 'table' as shape .*, but it has shape \(3,\)"):
            mf.fft.rfft2(x, epilog=mf.epilog(far)(table=table))


@everywhere
def test_captured_arrays_are_checked_at_plan(space):
    table = space.array(np.arange(3, dtype=np.float32))
    with pytest.raises(mf.PlanError, match=r"an array that it captured as shape \(4,\), but it has shape \(3,\)"):
        mf.fft.fft(space.array(np.ones((2, 4))), epilog=mf.epilog(lambda value, index: value * table[index[-1]]))


@everywhere
def test_a_computed_index_outside_reads_nan_and_writes_nothing(space):
    x = space.array(np.ones((1, 6), np.float32))
    shifted = mf.prolog(lambda value, index, table: table[index[-1] + 1])
    count = space.array(np.zeros(4, np.int64))

    @mf.prolog
    def marks(value, index, count):
        count[index[-1] * 2] = 1
        return value

    table = space.array(np.arange(6, dtype=np.float32))
    y = mf.fft.rfft(x, prolog=shifted(table=table))
    assert np.isnan(space.numpy(y)).all()
    mf.fft.rfft(x, prolog=marks(count=count))
    assert count.tolist() == [1, 0, 1, 0]


@everywhere
def test_an_int_takes_the_place_of_a_float(space):
    x = np.ones((4, 4))
    with mf.fft.FFT(space.array(x), kind="rfft2") as f:
        f.plan(epilog=mf.scale(factor=8.0))
        f.reset_operands(factor=2)
        np.testing.assert_allclose(space.numpy(f.execute()), 2 * np.fft.rfft2(x), atol=1e-12)
        with pytest.raises(mf.PlanError, match="was planned as a float and cannot become a complex"):
            f.reset_operands(factor=2j)


@everywhere
def test_out_may_be_an_operand_read_at_its_own_index(space):
    rng = np.random.default_rng(3)
    x = rng.standard_normal((6, 8))
    blend = mf.epilog(lambda value, index, old: 0.5 * value + 0.5 * old[index])
    neighbour = mf.epilog(lambda value, index, old: value + old[index[0], index[1] - 1])
    for kind, transform in (("fft2", np.fft.fft2), ("ifft", np.fft.ifft)):
        longer = rng.standard_normal((7, 8)) + 1j
        expected = 0.5 * transform(x) + 0.5 * longer[1:]
        here, longer = space.array(x), space.array(longer)
        old = longer[1:]
        plan = mf.fft.FFT(here, kind=kind).plan(epilog=blend(old=old))
        assert plan.execute(out=old) is old
        np.testing.assert_allclose(space.numpy(old), expected, atol=1e-12)
        for other in (neighbour(old=old), blend(old=longer[:-1])):
            with pytest.raises(mf.PlanError, match="out overlaps operand 'old' in memory"):
                mf.fft.FFT(here, kind=kind).plan(epilog=other).execute(out=old)


@everywhere
def test_an_assigned_operand_must_not_be_read_elsewhere(space):
    @mf.prolog
    def keep(value, index, kept):
        kept[index] = value
        return value

    x, kept = space.array(np.ones((4, 4))), space.array(np.zeros((4, 4)))
    mf.fft.rfft2(x, prolog=keep(kept=kept))
    np.testing.assert_array_equal(space.numpy(kept), np.ones((4, 4)))
    with pytest.raises(mf.PlanError, match="assigns to 'kept', which overlaps the input in memory"):
        mf.fft.rfft2(x, prolog=keep(kept=x))


@everywhere
def test_an_assigned_operand_is_of_one_callback_and_has_room_for_each_element(space):
    @mf.epilog
    def keep(value, index, kept):
        kept[index] = value.real
        return value

    @mf.prolog
    def read(value, index, kept):
        return value + kept[index]

    x, here = space.array(np.ones((4, 4))), space.array(np.zeros((4, 4)))
    for wrong, message in (
        ({"epilog": keep(kept=here), "prolog": read(kept=here)}, "'kept', which overlaps 'kept' in memory"),
        ({"epilog": keep(kept=x)}, "'kept', which overlaps the input in memory"),
        ({"epilog": keep(kept=mf.constant(here))}, "'kept', which is a constant: pass its array"),
    ):
        with pytest.raises(mf.PlanError, match=message):
            mf.fft.FFT(x, kind="fft2").plan(**wrong)
    several = np.lib.stride_tricks.as_strided(np.zeros(7), (4, 4), (8, 8))
    with pytest.raises(mf.PlanError, match="of which several elements are one place in memory"):
        mf.fft.FFT(np.ones((4, 4)), kind="fft2").plan(epilog=keep(kept=several))


@everywhere
def test_operands_may_have_any_name(space):
    residual = mf.epilog(lambda value, x, self: value + x * self)
    plan = mf.fft.FFT(space.array(np.ones(4, "c16")))
    plan.plan(epilog=residual(x=space.array(np.zeros(4, "c16")), self=1.0))
    plan.reset_operands(x=space.array(np.full(4, 5 + 0j)), self=2.0)
    np.testing.assert_allclose(space.numpy(plan.execute()), [14, 10, 10, 10])


@everywhere
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        *itertools.product([(256, 64), (128, 128)], [np.uint8, np.float32, np.complex64, np.float64]),
        ((8, 8, 8, 2), np.float64),
        ((64, 4, 128), np.complex64),
    ],
)
def test_prologs_on_every_memory_layout(space, shape, dtype):
    """Axes in any order of strides, powers of two among them: boxes are staged where lines conflict in the cache."""
    rng = np.random.default_rng(1)
    same, shift = mf.prolog(lambda value: value), mf.prolog(lambda value, index: value + index[0] - 2 * index[-1])
    data = (100 * rng.random(shape) + 1j * rng.random(shape)).real.astype(dtype)
    for order in itertools.permutations(range(len(shape))):
        x = np.ascontiguousarray(data.transpose(order)).transpose(np.argsort(order))  # these strides, that content
        i, here = np.indices(shape), space.array(x)
        wide = x.astype(complex if x.dtype.kind == "c" else float)
        for prolog, y in ((same, wide), (shift, wide + i[0] - 2 * i[-1])):
            for axes in ((-1,), (0,), (0, -1), (-1, 0)):
                expected = np.fft.fftn(y, axes=axes)
                scale = np.abs(expected).max()
                found = space.numpy(mf.fft.fftn(here, axes=axes, prolog=prolog, **space.cheap))
                np.testing.assert_allclose(found / scale, expected / scale, atol=1e-6)
                filtered = mf.fft.spectral_filter(here, mf.scale(factor=1.0), axes, prolog=prolog, **space.cheap)
                np.testing.assert_allclose(space.numpy(filtered), y, atol=1e-3)


def test_slips_have_messages_of_ours():
    x = np.ones((4, 4))
    for run, error, message in (
        (
            lambda: mf.fft.fft2(x, epilogue=mf.relu),
            TypeError,
            "fft2: got an unexpected keyword argument 'epilogue'; it",
        ),
        (
            lambda: mf.fft.fft2(x, epilog=mf.gaussian, epilog_inputs=2.0),
            mf.PlanError,
            "epilog_inputs must be a mapping",
        ),
        (lambda: mf.fft.fft2(x, epilog=mf.gaussian, epilog_inputs={1: 2.0}), mf.PlanError, "epilog_inputs must be"),
        (lambda: mf.fft.FFT(x).plan(options="abc"), mf.PlanError, "options must be a mapping"),
        (lambda: mf.fft.FFT(x, kind=["fft"]), mf.PlanError, "none of the transforms"),
        (lambda: mf.fft.FFT(x, norm=np.array(["ortho", "x"])), mf.PlanError, "ortho"),
        (lambda: mf.fft.FFT(x).plan(backend=["fftw"]), mf.PlanError, "backend="),
        (lambda: mf.fft.FFT(x).plan(workers=True), mf.PlanError, "workers=True"),
        (lambda: mf.fft.fft(x, n=2**70), mf.PlanError, "less than"),
        (lambda: pickle.dumps(mf.fft.FFT(x).plan()), mf.PlanError, "pickle or copy its callbacks"),
        (lambda: copy.deepcopy(mf.fft.FFT(x).plan()), mf.PlanError, "pickle or copy its callbacks"),
    ):
        with pytest.raises(error, match=message):
            run()
    assert mf.fft.FFT(x).plan(workers=np.int64(2)).execute().shape == x.shape


@pytest.mark.parametrize("kind", ["fft2", "rfft2", "irfft2"])
def test_fields_of_records(kind):
    """Elements that are no multiple of their size apart, as input and as output."""
    records = np.zeros((6, 8), [("tag", np.uint8), ("pad", np.uint8, 3), ("z", np.complex64), ("r", np.float32)])
    rng = np.random.default_rng(0)
    records["z"] = rng.standard_normal((6, 8)) + 1j * rng.standard_normal((6, 8))
    x = records["z"].real if kind == "rfft2" else records["z"]
    expected = getattr(np.fft, kind)(x)
    scale = mf.scale(factor=2.0)
    np.testing.assert_allclose(getattr(mf.fft, kind)(x), expected, atol=1e-4)
    np.testing.assert_allclose(getattr(mf.fft, kind)(x, epilog=scale), 2 * expected, atol=1e-4)
    out = np.zeros(expected.shape, records.dtype)["r" if kind == "irfft2" else "z"]
    getattr(mf.fft, kind)(x, epilog=scale, out=out)
    np.testing.assert_allclose(out, 2 * expected, atol=1e-4)
