"""`mathfuse.fft` against NumPy in float64: every kind, rank, layout, dtype and length, with and without callbacks.

The same bodies run on the CPU and, where there is a GPU, on arrays there.
"""

from __future__ import annotations

import inspect
import pydoc

import numpy as np
import pytest
import scipy.fft
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import mathfuse as mf
from mathfuse.epilogs.reference import evaluate
from mathfuse.fusion.transforms.kinds import KINDS
from tests.spaces import NUMPY, everywhere, half_spectrum, lines

NAMES = sorted(KINDS)
REAL, COMPLEX = "bool uint8 int32 float16 float32 float64".split(), "complex64 complex128".split()


@mf.prolog
def window(value, index, shape, axes):
    """Reads everything a prolog is given: the element and where it is."""
    weight = 1.0
    for a in axes:
        weight += (index[a] + 1) / (shape[a] + 2)
    return value * weight


@mf.epilog
def ramp(value, index, shape, axes, table, gain=0.5):
    """Reads everything an epilog is given, a scalar and an array."""
    f = gain
    for a in axes:
        f += index[a] / shape[a]
    return value * f * table[index] - value


def applied(callback, array, shape, axes):
    """The callback on each element in plain Python and float64."""
    result = [evaluate(callback, array[i].item(), i, shape, axes, array) for i in np.ndindex(array.shape)]
    return np.array(result, complex if array.dtype.kind == "c" else float).reshape(array.shape)


def close(found, expected, dtype, terms=1):
    """Equal up to rounding in the precision of `dtype`."""
    assert found.shape == expected.shape
    eps = np.finfo(dtype).eps
    scale = np.abs(expected).max(initial=0) + 1e-30
    np.testing.assert_allclose(found, expected, rtol=0, atol=scale * eps * 16 * lines(terms))


LAYOUTS = {
    "plain": lambda x: x,
    "transposed": lambda x: np.asfortranarray(x),
    "strided": lambda x: np.repeat(x, 2, axis=0)[::2],
    "negative": lambda x: x[::-1].copy()[::-1],
    "negative last": lambda x: x[..., ::-1].copy()[..., ::-1],
    "broadcast": lambda x: np.broadcast_to(x[:1], x.shape),
    "unaligned": lambda x: np.frombuffer(b"-" + x.tobytes(), x.dtype, offset=1).reshape(x.shape),
    "foreign byte order": lambda x: x.astype(x.dtype.newbyteorder()),
}


@st.composite
def problems(draw, kind=None, hermitian=True):
    """A transform: kind, input, axes, lengths, norm.

    If not `hermitian`, half spectra are any numbers: SciPy and the CPU drop what real data cannot have.
    """
    kind = KINDS[kind or draw(st.sampled_from(NAMES))]
    shape = tuple(draw(st.lists(st.integers(1, 7), min_size=kind.rank or 1, max_size=4)))
    every = draw(st.permutations(range(len(shape))))
    axes = tuple(every[: kind.rank or draw(st.integers(1, len(shape)))])
    signed = tuple(a - len(shape) if draw(st.booleans()) else a for a in axes)
    lengths = tuple(draw(st.integers(1, 9)) for _ in axes)
    if kind.family != "c2r" or shape[axes[-1]] > 1:
        lengths = draw(st.sampled_from([None, lengths]))
    dtype = draw(st.sampled_from(REAL if kind.family == "r2c" else REAL + COMPLEX))
    random = np.random.default_rng(draw(st.integers(0, 99)))
    x = random.uniform(-4, 4, shape) + (1j * random.uniform(-4, 4, shape) if dtype in COMPLEX else 0)
    x, layout = x.astype(dtype), draw(st.sampled_from(sorted(LAYOUTS)))
    if kind.family == "c2r" and hermitian:
        assume(layout != "broadcast")  # one line everywhere is no half spectrum
        x = half_spectrum(x, axes, lengths or (*(x.shape[a] for a in axes[:-1]), 2 * (x.shape[axes[-1]] - 1)))
    return kind, LAYOUTS[layout](x), signed, lengths, draw(st.sampled_from([None, "backward", "ortho", "forward"]))


def call(module, kind, x, axes, lengths, norm, **fused):
    """The function of the kind's name in a module that has SciPy's names."""
    where = {"n": lengths and lengths[0], "axis": axes[0]} if kind.rank == 1 else {"s": lengths, "axes": axes}
    return getattr(module, kind.name)(x, norm=norm, **where, **fused)


def extents(kind, x, axes, lengths):
    """What callbacks see as `shape` before and after, and as `axes`."""
    where = tuple(a % x.ndim for a in axes)
    full = [x.shape[a] for a in where]
    if kind.family == "c2r":
        full[-1] = 2 * (full[-1] - 1)
    after, before = list(x.shape), list(x.shape)
    for a, n in zip(where, lengths or full):
        after[a] = n
    if kind.family == "c2r":
        before[where[-1]] = after[where[-1]]
    return tuple(before), tuple(after), where


def check_without_callbacks(space, problem):
    kind, x, axes, lengths, norm = problem
    assume(not space.why_not(x))
    here = space.array(x)
    before = x.copy()
    result = call(mf.fft, kind, here, axes, lengths, norm)
    expected = call(scipy.fft, kind, x.astype(x.dtype.newbyteorder("=")), axes, lengths, norm)
    assert space.has(result)
    found = space.numpy(result)
    assert found.dtype == expected.dtype
    close(found, expected, found.dtype, x.size)
    np.testing.assert_array_equal(space.numpy(here), before)


@everywhere
@given(problems())
def test_without_callbacks_it_is_scipys(space, problem):
    check_without_callbacks(space, problem)


@settings(max_examples=60)
@given(st.sampled_from([name for name in NAMES if name.startswith("ir")]).flatmap(lambda kind: problems(kind, False)))
def test_half_spectra_of_anything_are_scipys(problem):
    check_without_callbacks(NUMPY, problem)


# Plans with callbacks inside cuFFT take longest to make: a few of them.
strategies = st.sampled_from([*["sequence"] * 7, "callback"])


@everywhere
@settings(max_examples=60)
@given(problems(), st.booleans(), st.booleans(), st.booleans(), strategies)
def test_prolog_pad_transform_scale_epilog(space, problem, before, after, into, strategy):
    kind, x, axes, lengths, norm = problem
    assume(not space.why_not(x))
    seen, shape, where = extents(kind, x, axes, lengths)
    here, kept = space.array(x), x.copy()
    fused = {"prolog": window} if before else {}
    y = applied(window, x, seen, where) if before else x.astype(complex if x.dtype.kind == "c" else float)
    y = call(scipy.fft, kind, y, axes, lengths, norm)
    floats = x.dtype.newbyteorder("=") in ("f2", "f4", "c8")
    single = floats or (before and x.dtype in ("bool", "uint8"))  # small integers times a weak float: float32
    dtype = np.dtype(np.float32 if single else np.float64)
    if after:
        table = np.random.default_rng(1).uniform(0.5, 1, y.shape).astype(dtype)
        fused |= {"epilog": ramp(gain=0.25), "epilog_inputs": {"table": space.array(table)}}
        y = applied(ramp(table=table, gain=0.25), y, shape, where)
    result = np.result_type(dtype, np.complex64) if y.dtype.kind == "c" else dtype
    out = space.array(LAYOUTS["transposed"](np.empty(y.shape, result))) if into else None
    fused |= space.choices(strategy)
    found = call(mf.fft, kind, here, axes, lengths, norm, out=out, **fused)
    assert out is None or found is out
    found = space.numpy(found)
    assert found.dtype == result
    close(found, y, result, x.size)
    np.testing.assert_array_equal(space.numpy(here), kept)


@pytest.mark.parametrize("name", NAMES)
def test_functions_look_like_scipys(name):
    ours, theirs = inspect.signature(getattr(mf.fft, name)), inspect.signature(getattr(scipy.fft, name))
    shared = [p for p in theirs.parameters.values() if p.name not in ("overwrite_x", "workers", "plan")]
    assert list(ours.parameters.values())[: len(shared)] == shared
    text = pydoc.render_doc(getattr(mf.fft, name))
    assert f"scipy.fft.{name}" in text
    assert "Raises" in text


def test_a_function_refuses_what_it_does_not_have():
    with pytest.raises(TypeError, match="overwrite_x"):
        mf.fft.fft(np.ones(4), overwrite_x=True)


# --- inputs that broke other libraries


@everywhere
@pytest.mark.parametrize("n", [1, 2, 3, 4099, 8198])
def test_prolog_of_any_length(space, n):
    x = np.random.default_rng(n).standard_normal(n).astype(np.float32)

    @mf.prolog
    def cube(value):
        return value**3 / 3

    found = space.numpy(mf.fft.rfft(space.array(x), prolog=cube))
    assert found.dtype == np.complex64
    close(found, np.fft.rfft(x.astype(float) ** 3 / 3), np.float32, n)


@everywhere
@pytest.mark.parametrize("name", NAMES)
def test_batch_of_nothing(space, name):
    x = np.ones((0, 4, 4), np.float32)
    axes = {} if KINDS[name].rank else {"axes": (1, 2)}
    for fused in ({}, {"prolog": mf.scale(factor=2.0), "epilog": mf.scale(factor=2.0)}):
        found = space.numpy(getattr(mf.fft, name)(space.array(x), **axes, **fused))
        expected = getattr(scipy.fft, name)(x, **axes)
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    assert mf.fft.spectral_filter(space.array(x), mf.gaussian(sigma=1.0), axes=(1, 2)).shape == x.shape


@everywhere
def test_batch_axes_in_front_of_swapped_transform_axes(space):
    x = np.arange(12, dtype=np.complex64).reshape(3, 2, 2)[:, None]
    found = space.numpy(mf.fft.fftn(space.array(x), axes=(-1, -2), epilog=mf.scale(factor=1.0)))
    np.testing.assert_allclose(found[-1, 0], [[38, -2], [-4, 0]], atol=1e-4)


@everywhere
def test_weak_scalars_keep_32_bits(space):
    x = np.random.default_rng(0).standard_normal((6, 8)).astype(np.float32)

    @mf.epilog
    def tenth(value, index):
        return value * 0.1 + index[0] * 1e-3

    x = space.array(x)
    assert space.numpy(mf.fft.fft2(x, epilog=tenth)).dtype == np.complex64
    assert space.numpy(mf.fft.irfft(x, prolog=mf.prolog(tenth), epilog=tenth)).dtype == np.float32


@everywhere
def test_a_captured_array_is_run_time_data(space):
    x, table = space.array(np.ones(2, np.complex64)), space.array(np.linspace(0, 1, 100_000))

    @mf.epilog
    def looked_up(value, index):
        return value * table[99_999 - index[0]]

    plan = mf.fft.FFT(x, kind="fft").plan(epilog=looked_up)
    np.testing.assert_allclose(space.numpy(plan.execute()), [2, 0])
    table[-1] = 3
    np.testing.assert_allclose(space.numpy(plan.execute()), [6, 0])


# --- dtypes


@everywhere
def test_pixels_in_floats_out(space):
    pixels = np.random.default_rng(0).integers(0, 256, (12, 10), dtype=np.uint8)

    @mf.prolog
    def to_unit(value):
        return np.float32(value) / 255

    found = space.numpy(mf.fft.rfft2(space.array(pixels), prolog=to_unit))
    assert found.dtype == np.complex64
    close(found, np.fft.rfft2(pixels / 255), np.float32, pixels.size)


@everywhere
def test_an_epilog_sets_the_dtype_of_the_result(space):
    x = np.random.default_rng(0).standard_normal((6, 5)) + 1j
    found = space.numpy(mf.fft.fft2(space.array(x.astype(np.complex64)), epilog=mf.power_spectrum))
    assert found.dtype == np.float32
    close(found, np.abs(np.fft.fft2(x)) ** 2, np.float32, x.size)


@everywhere
@pytest.mark.parametrize("shape", [(1, 1), (1, 2), (2, 2), (2, 1), (64, 2)])
def test_real_epilogs_of_the_smallest_complex_transforms(space, shape):
    x = np.random.default_rng(0).standard_normal(shape) + 1j
    found = mf.fft.fft2(space.array(x), epilog=mf.power_spectrum)
    close(space.numpy(found), np.abs(np.fft.fft2(x)) ** 2, float, x.size)


@everywhere
def test_a_prolog_reads_its_neighbours(space):
    x = np.random.default_rng(0).standard_normal((4, 9)).astype(np.float32)

    @mf.prolog
    def difference(value, index, source):
        return value - source[index[0], index[1] - 1] if index[1] > 0 else value

    expected = np.fft.rfft(np.diff(x.astype(float), axis=1, prepend=0))
    close(space.numpy(mf.fft.rfft(space.array(x), prolog=difference)), expected, np.float32, 9)


# --- spectral filters


@everywhere
@settings(max_examples=40)
@given(problems("fftn"), st.booleans())
def test_filter_is_transform_multiply_inverse(space, problem, as_array):
    _, x, axes, _, _ = problem
    assume(not space.why_not(x))
    where = tuple(a % x.ndim for a in axes)
    real = x.dtype.kind != "c"
    half = where[-1] if real else None
    weight = 1.0
    for a in where:
        n = x.shape[a]
        f = np.fft.rfftfreq(n) if a == half else np.fft.fftfreq(n)
        weight = weight * np.exp(-2 * np.pi**2 * 0.25 * f**2).reshape([-1 if b == a else 1 for b in range(x.ndim)])
    y = x.astype(float if real else complex)
    forward, inverse = (scipy.fft.rfftn, scipy.fft.irfftn) if real else (scipy.fft.fftn, scipy.fft.ifftn)
    expected = inverse(forward(y, axes=where) * weight, [x.shape[a] for a in where], where)
    here, kept = space.array(x), x.copy()
    transfer = space.array(weight) if as_array else mf.gaussian(sigma=0.5)
    found = space.numpy(mf.fft.spectral_filter(here, transfer, axes=axes, **space.cheap))
    close(found, expected, found.dtype, x.size)
    assert found.dtype == real_or_complex(x.dtype)
    np.testing.assert_array_equal(space.numpy(here), kept)


def real_or_complex(dtype):
    single = dtype.newbyteorder("=") in ("f2", "f4", "c8")
    return {True: ("f4", "c8"), False: ("f8", "c16")}[single][dtype.kind == "c"]


@everywhere
@pytest.mark.parametrize("shape", [(33, 64), (64, 33), (5, 1), (1, 6), (3, 20, 31)])
def test_filters_in_place_and_in_any_layout(space, shape):
    x = space.array(np.random.default_rng(0).standard_normal(shape).astype(np.float32))
    expected = space.numpy(mf.fft.spectral_filter(x, mf.gaussian(sigma=1.0)))
    for layout in ("transposed", "strided", "negative last"):
        empty = LAYOUTS[layout](np.empty(shape, np.float32))
        if space.why_not(empty):
            continue
        out = space.array(empty)
        assert mf.fft.spectral_filter(x, mf.gaussian(sigma=1.0), out=out) is out
        np.testing.assert_allclose(space.numpy(out), expected, atol=1e-6)
    assert mf.fft.spectral_filter(x, mf.gaussian(sigma=1.0), out=x) is x
    np.testing.assert_allclose(space.numpy(x), expected, atol=1e-6)


def test_filters_of_many_boxes_on_many_threads():
    x = np.random.default_rng(0).standard_normal((256, 96, 2)).astype(np.float32)
    expected = scipy.fft.irfftn(scipy.fft.rfftn(x, axes=(0, 1)) * np.float32(0.5), (256, 96), axes=(0, 1))
    for block_bytes in (1, 1 << 12, 1 << 16):
        found = mf.fft.spectral_filter(x, mf.scale(factor=0.5), (0, 1), workers=3, block_bytes=block_bytes)
        np.testing.assert_allclose(found, expected, atol=1e-5)


@everywhere
def test_a_filter_takes_a_prolog_and_an_epilog(space):
    x = np.random.default_rng(0).standard_normal((8, 12))
    fused = {"prolog": mf.scale(factor=-1.0), "epilog": mf.relu}
    found = mf.fft.spectral_filter(space.array(x), mf.scale(factor=1.0), **fused)
    np.testing.assert_allclose(space.numpy(found), np.maximum(-x, 0), atol=1e-12)


# --- outputs and memory


@everywhere
def test_complex_transforms_work_in_place(space):
    x = np.random.default_rng(0).standard_normal((40, 30)) + 1j
    expected = np.fft.fft2(x) * 2
    x = space.array(x)
    assert mf.fft.fft2(x, epilog=mf.scale(factor=2.0), out=x) is x
    np.testing.assert_allclose(space.numpy(x), expected, atol=1e-12)


@mf.prolog
def shifted(value, index, source):
    return value + source[index[0] - 1]


@everywhere
@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda x, space: mf.fft.fft(x, out=space.array(np.empty(8, np.complex64))), "dtype complex64"),
        (lambda x, space: mf.fft.fft(x, out=space.array(np.empty(9, complex))), r"shape \(9,\)"),
        (lambda x, space: mf.fft.fft(x[:4], out=x[2:6]), "overlaps the input"),
        (lambda x, space: mf.fft.fft(x[1:], out=x[:-1]), "pass x itself"),
        (lambda x, space: mf.fft.fft(x, prolog=shifted, out=x), "cannot work in place"),
        (lambda x, space: mf.fft.irfft(x[:5], out=space.viewed(x, float)[:8]), "overlaps the input"),
        (lambda x, space: mf.fft.fft(2 * x[1:], epilog=mf.multiply(factor=x[1:]), out=x[:-1]), "operand 'factor'"),
    ],
)
def test_outputs_that_do_not_fit(space, run, message):
    with pytest.raises(mf.PlanError, match=message):
        run(space.array(np.arange(8, dtype=complex)), space)


@everywhere
def test_outputs_that_are_the_input_reversed(space):
    x = np.arange(8, dtype=complex)
    space.need(x[::-1])
    x = space.array(x)
    with pytest.raises(mf.PlanError, match="pass x itself"):
        mf.fft.fft(x, out=x[::-1])
    with pytest.raises(mf.PlanError, match="overlaps operand 'factor'"):
        mf.fft.fft(x.copy(), epilog=mf.multiply(factor=x[::-1]), out=x)


# --- wrong uses


@mf.epilog
def to_complex(value):
    return value * 1j


@mf.epilog
def weighted(value, index, w):
    return value * w[index]


@everywhere
@pytest.mark.parametrize(
    ("error", "run", "message"),
    [
        (mf.CallbackError, lambda x: mf.fft.irfft(x, epilog=to_complex), "is real"),
        (mf.CallbackError, lambda x: mf.fft.rfft(x, prolog=mf.prolog(to_complex)), "real input"),
        (mf.CallbackError, lambda x: mf.fft.fft(x, epilog=lambda value: value), "@mf.epilog"),
        (mf.CallbackError, lambda x: mf.fft.fft(x, epilog=weighted), "'?w"),
        (mf.CallbackError, lambda x: mf.fft.fft(x, epilog=weighted, epilog_inputs={"v": x}), "'v'"),
        (mf.CallbackError, lambda x: mf.fft.fft(x, epilog_inputs={"w": x}), "there is no epilog"),
        (mf.CallbackError, lambda x: mf.fft.fft(x, epilog=weighted, epilog_inputs={"w": [1.0]}), "numpy.asarray"),
        (mf.PlanError, lambda x: mf.fft.rfft(x, epilog=weighted(w=x[:4])), r"'w' as shape \(5,\).* \(4,\)"),
        (mf.PlanError, lambda x: mf.fft.rfft(x, epilog=mf.multiply(factor=x)), r"'factor' as shape \(5,\).* \(8,\)"),
        (mf.PlanError, lambda x: mf.fft.spectral_filter(x, np.ones(8)), r"shape \(5,\).* \(8,\)"),
        (mf.PlanError, lambda x: mf.fft.fft(x, axis=1), "out of range"),
        (mf.PlanError, lambda x: mf.fft.fft(x, 2.5), r"^n=2\.5: expected a whole number$"),
        (mf.PlanError, lambda x: mf.fft.irfft(x, n=(4,)), r"^n=\(4,\): expected a whole number$"),
        (mf.PlanError, lambda x: mf.fft.rfft(x, axis="x"), "^axis='x': expected a whole number$"),
        (mf.PlanError, lambda x: mf.fft.fftn(x, 2.5), r"^s=2\.5: expected a whole number or a sequence of them$"),
        (mf.PlanError, lambda x: mf.fft.FFT(x, s=2.5, kind="fft"), r"^s=2\.5: "),
        (mf.PlanError, lambda x: mf.fft.fft(x, options={"threads": 3}), "no option 'threads'; it has .*workers"),
        (mf.PlanError, lambda x: mf.fft.fft(x, workers=0), "workers=0"),
        (mf.PlanError, lambda x: mf.fft.fft(x, backend="fftw"), "pocketfft, mkl"),
        (mf.PlanError, lambda x: mf.fft.fft(x, execution="gpu"), "execution='gpu'"),
        (mf.UnsupportedError, lambda x: mf.fft.rfft(x + 1j), "real input"),
    ],
)
def test_wrong_uses_say_what_to_do(space, error, run, message):
    with pytest.raises(error, match=message):
        run(space.array(np.arange(8.0)))


# --- other frameworks


def test_torch_tensors_come_back_as_tensors():
    torch = pytest.importorskip("torch")
    x = torch.randn(6, 9)
    w = torch.rand(6, 5)
    found = mf.fft.rfft2(x, epilog=weighted(w=w))
    assert isinstance(found, torch.Tensor)
    assert torch.allclose(found, torch.fft.rfft2(x) * w, atol=1e-5)
    out = torch.empty(6, 5, dtype=torch.complex64)
    assert mf.fft.rfft2(x, epilog=weighted(w=w), out=out) is out
    assert torch.equal(out, found)
    assert torch.allclose(mf.fft.fft(torch.conj(found)), torch.fft.fft(torch.conj(found)), atol=1e-4)


def test_jax_arrays_come_back_as_jax_arrays():
    jax = pytest.importorskip("jax")
    with jax.default_device(jax.devices("cpu")[0]):
        x, w = jax.numpy.arange(54.0).reshape(6, 9), jax.numpy.ones((6, 5))
    found = mf.fft.rfft2(x, epilog=weighted(w=w))
    assert isinstance(found, jax.Array)
    np.testing.assert_allclose(found, np.fft.rfft2(np.asarray(x)), atol=1e-2)


@everywhere
def test_integers_of_a_prolog_never_widen(space):
    """A threshold of float32 pixels is transformed in 32 bits; of bytes too, and of 32-bit integers in 64."""
    threshold = mf.prolog(lambda value: 1 if value > 0.5 else 0)
    for dtype, spectrum in ((np.float32, np.complex64), (np.uint8, np.complex64), (np.int32, np.complex128)):
        x = np.arange(24).reshape(4, 6).astype(dtype) % 2
        y = space.numpy(mf.fft.rfft2(space.array(x), prolog=threshold))
        assert y.dtype == spectrum
        np.testing.assert_allclose(y, np.fft.rfft2(x > 0.5), atol=1e-5)


@everywhere
def test_an_epilog_makes_bytes(space):
    x = np.zeros((4, 6), np.float32)
    x[0, 0] = 0.5
    y = space.numpy(mf.fft.rfft2(space.array(x), epilog=mf.epilog(lambda value: np.uint8(255 * abs(value)))))
    assert y.dtype == np.uint8
    np.testing.assert_array_equal(y, np.full((4, 4), 127))


@everywhere
def test_a_gaussian_of_huge_sigma_leaves_the_mean(space):
    """Where the square of sigma overflows float32."""
    image = np.random.default_rng(0).random((4, 6), np.float32)
    blurred = space.numpy(mf.fft.spectral_filter(space.array(image), mf.gaussian(sigma=1e30)))
    np.testing.assert_allclose(blurred, np.full(image.shape, image.mean()), rtol=1e-6)
