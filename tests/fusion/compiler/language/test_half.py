"""Values in half precision: rounded where the callback says so, stored as they are, computed with in float32."""

from __future__ import annotations

import numpy as np
import pytest

import mathfuse as mf
from mathfuse.runtime.dtypes import COMPLEX32, widened

from .harness import assert_close, expression, run

X = np.concatenate([np.random.default_rng(0).uniform(-4, 4, 40), [0.0, -0.0, 1e-6, 65519, 65520, np.inf, -np.inf]])
X = X.astype(np.float32)
with np.errstate(over="ignore"):
    HALF = X.astype(np.float16)
WIDE = HALF.astype(np.float32)


STORED = {
    "np.float16(value)": HALF,
    "mf.half(value)": HALF,
    "np.float16(value) if value > 0 else np.float16(0.5)": np.where(X > 0, HALF, np.float16(0.5)),
    "np.where(value > 0, np.float16(value), np.float16(0.5))": np.where(X > 0, HALF, np.float16(0.5)),
    "np.float16(value > 0)": (X > 0).astype(np.float16),
    "np.float16(0.1)": np.full(X.shape, 0.1, np.float16),
    "np.float16(np.float64(value))": HALF,
    "np.float16(value).real": HALF,
}
COMPUTED = {
    "np.float16(value) * 1.5": WIDE * np.float32(1.5),
    "-np.float16(value)": -WIDE,
    "abs(np.float16(value))": np.abs(WIDE),
    "np.float16(value) + value": WIDE + X,
    "np.float16(value) if value > 0 else value": np.where(X > 0, WIDE, X),
    "np.sqrt(abs(np.float16(value)))": np.sqrt(np.abs(WIDE)),
    "1.0 if np.float16(value) else 2.0": np.where(WIDE != 0, np.float32(1), np.float32(2)),
    "np.float16(value) > 1": WIDE > 1,
    "int(np.float16(value)) if abs(value) < 9 else 0": np.where(np.abs(X) < 9, WIDE, 0).astype(np.int64),
    "np.float64(np.float16(value))": WIDE.astype(float),
    "complex(np.float16(value), 1).imag": np.ones_like(WIDE),
}


@pytest.mark.parametrize("text", STORED)
def test_what_is_stored(text):
    found = run(expression(text), X)
    assert found.dtype == np.float16
    np.testing.assert_array_equal(found, STORED[text])


@pytest.mark.parametrize("text", COMPUTED)
def test_what_is_computed(text):
    with np.errstate(all="ignore"):
        found, expected = run(mf.epilog(expression(text), fastmath=False), X), COMPUTED[text]
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_a_variable_is_as_wide_as_its_values():
    def accumulated(value, index):
        total = np.float16(0)
        for _ in range(index[0] % 3):
            total = np.float16(total + value)
        return total

    found = run(accumulated, HALF[:40])
    expected = np.zeros(40, np.float16)
    for k in range(2):
        expected = np.where(np.arange(40) % 3 > k, (expected.astype("f4") + WIDE[:40]).astype("f2"), expected)
    assert found.dtype == np.float16
    np.testing.assert_array_equal(found, expected)


def test_complex_values():
    z = (X[:40] + 1j * X[:40][::-1]).astype(np.complex64)
    found = run(mf.half, z)
    assert found.dtype == COMPLEX32
    np.testing.assert_array_equal(found["real"], z.real.astype(np.float16))
    np.testing.assert_array_equal(found["imag"], z.imag.astype(np.float16))
    assert_close(run(mf.scale(factor=2.0), found), 2 * widened(found).astype(complex))
    assert_close(run(lambda value: mf.half(value).conjugate() * 1.0, z), widened(found).conj().astype(complex))
    np.testing.assert_array_equal(run(lambda value: mf.half(value).imag, z), found["imag"])
    assert_close(run(mf.multiply, z, factor=found), z * widened(found).astype(complex))
    with pytest.raises(mf.CallbackError, match=r"a complex value cannot become float16; use value\.real"):
        run(lambda value: np.float16(value), z)


def test_chains_and_precision():
    assert run(mf.half | mf.scale(factor=1.0), X).dtype == np.float32
    assert run(mf.scale(factor=1.0) | mf.half, X).dtype == np.float16
    exact = mf.epilog(lambda value: np.float16((value + 1) - 1e8), precision="float64")
    found = run(exact, np.array([1e8], np.float32))
    assert found.dtype == np.float16
    assert found.tolist() == [1]
