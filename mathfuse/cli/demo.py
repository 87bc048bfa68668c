"""`mathfuse demo gaussian`: a photograph, blurred by a Python function that runs inside the transform."""

from __future__ import annotations

import argparse
import math
import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mathfuse.runtime.cuda import driver
from mathfuse.runtime.errors import MathFuseError, ToolchainError, UnsupportedError
from mathfuse.runtime.settings import workers
from mathfuse.runtime.words import counted

AXES = (0, 1)  # the image axes; a third axis is the channels, a batch
REPEATS = 15
TOLERANCE = 1e-5  # of values in [0, 1]; float32 rounding of two transforms stays well below
SHIPPED = "grace_hopper.jpg"
SIZE = 2048  # of the shipped photograph: below it, calls and threads take much of the time
WIDEST = 1e6  # pixels: blurs any image to one colour, and its square is far from overflow
BYTES_PER_VALUE = 48  # at the peak, with the check in float64 (measured)


@dataclass(frozen=True)
class Place:
    """Where the demo runs, and what serves there without fusion."""

    image: Any
    transfer: Any  # the filter of the unfused variant
    fft: Any  # the module of its transforms
    wait: Callable[[], object]  # until what was queued is done
    to_numpy: Callable[[Any], np.ndarray]
    hardware: str


def add_to(subparsers: Any) -> None:
    command = subparsers.add_parser("demo", help="show what fusion does, on real data")
    demos = command.add_subparsers(required=True, metavar="DEMO")
    gaussian = demos.add_parser("gaussian", help="blur a photograph with a Gaussian computed inside the transform")
    gaussian.add_argument("image", nargs="?", help="any file that Pillow reads (default: the photograph in matplotlib)")
    gaussian.add_argument("--sigma", type=deviation, default=24.0, help="standard deviation in pixels (default: 24)")
    size = f"resize first, so that the longer side has SIZE pixels (default: {SIZE} for the photograph in matplotlib)"
    gaussian.add_argument("--size", type=pixels, help=size)
    output = "PNG file where the picture goes (default: gaussian.png)"
    gaussian.add_argument("--output", type=png, default="gaussian.png", help=output)
    gaussian.add_argument("--execution", choices=PLACES, default="cpu", help="where to run (default: cpu)")
    gaussian.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    import scipy.fft

    import mathfuse as mf

    image = load(args.image, args.size or (None if args.image else SIZE))
    transfer = half_spectrum_gaussian(image.shape[:2], args.sigma, channels=image.ndim == 3)
    place = PLACES[args.execution](image, transfer.astype(np.float32))
    blur = mf.gaussian(sigma=args.sigma)

    def fused() -> Any:
        return mf.fft.spectral_filter(place.image, blur, axes=AXES)

    def unfused() -> Any:
        return separate_filter(place.fft, place.image, place.transfer)

    start = time.perf_counter()
    result = fused()
    place.wait()
    first = time.perf_counter() - start
    blurred = place.to_numpy(result)
    with scipy.fft.set_workers(workers()):
        exact = separate_filter(scipy.fft, image.astype(np.float64), transfer)
        difference = float(np.abs(blurred - exact).max())
        if not difference < TOLERANCE:
            raise MathFuseError(f"the result differs from scipy.fft's by {difference:.1e}; please report this")
        median = interleaved({"fused": fused, "unfused": unfused}, REPEATS, place.wait)
    draw(image, blurred, args.sigma, args.output)
    library = place.fft.__name__
    print(f"image       {' × '.join(map(str, image.shape))} float32, {args.image or 'the photograph in matplotlib'}")
    print(f"filter      Gaussian, sigma {args.sigma:g} pixels, computed in the transform from each element's index")
    print(f"first call  {1e3 * first:.1f} ms, with planning and compiling (or taking it from the cache)")
    print(f"fused       {1e3 * median['fused']:.3f} ms, mathfuse.fft.spectral_filter")
    print(f"unfused     {1e3 * median['unfused']:.3f} ms, {library}, multiply by the precomputed filter, {library}")
    print(f"            {median['unfused'] / median['fused']:.2f} times as long; medians of {REPEATS} interleaved runs")
    print(f"            on {place.hardware}")
    print(f"difference  {difference:.1e} at most, of values in [0, 1], from scipy.fft in float64")
    print(f"picture     {Path(args.output).absolute()}")
    return 0


def on_cpu(image: np.ndarray, transfer: np.ndarray) -> Place:
    import scipy.fft

    threads = counted(workers(), "thread", "threads")
    return Place(image, transfer, scipy.fft, lambda: None, np.asarray, f"{threads} each")


def on_gpu(image: np.ndarray, transfer: np.ndarray) -> Place:
    """Both arrays on the current GPU, put there once by CuPy, else by PyTorch.

    Raises
    ------
    ToolchainError
        If there is no GPU, or neither library for one.
    """
    if reason := driver.why_unavailable():
        raise ToolchainError(f'execution="cuda" needs a GPU: {reason}; leave it out, or use --execution cpu')
    for library in (with_cupy, with_torch):
        try:
            return library(image, transfer)
        except ImportError:
            continue
    raise ToolchainError('the demo needs CuPy or PyTorch with CUDA: pip install "mathfuse[cu13]" (or [cu12])')


def with_cupy(image: np.ndarray, transfer: np.ndarray) -> Place:
    import cupy

    x, factor, wait = cupy.asarray(image), cupy.asarray(transfer), cupy.cuda.runtime.deviceSynchronize
    return Place(x, factor, cupy.fft, wait, cupy.asnumpy, gpu_name())


def with_torch(image: np.ndarray, transfer: np.ndarray) -> Place:
    import torch

    if not torch.cuda.is_available():
        raise ImportError("this PyTorch has no CUDA")
    x, factor, wait = torch.from_numpy(image).cuda(), torch.from_numpy(transfer).cuda(), torch.cuda.synchronize
    return Place(x, factor, torch.fft, wait, lambda result: result.cpu().numpy(), gpu_name())


def gpu_name() -> str:
    return driver.name(driver.current_device())


PLACES: dict[str, Callable[[np.ndarray, np.ndarray], Place]] = {"cpu": on_cpu, "cuda": on_gpu}


def load(path: str | None, longer_side: int | None = None) -> np.ndarray:
    """An image file as float32 in [0, 1]: (height, width) where it is grey, else (height, width, 3).

    Raises
    ------
    ToolchainError
        If matplotlib or Pillow is missing.
    UnsupportedError
        If the file is no image that Pillow reads.
    OSError
        If the file cannot be opened.
    """
    try:
        from matplotlib.cbook import get_sample_data
        from PIL import Image, ImageOps
    except ImportError as error:
        raise ToolchainError(f'the demo needs {error.name}: pip install "mathfuse[demo]"') from None
    Image.MAX_IMAGE_PIXELS = None  # the user's own file, however large
    with open(path or str(get_sample_data(SHIPPED, asfileobj=False)), "rb") as file:
        try:
            picture = ImageOps.exif_transpose(Image.open(file))
            if picture.mode.startswith(("I", "F")):  # 16-bit and floating-point grey have no fixed white: stretch them
                picture = Image.fromarray(stretch(np.asarray(picture, np.float32)))
            else:
                picture = picture.convert("L" if picture.mode in ("1", "L", "LA") else "RGB")
            if longer_side:
                ratio = longer_side / max(picture.size)
                width, height = (max(1, round(ratio * extent)) for extent in picture.size)
                picture = picture.resize((width, height))
        except (OSError, SyntaxError, ValueError) as error:  # what Pillow's readers raise on a damaged file
            raise UnsupportedError(f"{path} is not an image that Pillow reads: {error}") from None
    pixels = np.asarray(picture)
    return pixels if pixels.dtype == np.float32 else pixels.astype(np.float32) / 255


def stretch(values: np.ndarray) -> np.ndarray:
    """`values` scaled so that the smallest is 0 and the largest 1."""
    low, high = values.min(), values.max()
    return (values - low) / np.float32(max(high - low, np.finfo(np.float32).tiny))


def half_spectrum_gaussian(shape: tuple[int, ...], sigma: float, channels: bool) -> np.ndarray:
    """Transfer function exp(−2π²σ²f²) of a Gaussian on the half spectrum of a real image, float64."""
    f0, f1 = np.fft.fftfreq(shape[0])[:, None], np.fft.rfftfreq(shape[1])
    transfer = np.exp(-2 * np.pi**2 * sigma**2 * (f0**2 + f1**2))
    return transfer[..., None] if channels else transfer


def separate_filter(fft: Any, image: Any, transfer: Any) -> Any:
    """The filter without fusion, at its best: precomputed, multiplied in place, between a library's own transforms."""
    spectrum = fft.rfft2(image, None, AXES)
    spectrum *= transfer
    return fft.irfft2(spectrum, image.shape[:2], AXES)


def interleaved(
    variants: Mapping[str, Callable[[], object]], repeats: int, wait: Callable[[], object]
) -> dict[str, float]:
    """Median seconds of each variant, done when `wait` returns; every other round runs them in reverse order."""
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for round_ in range(repeats):
        for name in sorted(variants, reverse=bool(round_ % 2)):
            start = time.perf_counter()
            variants[name]()
            wait()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


def draw(before: np.ndarray, after: np.ndarray, sigma: float, output: str) -> None:
    """Before, after, and their log power spectra (left half before, right half after) side by side, as a PNG."""
    from matplotlib.figure import Figure

    height, width = before.shape[:2]
    spectrum = log_spectrum(before)
    spectrum[:, width // 2 :] = log_spectrum(after)[:, width // 2 :]
    figure = Figure(figsize=(3 * 3.4 * min(1.5, width / height), 3.8), dpi=100, layout="constrained")
    panels = figure.subplots(1, 3)
    panels[0].imshow(before.clip(0, 1), cmap="gray", vmin=0, vmax=1)
    panels[0].set_title("before")
    panels[1].imshow(after.clip(0, 1), cmap="gray", vmin=0, vmax=1)
    panels[1].set_title(f"after: Gaussian, σ = {sigma:g} pixels")
    panels[2].imshow(spectrum, cmap="magma", vmin=spectrum.max() - 12)
    panels[2].axvline(width // 2 - 0.5, color="white", linewidth=0.5)
    panels[2].set_title("log spectrum: before | after")
    for panel in panels:
        panel.set_axis_off()
    figure.savefig(output, format="png", pil_kwargs={"optimize": True})


def log_spectrum(image: np.ndarray) -> np.ndarray:
    """log10 of the power spectrum, zero frequency in the middle; channels are averaged first."""
    import mathfuse as mf

    grey = image if image.ndim == 2 else image.mean(axis=2)
    power = mf.fft.fft2(grey, epilog=mf.power_spectrum)
    return np.fft.fftshift(np.log10(power + np.finfo(np.float32).tiny))


def deviation(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number <= WIDEST:
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0, at most {WIDEST:g}")
    return number


def pixels(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    largest = math.isqrt(memory // (3 * BYTES_PER_VALUE))  # a square of three channels
    if not 1 <= number <= largest:
        raise argparse.ArgumentTypeError(
            f"{text} is not a whole number from 1 to {largest}, the largest for which this machine's memory suffices"
        )
    return number


def png(text: str) -> str:
    if Path(text).suffix.lower() != ".png":
        raise argparse.ArgumentTypeError(f"{text} is not the name of a PNG file, such as gaussian.png")
    return text
