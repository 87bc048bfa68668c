"""How own kernels are cut and dealt to threads, what tuning tries, and that what it found is taken. No GPU."""

from __future__ import annotations

import numpy as np
import pytest

import mathfuse as mf
from mathfuse.device.fft.block import Configuration
from mathfuse.fusion.elementwise.layouts import dense
from mathfuse.fusion.transforms.cuda import choice, configurations, prepared, trials
from mathfuse.fusion.transforms.cuda.builder import build
from mathfuse.fusion.transforms.cuda.choice import BLOCKS
from mathfuse.fusion.transforms.cuda.configurations import block_for, complex_length, configured, work_of
from mathfuse.fusion.transforms.cuda.fastest import FASTEST, TILES
from mathfuse.fusion.transforms.kinds import resolve
from mathfuse.fusion.transforms.pipeline import Pipeline
from mathfuse.fusion.tuning import Row, Tuning
from mathfuse.runtime.errors import PlanError, UnsupportedError

SINGLE, REAL = np.dtype(np.complex64), np.dtype(np.float32)


@mf.epilog
def weighted(value, index, w):
    return value * w[index]


def program(kind="fft", shape=(64, 1024), axes=None, dtype=SINGLE):
    problem = resolve(kind, shape, None, axes)
    out_dtype = np.dtype(np.float32) if kind.startswith("irfft") else SINGLE
    x, out = (dense(s, d, tuple(range(len(s)))) for s, d in ((shape, dtype), (problem.out_shape, out_dtype)))
    return build(Pipeline((problem,), {}, SINGLE if dtype == SINGLE else REAL, out_dtype), x, out, BLOCKS)


@pytest.mark.parametrize(
    ("expected", "given"),
    [
        ("rows, c2c", {}),
        ("columns, c2c", {"shape": (8, 64, 32), "axes": 1}),
        ("rows, r2c", {"kind": "rfft", "shape": (60, 64), "dtype": REAL}),
    ],
)
def test_what_a_kernel_does(expected, given):
    assert work_of(program(**given).transforms[0]) == expected


@pytest.mark.parametrize("shape", [(64, 1024), (64, 1000), (64, 8192), (64, 2), (64, 81)])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120"])
def test_what_tuning_tries_can_be(shape, arch):
    step = program(shape=shape).transforms[0]
    found = configurations.configurations(step, arch)
    assert len(set(found)) == len(found)
    assert found
    for configuration in found:
        block = block_for(configured(program(shape=shape), 0, configuration).transforms[0], arch)
        assert block.configuration == configuration
        assert 32 <= block.threads <= 1024
        assert np.prod(configuration.radices) == complex_length(step.call)


def test_configurations_are_text_in_the_cache():
    for configuration in (Configuration((16, 8, 8), 128, 2), Configuration((7,), 1, 16)):
        assert Configuration.read(str(configuration)) == configuration


def test_one_that_does_not_fit_gives_way_to_the_usual():
    step = program(shape=(64, 8192)).transforms[0]
    fits = block_for(
        configured(program(shape=(64, 8192)), 0, Configuration((32, 16, 16), 512, 64)).transforms[0], "sm_80"
    )
    assert fits == block_for(step, "sm_80")


@pytest.mark.parametrize("entry", FASTEST.items(), ids=str)
def test_the_table_has_what_can_be(entry):
    (work, length, double), text = entry
    found = Configuration.read(text)
    assert np.prod(found.radices) == length
    assert found.threads * found.transforms <= 1024
    assert work.split(", ")[0] in ("rows", "columns", "turned", "tiled", "steps", "last steps")
    assert isinstance(double, bool)


# --- trials


def timed(programs, tuning=None, **ms):
    """Rows of programs, by the milliseconds of each configuration's text; others take 1."""

    def time(found):
        return min([ms.get("usual", 1.0)] + [v for k, v in ms["by"].items() if k in trials.settings_of(found)])

    return trials.Trials(time, tuning or Tuning(most=None)).rows(programs, "sm_90a")


def test_all_configurations_are_timed_and_told():
    told, found = [], program()
    step = found.transforms[0]
    tried = [str(c) for c in configurations.configurations(step, "sm_90a")]
    usual = str(block_for(step, "sm_90a").configuration)
    rows = timed([("kernel", found)], Tuning(most=None, report=told.append), by={tried[3]: 0.5})
    assert list(rows) == told
    assert [row.settings for row in rows] == [(), *((text,) for text in tried if text != usual)]
    assert min(rows, key=lambda row: row.milliseconds).settings == (tried[3],)
    assert len(timed([("kernel", found)], Tuning(most=2), by={})) == 3


def test_one_kernel_after_the_other_the_others_as_the_fastest_so_far():
    found = program("rfft2", (512, 512), dtype=REAL)
    blocks = [configurations.configurations(step, "sm_90a") for step in found.transforms]
    good = [str(blocks[0][1]), str(blocks[1][2])]
    rows = timed([("kernel", found)], by={good[0]: 0.9, good[1]: 0.8})
    best = min(rows, key=lambda row: row.milliseconds)
    assert [text for text in best.settings if text] == [good[1]] or list(best.settings) == good
    again = trials.with_settings(found, best.settings)
    assert trials.settings_of(again) == best.settings
    assert trials.with_settings(found, ()) == found


def test_hopeless_kernels_are_timed_once():
    found = program()
    rows = trials.Trials(lambda each: 1.0 if each.fuse.block else 0.5, Tuning(most=None)).rows(
        [("sequence", build_plain()), ("kernel", found)], "sm_90a"
    )
    assert [row.name for row in rows] == ["sequence", "kernel"]


def build_plain():
    problem = resolve("fft", (64, 1024))
    x = dense((64, 1024), SINGLE, (0, 1))
    return build(Pipeline((problem,), {}, SINGLE, SINGLE), x, x, choice.FUSES[0])


@pytest.mark.parametrize(("error", "passing"), [(UnsupportedError, False), (PlanError, True)])
def test_what_fails_is_a_row(error, passing):
    def time(found):
        raise error("no memory")

    (row, *rest) = trials.Trials(time, Tuning(most=1)).rows([("kernel", program())], "sm_90a")
    assert (row.why_not, row.passing, rest) == ("no memory", passing, [])


def test_a_lack_of_memory_is_not_remembered(gpu, monkeypatch, tmp_path):
    monkeypatch.setenv("MATHFUSE_CACHE_DIR", str(tmp_path))
    x = gpu.array(np.ones((6, 64), SINGLE))

    def full(*_):
        raise PlanError("the memory does not suffice")

    monkeypatch.setattr(prepared, "milliseconds", full)
    plan = mf.fft.FFT(x, kind="fft").plan(epilog=mf.scale(factor=2.0), tune=True)
    assert (plan.explain().timings, "timed" in plan.explain().reason) == ((), False)
    monkeypatch.setattr(prepared, "milliseconds", lambda run, *_: run() or 0.1)
    assert mf.fft.FFT(x, kind="fft").plan(epilog=mf.scale(factor=2.0), tune=True).explain().timings


@pytest.mark.parametrize("n", [1 << 15, 1 << 20, 1 << 21, 1 << 22, 1 << 24])
def test_the_usual_configurations_of_steps_are_among_those_tried(n):
    for step in program(shape=(n,)).transforms:
        usual = block_for(step, "sm_90a").configuration
        assert usual in configurations.configurations(step, "sm_90a"), step


def test_other_rooms_are_ways_of_their_own(gpu, clock):
    x = gpu.array(np.ones((32, 32), REAL))
    plan = mf.fft.SpectralFilter(x, gpu.array(np.ones((32, 17), REAL))).plan(strategy="kernel").autotune()
    names = {name.partition(" (")[0] for name, _ in plan.explain().timings}
    assert names == {"kernel", "kernel on 4 rows", "kernel on 16 rows"}
    best = plan.explain().timings[0][0]
    np.testing.assert_allclose(gpu.numpy(plan.execute()), np.ones((32, 32)), atol=1e-5, err_msg=best)


@pytest.mark.parametrize(("columns", "tile"), [(512, TILES[512]), (48, 8)])
def test_rooms_are_as_the_table_has_them(columns, tile):
    assert {room.tile for room in filtered(columns).rooms} == {tile}


def filtered(n):
    there = resolve("rfftn", (n, n))
    back = resolve("irfftn", there.spectrum_shape, (n, n))
    x = dense((n, n), REAL, (0, 1))
    return build(Pipeline((there, back), {}, REAL, REAL), x, x, BLOCKS)


# --- plans on a GPU that is played


@pytest.fixture
def clock(gpu, monkeypatch, tmp_path):
    """Milliseconds by what the engine's settings are, and what was timed."""
    monkeypatch.setenv("MATHFUSE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(configurations, "CUTS", 2)
    monkeypatch.setattr(configurations, "TIMES", (1, 2))
    found = {"good": "", "timed": []}

    def milliseconds(run, device, stream, timings):
        run()
        settings = trials.settings_of(found["engine"].program)
        found["timed"].append((settings, timings))
        return 0.5 if found["good"] in settings else 1.0

    original = prepared.CudaPrepared._time

    def time(self, engine):
        found["engine"] = engine
        return original(self, engine)

    monkeypatch.setattr(prepared.CudaPrepared, "_time", time)
    monkeypatch.setattr(prepared, "milliseconds", milliseconds)
    yield found
    found.clear()


def test_autotune_takes_the_fastest_configuration_and_later_plans_know_it(gpu, clock, capsys):
    values = np.random.default_rng(0).standard_normal((6, 64)) + 0j
    x, w = gpu.array(values.astype(SINGLE)), gpu.array(np.full((6, 64), 2, REAL))
    plan = mf.fft.FFT(x, kind="fft").plan(epilog=weighted(w=w))
    step = program(shape=(6, 64)).transforms[0]
    usual = str(block_for(step, "sm_90a").configuration)
    tried = [str(c) for c in configurations.configurations(step, "sm_90a")]
    clock["good"] = next(text for text in tried if text != usual)
    assert plan.autotune(iterations=3, progress=True) is plan
    explained = plan.explain()
    assert explained.strategy == "kernel"
    assert dict(explained.details)["configurations"] == clock["good"]
    assert explained.timings[0] == (f"kernel (epilog inside); {clock['good']}", 0.5)
    assert {timings for _, timings in clock["timed"]} == {3}
    assert "timed, best 500.0 µs" in capsys.readouterr().err
    np.testing.assert_allclose(gpu.numpy(plan.execute()), 2 * np.fft.fft(values), atol=1e-4)

    count = len(clock["timed"])
    later = mf.fft.FFT(x, kind="fft").plan(epilog=weighted(w=w), tune=True)
    assert dict(later.explain().details)["configurations"] == clock["good"]
    assert (
        dict(mf.fft.FFT(x, kind="fft").plan(epilog=weighted(w=w)).explain().details)["configurations"] == clock["good"]
    )
    assert len(clock["timed"]) == count, "what is remembered is not timed again"
    plan.autotune()
    assert len(clock["timed"]) == 2 * count


def test_plan_files_carry_what_was_timed(gpu, clock, tmp_path, monkeypatch):
    x, w = gpu.array(np.ones((6, 64), SINGLE)), gpu.array(np.ones((6, 64), REAL))
    plan = mf.fft.FFT(x, kind="fft").plan(epilog=weighted(w=w))
    step = program(shape=(6, 64)).transforms[0]
    usual = str(block_for(step, "sm_90a").configuration)
    clock["good"] = next(str(c) for c in configurations.configurations(step, "sm_90a") if str(c) != usual)
    plan.autotune().save(tmp_path / "tuned.plan")
    monkeypatch.setenv("MATHFUSE_CACHE_DIR", str(tmp_path / "empty"))
    loaded = mf.fft.FFT.load(tmp_path / "tuned.plan", x, w=w)
    assert dict(loaded.explain().details)["configurations"] == clock["good"]
    assert set(loaded.explain().timings) == {row for row in plan.explain().timings if row[0].startswith("kernel")}


def test_a_strategy_that_is_asked_for_is_tuned_alone(gpu, clock):
    x = gpu.array(np.ones((6, 64), SINGLE))
    plan = mf.fft.FFT(x, kind="fft").plan(epilog=weighted(w=gpu.array(np.ones((6, 64), REAL))), strategy="kernel")
    plan.autotune()
    assert {name.partition(" ")[0] for name, _ in plan.explain().timings} == {"kernel"}
    assert len(plan.explain().timings) > 1
    other = mf.fft.FFT(x, kind="fft").plan(epilog=weighted(w=gpu.array(np.ones((6, 64), REAL))))
    assert "timed" not in other.explain().reason, "timings of one strategy do not decide between several"


@pytest.mark.parametrize("iterations", [0, -1, 2.5, True, "9"])
def test_iterations_are_whole_numbers(gpu, iterations):
    plan = mf.fft.FFT(gpu.array(np.ones((6, 64), SINGLE)), kind="fft").plan()
    with pytest.raises(PlanError, match="iterations"):
        plan.autotune(iterations=iterations)


def test_autotune_needs_a_plan_and_does_nothing_on_the_cpu():
    plan = mf.fft.FFT(np.ones((6, 64), SINGLE), kind="fft")
    with pytest.raises(PlanError, match="needs a plan"):
        plan.autotune()
    assert plan.plan().autotune().explain().strategy == "cpu"
    assert plan.explain().timings == ()


def test_a_row_in_words():
    assert str(Row("kernel", 1.0, settings=("16·4 / 4 × 2", ""))) == "kernel; 16·4 / 4 × 2"


@pytest.mark.parametrize(
    ("shape", "axes", "expected"),
    [((1 << 14, 256), 1, [1]), ((1, 1 << 17), 1, [4, 4]), ((1 << 8, 1 << 17), 1, [16, 16]), ((2, 512, 64), 1, [4])],
)
def test_small_batches_are_spread_over_many_blocks(shape, axes, expected):
    steps = program(shape=shape, axes=axes).transforms
    blocks = [block_for(step, "sm_90a") for step in steps]
    assert [block.transforms for block in blocks] == expected
