"""Own block transforms in every cut of a length, against a copy and against cuFFT with the same callback inlined."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

import mathfuse as mf
from benchmarks import gpu, records
from benchmarks.gpu import Variant
from benchmarks.records import Bound, Row

NAME = "fft-blocks"
LENGTHS = (256, 512, 768, 1000, 1024, 1080, 1536, 1920, 2000, 2048, 3000, 4096, 8192, 16384)
ELEMENTS, TOLERANCE, MOST_CUTS = 1 << 24, 1e-5, 6
OURS = "mathfuse"
PEERS = {"epilog": "cuFFT with a callback", "filter": "cuFFT, multiply, cuFFT"}
# Of the copy limit for an epilog, and of the peer for a filter; by length, where it is not the usual one.
MOST = {"epilog": 1.10, "filter": 0.45}
MOST_OF = {"epilog": dict.fromkeys((3000, 16384), 1.25), "filter": dict.fromkeys((256, 512, 3000, 16384), 0.55)}


@mf.epilog
def weighted(value, index, w):
    return value * w[index]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    gpu.add_arguments(parser)
    parser.add_argument("--elements", type=int, default=ELEMENTS, help="complex64, in all transforms together")
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--cuts", type=int, default=MOST_CUTS, help="of a length, the most promising first")


def main(arguments: argparse.Namespace) -> None:
    rows: list[Row] = []
    for n in arguments.lengths:
        for side in PEERS:
            rows += raced(n, arguments.elements // n, side, arguments.cuts, arguments.samples)
            records.save(NAME, gpu.machine(elements=arguments.elements), rows, bounds(rows), arguments.results)
    print("\n".join(map(str, bounds(rows))))


def raced(n: int, batch: int, side: str, most_cuts: int, samples: int) -> list[Row]:
    """A plan by own kernels, others of these, and cuFFT, with a filter array, checked and timed."""
    from mathfuse.device.fft.block import block_of
    from mathfuse.device.fft.shapes import cuts
    from mathfuse.runtime.cuda import driver

    cp, arch = gpu.cupy(), driver.architecture(0)
    x, w = gpu.uniform((batch, n), "complex64"), gpu.uniform((batch, n), "float32", 0.5, 1.5)
    y, part = cp.empty_like(x), slice(None, None, max(1, batch // 64))
    exact = cp.fft.fft(x[part].astype("complex128")) * w[part]
    exact = cp.fft.ifft(exact) if side == "filter" else exact
    scale = 1 / n if side == "filter" else 1
    others = {
        block_of(s, False, arch, wanted=max(1, block_of(s, False, arch).transforms * times // 2))
        for s in cuts(n)[:most_cuts]
        for times in (1, 2, 4)
    }
    scaled = [Variant(OURS, planned(x, w, y, side)), Variant(PEERS[side], peer(x, w, y, side))]
    unscaled = [Variant(_name(block), own(block, x, w, y, side)) for block in others - {None}]
    for variants, factor in ((scaled, 1), (unscaled, scale)):
        for variant in variants:
            y.fill(float("nan"))
            gpu.check(variant, exact, TOLERANCE, lambda result, factor=factor: cp.asarray(result)[part] * factor)
    variants = scaled + unscaled
    copy = Variant("copy", gpu.copier(cp.empty_like(x), x))
    gpu.race([*variants, copy], samples)
    limit = copy.ms * (x.nbytes + w.nbytes + y.nbytes) / (2 * x.nbytes)
    rows = [
        {"case": f"N = {n}, {side}", "side": side, "n": n, "name": v.name, "ms": v.ms, "of_limit": v.ms / limit}
        for v in (Variant("limit", copy.run, [limit]), *sorted(variants, key=lambda v: v.ms))
    ]
    print(f"N = {n}, {side}:", *(f"{row['name']} {row['of_limit']:.2f}" for row in rows[:6]), flush=True)
    return rows


def _name(block: Any) -> str:
    return f"{'·'.join(map(str, block.stages.radices))} / {block.stages.threads} × {block.transforms}"


def planned(x: Any, w: Any, y: Any, side: str) -> Callable[[], Any]:
    """What users get."""
    if side == "epilog":
        plan = mf.fft.FFT(x, kind="fft").plan(epilog=weighted(w=w), strategy="kernel")
    else:
        plan = mf.fft.SpectralFilter(x, weighted(w=w), axes=(1,)).plan(strategy="kernel")
    return lambda: plan.execute(out=y)


def own(block: Any, x: Any, w: Any, y: Any, side: str) -> Callable[[], Any]:
    """A prepared launch of the own kernel."""
    from mathfuse.fusion.compiler.cuda.artifacts import Compiled
    from mathfuse.fusion.compiler.cuda.blockcode import link
    from mathfuse.fusion.compiler.cuda.blocks import NAME as KERNEL
    from mathfuse.fusion.compiler.cuda.blocks import SLOTS, BlockKernel
    from mathfuse.fusion.compiler.cuda.geometry import Geometry
    from mathfuse.fusion.compiler.cuda.interface import make_unit
    from mathfuse.fusion.compiler.parameters import Writer
    from mathfuse.fusion.compiler.signature import fixed, operand_type
    from mathfuse.runtime.cuda import driver
    from mathfuse.runtime.cuda.arrays import as_device

    cp, device = gpu.cupy(), x.device.id
    arch, hook = driver.architecture(device), {"epilog": "store"}
    kernel = BlockKernel(
        length=x.shape[1],
        block=block,
        double=False,
        forward=True,
        real=(False, False),
        load=False,
        store=side == "epilog",
        transfer=side == "filter",
        strides=(1, 1),
        arch=arch,
    )
    array = as_device(w, "w")
    unit = make_unit(weighted, "fft", "complex64", {"w": fixed(operand_type(array), array)}, arch, ndim=2, axes=(1,))
    name = hook.get(side, "transfer")
    geometry = Geometry(x.shape, (x.shape[1], 1), axis=None if name == "store" else 1)
    unit = replace(unit, geometry=geometry, side=unit.side if name == "store" else name)
    compiled = Compiled(unit)
    writer = Writer(unit.layout, compiled.weak_bits)
    writer.integers("shape", *x.shape)
    writer.operand("w", array)
    info = cp.asarray(writer.block)
    cubin, _ = link(kernel, [compiled.ltoir])
    parameters = np.zeros(len(SLOTS), np.int64)
    slots = {
        "source": x.data.ptr,
        "target": y.data.ptr,
        f"{name}_info": info.data.ptr,
        "batch": x.shape[0],
        **{f"{each}_stride": 1 for each in ("source", "target")},
        **{f"{each}_distance": x.shape[1] for each in ("source", "target")},
    }
    for slot, value in slots.items():
        parameters[SLOTS.index(slot)] = value
    loaded = driver.load_kernel(cubin, KERNEL, device)
    launch = driver.Launch(loaded, kernel.blocks(x.shape[0]), block.threads, parameters, kernel.shared_bytes)

    def run() -> Any:
        launch(0)
        return y

    run.alive = info  # as long as it may be called
    return run


def peer(x: Any, w: Any, y: Any, side: str) -> Callable[[], Any]:
    """cuFFT: a callback inside, or a product between two transforms."""
    if side == "epilog":
        plan = mf.fft.FFT(x, kind="fft").plan(epilog=weighted(w=w), strategy="callback")
        return lambda: plan.execute(out=y)
    cp, scale = gpu.cupy(), np.float32(1 / x.shape[1])
    there, between = mf.fft.FFT(x, kind="fft").plan(), cp.empty_like(x)
    back = mf.fft.FFT(between, kind="ifft", norm="forward").plan()
    multiply = cp.ElementwiseKernel("T y, float32 w, float32 scale", "T z", "z = y * (w * scale)")

    def run() -> Any:
        there.execute(out=between)
        multiply(between, w, scale, between)
        return back.execute(out=y)

    return run


def bounds(rows: list[Row]) -> list[Bound]:
    """The claims that these rows can decide."""
    found = []
    for case, side, n in dict.fromkeys((row["case"], row["side"], row["n"]) for row in rows):
        base, what = ("limit", "the copy limit") if side == "epilog" else (PEERS[side], PEERS[side])
        ratio = records.ratio(rows, case, OURS, base)
        assert ratio is not None
        found.append(Bound(f"{case}: of {what}", ratio, MOST_OF[side].get(n, MOST[side])))
    return found
