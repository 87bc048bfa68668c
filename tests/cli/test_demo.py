"""`mathfuse demo gaussian`"""

from __future__ import annotations

import argparse
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import scipy.fft
from PIL import Image

from mathfuse import cli
from mathfuse.cli import demo
from mathfuse.runtime.cuda.driver import why_unavailable
from mathfuse.runtime.errors import ToolchainError, UnsupportedError

NOISE = np.random.default_rng(1).integers(0, 256, (20, 30, 3), np.uint8)


def test_the_photograph_is_blurred_checked_timed_and_drawn(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(demo, "REPEATS", 1)
    output = tmp_path / "picture.png"
    assert cli.main(["demo", "gaussian", "--output", str(output)]) == 0
    shown = capsys.readouterr().out
    assert "2048 × 1748 × 3 float32, the photograph in matplotlib" in shown
    assert "scipy.fft, multiply by the precomputed filter, scipy.fft" in shown
    for word in ("fused", "unfused", " each\n", "difference", f"picture     {output}"):
        assert word in shown
    with Image.open(output) as picture:
        assert picture.format == "PNG"
        assert picture.width > 2 * picture.height


def test_the_users_own_file_and_sigma(tmp_path, capsys):
    Image.fromarray(NOISE[..., 0]).save(tmp_path / "own.tiff")
    output = tmp_path / "own.png"
    arguments = ["--sigma", "2.5", "--size", "45", "--output", str(output)]
    assert cli.main(["demo", "gaussian", str(tmp_path / "own.tiff"), *arguments]) == 0
    shown = capsys.readouterr().out
    assert "30 × 45 float32" in shown
    assert "sigma 2.5 pixels" in shown
    assert output.exists()


@pytest.mark.parametrize(
    ("mode", "channels"),
    [
        *((mode, ()) for mode in ("1", "L", "LA", "I;16", "I", "F")),
        *((mode, (3,)) for mode in ("P", "RGB", "RGBA", "CMYK")),
    ],
)
def test_every_kind_of_image_becomes_float32_between_0_and_1(tmp_path, mode, channels):
    if mode == "I;16":
        picture = Image.fromarray(NOISE[..., 0].astype(np.uint16) * 200)
    else:
        picture = Image.fromarray(NOISE).convert(mode)
    path = tmp_path / "image.tiff"
    picture.save(path)
    image = demo.load(str(path))
    assert image.shape == (20, 30, *channels)
    assert image.dtype == np.float32
    assert image.min() >= 0
    assert 0.9 < image.max() <= 1


def test_an_image_of_one_value_stays_finite(tmp_path):
    Image.fromarray(np.full((4, 4), 7.0, np.float32)).save(tmp_path / "flat.tiff")
    assert np.all(demo.load(str(tmp_path / "flat.tiff")) == 0)


def test_a_rotated_photograph_stands_upright(tmp_path):
    picture = Image.fromarray(NOISE)
    exif = picture.getexif()
    exif[0x0112] = 6  # the camera was held upright: turn by 90 degrees
    picture.save(tmp_path / "phone.jpg", exif=exif)
    assert demo.load(str(tmp_path / "phone.jpg")).shape == (30, 20, 3)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.png", None, "No such file"),
        ("text.png", b"hello", "is not an image that Pillow reads"),
        ("cut.png", b"\x89PNG\r\n\x1a\n\x00\x00", "is not an image that Pillow reads"),
        ("", None, "directory"),
    ],
)
def test_a_missing_or_unreadable_file_is_one_line(tmp_path, capsys, name, content, message):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    assert cli.main(["demo", "gaussian", str(path)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_truncated_photograph_is_an_error(tmp_path):
    whole = tmp_path / "whole.png"
    Image.fromarray(NOISE).save(whole)
    (tmp_path / "half.png").write_bytes(whole.read_bytes()[:600])
    with pytest.raises(UnsupportedError, match=r"half\.png is not an image"):
        demo.load(str(tmp_path / "half.png"))


@pytest.mark.parametrize("module", ["matplotlib.cbook", "PIL"])
def test_without_matplotlib_the_pip_command_is_told(monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ToolchainError, match=r'pip install "mathfuse\[demo\]"'):
        demo.load(None)


@pytest.mark.parametrize(
    "arguments",
    [
        *(["--sigma", text] for text in ("0", "-1", "inf", "nan", "1e300", "x")),
        *(["--size", text] for text in ("0", "-1", "10000000", "9" * 400, "1.5")),
        *(["--output", text] for text in ("picture.xyz", "picture.jpg", "picture", ".png")),
        ["--execution", "tpu"],
    ],
)
def test_bad_arguments(arguments, capsys):
    with pytest.raises(SystemExit):
        cli.main(["demo", "gaussian", *arguments])
    assert f"argument {arguments[0]}" in capsys.readouterr().err


def test_the_largest_size_is_what_memory_holds(monkeypatch):
    pages = {"SC_PHYS_PAGES": 1 << 20, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(demo.os, "sysconf", pages.get)
    assert demo.pixels("4096") == 4096
    with pytest.raises(argparse.ArgumentTypeError, match="from 1 to 5461, the largest"):
        demo.pixels("5462")


@pytest.mark.parametrize("sigma", ["1e6", "1e-300"])
def test_extreme_deviations(tmp_path, monkeypatch, sigma):
    monkeypatch.setattr(demo, "REPEATS", 1)
    assert cli.main(["demo", "gaussian", "--sigma", sigma, "--size", "64", "--output", str(tmp_path / "x.PNG")]) == 0


def test_an_output_that_cannot_be_written(tmp_path, capsys):
    assert cli.main(["demo", "gaussian", "--size", "16", "--output", str(tmp_path / "no" / "x.png")]) == 2
    assert "No such file or directory" in capsys.readouterr().err


ON_A_GPU = ["demo", "gaussian", "--execution", "cuda", "--size", "64", "--output"]


@pytest.mark.skipif(not why_unavailable(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_told_in_one_line(tmp_path, capsys):
    assert cli.main([*ON_A_GPU, str(tmp_path / "x.png")]) == 2
    error = capsys.readouterr().err
    assert error.startswith('mathfuse: execution="cuda" needs a GPU: ')
    assert error.count("\n") == 1


@pytest.mark.gpu
def test_on_a_gpu(tmp_path, capsys):
    assert cli.main([*ON_A_GPU, str(tmp_path / "x.png")]) == 0
    shown = capsys.readouterr().out
    assert "64 × 55 × 3 float32" in shown
    assert f"            on {demo.gpu_name()}\n" in shown
    assert "cupy.fft, multiply" in shown or "torch.fft, multiply" in shown
    assert (tmp_path / "x.png").exists()


# --- a GPU that is played


class Played:
    """A GPU whose libraries are SciPy under other names; it counts how often it is waited for."""

    def __init__(self, monkeypatch):
        self.waits, self._patch = 0, monkeypatch
        gpu = SimpleNamespace(why_unavailable=lambda: "", current_device=lambda: 0, name=lambda device: "Played GPU")
        monkeypatch.setattr(demo, "driver", gpu)
        monkeypatch.setitem(sys.modules, "cupy", None)
        monkeypatch.setitem(sys.modules, "torch", None)

    def _wait(self):
        self.waits += 1

    def add(self, name, kind=np.ndarray, **members):
        """A library whose transforms give arrays of `kind`."""
        transforms = {
            each: lambda *given, each=each: getattr(scipy.fft, each)(*given).view(kind) for each in ("rfft2", "irfft2")
        }
        fft = SimpleNamespace(__name__=f"{name}.fft", **transforms)
        module = ModuleType(name)
        module.__dict__.update(fft=fft, **members)
        self._patch.setitem(sys.modules, name, module)

    def add_cupy(self):
        cuda = SimpleNamespace(runtime=SimpleNamespace(deviceSynchronize=self._wait))
        self.add("cupy", asarray=np.asarray, asnumpy=np.asarray, cuda=cuda)

    def add_torch(self, available=True):
        """Its tensors have what takes them there and back."""

        class Tensor(np.ndarray):
            def cuda(self):
                return self

            def cpu(self):
                return self

            def numpy(self):
                return np.asarray(self)

        cuda = SimpleNamespace(is_available=lambda: available, synchronize=self._wait)
        self.add("torch", Tensor, from_numpy=lambda array: array.view(Tensor), cuda=cuda)


@pytest.fixture
def played(monkeypatch):
    return Played(monkeypatch)


def test_the_lines_name_the_gpu_and_the_library(played, tmp_path, capsys):
    played.add_cupy()
    assert cli.main([*ON_A_GPU, str(tmp_path / "x.png")]) == 0
    shown = capsys.readouterr().out
    assert "cupy.fft, multiply by the precomputed filter, cupy.fft" in shown
    assert "            on Played GPU\n" in shown
    assert "thread" not in shown
    assert played.waits == 1 + 2 * demo.REPEATS


@pytest.mark.parametrize(("libraries", "taken"), [("cupy torch", "cupy"), ("cupy", "cupy"), ("torch", "torch")])
def test_cupy_is_taken_first_and_pytorch_in_its_place(played, libraries, taken):
    for library in libraries.split():
        getattr(played, f"add_{library}")()
    image = np.random.default_rng(1).random((20, 30, 3), np.float32)
    transfer = demo.half_spectrum_gaussian((20, 30), 1.5, channels=True)
    place = demo.on_gpu(image, transfer.astype(np.float32))
    assert (place.fft.__name__, place.hardware) == (f"{taken}.fft", "Played GPU")
    found = place.to_numpy(demo.separate_filter(place.fft, place.image, place.transfer))
    assert type(found) is np.ndarray
    np.testing.assert_allclose(found, demo.separate_filter(scipy.fft, image.astype(float), transfer), atol=1e-6)
    place.wait()
    assert played.waits == 1


@pytest.mark.parametrize("torch", [False, True])
def test_without_a_library_for_the_gpu_the_extra_is_told(played, tmp_path, capsys, torch):
    if torch:
        played.add_torch(available=False)
    assert cli.main([*ON_A_GPU, str(tmp_path / "x.png")]) == 2
    error = capsys.readouterr().err
    assert 'CuPy or PyTorch with CUDA: pip install "mathfuse[cu13]"' in error
    assert error.count("\n") == 1


def test_interleaved_runs_every_variant_in_both_orders():
    order = []
    variants = {name: lambda name=name: order.append(name) for name in "ab"}
    medians = demo.interleaved(variants, 3, lambda: order.append("|"))
    assert "".join(order) == "a|b|b|a|a|b|"
    assert set(medians) == {"a", "b"}
    assert all(value >= 0 for value in medians.values())


def test_the_separate_expression_is_a_gaussian():
    transfer = demo.half_spectrum_gaussian((8, 6), 1.0, channels=False)
    assert transfer.shape == (8, 4)
    assert transfer[0, 0] == 1
    assert transfer[4, 0] == pytest.approx(np.exp(-2 * np.pi**2 * 0.25))
    impulse = np.zeros((64, 64))
    impulse[0, 0] = 1
    transfer = demo.half_spectrum_gaussian((64, 64), 2.0, channels=False)
    blurred = demo.separate_filter(scipy.fft, impulse, transfer)
    assert blurred[0, 3] / blurred[0, 0] == pytest.approx(np.exp(-(3**2) / (2 * 2.0**2)), rel=1e-6)
