"""Convolutions on a GPU that is played: padding and cut are in callbacks of cuFFT, in own kernels, or in kernels."""

from __future__ import annotations

import numpy as np
import pytest

import mathfuse as mf

from ..test_convolution import close, expected, numbers


@pytest.mark.parametrize("strategy", ["kernel", "callback", "sequence"])
@pytest.mark.parametrize(("mode", "dtype"), [("full", "f4"), ("same", "c8"), ("valid", "f8"), ("circular", "f4")])
@pytest.mark.parametrize(("axes", "small"), [((1, 2), (3, 5)), ((2,), (5,)), ((0, 2), (2, 1, 4))])
def test_every_strategy(gpu, strategy, mode, dtype, axes, small):
    x, kernel = numbers((4, 6, 10), dtype), numbers(small, dtype)
    correlate = mode == "same"
    y = expected(x, kernel, mode, axes, correlate)
    w = numbers(y.shape, "f4")
    after = mf.epilog(lambda value, index, w: value * w[index])(w=gpu.array(w))
    plan = mf.fft.Convolution(gpu.array(x), gpu.array(kernel), mode, axes, correlate=correlate)
    plan.plan(prolog=mf.scale(factor=2.0), epilog=after, strategy=strategy)
    for out in (None, gpu.array(np.asfortranarray(np.zeros(y.shape, dtype)))):
        close(gpu.numpy(plan.execute(out=out)), 2 * y * w)
    found = plan.explain()
    assert found.strategy == strategy
    assert ("cut" in str(found)) == (strategy == "sequence" and mode != "circular")


def test_own_kernels_pad_and_cut_in_one_pass(gpu):
    x, kernel = numbers((3, 20), "f4"), numbers((5,), "f4")
    plan = mf.fft.Convolution(gpu.array(x), gpu.array(kernel), "same").plan(strategy="kernel")
    close(gpu.numpy(plan.execute()), expected(x, kernel, "same", (1,)))
    assert len(plan.explain().passes) == 1
    assert "20 elements given, 20 kept" in str(plan.explain())


@pytest.mark.parametrize(("mode", "rows"), [("same", 16), ("full", 24), ("valid", 8)])
def test_rows_are_padded_and_cut_between_rows_and_columns(gpu, mode, rows):
    x, kernel = numbers((2, 16, 10), "f4"), numbers((9, 3), "f4")
    plan = mf.fft.Convolution(gpu.array(x), gpu.array(kernel), mode).plan(strategy="kernel")
    close(gpu.numpy(plan.execute()), expected(x, kernel, mode, (1, 2)))
    there, columns, back = plan.explain().passes
    assert ("10 elements given" in there) == (mode != "valid")
    assert "× 32" in there
    assert ("16 elements given" in columns) == (mode != "valid")
    assert columns.count("8 rows interleaved") == 2
    assert (f"{rows} kept" in columns) == (rows < 24)
    assert f"× {2 * rows}" in back


@pytest.mark.parametrize("size", [(16, 10), (15, 10), (9, 8)])
@pytest.mark.parametrize("axes", [(1, 2), (2, 1), (0, 2), (0, 1, 2)])
def test_rows_of_any_number_are_kept(gpu, size, axes):
    x, kernel = numbers((2, *size), "f4"), numbers((2 if 0 in axes else 1, 3 if 1 in axes else 1, 3), "f4")
    axes = axes if 2 in axes else (1, 2)
    plan = mf.fft.Convolution(gpu.array(x), gpu.array(kernel), "full", axes).plan(strategy="kernel")
    close(gpu.numpy(plan.execute()), expected(x, kernel, "full", axes))


@pytest.mark.parametrize("mode", ["full", "same"])
def test_the_kernel_s_spectrum_has_the_precision_of_the_input_and_the_layout_of_columns(gpu, mode):
    x, kernel = numbers((2, 16, 10), "f4"), numbers((9, 3), "f8")
    plan = mf.fft.Convolution(gpu.array(x), gpu.array(kernel), mode).plan(strategy="kernel")
    (pipeline,) = plan._prepared._by_axis.values()
    spectrum = pipeline.functions["transfer"].arrays["kernel"]
    assert spectrum.dtype == np.complex64
    assert spectrum.strides[0] == 8
