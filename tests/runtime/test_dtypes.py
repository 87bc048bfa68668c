"""Half precision: float16, and complex32 as a record."""

from __future__ import annotations

import numpy as np
import pytest

from mathfuse.runtime.arrays import as_host, as_output, check_result, dtype_of
from mathfuse.runtime.dtypes import (
    COMPLEX32,
    component_of,
    described,
    dtype_described,
    dtype_name,
    is_complex,
    is_float,
    named,
    pairs,
    widened,
)
from mathfuse.runtime.errors import UnsupportedError

Z = (np.arange(24) - 1j * np.arange(24)[::-1]).reshape(4, 6).astype(np.complex64)


def records(z):
    made = np.zeros(z.shape, COMPLEX32)
    made["real"], made["imag"] = z.real, z.imag
    return made


def test_what_a_dtype_is():
    assert [is_complex(np.dtype(name)) for name in ("f2", "f8", "c8", "V4")] == [False, False, True, False]
    assert [is_float(np.dtype(name)) for name in ("f2", "c16", "i4", "V4")] == [True, True, False, False]
    assert is_complex(COMPLEX32)
    assert is_float(COMPLEX32)
    for name, component in (("complex32", "f2"), ("complex64", "f4"), ("complex128", "f8"), ("uint8", "u1")):
        assert component_of(named(name)) == np.dtype(component)
        assert dtype_name(named(name)) == name
        assert dtype_described(described(named(name))) == named(name)


def test_complex32_is_not_named_by_users():
    with pytest.raises(UnsupportedError):
        dtype_of("complex32")


@pytest.mark.parametrize("view", [lambda z: z, lambda z: z.T, lambda z: z[::2, ::-1], lambda z: z[1, 2, ...]])
def test_records_widen_and_are_pairs(view):
    z, record = view(Z), view(records(Z))
    np.testing.assert_array_equal(widened(record), z)
    np.testing.assert_array_equal(pairs(record), np.stack([z.real, z.imag], -1))
    assert np.shares_memory(pairs(record), record)
    assert widened(z) is z


def test_records_of_numpy_are_read_others_are_not():
    record = records(Z)
    assert as_host(record).view is record
    packed = np.dtype([("real", "f2"), ("imag", "f2")])
    assert as_host(record.view(packed)).view.dtype == COMPLEX32
    for other in ([("a", "f2"), ("b", "f2")], [("real", "f4")], "V4"):
        with pytest.raises(UnsupportedError):
            as_host(np.zeros(3, other))


@pytest.mark.filterwarnings("ignore")
def test_tensors_of_complex32():
    torch = pytest.importorskip("torch")
    z = torch.from_numpy(Z).to(torch.complex32)
    for tensor in (z, z.T, z[::2, 1:], z[1, 2], z.conj()):
        found = as_host(tensor)
        np.testing.assert_array_equal(widened(found.view), tensor.to(torch.complex64).resolve_conj().numpy())
        back = found.restore(records(widened(found.view)))
        assert back.dtype is torch.complex32
        assert torch.equal(back.to(torch.complex64), tensor.to(torch.complex64).resolve_conj())
    as_output(z.T)[2, 1] = (0.5, -1)
    assert complex(z[1, 2]) == 0.5 - 1j


@pytest.mark.parametrize("framework", ["cupy", "jax", "numba"])
def test_frameworks_that_have_no_complex32_say_so(framework):
    check_result(np.dtype(np.float16), framework)
    check_result(COMPLEX32, "torch")
    with pytest.raises(UnsupportedError, match=f"the result is complex32, which arrays of {framework} cannot hold"):
        check_result(COMPLEX32, framework)
