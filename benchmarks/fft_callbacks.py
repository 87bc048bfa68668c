"""2^24 complex64 elements and a float32 weight for each, in a prolog or an epilog, against the copy limit and peers."""

from __future__ import annotations

import argparse
from typing import Any

import mathfuse as mf
from benchmarks import gpu, peers, records
from benchmarks.gpu import Variant
from benchmarks.records import Bound, Row

NAME = "fft-callbacks"
LENGTHS = (256, 1024, 4096, 8192)
ELEMENTS = 1 << 24
MOST_OF_LIMIT = {"epilog": 1.25, "prolog": 1.45}
MOST_OF_NVMATH, MOST_OF_DENSE = 0.62, 1.10
TOLERANCE = 1e-5
OURS, NVMATH, DENSE, STRIDED = "mathfuse", "nvmath-python callback", "dense", "x[:, ::2, :]"


@mf.epilog
def weighted(value, index, w):
    return value * w[index]


@mf.prolog
def weighting(value, index, w):
    return value * w[index]


def callback(side: str, w: Any) -> dict[str, Any]:
    return {side: weighted(w=w) if side == "epilog" else weighting(w=w)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    gpu.add_arguments(parser)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, metavar="N")
    parser.add_argument("--elements", type=int, default=ELEMENTS)


def main(arguments: argparse.Namespace) -> None:
    rows: list[Row] = []
    for n in arguments.lengths:
        rows += rank_two(n, arguments.elements // n, arguments.samples)
        rows += rank_three(n, arguments.elements // (3 * n), arguments.samples)
    found = bounds(rows)
    print(records.pivot(rows), "\nTimes the limit:", records.pivot(rows, "of_limit", show="{:.2f}".format), sep="\n")
    print("\n".join(map(str, found)))
    settings = {"elements": arguments.elements, "samples": arguments.samples}
    print(records.save(NAME, gpu.machine(**settings), rows, found, arguments.results))


def rank_two(n: int, batch: int, samples: int) -> list[Row]:
    """[batch, n] along the last axis: one race a side, all peers in it."""
    cp = gpu.cupy()
    x, w, y = gpu.uniform((batch, n), "complex64"), gpu.uniform((batch, n), "float32", 0.5, 1.5), None
    y = cp.empty_like(x)
    rows = []
    for side in MOST_OF_LIMIT:
        before, after = (w, None) if side == "prolog" else (None, w)
        planned = mf.fft.FFT(x, kind="fft").plan(**callback(side, w))
        variants = [Variant(OURS, lambda planned=planned: planned.execute(out=y))]
        if theirs := peers.nvmath_plan(x, before, after):
            variants.append(Variant(NVMATH, theirs.execute))
        separate = peers.separate("c2c", (n,), x, before, after, y)
        variants += [Variant(name, run) for name, run in separate.items()]
        if torch := peers.torch_peer(x, before, after):
            variants.append(Variant("torch, two kernels", torch))
        explained = planned.explain()
        rows += raced(f"N = {n}, {side}", variants, x, w, y, side, samples, strategy=explained.strategy, n=n)
    return rows


def rank_three(n: int, batch: int, samples: int) -> list[Row]:
    """[batch, 3, n], dense and as every other row of [batch, 6, n]; the weights in C order of that shape."""
    cp = gpu.cupy()
    big, w = gpu.uniform((batch, 6, n), "complex64"), gpu.uniform((batch, 3, n), "float32", 0.5, 1.5)
    strided, dense, y = big[:, ::2, :], cp.ascontiguousarray(big[:, ::2, :]), cp.empty(w.shape, big.dtype)
    rows = []
    for side in MOST_OF_LIMIT:
        plans = {
            name: mf.fft.FFT(x, kind="fft").plan(**callback(side, w))
            for name, x in ((DENSE, dense), (STRIDED, strided))
        }
        variants = [Variant(name, lambda p=p: p.execute(out=y)) for name, p in plans.items()]
        strategy = plans[STRIDED].explain().strategy
        rows += raced(f"rank 3, N = {n}, {side}", variants, dense, w, y, side, samples, strategy=strategy, n=n)
    return rows


def raced(
    case: str, variants: list[Variant], x: Any, w: Any, y: Any, side: str, samples: int, **notes: Any
) -> list[Row]:
    """Check and time the variants of a case beside a copy of its input, which gives the limit."""
    cp = gpu.cupy()
    part = slice(None, None, max(1, x.shape[0] // 64))
    exact = x[part].astype("complex128")
    exact = cp.fft.fft(exact * w[part]) if side == "prolog" else cp.fft.fft(exact) * w[part]
    for variant in variants:
        y.fill(float("nan"))
        gpu.check(variant, exact, TOLERANCE, lambda result: cp.asarray(result)[part])
    copy = Variant("copy", gpu.copier(cp.empty_like(x), x))
    gpu.race([*variants, copy], samples)
    limit = {"name": "limit", "ms": copy.ms * (x.nbytes + w.nbytes + y.nbytes) / (2 * x.nbytes)}
    times = [{"name": v.name, "ms": v.ms, "of_limit": v.ms / limit["ms"], "error": v.error} for v in variants]
    return [{"case": case, "side": side, **notes, **each} for each in (limit, *times)]


def bounds(rows: list[Row]) -> list[Bound]:
    """The claims that these rows can decide."""
    claims = []
    for case, side in dict.fromkeys((row["case"], row["side"]) for row in rows):
        claims += [
            (f"{case}: of the copy limit", case, OURS, "limit", MOST_OF_LIMIT[side]),
            (f"{case}: of nvmath-python's callback", case, OURS, NVMATH, MOST_OF_NVMATH),
            (f"{case}: strided input, of the dense one's time", case, STRIDED, DENSE, MOST_OF_DENSE),
        ]
    return [Bound(what, r, most) for what, case, a, b, most in claims if (r := records.ratio(rows, case, a, b))]
