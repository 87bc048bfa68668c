"""float16 and complex32 on a GPU: CuPy's and PyTorch's arrays, every strategy, odd lengths and strides."""

from __future__ import annotations

import numpy as np
import pytest

import mathfuse as mf
from mathfuse.runtime.dtypes import COMPLEX32
from tests.fusion.transforms.halves import check, check_filter, close, double, numbers, spectrum
from tests.spaces import CUPY, TORCH, on_gpu

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:ComplexHalf")]
strategies = pytest.mark.parametrize("strategy", [None, "kernel", "callback", "sequence"])


@strategies
@pytest.mark.parametrize("kind", ["fft", "ifft", "rfft", "irfft"])
@pytest.mark.parametrize(
    ("n", "layout", "offset", "out"),
    [
        (1024, "C", 0, "C"),
        (1000, "transposed", 0, "every other"),
        (375, "longer rows", 0, "transposed"),
        (4096, "every other", 0, "longer rows"),
        (256, "longer rows", 1, "C"),
        (15, "C", 1, "longer rows"),
    ],
)
def test_transforms(strategy, kind, n, layout, offset, out):
    check(TORCH, kind, n, layout, offset, out, strategy=strategy)


@strategies
@pytest.mark.parametrize("n", [1024, 375])
def test_real_numbers_of_cupy(strategy, n):
    x = numbers((64, n), complex_=False)
    close(CUPY.numpy(mf.fft.rfft(CUPY.array(x), strategy=strategy)), np.fft.rfft(double(x)))
    z = spectrum((64, n // 2 + 1), 1, n).astype([("real", "f4"), ("imag", "f4")]).view("c8")
    found = mf.fft.irfft(CUPY.array(z), n, epilog=mf.half, strategy=strategy)
    assert found.dtype == np.float16
    close(CUPY.numpy(found), np.fft.irfft(z.astype(complex), n))
    with pytest.raises(mf.UnsupportedError, match="the result is complex32, which arrays of cupy cannot hold"):
        mf.fft.rfft(CUPY.array(x), epilog=mf.half, strategy=strategy)


@on_gpu
@strategies
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize(
    ("shape", "axes"), [((64, 1024), (1,)), ((64, 375), (1,)), ((3, 256, 120), (1, 2)), ((9, 15), (0,))]
)
@pytest.mark.parametrize("complex_", [False, True])
def test_filters(space, strategy, shape, axes, complex_, in_place):
    if complex_ and space is CUPY:
        pytest.skip("CuPy has no complex32")
    check_filter(space, shape, axes, complex_, in_place, strategy=strategy)


def test_numpy_arrays_are_copied_there_and_back():
    for x in (numbers((6, 48), complex_=False), numbers((6, 48), complex_=True)):
        chosen = {"execution": "cuda", "epilog": mf.half}
        found = mf.fft.fft(x, **chosen)
        assert found.dtype == COMPLEX32
        close(found, np.fft.fft(double(x)))
        out = np.zeros((48, 6), COMPLEX32).T
        assert mf.fft.fft(x, out=out, **chosen) is out
        np.testing.assert_array_equal(out, found)


@pytest.mark.parametrize("shape", [(5, 1001), (4096,), (3, 2, 7)])
def test_elementwise(shape):
    for complex_ in (False, True):
        x = numbers(shape, complex_)
        here = TORCH.array(x)
        for _ in range(2):  # the second call finds the launch
            found = mf.elementwise(mf.scale(factor=2.0) | mf.half, here)
            assert found.dtype == here.dtype
            close(TORCH.numpy(found), 2 * double(x))
        close(TORCH.numpy(mf.elementwise(mf.multiply(factor=here), here)), double(x) ** 2)
        assert mf.elementwise(mf.scale(factor=2.0) | mf.half, here, out=here) is here
        close(TORCH.numpy(here), 2 * double(x))


def test_lazily_conjugated_tensors():
    z = numbers((5, 48), complex_=True)
    lazy = TORCH.array(z).conj()
    close(TORCH.numpy(mf.fft.fft(lazy, strategy="kernel")), np.fft.fft(double(z).conj()))
