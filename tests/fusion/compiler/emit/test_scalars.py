"""Scalar types and their promotion: NumPy's for integers, weak floats for the rest."""

from __future__ import annotations

import itertools

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from mathfuse.fusion.compiler.emit.scalars import (
    BOOL,
    INT,
    Scalar,
    floating,
    nearest,
    of_dtype,
    precision_of,
    promote,
    resolve,
)
from mathfuse.runtime.errors import UnsupportedError

F32, F64, C64, C128 = Scalar("f", 32), Scalar("f", 64), Scalar("c", 32), Scalar("c", 64)
WEAK, WEAK_COMPLEX = Scalar("f", 32, weak=True), Scalar("c", 32, weak=True)
INTEGERS = [Scalar(kind, bits) for kind in "iu" for bits in (8, 16, 32, 64)]
EVERYTHING = [BOOL, *INTEGERS, F32, F64, C64, C128, WEAK, WEAK_COMPLEX]


@pytest.mark.parametrize(("a", "b"), list(itertools.product([BOOL, *INTEGERS], repeat=2)), ids=str)
def test_integers_promote_as_in_numpy(a, b):
    expected = np.result_type(a.dtype, b.dtype)
    found = promote(a, b, 32).dtype
    assert found == (np.uint64 if expected.kind == "f" else expected)  # uint64 and a signed type: uint64 here


def test_floats():
    assert promote(F32, F64, 32) == F64
    assert promote(F32, C128, 32) == C128
    assert promote(F64, C64, 32) == C128
    assert promote(F32, INT, 64) == F32
    assert promote(BOOL, F64, 32) == F64


def test_weak_floats_take_the_precision_of_what_they_meet():
    assert promote(WEAK, F32, 64) == F32
    assert promote(F64, WEAK, 32) == F64
    assert promote(WEAK, C64, 64) == C64
    assert promote(WEAK_COMPLEX, F32, 64) == C64
    assert promote(WEAK_COMPLEX, F64, 32) == C128
    assert promote(WEAK, INT, 32) == WEAK
    assert promote(WEAK, WEAK_COMPLEX, 32) == WEAK_COMPLEX
    assert promote(WEAK, WEAK, 64) == Scalar("f", 64, weak=True)


@hypothesis.given(st.sampled_from(EVERYTHING), st.sampled_from(EVERYTHING), st.sampled_from(EVERYTHING))
def test_promotion_is_a_join(a, b, c):
    def join(x, y):
        return promote(x, y, 32)

    assert join(a, b) == join(b, a)
    assert join(a, a) == a
    mixed_signs = {"i", "u"} <= {s.kind for s in (a, b, c)}
    assert mixed_signs or join(join(a, b), c) == join(a, join(b, c))
    assert join(join(a, b), b) == join(a, b)


@pytest.mark.parametrize(
    ("dtype", "scalar", "precision"),
    [
        ("bool", BOOL, 32),
        ("uint8", INT, 32),
        ("int16", INT, 32),
        ("uint32", INT, 64),
        ("int64", INT, 64),
        ("uint64", Scalar("u", 64), 64),
        ("float16", F32, 32),
        ("float32", F32, 32),
        ("float64", F64, 64),
        ("complex64", C64, 32),
        ("complex128", C128, 64),
    ],
)
def test_types_of_elements(dtype, scalar, precision):
    assert of_dtype(np.dtype(dtype)) == scalar
    assert precision_of(np.dtype(dtype)) == precision


@pytest.mark.parametrize(
    ("dtype", "near"), [("longdouble", "float64"), ("clongdouble", "complex128"), ("M8[s]", "float32")]
)
def test_unsupported_types(dtype, near):
    assert nearest(np.dtype(dtype)) == near
    with pytest.raises(UnsupportedError, match=f"the nearest type is {near}"):
        of_dtype(np.dtype(dtype))


def test_names_sizes_and_parts():
    assert [str(s.dtype) for s in (BOOL, INT, F32, C64, C128)] == [
        "bool",
        "int64",
        "float32",
        "complex64",
        "complex128",
    ]
    assert [s.itemsize for s in (BOOL, INT, F32, C64, C128)] == [1, 8, 4, 8, 16]
    assert C64.real == F32
    assert WEAK_COMPLEX.real == WEAK
    assert INT.real == INT
    assert str(WEAK) == "weak float32"
    assert floating(INT, 64) == Scalar("f", 64, weak=True)
    assert floating(C64, 64) == C64
    assert resolve(WEAK, 64) == F64
    assert resolve(F32, 64) == F32
