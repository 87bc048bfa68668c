"""Shapes, axes, lengths and dtypes against NumPy's own, and the messages for what does not fit."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.fft

from mathfuse.fusion.transforms.kinds import KINDS, complex_of, compute_dtype, real_of, resolve
from mathfuse.runtime.errors import PlanError, UnsupportedError

DTYPES = "bool int8 uint8 int64 float16 float32 float64 complex64 complex128 >f4 >c16".split()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(6,), (5, 4), (2, 3, 8)])
def test_out_shape_is_scipys(kind, shape):
    if KINDS[kind].rank == 2 and len(shape) == 1:
        return
    axes = {1: -1, 2: (-2, -1), None: None}[KINDS[kind].rank]
    x = np.ones(shape, complex if KINDS[kind].family != "r2c" else float)
    assert resolve(kind, shape, None, axes).out_shape == getattr(scipy.fft, kind)(x).shape


def test_lengths_alone_name_the_last_axes():
    assert resolve("rfftn", (3, 4, 5), (6, 7)).axes == (1, 2)
    assert resolve("rfftn", (3, 4, 5), (6, 7)).out_shape == (3, 6, 4)


def test_callbacks_see_the_extents_of_the_full_transform():
    forward, inverse = resolve("rfft2", (6, 9), None, (-2, -1)), resolve("irfft2", (6, 5), (6, 9), (-2, -1))
    assert forward.prolog_shape == forward.full_shape == inverse.prolog_shape == inverse.full_shape == (6, 9)
    padded = resolve("fft2", (6, 9), (8, 10), (-2, -1))
    assert (padded.prolog_shape, padded.full_shape) == ((6, 9), (8, 10))


@pytest.mark.parametrize("name", DTYPES)
def test_dtypes_are_scipys(name):
    x = np.ones(4, name)
    assert complex_of(compute_dtype(x.dtype)) == scipy.fft.fft(x).dtype
    assert compute_dtype(x.dtype).isnative


def test_precisions_belong_together():
    assert [real_of(complex_of(np.dtype(t))) for t in ("f4", "f8")] == [np.dtype("f4"), np.dtype("f8")]
    assert real_of(np.dtype("c8")) == np.float32


@pytest.mark.parametrize(
    ("dtype", "message"), [(np.longdouble, "float64"), (np.clongdouble, "complex128"), (object, "numbers")]
)
def test_other_dtypes_name_the_nearest(dtype, message):
    with pytest.raises(UnsupportedError, match=message):
        compute_dtype(np.dtype(dtype))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("dct", (4,)), "none of the transforms"),
        (("fft", (), None, -1), "0-d"),
        (("fft", (4,), None, 1), "axis 1 is out of range"),
        (("fft", (4,), None, -2), "axis -2 is out of range"),
        (("fft2", (4, 4), None, (0, -2)), "twice"),
        (("fft", (4, 4), None, (0, 1)), "use fftn"),
        (("fftn", (4, 4), None, ()), "at least one axis"),
        (("fft", (4,), 0, -1), "length 0"),
        (("fft", (4,), -3, -1), "length -3"),
        (("irfft", (1,), None, -1), "length 0"),
        (("fft", (0,), None, -1), "length 0"),
        (("fft", (0,), 4, -1), "no elements"),
        (("fft2", (4, 4), (4,), (0, 1)), r"s=\(4,\) for the axes \(0, 1\): give one length"),
        (("fft2", (4,), None, (-2, -1)), "out of range"),
        (("fftn", (4,), None, "x"), "axes='x'"),
        (("fft", (4,), 2.5, -1), "s=2.5"),
        (("fft", (4,), None, -1, "unitary"), "norm='unitary'"),
    ],
)
def test_what_does_not_fit_is_said(arguments, message):
    with pytest.raises(PlanError, match=message):
        resolve(*arguments)
