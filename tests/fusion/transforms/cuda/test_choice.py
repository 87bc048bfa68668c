"""Which way of fusing is taken: the rule of costs, timings, what cannot be done. No GPU: engines are played."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from mathfuse.fusion import tuning
from mathfuse.fusion.elementwise.layouts import dense
from mathfuse.fusion.transforms.cuda import choice
from mathfuse.fusion.transforms.cuda.choice import TOO_LONG, Place, by_blocks, candidates, choose, label, name_of
from mathfuse.fusion.transforms.cuda.costs import cost, share
from mathfuse.fusion.transforms.kinds import complex_of, compute_dtype, real_of, resolve
from mathfuse.fusion.transforms.pipeline import Pipeline
from mathfuse.fusion.tuning import Row
from mathfuse.runtime.errors import PlanError, UnsupportedError

SINGLE = np.dtype(np.complex64)
N = 1088  # which cuFFT transforms in one pass, and own kernels do not, because of its factor 17
OWN = ("kernel", TOO_LONG)


def problem(kind="fft", shape=(64, N), roles=("epilog",), dtype=SINGLE, lengths=None):
    """A pipeline and the layouts of its ends."""
    solved = resolve(kind, shape, lengths)
    computed = compute_dtype(dtype)
    out_dtype = real_of(computed) if solved.kind.family == "c2r" else complex_of(computed)
    x, out = (dense(s, d, tuple(range(len(s)))) for s, d in ((shape, dtype), (solved.out_shape, out_dtype)))
    functions = dict.fromkeys(roles, SimpleNamespace(assigned=frozenset()))
    return Pipeline((solved,), functions, computed, out_dtype), x, out  # type: ignore[arg-type]


def ways(*given, **named):
    return candidates(*problem(*given, **named), "sm_90a")


def names(*given, **named):
    return [label(program) for program in ways(*given, **named)]


# --- which ways there are


def test_without_anything_to_fuse_there_is_one_way():
    assert names(roles=()) == ["sequence"]


def test_one_callback_makes_two_ways():
    assert names(roles=("epilog",)) == ["sequence", "callback (epilog inside)"]
    assert names(roles=("prolog",)) == ["sequence", "callback (prolog inside)"]
    assert names("ifft", roles=()) == ["sequence", "callback (scale inside)"]


def test_two_callbacks_make_four_ways():
    assert names(roles=("prolog", "epilog")) == [
        "sequence",
        "callback (prolog and epilog inside)",
        "callback (prolog inside, the rest in kernels)",
        "callback (epilog inside, the rest in kernels)",
    ]


@pytest.mark.parametrize("kind", ["fft", "rfft", "irfft", "fft2", "rfft2", "irfft2", "fftn"])
def test_names_are_those_of_the_strategies(kind):
    dtype = np.dtype(np.float32) if kind.startswith("r") else SINGLE
    found = ways(kind, (16, 16), roles=("prolog", "epilog"), dtype=dtype)
    assert name_of(found[0]) == "sequence"
    assert {name_of(program) for program in found[1:-1]} == {"callback"}
    assert name_of(found[-1]) == "kernel"
    assert len({label(program) for program in found}) == len(found)


def test_own_kernels_make_one_way_more_where_they_can():
    assert names(shape=(64, 1024)) == [*names(), "kernel (epilog inside)"]
    assert names(shape=(64, 1024), roles=()) == ["sequence", "kernel"]
    assert names("rfft2", (1024, 34), dtype=np.dtype(np.float32)) == ["sequence", FUSED]
    assert names(shape=(64, 16384))[-1] == "kernel (epilog inside)"
    assert names(shape=(64, 16384), dtype=np.dtype(np.complex128))[-1] == "kernel (epilog inside)"
    assert names(shape=(3, 1 << 20))[-1] == "kernel (epilog inside)"
    assert names("rfft", (3, 1 << 20), dtype=np.dtype(np.float32))[-1] == FUSED


def test_small_gpus_take_more_steps():
    pipeline, x, out = problem(shape=(64, 16384))
    passes = {arch: len(by_blocks(pipeline, x, out, arch)[0].steps) for arch in ("sm_90a", "sm_120")}
    assert passes == {"sm_90a": 1, "sm_120": 2}


# --- the rule


def fastest(*given, **named):
    """Of the ways by cuFFT."""
    return label(min((way for way in ways(*given, **named) if not way.fuse.block), key=cost))


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("n", [32768, 65536, 1 << 20, 1 << 22, 1 << 24])
def test_long_transforms_are_the_fastest_in_steps_of_own_kernels(n, dtype):
    found = min(ways(shape=(max(1, 2**24 // n), n), dtype=np.dtype(dtype)), key=cost)
    assert name_of(found) == "kernel"


@pytest.mark.parametrize(
    ("expected", "kind", "shape", "roles"),
    [
        ("kernel", "fft", (16384, 1024), ("epilog",)),
        ("kernel", "fft", (5000, 3000), ("prolog", "epilog")),
        ("kernel", "fft", (1024, 16384), ("prolog",)),
        ("kernel", "rfft", (16384, 1024), ("prolog",)),
        ("kernel", "fft2", (4096, 4096), ("prolog",)),
        ("kernel", "rfft2", (4, 2048, 2048), ("epilog",)),
        ("callback", "fft", (65536, 64), ("epilog",)),
        ("callback", "rfft", (65536, 64), ("prolog",)),
        ("kernel", "fft2", (512, 512), ("epilog",)),
        ("callback", "fft", (65536, 251), ("epilog",)),
        ("callback", "fft", (800, 20000), ("epilog",)),
        ("kernel", "fft", (256, 65536), ("epilog",)),
        ("kernel", "fft", (16, 1 << 20), ("prolog", "epilog")),
        ("sequence", "rfft", (256, 65536), ("prolog",)),
        ("sequence", "irfft2", (8192, 4097), ("epilog",)),
        ("sequence", "irfft2", (8192, 4097), ("prolog", "epilog")),
    ],
)
def test_the_fastest_of_all(expected, kind, shape, roles):
    dtype = np.dtype(np.float32) if kind.startswith("r") else SINGLE
    assert name_of(min(ways(kind, shape, roles=roles, dtype=dtype), key=cost)) == expected


@pytest.mark.parametrize("n", [256, 1024, 4096, 8192, 729])
def test_callbacks_win_where_cufft_has_one_pass(n):
    assert fastest(shape=(2**24 // n, n)) == "callback (epilog inside)"
    assert fastest(shape=(2**24 // n, n), roles=("prolog", "epilog")) == "callback (prolog and epilog inside)"


@pytest.mark.parametrize("n", [10000, 16384, 20000])
def test_callbacks_win_where_one_more_pass_of_cufft_is_as_fast_as_a_kernel(n):
    assert fastest(shape=(2**24 // n, n)) == "callback (epilog inside)"


@pytest.mark.parametrize(
    ("kind", "roles"), [("rfft2", ("prolog",)), ("rfft2", ("epilog",)), ("irfft2", ("epilog",)), ("fft2", ("prolog",))]
)
def test_callbacks_lose_in_long_transforms_of_several_axes(kind, roles):
    dtype = np.dtype(np.float32) if kind.startswith("r") else SINGLE
    shape = (8192, 4097) if kind == "irfft2" else (8192, 8192)
    assert fastest(kind, shape, roles=roles, dtype=dtype) == "sequence"


def test_callbacks_delay_small_transforms_of_other_lengths_than_powers_of_two():
    assert fastest(shape=(16, 1000)) == "sequence"
    assert fastest(shape=(16, 1024)) == "callback (epilog inside)"


@pytest.mark.parametrize(("n", "reason"), [(600, "another pass"), (65536, "too long")])
def test_callbacks_lose_where_they_slow_cufft_down(n, reason):
    assert fastest(shape=(2**24 // n, n)) == "sequence"
    fused = ways(shape=(64, n))[1]
    assert reason in share(fused.transforms[0], fused.hooks[0])[1]


def test_large_primes_delay_callbacks_in_float64():
    assert fastest(shape=(16627, 1009)) == "callback (epilog inside)"
    assert fastest(shape=(16627, 1009), dtype=np.dtype(np.complex128)) == "sequence"


def test_small_problems_have_as_few_launches_as_can_be():
    assert fastest("fft2", (64, 64), roles=("prolog", "epilog")) == "callback (prolog and epilog inside)"


def test_more_passes_of_cufft_cost():
    plain, program = ways(shape=(64, 1024))[:2]
    assert cost(program, frozenset(program.transforms)) > cost(program)
    assert cost(plain) > cost(program)


# --- choosing, with engines that are played


class Played:
    """Stands for engines: what cannot be planned, what needs more of a work area, how long it takes."""

    def __init__(self) -> None:
        self.unsupported: set[str] = set()
        self.slowed: set[str] = set()
        self.made: list[str] = []
        self.times: dict[str, float] = {}

    def engine(self, program, *_):
        name = label(program)
        self.made.append(name)
        if name in self.unsupported:
            raise UnsupportedError(f"cuFFT has no {name}")
        work = tuple(100 if name in self.slowed else 0 for _ in program.transforms)
        return SimpleNamespace(program=program, lane=lambda stream: SimpleNamespace(work_bytes=work))

    def time(self, engine):
        return self.times[label(engine.program)]


@pytest.fixture
def played(monkeypatch, tmp_path):
    found = Played()
    monkeypatch.setenv("MATHFUSE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(choice, "engine", found.engine)
    monkeypatch.setattr(choice, "_key", lambda program, *_: str(program.steps))
    monkeypatch.setattr(choice.driver, "device_guard", lambda device: nullcontext())
    monkeypatch.setattr(choice.driver, "architecture", lambda device: "sm_90a")
    monkeypatch.setattr(choice.cufft, "version", lambda: (12, 0, 0))
    monkeypatch.setattr(choice.cufft, "Transform", lambda *_: SimpleNamespace(work_bytes=0))
    return found


PLACE = Place(SimpleNamespace(current_stream=lambda device: 0), 0)  # type: ignore[arg-type]
FUSED, BOTH = "callback (epilog inside)", "callback (prolog and epilog inside)"


def chosen(strategy=None, time=None, **named):
    found = choose(*problem(**named), PLACE, strategy, time)
    return label(found.engine.program), found


def test_what_is_asked_for_is_taken(played):
    for strategy, name in (("sequence", "sequence"), ("callback", FUSED)):
        taken, found = chosen(strategy, shape=(64, 65537))
        assert (taken, found.reason, found.rejected) == (name, "as asked for", (OWN,))
    assert chosen("kernel", shape=(64, 1024))[0] == "kernel (epilog inside)"
    with pytest.raises(UnsupportedError, match="few of 7 to 13: take strategy="):
        chosen("kernel")
    assert chosen("kernel", shape=(64, 1024), roles=())[0] == "kernel"
    assert chosen(shape=(64, 1024), roles=())[0] == "sequence"
    taken, found = chosen("callback", roles=())
    assert (taken, found.reason) == ("sequence", "there is nothing to fuse")


def test_as_much_as_can_be_is_fused_when_callbacks_are_asked_for(played):
    roles = ("prolog", "epilog")
    assert chosen("callback", roles=roles)[0] == BOTH
    played.unsupported = {BOTH}
    taken, found = chosen("callback", roles=roles)
    assert taken == "callback (prolog inside, the rest in kernels)"
    assert found.rejected == ((BOTH, f"cuFFT has no {BOTH}"), OWN)


def test_callbacks_that_cannot_be_are_an_error_only_when_asked_for(played):
    played.unsupported = {FUSED}
    with pytest.raises(UnsupportedError, match="cuFFT has no callback"):
        chosen("callback")
    taken, found = chosen(shape=(16384, N))
    assert taken == "sequence"
    assert found.rejected == ((FUSED, f"cuFFT has no {FUSED}"), OWN)


def test_a_slower_algorithm_is_seen_by_its_work_area(played):
    played.unsupported = {"kernel (epilog inside)"}
    assert chosen(shape=(16384, 1024))[0] == FUSED
    played.slowed = {FUSED}
    taken, found = chosen(shape=(16384, 1024))
    assert taken == "sequence"
    assert "another pass over memory" in dict(found.rejected)[FUSED]


def test_every_rejected_way_has_a_reason(played):
    _, found = chosen(shape=(256, 16384), roles=("prolog", "epilog"))
    assert len(found.rejected) == 4
    assert all("times the cost by the rule" in why for _, why in found.rejected), found.rejected


def test_timings_decide_and_are_remembered(played):
    played.times = {"sequence": 0.5, FUSED: 0.7}
    taken, found = chosen(time=played.time)
    assert (taken, found.reason) == ("sequence", "timed: 500.0 µs")
    assert "700.0 µs" in dict(found.rejected)[FUSED]
    played.times = {"sequence": 0.9, FUSED: 0.7}
    assert chosen()[0] == "sequence", "remembered, though the rule would have a callback"
    assert chosen(time=played.time)[0] == "sequence", "a problem that was timed is not timed again"
    assert chosen("sequence")[0] == "sequence", "what is asked for comes first"


def test_ways_that_fail_while_they_are_timed_are_told(played):
    def time(engine):
        if engine.program.hooks:
            raise PlanError("the GPU's memory does not suffice")
        return 1.0

    taken, found = chosen(time=time)
    assert taken == "sequence"
    assert "does not suffice" in dict(found.rejected)[FUSED]


def test_rows_are_kept_in_the_store(monkeypatch, tmp_path):
    monkeypatch.setenv("MATHFUSE_CACHE_DIR", str(tmp_path))
    rows = (Row("sequence", 0.25), Row("callback", why_not="no such transform"))
    tuning.remember("a problem", rows)
    assert tuning.recall("a problem") == rows
    assert tuning.recall("another") == ()
    assert tuning.fastest(rows) is rows[0]
    assert [row.result for row in rows] == ["250.0 µs", "no such transform"]
