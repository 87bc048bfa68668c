"""Weak scalars: constants, indices, extents and bound scalars take the precision of what they meet."""

from __future__ import annotations

import math
from types import ModuleType

import numpy as np
import pytest

import mathfuse as mf

from .harness import assert_close, expression, kernel_for, run

GLOBAL = 0.1
DOUBLE = np.float64(0.1)
SINGLE = np.float32(0.5)
WHOLE = 3
COMPLEX = np.complex128(0.5 + 0.1j)
settings = ModuleType("settings")
settings.FACTOR = np.float64(1.5)
PAIR = (0.25, np.float64(2.5))


def closure():
    factor = np.float64(0.3)
    return lambda value: value * factor


WEAK = {
    "a literal": lambda value: value * 0.1 + 3,
    "a quotient": lambda value: value / 3,
    "a power": lambda value: value**2 + value**0.5,
    "a constant of math": lambda value: value * math.pi + math.e,
    "a constant of NumPy": lambda value: value * np.pi + np.e,
    "a global": lambda value: value * GLOBAL - WHOLE,
    "a NumPy scalar in a global": lambda value: value * DOUBLE + SINGLE,
    "a closure": closure(),
    "an attribute of a module": lambda value: value * settings.FACTOR,
    "a tuple": lambda value: value * PAIR[0] + PAIR[1],
    "an index": lambda value, index: value * index[0] + index[0] / 3,
    "an extent": lambda value, shape: value / shape[0] * (1 / shape[0]),
    "a helper of mathfuse": lambda value, index, shape: value * mf.signed_frequency(index[0], shape[0]),
    "a function of integers": lambda value, index: value * math.sqrt(index[0]) + np.exp(-index[0]),
    "an integer by a float": lambda value, index: value + index[0] * 0.5,
    "float() and int()": lambda value: float(int(value)) * value,
    "a rounded value": lambda value: value * round(value) + math.floor(value),
    "a comparison": lambda value: value * (value > 0.5) + (value < 1),
    "min and max": lambda value, index: min(max(value, 0), 6) + max(index[0], 0.5) * value,
    "where": lambda value: np.where(value > 0, value, 0) + np.maximum(value, 0.1),
    "a sum of weak values": lambda value, index: value + (0.1 + index[0]) * 0.2 / 3 + sum((0.5, 1, index[0])),
    "a loop": lambda value, index: sum_of_parts(index[0]) * value,
}


def sum_of_parts(n):
    total = 0.0
    for k in range(n):
        total += k / 3
    return total


ORDERED = "float() and int()", "a rounded value", "a comparison", "min and max", "where"  # no complex values
TYPED = [
    (name, dtype)
    for name in WEAK
    for dtype in ("float32", "float64", *(() if name in ORDERED else ("complex64", "complex128")))
]


@pytest.mark.parametrize(("name", "dtype"), TYPED)
def test_weak_scalars_keep_the_type(name, dtype):
    function = WEAK[name]
    x = np.array([0.3, 1.7, 2.5], dtype)
    assert kernel_for(function, x)[0].result_dtype == dtype


@pytest.mark.parametrize(
    ("scalar", "result"),
    [
        *((k, "float32") for k in (2, 2.0, True, np.float64(2), np.int64(2), np.float16(2), np.array(2.0))),
        *((k, "complex64") for k in (2j, np.complex128(2j))),
    ],
    ids=repr,
)
def test_bound_scalars_are_weak(scalar, result):
    x = np.array([0.3, 1.7], np.float32)
    found = run(lambda value, k: value * k, x, k=scalar)
    assert found.dtype == result
    number = scalar.item() if isinstance(scalar, np.ndarray) else scalar
    assert_close(found, x.astype(np.float64) * number)


def test_another_value_of_one_type_never_recompiles():
    x = np.ones(2, np.float32)
    a, _ = kernel_for(mf.scale, x, factor=2.0)
    b, _ = kernel_for(mf.scale, x, factor=np.float64(3.0))
    c, _ = kernel_for(mf.scale, x, factor=3)
    assert a.function is b.function
    assert a.function is not c.function


WIDE = {
    "np.float64 of the value": lambda value: np.float64(value) * 0.1,
    "np.float64 of a constant": lambda value: value * np.float64(0.1),
    "np.float64 of an index": lambda value, index: np.float64(index[0]) / 3 + value,
    "a float64 array": lambda value, index, w: value * w[index] + 0.1,
    "a float64 array at the own index": lambda value, w: value + w * 0.1,
    "np.complex128": lambda value: np.complex128(value) * 0.1j,
}


@pytest.mark.parametrize("name", WIDE)
def test_what_widens(name):
    x = np.array([0.3, 1.7, -2.5], np.float32)
    w = np.array([1 / 3, 0.1, 1e-9])
    function = WIDE[name]
    operands = {"w": w} if "w" in function.__code__.co_varnames else {}
    found = run(function, x, **operands)
    expected = {
        "np.float64 of the value": x.astype(np.float64) * 0.1,
        "np.float64 of a constant": x.astype(np.float64) * 0.1,
        "np.float64 of an index": np.arange(3) / 3 + x,
        "a float64 array": x * w + 0.1,
        "a float64 array at the own index": x + w * 0.1,
        "np.complex128": x * np.complex128(0.1j),
    }
    assert found.dtype == ("complex128" if name == "np.complex128" else "float64")
    np.testing.assert_allclose(found, expected[name], rtol=1e-15)


def test_weak_constants_beside_float64_are_not_rounded_to_float32():
    x = np.array([1.0], np.float32)
    w = np.array([1.0])
    found = run(lambda value, index, w: w[index] * (0.1 + index[0] / 3 + 1 / 3) + 0.2, x, w=w)
    np.testing.assert_array_equal(found, [1.0 * (0.1 + 1 / 3) + 0.2])
    found = run(lambda value, w, k: w * k, x, w=w, k=0.1)
    np.testing.assert_array_equal(found, [0.1])


def test_a_float32_value_beside_a_float64_array_stays_float32_until_they_meet():
    x = np.array([1 / 3], np.float32)
    found = run(lambda value, w: value * 0.1 + w, x, w=np.array([0.0]))
    np.testing.assert_array_equal(found, (x * np.float32(0.1)).astype(np.float64))


def test_narrow_results_by_an_explicit_type():
    x = np.array([1 / 3, 2.5])
    assert run(lambda value: np.float32(value), x).dtype == np.float32
    found = run(lambda value: np.float32(value) * 0.1, x)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, x.astype(np.float32) * np.float32(0.1))
    assert run(lambda value: np.complex64(value), x).dtype == np.complex64


def test_precision_float64_computes_wide_and_keeps_the_type():
    x = np.array([0.1, 1e8, 3e-5], np.float32)
    w = np.array([0.3, 0.7, 1.9], np.float32)
    wide = x.astype(np.float64)
    for text, expected in {
        "(value + 1) - value": (wide + 1) - wide,
        "value / 3 * 3 - value": wide / 3 * 3 - wide,
        "w[index] * w[index] - w[index] / 7": w.astype(np.float64) ** 2 - w.astype(np.float64) / 7,
        "w * w * w - 0.1": w.astype(np.float64) ** 3 - 0.1,
    }.items():
        function = expression(text, "value, index, w")
        found = run(mf.epilog(function, precision="float64", fastmath=False), x, w=w)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, expected.astype(np.float32))
    z = x.astype(np.complex64) + 1j
    found = run(mf.epilog(expression("value * value - value / 3"), precision="float64"), z)
    assert_close(found, z.astype(complex) ** 2 - z.astype(complex) / 3, units=1)


def test_precision_of_one_link_of_a_chain():
    x = np.array([1e8], np.float32)
    exact = mf.epilog(lambda value: (value + 1) - 1e8, precision="float64")
    np.testing.assert_array_equal(run(mf.scale(factor=1) | exact, x), [1])


FREE = {
    "uint8": "float32",
    "int16": "float32",
    "int32": "float64",
    "int64": "float64",
    "uint64": "float64",
    "bool": "float32",
    "float16": "float32",
    "float32": "float32",
    "complex64": "complex64",
}


@pytest.mark.parametrize("dtype", FREE)
def test_result_types_of_every_input(dtype):
    x = np.array([0, 1, 1], dtype)
    for function in (lambda value: value / 255, lambda value: value * 0.5, lambda value: value * 0.5 + 1):
        assert run(function, x).dtype == FREE[dtype]
    real = np.dtype(FREE[dtype].replace("complex64", "float32"))
    assert run(lambda value: abs(value) * 1.0, x).dtype == real
    assert run(lambda value: 0.5, x).dtype == real
    assert run(lambda value: value * 1j, x).dtype == np.result_type(real, np.complex64)
    assert_close(run(lambda value: value / 255, x), x.astype(FREE[dtype].replace("32", "64")) / 255)


def test_integers_and_booleans_keep_their_types():
    x = np.array([0.2, 0.6, 1.0], np.float32)
    assert run(lambda value: value > 0.5, x).tolist() == [False, True, True]
    for function, dtype in (
        (lambda value: np.uint8(255 * value), np.uint8),
        (lambda value: np.int32(10 * value), np.int32),
        (lambda value: 1 if value > 0.5 else 0, np.int64),
        (lambda value: value > 0.5, np.bool_),
    ):
        assert run(function, x).dtype == dtype
    assert run(lambda value: np.uint8(255 * value), x).tolist() == [51, 153, 255]
    assert run(lambda value: value, np.array([1, 2], np.uint8)).dtype == np.int64  # computed in 64 bits


def test_prescribed_result_types():
    x = np.array([0.6, 2.7, -1.5], np.float32)
    assert run(lambda value: value, x, result="complex64").tolist() == x.astype(complex).tolist()
    assert run(lambda value: value, x, result="int32").tolist() == [0, 2, -1]
    np.testing.assert_array_equal(run(lambda value: value, x, result="float16"), x.astype(np.float16))
    assert_close(run(lambda value: value / 3, x.astype(np.float16)), x.astype(np.float16).astype(float) / 3)
    for wrong in ("float32", "float64", "int32"):
        with pytest.raises(mf.CallbackError, match=r"value\.real, value\.imag or abs\(value\)"):
            run(lambda value: value * 1j, x, result=wrong)


def test_indices_above_24_bits_stay_exact():
    n = 2**26
    index = np.array([0, 1, 2**24 + 1, 2**25 - 1, 2**25, n - 3, n - 1])
    source = np.zeros(len(index), np.float32)
    found = run(lambda value, index, i: value + mf.signed_frequency(i[index], 2**26), source, i=index)
    expected = np.where(index < n - index, index, index - n) / n
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, expected.astype(np.float32))
    found = run(lambda value, index, i: i[index] - (2**24 + 1) + value, source, i=index)
    np.testing.assert_array_equal(found, (index - (2**24 + 1)).astype(np.float32))


@pytest.mark.parametrize("fastmath", [True, False])
def test_types_do_not_depend_on_fastmath(fastmath):
    x = np.array([0.3, 1.7], np.float32)
    for name, function in WEAK.items():
        if name != "float() and int()":
            assert run(mf.epilog(function, fastmath=fastmath), x).dtype == np.float32
