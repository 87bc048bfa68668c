"""Every configuration of own kernels, by autotune; `--write` makes the table of the fastest that plans go by.

Of one axis with an epilog and of filters along it, of columns, and of filters of images, each about 2^24 elements.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mathfuse as mf
from benchmarks import gpu, parts, records
from benchmarks.fft_callbacks import weighted
from benchmarks.records import Row
from mathfuse.fusion.transforms.cuda import fastest

NAME, ELEMENTS = "fft-configurations", 1 << 24
WORTH = 0.985  # of the usual configuration's time: what takes more is as good
LONG = (64, 96, 100, 128, 243, 250, 256, 500, 512, 625, 750, 768, 960, 1000, 1024, 1080, 1250, 1500, 1536, 1920)
LONGER = (2000, 2048, 2500, 3000, 3125, 4000, 4096, 5000, 6000, 8192, 10000, 16384)
REAL = (128, 200, 256, 500, 512, 625, 768, 1000, 1024, 1536, 2000, 2048, 3072, 4096, 5000, 8192, 16384, 20000)
DOUBLE = (64, 128, 243, 256, 512, 768, 1000, 1024, 2000, 2048, 4096, 8192)
COLUMNS = (64, 128, 256, 512, 1000, 1024, 2048, 4096, 8192)
IMAGES = (256, 512, 1000, 1024, 2048, 4096, 8192)


@dataclass(frozen=True)
class Case:
    """A plan by own kernels."""

    what: str
    shape: tuple[int, ...]
    dtype: str
    axes: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.what} of {'×'.join(map(str, self.shape))} {self.dtype} along {', '.join(map(str, self.axes))}"


def rows_of(n: int, elements: int) -> tuple[int, int]:
    return max(1, min(65536, elements // n)), n


def cases(elements: int) -> Iterator[Case]:
    """The longest problems first, so that processes end together."""
    for n in reversed(IMAGES):
        for what in ("filter", "gaussian"):
            yield Case(what, (max(1, elements // n**2), n, n), "float32", (1, 2))
    for n in reversed(COLUMNS):
        yield Case("fft", (max(1, elements // n // 512), n, 512), "complex64", (1,))
    for n in reversed(LONG + LONGER):
        yield Case("fft", rows_of(n, elements), "complex64", (1,))
        yield Case("filter", rows_of(n, elements), "complex64", (1,))
    for n in reversed(REAL):
        yield Case("rfft", rows_of(n, elements), "float32", (1,))
        yield Case("filter", rows_of(n, elements), "float32", (1,))
        yield Case("irfft", rows_of(n, elements), "complex64", (1,))
    for n in reversed(DOUBLE):
        yield Case("fft", rows_of(n, elements), "complex128", (1,))
        yield Case("rfft", rows_of(n, elements), "float64", (1,))
        yield Case("irfft", rows_of(n, elements), "complex128", (1,))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    gpu.add_arguments(parser)
    parts.add_arguments(parser)
    parser.add_argument("--elements", type=int, default=ELEMENTS)
    parser.add_argument("--only", nargs="+", default=[""], metavar="TEXT", help="cases whose names have one of these")
    parser.add_argument("--write", action="store_true", help="make the table of what was timed before; time nothing")


def main(arguments: argparse.Namespace) -> None:
    if arguments.write:
        found = records.load(NAME, arguments.results)
        if not found:
            raise SystemExit(f"there is no {NAME}.json: time first")
        print(write(found["rows"]))
    elif arguments.processes > 1:
        command = ["fft", "configurations", f"--elements={arguments.elements}", "--only", *arguments.only]
        dealt = parts.dealt(command, NAME, arguments.processes)
        rows = [row for record in dealt for row in record["rows"]]
        known = (records.load(NAME, arguments.results) or records.load(NAME) or {"rows": []})["rows"]
        rows = [row for row in known if row["case"] not in {new["case"] for new in rows}] + rows
        machine = {key: dealt[0][key] for key in ("device", "versions", "settings")}
        print(records.save(NAME, machine, rows, [], arguments.results))
    else:
        run(arguments)


def run(arguments: argparse.Namespace) -> None:
    start, rows = time.perf_counter(), list[Row]()
    os.environ["MATHFUSE_CACHE_DIR"] = tempfile.mkdtemp()
    todo = [case for case in cases(arguments.elements) if any(text in str(case) for text in arguments.only)]
    for case in parts.mine(todo, arguments.part):
        best, found = tuned(case)
        rows += found
        print(f"[{time.perf_counter() - start:6.1f}] {case}: {best}", flush=True)
        records.save(NAME, gpu.machine(elements=arguments.elements), rows, [], arguments.results)
        gpu.cupy().get_default_memory_pool().free_all_blocks()


def tuned(case: Case) -> tuple[str, list[Row]]:
    """What was the fastest in words, and for each kernel of the plan what that is to it."""
    from mathfuse.fusion.transforms.cuda.configurations import block_for, complex_length, work_of
    from mathfuse.runtime.cuda import driver

    plan = planned(case)
    arch, before = driver.architecture(0), steps(plan)
    plan.autotune()
    timings = plan.explain().timings
    usual = min(ms for name, ms in timings if ";" not in name and " rows" not in name)
    rows: list[Row] = [
        {
            "case": str(case),
            "work": work_of(step),
            "n": complex_length(step.call),
            "double": step.call.double,
            "usual": str(block_for(old, arch).configuration),
            "best": str(block_for(step, arch).configuration),
            "tile": max(step.block.tiles),
            "usual_ms": usual,
            "ms": timings[0][1],
            "timings": [[name, round(ms, 5)] for name, ms in timings[:6]] if number == 0 else [],
        }
        for number, (old, step) in enumerate(zip(before, steps(plan)))
    ]
    return f"{timings[0][1] / usual:.3f} of {1e3 * usual:.1f} µs: {timings[0][0]}; {len(timings)} timed", rows


def steps(plan: Any) -> list[Any]:
    return plan._prepared._chosen.engine.program.transforms


def planned(case: Case) -> Any:
    x = gpu.uniform(case.shape, case.dtype)
    half = case.dtype.startswith("float")
    wide = "float64" if case.dtype in ("complex128", "float64") else "float32"
    last = case.shape[-1]
    if case.what == "irfft":
        x = gpu.cupy().ascontiguousarray(x[:, : last // 2 + 1])
        w = gpu.uniform(case.shape, wide)
        return mf.fft.FFT(x, case.axes, (last,), "irfft", "forward").plan(epilog=weighted(w=w), strategy="kernel")
    spectrum = (*case.shape[:-1], last // 2 + 1) if half else case.shape
    if case.what == "gaussian":
        return mf.fft.SpectralFilter(x, mf.gaussian(sigma=8.0), case.axes).plan(strategy="kernel")
    w = gpu.uniform(spectrum, wide)
    if case.what == "filter":
        return mf.fft.SpectralFilter(x, weighted(w=w), case.axes).plan(strategy="kernel")
    return mf.fft.FFT(x, case.axes, kind=case.what).plan(epilog=weighted(w=w), strategy="kernel")


# --- the table -------------------------------------------------------------------------------------------------------


def write(rows: list[Row]) -> Path:
    """The table: of each case what was clearly better than the usual, else that; where two differ, what gains more."""
    table, tiles = {}, {}
    for row in sorted(rows, key=lambda row: -row["ms"] / row["usual_ms"]):
        better = row["ms"] <= WORTH * row["usual_ms"]
        table[row["work"], row["n"], row["double"]] = row["best" if better else "usual"]
        if better and row["work"].startswith("tiled"):
            tiles[row["n"]] = row["tile"]
    entries = "".join(
        f'    ("{work}", {n}, {double}): "{text}",\n' for (work, n, double), text in sorted(table.items())
    )
    path = Path(fastest.__file__)
    head = path.read_text().partition("TILES")[0]
    dictionary = f"FASTEST: dict[tuple[str, int, bool], str] = {{\n{entries}}}\n"
    path.write_text(f"{head}TILES: dict[int, int] = {dict(sorted(tiles.items()))}\n{dictionary}")
    return path
