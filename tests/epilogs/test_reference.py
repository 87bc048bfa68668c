"""Callbacks evaluated in plain Python: order, operands without an index, assignment, source."""

from __future__ import annotations

import cmath
import math

import numpy as np
import pytest

import mathfuse.epilogs as mf
from mathfuse.runtime.errors import CallbackError


@mf.epilog
def looked_up(value, index, table):
    return value * table[index]


def test_reserved_parameters_are_given_by_name():
    @mf.prolog
    def all_of_them(source, axes, shape, index, value):
        return value, index, shape, axes, source

    source = np.zeros((2, 3))
    assert mf.evaluate(all_of_them, 1.0, (1, 2), (2, 3), (0,), source) == (1.0, (1, 2), (2, 3), (0,), source)


def test_a_prolog_need_not_read_the_value():
    @mf.prolog
    def ramp(index):
        return index[0] + 0.5

    assert mf.evaluate(ramp, 0.0, (3,)) == 3.5
    assert mf.evaluate(ramp | mf.prolog(mf.scale(factor=2)), 0.0, (3,)) == 7.0


def test_free_operands_must_be_bound():
    with pytest.raises(CallbackError, match=r"has free operands: bind them first, callback\(table=…\)"):
        mf.evaluate(looked_up, 1.0, (0,))


@pytest.mark.parametrize("shape", [(), (4,), (1,), (3, 4), (3, 1), (1, 4), (2, 3, 4), (2, 1, 1), (1, 1, 1)])
def test_an_array_without_an_index_broadcasts_as_in_numpy(shape):
    rng = np.random.default_rng(0)
    values, operand = rng.standard_normal((2, 3, 4)), rng.standard_normal(shape)
    actual = [mf.evaluate(mf.multiply(factor=operand), values[index], index) for index in np.ndindex(values.shape)]
    np.testing.assert_array_equal(np.reshape(actual, values.shape), values * operand)


def test_an_array_of_too_many_axes_needs_an_index():
    with pytest.raises(CallbackError, match=r"shape \(2, 3\) has more axes than the index \(1,\): write operand"):
        mf.evaluate(mf.multiply(factor=np.zeros((2, 3))), 1.0, (1,))


def test_an_operand_with_and_without_an_index_in_one_function():
    @mf.epilog
    def differences(value, index, table):
        return value * (table - table[index[-1] - 1]) + len(table) + table.shape[0] + table.ndim

    assert mf.evaluate(differences(table=np.array([1.0, 4.0, 9.0])), 2.0, (5, 2)) == 17.0


def test_an_operand_works_as_a_number_everywhere():
    @mf.epilog
    def everywhere(value, x, z, n, flag):
        total = math.exp(x) + abs(-x) + x**2 + 1 / x + max(x, 0.5) + round(x) + int(x) + np.sqrt(x) + x.real
        total += abs(cmath.exp(z)) + z.conjugate().imag + sum(1 for _ in range(n)) + round(x, 1)
        return value + total if flag and x > 0 else 0

    x, z, n = 1.7, 1 + 2j, 3
    bound = everywhere(x=np.array([x]), z=np.array([z]), n=np.array([n]), flag=np.array([True]))
    assert math.isclose(mf.evaluate(bound, 1.0, (0,)), everywhere.function(1.0, x, z, n, True))


@pytest.mark.parametrize("chain", [False, True])
def test_an_operand_may_be_the_result(chain):
    @mf.epilog
    def larger(value, floor):
        return max(value, floor)

    bound = larger(floor=np.array([3.0, 4.0]))
    result = mf.evaluate(bound | mf.relu if chain else bound, 1.0, (1,))
    assert result == 4.0
    assert isinstance(result, float)


def test_an_assigned_operand_is_written():
    @mf.epilog
    def stored(value, index, copy_of):
        copy_of[index] = value
        return value

    written = np.zeros(3)
    mf.evaluate(stored(copy_of=written), 2.0, (1,))
    np.testing.assert_array_equal(written, [0, 2, 0])


def test_constants_and_dlpack_arrays_are_read():
    class Exported:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    table = np.arange(3.0)
    assert mf.evaluate(looked_up(table=mf.constant(table)), 5.0, (2,)) == 10.0
    assert mf.evaluate(looked_up(table=Exported(table)), 5.0, (2,)) == 10.0


def test_numpy_functions_overflow_silently():
    with np.errstate(all="raise"):
        assert mf.evaluate(mf.sigmoid, -1e4) == 0.0
        assert mf.evaluate(mf.silu, np.float32(-1e4)) == 0.0
