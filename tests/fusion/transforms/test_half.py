"""float16 and complex32 in CPU memory: as they are stored, computed in float32; results as wide as asked for."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.signal
from hypothesis import given
from hypothesis import strategies as st

import mathfuse as mf
from mathfuse.fusion.transforms.kinds import KINDS
from mathfuse.runtime.dtypes import COMPLEX32
from tests.spaces import NUMPY, TorchSpace

from .halves import LAYOUTS, check, check_filter, close, double, numbers

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf")


class TorchOnCpu(TorchSpace):
    name, device = "torch on the CPU", "cpu"

    def choices(self, strategy):
        return {}


SPACES = pytest.mark.parametrize("space", [NUMPY, TorchOnCpu()], ids=str)
ONE_AXIS = [name for name, kind in KINDS.items() if kind.rank == 1]


@SPACES
@pytest.mark.parametrize("kind", ONE_AXIS)
@given(n=st.integers(2, 40), layout=st.sampled_from(list(LAYOUTS)), out=st.sampled_from(list(LAYOUTS)))
def test_transforms(space, kind, n, layout, out):
    check(space, kind, n, layout, 0, out)


@SPACES
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize(("shape", "axes"), [((5, 12), (1,)), ((5, 9), (0, 1)), ((3, 8, 7), (0, 2)), ((7,), (0,))])
@pytest.mark.parametrize("complex_", [False, True])
def test_filters(space, shape, axes, complex_, in_place):
    check_filter(space, shape, axes, complex_, in_place)


@SPACES
def test_every_kind_and_function(space):
    x, z = numbers((4, 6, 5), complex_=False), numbers((4, 6, 5), complex_=True)
    for kind, (_, family) in {name: (kind, kind.family) for name, kind in KINDS.items() if kind.rank != 1}.items():
        if family != "c2r":
            given_ = x if family == "r2c" else z
            exact = getattr(np.fft, kind)(double(given_))
            close(space.numpy(getattr(mf.fft, kind)(space.array(given_))), exact)
            close(space.numpy(getattr(mf.fft, kind)(space.array(given_), epilog=mf.half)), exact)
    kernel = np.array([1, 2, -1], np.float32)
    expected = np.stack([np.convolve(row, kernel) for row in double(z).reshape(-1, 5)]).reshape(4, 6, 7)
    close(space.numpy(mf.fft.convolve(space.array(z), kernel, axes=(-1,), epilog=mf.half)), expected)
    close(space.numpy(mf.elementwise(mf.scale(factor=2.0) | mf.half, space.array(z))), 2 * double(z))
    close(space.numpy(mf.elementwise(mf.power_spectrum | mf.half, space.array(z))), np.abs(double(z)) ** 2)


def test_tensors_stay_tensors():
    torch = pytest.importorskip("torch")
    z = torch.view_as_complex(torch.randn(4, 6, 2).half())
    assert z.dtype is torch.complex32
    assert mf.fft.fft(z).dtype is torch.complex64
    assert mf.fft.fft(z, epilog=mf.half).dtype is torch.complex32
    assert mf.fft.rfft(z.real, epilog=mf.half).dtype is torch.complex32
    assert mf.fft.irfft(z, epilog=mf.half).dtype is torch.float16
    assert mf.elementwise(mf.half, z).dtype is torch.complex32
    result = mf.fft.fft(z, epilog=mf.half, out=z)
    assert result is z
    assert "complex32[4, 6]" in str(mf.fft.FFT(z).plan(epilog=mf.half).explain())


def test_nothing_is_narrowed_that_was_not_asked_for():
    half, advice = np.zeros(6, np.float16), r"an epilog that returns mathfuse\.half\(value\)"
    with pytest.raises(mf.PlanError, match=f"out has dtype float16 .*, the result has float32 .*{advice}"):
        mf.fft.irfft(np.ones(4, np.complex64), out=half)
    with pytest.raises(mf.PlanError, match=f"out has dtype complex32 .*, the result has complex64 .*{advice}"):
        mf.fft.fft(np.ones(6, np.float16), out=np.zeros(6, COMPLEX32))
    with pytest.raises(mf.PlanError, match=r"the result has complex128 and \(6,\)$"):
        mf.fft.fft(np.ones(6), out=np.zeros(6, COMPLEX32))
    with pytest.raises(mf.PlanError, match=f"out has dtype float16 .*{advice}"):
        mf.elementwise(mf.relu, np.ones(6, np.float32), out=half)


def test_complex_stays_complex():
    z = numbers((6,), complex_=True)
    with pytest.raises(mf.UnsupportedError, match="takes real input, x is complex32"):
        mf.fft.rfft(z)
    with pytest.raises(mf.CallbackError, match=r"returns complex32, the result of irfft .* is real"):
        mf.fft.irfft(z, epilog=mf.epilog(lambda value: mf.half(value * 1j)))


def test_records_are_operands_and_stay_the_same_whether_packed_or_not():
    packed = np.dtype([("real", "f2"), ("imag", "f2")])
    x, w = numbers((4, 8), complex_=True), numbers((4, 8), complex_=True, seed=1)
    exact = np.fft.ifft2(np.fft.fft2(double(x)) * double(w))
    close(mf.fft.spectral_filter(x.astype(packed), w.astype(packed)), exact)
    kernel = numbers((2, 2), complex_=True, seed=2)
    found = mf.fft.convolve(x, kernel.astype(packed))
    np.testing.assert_allclose(found, scipy.signal.convolve(double(x), double(kernel)), atol=1e-5)
    with mf.fft.FFT(x.astype(packed), kind="fft") as plan:
        result = plan.plan(epilog=mf.half).execute()
        close(plan.reset_operands(result).execute(), np.fft.fft(double(result)))
        with pytest.raises(mf.PlanError, match="planned as complex32 of shape"):
            plan.reset_operands(np.zeros((4, 8), np.complex64))
