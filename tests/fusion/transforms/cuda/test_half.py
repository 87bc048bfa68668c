"""float16 and complex32 on a GPU that is played: what programs read and write, and that results are right."""

from __future__ import annotations

import numpy as np
import pytest

import mathfuse as mf
from mathfuse.fusion.elementwise.layouts import dense
from mathfuse.fusion.transforms.cuda.choice import candidates, name_of
from mathfuse.fusion.transforms.cuda.costs import cost
from mathfuse.fusion.transforms.cuda.layouts import seen
from mathfuse.fusion.transforms.cuda.program import moved_bytes
from mathfuse.fusion.transforms.kinds import resolve
from mathfuse.fusion.transforms.pipeline import Pipeline
from mathfuse.runtime.dtypes import COMPLEX32
from tests.fusion.transforms.halves import check, check_filter, numbers

FLOAT16, SINGLE = np.dtype(np.float16), np.dtype(np.float32)
strategies = pytest.mark.parametrize("strategy", ["kernel", "callback", "sequence"])


@strategies
@pytest.mark.parametrize("kind", ["fft", "ifft", "rfft", "irfft"])
@pytest.mark.parametrize(
    ("n", "layout", "offset", "out"),
    [(12, "C", 0, "transposed"), (15, "every other", 0, "longer rows"), (12, "longer rows", 1, "C")],
)
def test_transforms(gpu, strategy, kind, n, layout, offset, out):
    check(gpu, kind, n, layout, offset, out, strategy=strategy)


@strategies
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize(("shape", "axes"), [((5, 12), (1,)), ((4, 9), (0,)), ((16, 10), (0, 1)), ((4, 3, 6), (0, 2))])
@pytest.mark.parametrize("complex_", [False, True])
def test_filters(gpu, strategy, shape, axes, complex_, in_place):
    check_filter(gpu, shape, axes, complex_, in_place, strategy=strategy)


def test_own_kernels_read_and_write_it_themselves(gpu):
    found = check_filter(gpu, (5, 12), (1,), False, False, strategy="kernel")
    assert found.passes == (
        "x → blocks r2c and back(12) × 5, half precision read, half precision written, transfer inside → out",
    )
    assert found.moved_bytes == 2 * 5 * 12 * 2 + 5 * 7 * 4  # and the operand
    found = check_filter(gpu, (16, 10), (0, 1), False, False, strategy="kernel")
    assert "half precision read" in found.passes[0]
    assert "half precision written" in found.passes[-1]


def test_callbacks_read_and_write_it_inside_of_cufft(gpu):
    plan = mf.fft.FFT(gpu.array(numbers((5, 12), complex_=True)), (1,), kind="fft")
    found = plan.plan(epilog=mf.half, strategy="callback").explain()
    assert found.passes == ("x → cuFFT c2c(12) × 5, convert inside, epilog inside → out",)
    assert found.moved_bytes == 2 * 5 * 12 * 4


def test_a_scale_leaves_the_conversion_to_a_callback(gpu):
    x = gpu.array(numbers((5, 7), complex_=True))
    found = mf.fft.FFT(x, (1,), (12,), "irfft").plan(epilog=mf.half, strategy="kernel").explain()
    assert found.passes == ("x → blocks c2r(12) × 5, half precision read, epilog inside → out",)
    found = mf.fft.FFT(x, (1,), (12,), "irfft", "forward").plan(epilog=mf.half, strategy="kernel").explain()
    assert found.passes == ("x → blocks c2r(12) × 5, half precision read, half precision written → out",)


# --- the rule of costs


def programs(kind, shape, dtype):
    problem = resolve(kind, shape)
    pipeline = Pipeline((problem,), {}, SINGLE if dtype in (FLOAT16, SINGLE) else np.dtype("c8"), np.dtype("c8"))
    found = candidates(pipeline, dense(shape, dtype), dense(problem.out_shape, np.dtype("c8")), "sm_90a")
    return {name_of(program): program for program in found}


@pytest.mark.parametrize("dtype", [FLOAT16, COMPLEX32])
@pytest.mark.parametrize("n", [256, 1024, 4096])
def test_the_rule_takes_one_pass(dtype, n):
    found = programs("rfft" if dtype == FLOAT16 else "fft", (4096, n), dtype)
    best = min(found.values(), key=cost)
    assert name_of(best) == "kernel"
    assert best.fuses
    assert sum(map(moved_bytes, best.steps)) == 4096 * (n * dtype.itemsize + best.steps[0].target.layout.shape[1] * 8)
    assert cost(best) < cost(found["sequence"])


def test_fewer_bytes_cost_less():
    half, single = (programs("rfft", (4096, 1024), dtype) for dtype in (FLOAT16, SINGLE))
    assert cost(half["kernel"]) < cost(single["kernel"])
    assert not single["kernel"].fuses


def test_pairs_begin_where_a_word_may():
    for dtype, alignments in ((FLOAT16, (4, 16)), (COMPLEX32, (4, 8))):
        for alignment in (2, *alignments):
            layout = dense((6, 8), dtype)
            layout = type(layout)(layout.shape, layout.strides, dtype, alignment)
            assert (seen(layout, (1,), (0,)) is not None) == (alignment >= 4)
