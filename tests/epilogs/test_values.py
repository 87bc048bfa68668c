"""What an operand may be bound to."""

from __future__ import annotations

import enum
import math
import re
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

import mathfuse.epilogs as mf
from mathfuse.epilogs.values import identity, is_array, is_scalar, objection, summary
from mathfuse.runtime.errors import CallbackError


class Exported:
    """An array of a framework that is not installed."""

    def __dlpack__(self, **options):
        raise NotImplementedError  # that it is there counts; nobody may call it


class Series:
    def __array__(self):
        return np.zeros(3)


class Colour(enum.IntEnum):
    red = 1


@pytest.mark.parametrize(
    "value",
    [
        True,
        -(2**63),
        2**63 - 1,
        1.5,
        math.inf,
        1j,
        np.bool_(True),
        np.int8(1),
        np.uint64(2**63 - 1),
        np.float16(1),
        np.complex128(1j),
        np.zeros(3),
        np.zeros(()),
        np.zeros((0, 3), np.complex64),
        np.zeros(3, bool),
        np.zeros(3)[::-1],
        np.broadcast_to(np.zeros(1), (3,)),
        SimpleNamespace(__array_interface__={}),
        SimpleNamespace(__cuda_array_interface__={}),
        Exported(),
        mf.constant(np.zeros(3)),
    ],
)
def test_numbers_and_arrays_can_be_bound(value):
    assert objection("x", value) is None
    assert mf.scale(factor=value).bound["factor"] is value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1, 2], "operand 'factor' cannot be a list: pass numpy.asarray(factor), with the dtype you want"),
        ((1, 2), "operand 'factor' cannot be a tuple: pass numpy.asarray(factor), with the dtype you want"),
        (range(3), "operand 'factor' cannot be a range: pass numpy.asarray(factor)"),
        ({1, 2}, "operand 'factor' cannot be a set: pass an array with the elements in the order you want"),
        ({"a": 1}, "operand 'factor' cannot be a dict: bind each entry as an operand of its own, or pass an array"),
        (None, "operand 'factor' cannot be a NoneType: bind a number or an array, or leave factor unbound"),
        ("relu", "operand 'factor' cannot be a str: a callback computes with numbers only; bind a number, or choose"),
        (b"relu", "operand 'factor' cannot be a bytes: a callback computes with numbers only"),
        (Fraction(1, 3), "operand 'factor' cannot be a Fraction: write float(factor), int(factor) or complex(factor)"),
        (Colour.red, "operand 'factor' cannot be a Colour: write float(factor), int(factor)"),
        (np.longdouble(1), "write float(factor), int(factor) or complex(factor)"),
        (np.datetime64("2020-01-01"), "operand 'factor' cannot be a datetime64: write float(factor)"),
        (2**63, "operand 'factor' does not fit int64: write float(factor), or bind an array"),
        (np.uint64(2**63), "operand 'factor' does not fit int64: write float(factor), or bind an array"),
        (-(2**63) - 1, "operand 'factor' does not fit int64"),
        (math.exp, "operand 'factor' cannot be a builtin_function_or_method: bind a number or an array"),
        (np.ndarray, "operand 'factor' cannot be a type: bind a number or an array"),
        (Series(), "operand 'factor' cannot be a Series: pass numpy.asarray(factor)"),
        (np.array(["a"]), "operand 'factor' has dtype <U1, which is no number: pass factor.astype(numpy.float32)"),
        (np.array([None]), "operand 'factor' has dtype object, which is no number"),
        (np.zeros(2, "f4,f4"), "which is no number"),
        (np.zeros(2, ">f4"), "has foreign byte order (>f4): pass factor.astype(factor.dtype.newbyteorder('='))"),
        (np.ma.zeros(2), "operand 'factor' is a masked array, and its mask would be lost: pass factor.filled(value)"),
        (mf.constant(np.zeros(2, ">f4")), "has foreign byte order"),
    ],
)
def test_anything_else_cannot(value, message):
    with pytest.raises(CallbackError, match=re.escape(message)):
        mf.scale(factor=value)


def test_what_the_messages_say_to_write_works():
    big = np.arange(3, dtype=">f4")
    assert objection("x", big.astype(big.dtype.newbyteorder("="))) is None
    assert objection("x", np.asarray(Series())) is None


def test_bfloat16_arrays_can_be_bound():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    assert objection("x", np.zeros(3, ml_dtypes.bfloat16)) is None


@pytest.mark.parametrize("value", [1.0, np.float64(1), [1.0], None])
def test_a_constant_holds_an_array(value):
    message = re.escape(
        f"constant() takes an array, not a {type(value).__name__}: bind a number as it is, and pass other"
    )
    with pytest.raises(CallbackError, match=message):
        mf.constant(value)


def test_a_constant_is_a_value():
    array = np.zeros((2, 3), np.complex64)
    assert mf.constant(array) == mf.Constant(array)
    assert hash(mf.constant(array)) == hash(mf.Constant(array))
    assert mf.constant(array) != mf.constant(array.copy())
    assert mf.constant(array) != array.tolist()
    assert repr(mf.constant(array)) == "constant(complex64[2, 3])"


def test_numpy_scalars_are_scalars_not_arrays():
    assert is_scalar(np.float32(1))
    assert not is_array(np.float32(1))
    assert is_array(np.zeros(()))
    assert not is_scalar(np.zeros(()))


def test_identity_of_equal_dtypes():
    assert identity(np.longlong(1)) == identity(np.int64(1))
    assert identity(np.int32(1)) != identity(np.int64(1))


def test_summaries():
    assert summary(1 + 2j) == "(1+2j)"
    assert summary(np.zeros(())) == "float64[]"
    assert summary(SimpleNamespace(dtype="torch.bfloat16", shape=(2,))) == "bfloat16[2]"
    assert summary(Exported()) == "Exported[]"
