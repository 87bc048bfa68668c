"""`mf.elementwise` on the CPU against plain Python in float64: every dtype, layout, framework, error."""

from __future__ import annotations

import doctest
import math
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mathfuse as mf
from mathfuse.epilogs.reference import evaluate
from mathfuse.fusion.elementwise import call

REAL = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64".split()
COMPLEX = "complex64 complex128".split()
LAYOUTS = {
    "plain": lambda x: x,
    "transposed": np.asfortranarray,
    "strided": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "negative": lambda x: np.flip(np.flip(x).copy()),
    "broadcast": lambda x: np.broadcast_to(x[:1], x.shape),
    "unaligned": lambda x: np.frombuffer(b"-" + x.tobytes(), x.dtype, offset=1).reshape(x.shape),
    "foreign byte order": lambda x: x.astype(x.dtype.newbyteorder()),
}


@mf.epilog
def everything(value, index, shape, axes, table, gain=0.5):
    f = gain
    for a in axes:
        f += index[a] / shape[a]
    return value * f + table[index]


@mf.prolog
def neighbours(value, index, source, shape):
    return value - source[mf.wrapped_index(index[0] + 1, shape[0])]


@mf.epilog
def recorded(value, index, seen):
    seen[index] = value
    return value * 2


@mf.epilog
def weighted(value, index, w):
    return value * w[index]


@st.composite
def arrays(draw, dtypes=REAL + COMPLEX):
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))
    dtype = draw(st.sampled_from(dtypes))
    random = np.random.default_rng(draw(st.integers(0, 99)))
    x = random.uniform(0, 100, shape) + (1j * random.uniform(0, 100, shape) if dtype in COMPLEX else 0)
    return LAYOUTS[draw(st.sampled_from(sorted(LAYOUTS)))](x.astype(dtype))


def reference(callback, x):
    axes = tuple(range(x.ndim))
    done = [evaluate(callback, x[i].item(), i, x.shape, axes, x) for i in np.ndindex(x.shape)]
    return np.array(done, complex if x.dtype.kind == "c" else float).reshape(x.shape)


def close(found, expected):
    real = np.empty(0, found.dtype).real.dtype
    scale = np.abs(expected).max(initial=0) + 1e-30
    np.testing.assert_allclose(found, expected, rtol=0, atol=32 * scale * np.finfo(real).eps)


@settings(max_examples=100)
@given(arrays(), st.sampled_from([None, 1, 3]))
def test_every_dtype_and_layout(x, workers):
    table = np.linspace(0, 1, x.size, dtype="float32").reshape(x.shape)
    callback, before = everything(table=table), x.copy()
    found = mf.elementwise(callback, x, workers=workers)
    assert found.flags.c_contiguous
    single = x.dtype.itemsize // (2 if x.dtype.kind == "c" else 1) <= 4 and x.dtype.kind in "fc"
    assert not single or found.dtype in ("float32", "complex64")
    close(found, reference(everything(table=table.astype(float)), x))
    np.testing.assert_array_equal(x, before)


@settings(max_examples=30)
@given(arrays(), st.sampled_from(sorted(set(LAYOUTS) - {"broadcast", "unaligned", "foreign byte order"})))
def test_out_in_every_layout(x, layout):
    callback = mf.scale(factor=2.0)
    expected = mf.elementwise(callback, x)
    out = LAYOUTS[layout](np.zeros(x.shape, expected.dtype))
    out = out if out.flags.writeable else out.copy()
    assert mf.elementwise(callback, x, out=out) is out
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("view", [lambda x: x, lambda x: x.T, lambda x: x[::-1, ::2]])
def test_large_arrays_are_cut_into_boxes(view, workers):
    x = view(np.random.default_rng(0).random((700, 900)))
    np.testing.assert_allclose(mf.elementwise(everything(table=x), x, workers=workers), everything_of(x), rtol=1e-12)
    target = np.empty(x.shape[::-1]).T
    mf.elementwise(everything(table=x), x, out=target, workers=workers)
    np.testing.assert_allclose(target, everything_of(x), rtol=1e-12)


def everything_of(x):
    f = 0.5 + sum(i / n for i, n in zip(np.indices(x.shape), x.shape))
    return x * f + x


def test_in_place_and_into_an_operand():
    x, w = (np.random.default_rng(k).random((30, 40)) for k in (0, 1))
    expected = x * w
    assert mf.elementwise(weighted(w=w), x, out=w) is w
    np.testing.assert_array_equal(w, expected)
    square = x * x
    mf.elementwise(weighted(w=x), x, out=x)
    np.testing.assert_array_equal(x, square)
    mf.elementwise(mf.scale(factor=2.0), x[::-1], out=x[::-1])
    np.testing.assert_array_equal(x, 2 * square)


def test_source_and_assigned_operands():
    x = np.random.default_rng(0).random(50)
    for _ in range(2):
        np.testing.assert_array_equal(mf.elementwise(neighbours, x), x - np.roll(x, -1))
        seen = np.zeros(50)
        np.testing.assert_array_equal(mf.elementwise(recorded, x, inputs={"seen": seen}), 2 * x)
        np.testing.assert_array_equal(seen, x)


def test_operands_are_read_as_they_are_at_each_call():
    x, w = np.ones((2, 3)), np.ones((2, 3))
    for k in (1, 2, 3):
        w[...] = k
        assert (mf.elementwise(weighted(w=w), x) == k).all()
        assert (mf.elementwise(mf.scale(factor=float(k)), x) == k).all()
    assert mf.elementwise(mf.scale(factor=2), np.ones(3, "int32")).dtype.kind == "i"
    assert mf.elementwise(mf.scale(factor=2.0), np.ones(3, "int32")).dtype.kind == "f"


def test_a_constant_is_no_output():
    w = np.ones((2, 3))
    with pytest.raises(mf.PlanError, match=r"out overlaps operand 'w' in memory.* that is no constant"):
        mf.elementwise(weighted(w=mf.constant(w)), np.ones((2, 3)), out=w)
    assert (mf.elementwise(weighted(w=w), np.full((2, 3), 2.0), out=w) == 2).all()


def test_a_global_that_is_bound_anew_counts_at_the_next_call(monkeypatch):
    @mf.epilog
    def shifted(value):
        return value + OFFSET

    monkeypatch.setitem(globals(), "OFFSET", 1.0)
    assert mf.elementwise(shifted, np.zeros(1)) == 1
    monkeypatch.setitem(globals(), "OFFSET", 2.0)
    assert mf.elementwise(shifted, np.zeros(1)) == 2
    monkeypatch.setitem(globals(), "OFFSET", np.full(1, 3.0))
    assert mf.elementwise(shifted, np.zeros(1)) == 3
    OFFSET[0] = 4
    assert mf.elementwise(shifted, np.zeros(1)) == 4


OFFSET = 0.0


def test_no_elements_and_no_axes():
    assert mf.elementwise(mf.power_spectrum, np.zeros((0, 3), "complex64")).dtype == "float32"
    found = mf.elementwise(mf.scale(factor=2.0), np.array(3.0))
    assert (found.shape, found) == ((), 6)
    out = np.zeros(())
    assert mf.elementwise(mf.scale(factor=2.0), np.array(3.0), out=out) is out
    assert out == 6
    assert mf.elementwise(weighted(w=np.full(1, 5.0)), np.array(3.0)) == 15  # seen as of shape (1,)


def test_what_a_callback_returns_is_the_dtype():
    x = np.array([3 + 4j, 1], "complex64")
    assert mf.elementwise(mf.power_spectrum, x).dtype == "float32"
    np.testing.assert_allclose(mf.elementwise(mf.power_spectrum, x), [25, 1])
    assert mf.elementwise(mf.scale(factor=1j), np.ones(2, "float32")).dtype == "complex64"


def test_threads():
    x = np.random.default_rng(0).random((64, 64))
    failures = []

    def work(k):
        for _ in range(20):
            found = mf.elementwise(mf.scale(factor=float(k)), x, workers=2)
            failures.extend([] if np.array_equal(found, k * x) else [k])

    threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_torch_and_jax():
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    x = np.random.default_rng(0).random((4, 5), dtype="float32")
    tensor = torch.from_numpy(x.copy())
    found = mf.elementwise(weighted(w=tensor), tensor.T.contiguous().T)
    assert isinstance(found, torch.Tensor)
    np.testing.assert_allclose(found.numpy(), x * x)
    assert mf.elementwise(mf.relu, tensor, out=tensor) is tensor
    complex_ = torch.from_numpy(x + 1j * x)
    np.testing.assert_allclose(mf.elementwise(mf.scale(factor=2.0), complex_.conj()).numpy(), 2 * (x - 1j * x))
    result = mf.elementwise(weighted(w=jax.numpy.asarray(x)), jax.numpy.asarray(x))
    assert isinstance(result, jax.Array)
    np.testing.assert_allclose(result, x * x)


X = np.ones((3, 4), "float32")
SAME_ROWS = np.lib.stride_tricks.as_strided(X, X.shape, (0, 4))
ODD = LAYOUTS["unaligned"](X)


@pytest.mark.parametrize(
    ("error", "message", "made"),
    [
        (mf.CallbackError, "callback=sqrt is no callback", lambda: mf.elementwise(math.sqrt, X)),
        (mf.CallbackError, "unbound operands: write weighted", lambda: mf.elementwise(weighted, X)),
        (mf.CallbackError, "no operand 'v'", lambda: mf.elementwise(weighted, X, inputs={"v": X})),
        (mf.PlanError, "inputs must be a mapping", lambda: mf.elementwise(weighted, X, inputs=[X])),
        (mf.PlanError, "indexes 'w' as shape", lambda: mf.elementwise(weighted(w=X[:2]), X)),
        (mf.UnsupportedError, "x: a list", lambda: mf.elementwise(mf.relu, [1.0])),
        (mf.UnsupportedError, "dtype object", lambda: mf.elementwise(mf.relu, X.astype(object))),
        (mf.PlanError, "is None or one of cpu, cuda", lambda: mf.elementwise(mf.relu, X, execution="gpu")),
        (mf.PlanError, "execution=", lambda: mf.elementwise(mf.relu, X, execution=["cuda"])),
        (mf.PlanError, "workers=0", lambda: mf.elementwise(mf.relu, X, workers=0)),
        (mf.PlanError, "workers=True", lambda: mf.elementwise(mf.relu, X, workers=True)),
        (mf.PlanError, "stream=… is for arrays on a GPU", lambda: mf.elementwise(mf.relu, X, stream=0)),
        (mf.PlanError, "out has dtype float64", lambda: mf.elementwise(mf.relu, X, out=X.astype(float))),
        (mf.PlanError, "out has .* shape", lambda: mf.elementwise(mf.relu, X, out=X[:2].copy())),
        (mf.UnsupportedError, "same memory", lambda: mf.elementwise(mf.relu, X, out=SAME_ROWS)),
        (mf.PlanError, "out overlaps the input", lambda: mf.elementwise(mf.relu, X[:2], out=X[1:])),
        (mf.PlanError, "out overlaps the input", lambda: mf.elementwise(neighbours, X[0], out=X[0])),
        (mf.PlanError, "overlaps operand 'w'", lambda: mf.elementwise(weighted(w=X[:2]), X[:2].copy(), out=X[1:])),
        (mf.PlanError, "overlaps the input", lambda: mf.elementwise(recorded(seen=X), X)),
        (mf.PlanError, "only a copy can be used", lambda: mf.elementwise(recorded(seen=ODD), X.copy())),
    ],
)  # fmt: skip
def test_errors(error, message, made):
    with pytest.raises(error, match=message):
        made()


def test_without_a_gpu_the_error_says_so():
    from mathfuse.runtime.cuda.driver import why_unavailable

    if not why_unavailable():
        pytest.skip("there is a GPU")
    with pytest.raises(mf.ToolchainError, match='execution="cuda" needs a GPU'):
        mf.elementwise(mf.relu, X, execution="cuda")


def test_the_example():
    assert doctest.testmod(call).failed == 0
