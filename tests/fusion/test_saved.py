"""Plans in files: the same results in another process without compiling, and clear errors for whatever is odd."""

from __future__ import annotations

import errno
import json
import logging
import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mathfuse as mf
from mathfuse.fusion import saved
from mathfuse.runtime.cache import Artifact, default_store
from tests.processes import killed_while_it_writes, together
from tests.spaces import CUPY, everywhere, on_gpu

from . import callbacks_by_name
from .callbacks_by_name import gained, scaled, shifted, weighted, windowed

ROOT = Path(__file__).parents[2]
RNG = np.random.default_rng(5)
X = RNG.standard_normal((6, 10)).astype(np.float32)
W = RNG.standard_normal((6, 6)).astype(np.float32)
LOAD = """
import sys
import numpy as np
import mathfuse as mf
with np.load(sys.argv[2]) as data:
    plan = mf.fft.FFT.load(sys.argv[1], data["x"], w=data["w"])
    np.testing.assert_array_equal(plan.execute(), data["y"])
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.plan"


@pytest.fixture
def store(tmp_path, monkeypatch):
    """An empty cache."""
    monkeypatch.setenv("MATHFUSE_CACHE_DIR", str(tmp_path / "cache"))


def saved_plan(path, **choices):
    plan = mf.fft.FFT(X, kind="rfft2").plan(prolog=shifted(offset=0.5), epilog=weighted(w=W, gain=2), **choices)
    plan.save(path)
    return plan


# --- results ---------------------------------------------------------------------------------------------------------


@everywhere
def test_every_kind_of_plan(space, path):
    x, w, kernel = space.array(X), space.array(W), space.array(W[:2, :3])
    plans = (
        (mf.fft.FFT(x, (0, 1), (8, 12), "rfft2", "ortho"), {"epilog": mf.scale(factor=2 + 1j)}, {}),
        (mf.fft.FFT(x, kind="rfft2"), {"prolog": shifted, "epilog": weighted, "epilog_inputs": {"w": w}}, {"w": w}),
        (mf.fft.SpectralFilter(x, weighted(w=w)), {"epilog": mf.relu | mf.scale(factor=3)}, {"w": w}),
        (mf.fft.SpectralFilter(x, w, (1,)), {}, {"transfer": w}),
        (
            mf.fft.Convolution(x, kernel, "same", correlate=True),
            {"prolog": mf.add(term=1.5).as_kind("prolog")},
            {"kernel": kernel},
        ),
    )
    for plan, choices, operands in plans:
        if "epilog_inputs" in choices:
            choices["prolog_inputs"] = {"offset": 0.5}
        plan.plan(**choices, **space.choices(None))
        plan.save(path)
        loaded = type(plan).load(path, x, **operands)
        np.testing.assert_array_equal(space.numpy(loaded.execute()), space.numpy(plan.execute()))
        assert loaded.explain().passes == plan.explain().passes
        assert repr(loaded) == repr(plan)


def test_another_process_compiles_nothing(path, tmp_path, store):
    plan = saved_plan(path)
    np.savez(tmp_path / "data.npz", x=X, w=W, y=plan.execute())
    environment = {**os.environ, "MATHFUSE_CACHE_DIR": str(tmp_path / "another"), "PYTHONPATH": str(ROOT)}
    environment["MATHFUSE_LOG"] = "INFO"
    command = [
        sys.executable,
        "-c",
        "import logging; logging.basicConfig(level=20)\n" + LOAD,
        path,
        tmp_path / "data.npz",
    ]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert found.returncode == 0, found.stderr
    assert "planned rfft2" in found.stderr
    assert "compiled" not in found.stderr


def test_numbers_may_be_given_anew(path):
    plan = saved_plan(path)
    expected = plan.reset_operands(gain=3, offset=-1.0).execute()
    np.testing.assert_array_equal(mf.fft.FFT.load(path, X, w=W, gain=3, offset=-1.0).execute(), expected)
    with pytest.raises(mf.PlanError, match=r"has no operand 'sigma'; it has: gain, offset, w"):
        mf.fft.FFT.load(path, X, w=W, sigma=1)


def test_torch_tensors_serve_where_numpy_arrays_were_saved(path):
    torch = pytest.importorskip("torch")
    expected = saved_plan(path).execute()
    found = mf.fft.FFT.load(path, torch.from_numpy(X), w=torch.from_numpy(W)).execute()
    assert isinstance(found, torch.Tensor)
    np.testing.assert_array_equal(found.numpy(), expected)


def test_numbers_and_arrays_of_one_name_stay_apart(path):
    row, kernel = W[0].repeat(2)[:10], W[:2, :3]
    plans = (
        (mf.fft.FFT(X, kind="rfft"), {"prolog": windowed(w=row), "epilog": scaled(w=2.0)}, {"w": row}),
        (mf.fft.Convolution(X, kernel), {"epilog": gained(kernel=2.0)}, {"kernel": kernel}),
    )
    for plan, choices, operands in plans:
        plan.plan(**choices)
        plan.save(path)
        loaded = type(plan).load(path, X, **operands)
        np.testing.assert_array_equal(loaded.execute(), plan.execute())
    two = mf.fft.FFT(X, kind="rfft").plan(prolog=windowed(w=row), epilog=scaled(w=W))
    with pytest.raises(mf.PlanError, match="operand 'w' is another array in each of two callbacks"):
        two.save(path)
    mf.fft.FFT(X, kind="rfft").plan(epilog=scaled(w=2.0)).save(path)
    with pytest.raises(mf.PlanError, match=r"operand 'w' of .* is a number: give a number"):
        mf.fft.FFT.load(path, X, w=W)


def test_arrays_in_the_place_of_defaults_have_to_be_given(path):
    plan = mf.fft.FFT(X, kind="rfft2").plan(epilog=weighted(w=W, gain=W[:1, :1].repeat(6, 1)))
    plan.save(path)
    with pytest.raises(mf.PlanError, match="needs the operands gain: give them by name"):
        mf.fft.FFT.load(path, X, w=W)


def test_paths_of_every_kind(path):
    plan = saved_plan(path)
    for place in (path, str(path), os.fsencode(path)):
        plan.save(place)
        mf.fft.FFT.load(place, X, w=W)
    with pytest.raises(FileNotFoundError, match=r"no folder/a\.plan"):
        plan.save(path.parent / "no folder" / "a.plan")


def test_choices_are_kept(path):
    saved_plan(path, workers=np.int64(1), block_bytes=4096, backend="pocketfft")
    text = str(mf.fft.FFT.load(path, X, w=W).explain())
    assert "threads: 1" in text
    assert "about 4,096 bytes" in text
    assert "as asked for" in text


def test_a_callback_that_changed_is_compiled_anew(path, monkeypatch, caplog, store):
    saved_plan(path)

    @mf.epilog
    def weighted(value, index, w, gain=1.0):
        return value * w[index] * gain + 1

    monkeypatch.setattr(callbacks_by_name, "weighted", weighted)
    with caplog.at_level(logging.INFO, "mathfuse"):
        plan = mf.fft.FFT.load(path, X, w=W)
    np.testing.assert_allclose(plan.execute(), np.fft.rfft2(X + 0.5) * W * 2 + 1, rtol=0, atol=1e-4)
    (line,) = [record.message for record in caplog.records if "plan file" in record.message]
    assert "for this machine, program or operands: made anew" in line


@on_gpu
@pytest.mark.gpu
@pytest.mark.parametrize("strategy", ["kernel", "callback", "sequence"])
def test_plans_of_every_strategy(space, path, strategy, caplog):
    x, w = space.array(X.astype("c8")), space.array(RNG.standard_normal(X.shape).astype(np.float32))
    plan = mf.fft.FFT(x, kind="fft2").plan(epilog=weighted(w=w), strategy=strategy)
    plan.save(path)
    mf.clear_plans()
    with caplog.at_level(logging.INFO, "mathfuse"):
        loaded = mf.fft.FFT.load(path, x, w=w)
    assert not [record.message for record in caplog.records if "compiled" in record.message]
    assert loaded.explain().strategy == strategy
    np.testing.assert_array_equal(space.numpy(loaded.execute()), space.numpy(plan.execute()))


@pytest.mark.gpu
def test_what_a_rule_chose_of_own_kernels_is_kept(path):
    x = CUPY.array(np.ones((1024, 1024), np.complex64))
    mf.fft.FFT(x, kind="fft").plan(epilog=mf.scale(factor=2.0)).save(path)
    assert mf.fft.FFT.load(path, x).explain().strategy in ("kernel", "callback")


# --- errors ----------------------------------------------------------------------------------------------------------


def test_files_that_are_damaged_or_of_something_else(path):
    saved_plan(path)
    content = path.read_bytes()
    for position in (20, 40, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
        with pytest.raises(mf.PlanError, match=r"is a damaged plan file|of version"):
            mf.fft.FFT.load(path, X, w=W)
    for length in (14, 20, 100, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(mf.PlanError, match="is a damaged plan file"):
            mf.fft.FFT.load(path, X, w=W)
    path.write_bytes(b"something else")
    with pytest.raises(mf.PlanError, match="is no plan file"):
        mf.fft.FFT.load(path, X, w=W)
    with pytest.raises(FileNotFoundError):
        mf.fft.FFT.load(path.with_name("b.plan"), X)


def test_what_does_not_fit(path):
    saved_plan(path)
    for x, message in (
        (X.astype(float), "is a plan for float32 of shape .6, 10., and x is float64"),
        (X[:5], r"\(5, 10\)"),
    ):
        with pytest.raises(mf.PlanError, match=message):
            mf.fft.FFT.load(path, x, w=W)
    with pytest.raises(mf.PlanError, match="needs the operands w: give them by name"):
        mf.fft.FFT.load(path, X)
    with pytest.raises(mf.PlanError, match=r"holds a plan of FFT: load it with FFT\.load"):
        mf.fft.SpectralFilter.load(path, X, w=W)
    with pytest.raises(mf.PlanError, match=r"too small|shape"):
        mf.fft.FFT.load(path, X, w=W[:3])


def test_callbacks_that_no_other_process_finds(path):
    local = mf.epilog(lambda value: value * 2)
    with pytest.raises(mf.PlanError, match="is not found by its name in another process: define it at the top level"):
        mf.fft.FFT(X, kind="rfft").plan(epilog=local).save(path)
    assert not list(path.parent.iterdir())


def test_callbacks_that_are_gone(path, monkeypatch):
    saved_plan(path)
    monkeypatch.delattr(callbacks_by_name, "weighted")
    with pytest.raises(mf.PlanError, match="has a callback that is not found any more"):
        mf.fft.FFT.load(path, X, w=W)


def test_a_plan_has_to_be_planned(path):
    plan = mf.fft.FFT(X, kind="rfft")
    with pytest.raises(mf.PlanError, match=r"FFT\.save needs a plan: call plan"):
        plan.save(path)
    plan.plan().free()
    with pytest.raises(mf.PlanError, match="was freed"):
        plan.save(path)


def test_a_cache_that_keeps_nothing(path, monkeypatch, tmp_path):
    monkeypatch.setenv("MATHFUSE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("MATHFUSE_CACHE_LIMIT", "1")
    plan = saved_plan(path)
    np.testing.assert_array_equal(mf.fft.FFT.load(path, X, w=W).execute(), plan.execute())


# --- files -----------------------------------------------------------------------------------------------------------


def test_a_file_is_whole_or_not_there(path, monkeypatch):
    path.write_bytes(b"before")
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "no space")))
    with pytest.raises(OSError, match="no space"):
        saved.write(path, {}, {})
    assert path.read_bytes() == b"before"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO])
def test_a_disk_that_is_full_or_broken_keeps_the_older_file(path, monkeypatch, code):
    plan = saved_plan(path)
    before, write = path.read_bytes(), Path.write_bytes

    def half(self, content):
        write(self, content[: len(content) // 2])
        raise OSError(code, os.strerror(code), self)

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(OSError, match=r"a\.plan") as caught:
        plan.reset_operands(gain=3).save(path)
    assert caught.value.errno == code
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("cache", ["damaged", "full", "a file"])
def test_a_cache_that_fails_is_no_obstacle(path, tmp_path, monkeypatch, cache):
    """Code of a plan file goes through the cache, and where that cannot be, it is made anew."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("MATHFUSE_CACHE_DIR", str(folder))
    expected = saved_plan(path).execute()
    if cache == "damaged":
        for file in folder.rglob("*.artifact"):
            file.write_bytes(file.read_bytes()[:-1])
    elif cache == "full":
        monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "no space")))
        monkeypatch.setenv("MATHFUSE_CACHE_DIR", str(tmp_path / "another"))
    else:
        (tmp_path / "file").touch()
        monkeypatch.setenv("MATHFUSE_CACHE_DIR", str(tmp_path / "file"))
    np.testing.assert_array_equal(mf.fft.FFT.load(path, X, w=W).execute(), expected)


MANY = """
import numpy as np
import mathfuse as mf
from tests.fusion.callbacks_by_name import weighted
number, path = int(sys.argv[1]), sys.argv[2]
x, w = np.ones((6, 10), np.float32), np.ones((6, 6), np.float32)
plan = mf.fft.FFT(x, kind="rfft2").plan(epilog=weighted(w=w, gain=1.0 + number))
#go
for _ in range(5):
    plan.save(path)
    found = mf.fft.FFT.load(path, x, w=w).execute()[0, 0].real / 60
    assert 0.99 < found < 16.01 and abs(found - round(found)) < 1e-4, found
"""
WRITER = """
import numpy as np
import mathfuse as mf
mf.fft.FFT(np.ones((6, 10), np.float32), kind="rfft2").plan().save(sys.argv[1])
"""


@pytest.mark.slow
def test_sixteen_processes_with_one_file(path, store):
    mf.fft.FFT(X, kind="rfft2").plan(epilog=weighted(w=W, gain=1.0))  # its code is in the cache: they start sooner
    together(MANY, 16, path)
    assert [each.name for each in path.parent.iterdir() if each.is_file()] == [path.name]
    loaded = mf.fft.FFT.load(path, X, w=W)
    assert loaded.execute().shape == (6, 6)


def test_a_writer_that_is_killed_leaves_the_older_file(path):
    expected = saved_plan(path).execute()
    killed_while_it_writes(".plan", WRITER, path)
    assert {each.suffix for each in path.parent.iterdir()} == {".plan", ".tmp"}
    np.testing.assert_array_equal(mf.fft.FFT.load(path, X, w=W).execute(), expected)


def test_a_link_stays_a_link_and_names_may_be_long(path):
    link, long = path.with_name("link"), path.with_name("a" * 250)
    link.symlink_to(path)
    for place in (link, long):
        saved.write(place, {"a": 1}, {})
    assert link.is_symlink()
    assert saved.read(path) == saved.read(long) == ({"a": 1}, {})


def test_a_file_has_the_usual_permissions(path):
    saved.write(path, {"a": 1}, {})
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask
    assert saved.read(path) == ({"a": 1}, {})


def test_artifacts_come_back(path, store):
    artifact = Artifact(b"code", {"registers": 3})
    saved.write(path, {}, {"a key": artifact})
    assert default_store().get("a key") is None
    found = saved.read(path)[1]
    saved.keep(found)
    assert found == {"a key": artifact}
    assert default_store().get("a key") == artifact
    assert json.dumps(saved.described({"epilog": weighted(gain=np.float32(0.5))})).count("0.5") == 1
