"""Transforms of half precision, in any space, against float64 NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

import mathfuse as mf
from mathfuse.fusion.transforms.kinds import KINDS, real_of
from mathfuse.runtime.dtypes import COMPLEX32, HALF, is_complex, widened
from tests.spaces import Space, half_spectrum

EPS = 2.0**-11  # half a unit in the last place
LAYOUTS: dict[str, Any] = {
    "C": lambda x: x,
    "transposed": lambda x: np.ascontiguousarray(x.T).T,
    "every other": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "longer rows": lambda x: np.concatenate([x, x[..., :1]], axis=-1)[..., :-1],
}


def numbers(shape: tuple[int, ...], complex_: bool, seed: int = 0) -> np.ndarray:
    """Random numbers in half precision."""
    random = np.random.default_rng(seed)
    if not complex_:
        return random.uniform(-1, 1, shape).astype(np.float16)
    z = np.zeros(shape, COMPLEX32)
    z["real"], z["imag"] = random.uniform(-1, 1, (2, *shape))
    return z


def spectrum(shape: tuple[int, ...], axis: int, length: int) -> np.ndarray:
    """A half spectrum of real numbers along an axis."""
    z = numbers(shape, complex_=True)
    exact = half_spectrum(widened(z), (axis,), (length,), symmetric=True)
    z["real"], z["imag"] = exact.real, exact.imag
    return z


def double(x: np.ndarray) -> np.ndarray:
    return widened(x).astype(complex if is_complex(x.dtype) else float)


def close(found: np.ndarray, exact: np.ndarray) -> None:
    """Within the rounding of what is stored, and of transforms in float32."""
    stored = EPS if found.dtype in HALF else 0.0
    bound = stored * np.abs(exact) + 2e-6 * np.abs(exact).max() + 2.0**-24
    np.testing.assert_array_less(np.abs(double(found) - exact), bound)


def check(space: Space, kind: str, n: int, layout: str, offset: int, out: str, **choices: Any) -> None:
    """A transform of lines of `n` from and to half precision and float32, in and out of several layouts."""
    family = KINDS[kind].family
    plain = spectrum((6, n // 2 + 1), 1, n) if family == "c2r" else numbers((6, n), family == "c2c")
    lying = LAYOUTS[layout](plain)
    x = space.array(lying, offset)
    exact = getattr(np.fft, kind)(double(plain), n)
    wide = real_of(np.dtype(np.complex64)) if family == "c2r" else np.dtype(np.complex64)
    narrow = {value: key for key, value in HALF.items()}[wide]
    with mf.fft.FFT(x, (1,), (n,), kind) as plan:
        found = space.numpy(plan.plan(**choices).execute())
        assert found.dtype == wide
        close(found, exact)
        plan.plan(epilog=mf.half, **choices)
        found = space.numpy(plan.execute())
        assert found.dtype == narrow
        close(found, exact)
        memory = space.array(LAYOUTS[out](np.zeros(exact.shape, narrow)), offset)
        assert plan.execute(memory) is memory
        close(space.numpy(memory), exact)  # another layout may be transformed by other code
        plan.plan(prolog=mf.scale(factor=2.0), epilog=mf.scale(factor=0.25) | mf.half, **choices)
        close(space.numpy(plan.execute()), exact / 2)
    np.testing.assert_array_equal(space.numpy(x), lying)


def check_filter(
    space: Space, shape: tuple[int, ...], axes: tuple[int, ...], complex_: bool, in_place: bool, **choices: Any
) -> Any:
    """A filter of half precision; gives its explanation."""
    plain = numbers(shape, complex_)
    there, back = (np.fft.fftn, np.fft.ifftn) if complex_ else (np.fft.rfftn, np.fft.irfftn)
    made = there(double(plain), axes=axes)
    w = np.random.default_rng(1).uniform(0.5, 1.5, made.shape).astype(np.float32)
    exact = back(made * w, [shape[axis] for axis in axes], axes=axes)
    x = space.array(plain)
    with mf.fft.SpectralFilter(x, space.array(w), axes) as plan:
        close(space.numpy(plan.plan(**choices).execute()), exact)
        plan.plan(epilog=mf.half, **choices)
        result = plan.execute(x if in_place else None)
        found = space.numpy(result)
        assert found.dtype == plain.dtype
        close(found, exact)
        return plan.explain()
