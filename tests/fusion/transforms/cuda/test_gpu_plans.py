"""Plans on a GPU: strategies, operands of every origin, outputs, frameworks, explanations."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.fft

import mathfuse as mf
from mathfuse.fusion.transforms.kinds import KINDS
from tests.spaces import CUPY, HOST, TORCH, half_spectrum, on_gpu

pytestmark = pytest.mark.gpu
strategies = pytest.mark.parametrize("strategy", ["kernel", "callback", "sequence"])
RNG = np.random.default_rng(7)
SHAPE = (24, 40)
Z = (RNG.uniform(-1, 1, SHAPE) + 1j * RNG.uniform(-1, 1, SHAPE)).astype(np.complex64)
W = RNG.uniform(0.5, 1.5, SHAPE).astype(np.float32)
SPECTRUM = np.fft.fft2(Z.astype(complex))


@mf.epilog
def weighted(value, index, w, gain=1.0):
    return value * w[index] * gain


@mf.epilog
def blend(value, index, old):
    return 0.5 * value + 0.5 * old[index]


@mf.prolog
def keep(value, index, kept):
    kept[index] = value
    return value


def close(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5 * max(np.abs(expected).max(), 1))


# --- inputs and outputs


@on_gpu
@strategies
@pytest.mark.parametrize("name", sorted(KINDS))
def test_the_input_is_never_written(space, strategy, name):
    """cuFFT's own complex-to-real transforms of several axes do write it."""
    family = KINDS[name].family
    axes = (1,) if KINDS[name].rank == 1 else (0, 1)
    lengths = tuple(SHAPE[a] if a != axes[-1] or family != "c2r" else 2 * SHAPE[a] - 2 for a in axes)
    x = Z.real.copy() if family == "r2c" else half_spectrum(Z, axes, lengths, True) if family == "c2r" else Z
    here = space.array(x)
    for fused in ({}, {"epilog": mf.scale(factor=2.0)}):
        with mf.fft.FFT(here, axes, kind=name).plan(strategy=strategy, **fused) as plan:
            found = [space.numpy(plan.execute()) for _ in range(2)]
        np.testing.assert_array_equal(space.numpy(here), x)
        np.testing.assert_array_equal(*found)
        transform, factor = getattr(scipy.fft, name), 2 if fused else 1
        expected = transform(x, axis=1) if len(axes) == 1 else transform(x, axes=axes)
        close(found[0], factor * expected)


@on_gpu
@strategies
@pytest.mark.parametrize("sides", [(), ("prolog",), ("epilog",), ("prolog", "epilog")])
def test_in_place(space, strategy, sides):
    x = space.array(Z)
    fused = {side: mf.scale(factor=2.0).as_kind(side) for side in sides}
    plan = mf.fft.FFT(x, kind="fft2").plan(strategy=strategy, **fused)
    assert plan.execute(out=x) is x
    close(space.numpy(x), 2 ** len(sides) * SPECTRUM)
    x[...] = space.array(Z)
    close(space.numpy(plan.execute()), 2 ** len(sides) * SPECTRUM)
    np.testing.assert_array_equal(space.numpy(x), Z)


@on_gpu
@strategies
def test_outputs_of_many_layouts_and_addresses(space, strategy):
    plan = mf.fft.FFT(space.array(Z), kind="fft2").plan(epilog=weighted(w=space.array(W)), strategy=strategy)
    empty = np.zeros(SHAPE, np.complex64)
    layouts = [np.asfortranarray(empty), np.zeros((24, 47), np.complex64)[:, 3:43], np.zeros((48, 40), "c8")[::2]]
    outs = [space.array(empty, offset=k % 3) for k in range(70)] + [space.array(each) for each in layouts]
    for out in [*outs, *outs[::9]]:
        out[...] = 0
        assert plan.execute(out=out) is out
        close(space.numpy(out), SPECTRUM * W)


@on_gpu
@strategies
def test_an_operand_may_be_out(space, strategy):
    old = space.array(Z)
    plan = mf.fft.FFT(space.array(Z), kind="fft2").plan(epilog=blend(old=old), strategy=strategy)
    assert plan.execute(out=old) is old
    first = 0.5 * SPECTRUM + 0.5 * Z
    close(space.numpy(old), first)
    plan.execute(out=old)
    close(space.numpy(old), 0.5 * SPECTRUM + 0.5 * first)


@on_gpu
@strategies
def test_outputs_that_do_not_fit(space, strategy):
    x = space.array(np.concatenate([Z, Z]))
    plan = mf.fft.FFT(x[:24], kind="fft2").plan(epilog=mf.scale(factor=1.0), strategy=strategy)
    for out, message in (
        (x[12:36], "overlaps the input"),
        (space.array(np.zeros(SHAPE, complex)), "out has dtype complex128"),
        (space.array(np.zeros((24, 41), np.complex64)), r"shape \(24, 41\)"),
        (np.zeros(SHAPE, np.complex64), "CPU memory"),
        (space.array(np.broadcast_to(Z[:1], SHAPE)), "same memory"),
    ):
        with pytest.raises(mf.MathFuseError, match=message):
            plan.execute(out=out)
    close(space.numpy(plan.execute()), SPECTRUM)


# --- operands


@on_gpu
@strategies
def test_arrays_are_read_live(space, strategy):
    x, w = space.array(Z), space.array(W)
    plan = mf.fft.FFT(x, kind="fft2").plan(epilog=weighted(w=w), strategy=strategy)
    close(space.numpy(plan.execute()), SPECTRUM * W)
    w *= 2
    x *= 3
    close(space.numpy(plan.execute()), 6 * SPECTRUM * W)


@on_gpu
@strategies
def test_host_operands_are_read_at_plan_and_reset(space, strategy):
    w = W.copy()
    plan = mf.fft.FFT(space.array(Z), kind="fft2").plan(epilog=weighted(w=w), strategy=strategy)
    w *= 2
    close(space.numpy(plan.execute()), SPECTRUM * W)
    close(space.numpy(plan.reset_operands(w=w).execute()), 2 * SPECTRUM * W)
    close(space.numpy(plan.reset_operands(w=np.asfortranarray(W)).execute()), SPECTRUM * W)


@on_gpu
@strategies
def test_other_operands_of_any_layout(space, strategy):
    plan = mf.fft.FFT(space.array(Z), kind="fft2").plan(epilog=weighted(w=space.array(W)), strategy=strategy)
    every_other = np.repeat(Z, 2, axis=1)[:, ::2]
    for x in (space.array(2 * Z, offset=1), space.array(np.asfortranarray(2 * Z)), space.array(2 * every_other)):
        close(space.numpy(plan.reset_operands(x).execute()), 2 * SPECTRUM * W)
    row = np.broadcast_to(W[:1], SHAPE)
    close(space.numpy(plan.reset_operands(w=space.array(row)).execute()), 2 * SPECTRUM * row)
    close(space.numpy(plan.reset_operands(gain=3).execute()), 6 * SPECTRUM * row)


@on_gpu
@strategies
def test_a_prolog_may_write_an_operand(space, strategy):
    kept = space.array(np.zeros_like(Z))
    plan = mf.fft.FFT(space.array(Z), kind="fft2").plan(prolog=keep(kept=kept), strategy=strategy)
    close(space.numpy(plan.execute()), SPECTRUM)
    np.testing.assert_array_equal(space.numpy(kept), Z)


def test_elements_at_odd_addresses():
    """Complex numbers half of their size off, which CuPy itself cannot read."""
    floats = CUPY.array(np.concatenate([[0], Z.ravel().view(np.float32)]).astype(np.float32))
    x = floats[1:].view("complex64").reshape(SHAPE)
    with pytest.raises(mf.UnsupportedError, match="no multiples of 8 bytes"):
        mf.fft.fft2(x)
    close(CUPY.numpy(mf.fft.fft2(CUPY.array(Z))), SPECTRUM)


# --- strategies


@on_gpu
def test_strategies_agree_and_explain_themselves(space):
    x, w = space.array(Z), space.array(W)
    found = {}
    for strategy, transform in (("kernel", "blocks"), ("callback", "cuFFT"), ("sequence", "cuFFT")):
        plan = mf.fft.FFT(x, kind="fft2").plan(
            prolog=mf.scale(factor=2.0).as_kind("prolog"), epilog=weighted(w=w), strategy=strategy
        )
        text = str(plan.explain())
        for part in ("fft2 of [24, 40]", "complex64[24, 40]", f"strategy {strategy}", transform, "GPU"):
            assert part in text, text
        assert ("epilog inside" in text) == (strategy != "sequence"), text
        assert f"<b>{strategy}</b>" in plan._repr_html_()
        assert strategy in repr(plan)
        assert plan.explain().workspace_bytes >= 0
        found[strategy] = space.numpy(plan.execute())
    close(found["callback"], found["sequence"])
    close(found["kernel"], found["sequence"])


def test_the_choice_explains_what_it_rejected():
    x = CUPY.array(np.ones((1024, 256), np.complex64))
    told = mf.fft.FFT(x, kind="fft").plan(epilog=mf.scale(factor=2.0)).explain()
    assert told.strategy in ("kernel", "callback", "sequence")
    assert told.rejected, told
    assert all(name and why for name, why in told.rejected), told


def test_without_anything_to_fuse_cufft_is_called_once():
    plan = mf.fft.FFT(CUPY.array(Z), kind="fft2").plan()
    assert len(plan.explain().passes) == 1, plan.explain()
    assert plan.explain().strategy == "sequence"


FILTERED = [
    ((40, 1024), (1,)),
    ((5, 945), (1,)),
    ((1024, 40), (0,)),
    ((96, 100), None),
    ((2, 264, 500), (1, 2)),
    ((3, 100, 96), (-2, -1)),
    ((24, 40, 64), None),
]


@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.float64, np.complex128])
@pytest.mark.parametrize(("shape", "axes"), FILTERED)
def test_filters_by_own_kernels(shape, axes, dtype):
    x = RNG.uniform(-1, 1, shape).astype(dtype)
    real, along = x.dtype.kind == "f", axes or tuple(range(len(shape)))
    spectrum = (np.fft.rfftn if real else np.fft.fftn)(x.astype(np.result_type(dtype, float)), axes=along)
    w = RNG.uniform(0.5, 1.5, spectrum.shape[-1]).astype(np.float32)
    y = (np.fft.irfftn if real else np.fft.ifftn)(8 * w * spectrum, [shape[axis] for axis in along], along)
    here = CUPY.array(x)
    transfer = mf.epilog(lambda value, index, w: value * w[index[-1]] * 2)(w=CUPY.array(w))
    plan = mf.fft.SpectralFilter(here, transfer, axes).plan(epilog=mf.scale(factor=4.0), strategy="kernel")
    of_array = mf.fft.SpectralFilter(CUPY.array(x), CUPY.array(8 * w), axes).plan(strategy="kernel")
    for found in (plan.execute(), plan.execute(out=here), here, of_array.execute()):
        np.testing.assert_allclose(CUPY.numpy(found), y, rtol=0, atol=32 * np.finfo(dtype).eps * np.abs(y).max())


def test_tuning_is_remembered():
    x, double = CUPY.array(np.ones((48, 320), np.complex64)), mf.scale(factor=2.0)
    tuned = mf.fft.FFT(x, kind="fft").plan(epilog=double, tune=True).explain()
    assert "timed" in tuned.reason, tuned
    assert tuned.rejected, tuned
    again = mf.fft.FFT(x, kind="fft").plan(epilog=mf.scale(factor=3.0)).explain()
    assert (again.strategy, again.reason) == (tuned.strategy, tuned.reason)
    close(CUPY.numpy(mf.fft.fft(x, epilog=double)), 2 * np.fft.fft(np.ones((48, 320))))


def test_tuning_runs_no_callback_that_writes():
    count = CUPY.array(np.zeros(SHAPE, np.complex64))

    @mf.prolog
    def counted(value, index, count):
        count[index] = count[index] + 1
        return value

    plan = mf.fft.FFT(CUPY.array(Z), kind="fft2").plan(prolog=counted(count=count), tune=True)
    plan.execute()
    np.testing.assert_array_equal(CUPY.numpy(count), np.ones(SHAPE))


# --- frameworks


def test_torch_tensors_with_a_history():
    torch = TORCH.library
    x = torch.from_numpy(Z).cuda()
    with pytest.raises(mf.UnsupportedError, match=r"x.*requires grad.*detach"):
        mf.fft.fft2(x.clone().requires_grad_())
    w = torch.from_numpy(W).cuda().requires_grad_()
    with pytest.raises(mf.UnsupportedError, match=r"'w'.*requires grad.*detach"):
        mf.fft.fft2(x, epilog=weighted(w=w))
    with pytest.raises(mf.UnsupportedError, match=r"out.*requires grad"):
        mf.fft.fft2(x, out=torch.empty_like(x).requires_grad_())
    saved = torch.ones(SHAPE, device="cuda", dtype=torch.complex64, requires_grad=True)
    out = torch.empty_like(x)
    product = (saved * out).abs().sum()
    mf.fft.fft2(x, out=out)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


@strategies
def test_lazy_conjugates(strategy):
    torch = TORCH.library
    x = torch.from_numpy(Z.copy()).cuda()
    plan = mf.fft.FFT(x.conj(), kind="fft2").plan(epilog=weighted(w=x.conj().imag), strategy=strategy)
    expected = np.fft.fft2(Z.conj().astype(complex)) * -Z.imag
    close(TORCH.numpy(plan.execute()), expected)
    close(TORCH.numpy(mf.fft.fft2(x.conj())), np.fft.fft2(Z.conj()))
    with pytest.raises(mf.UnsupportedError, match="lazily conjugated"):
        plan.execute(out=torch.empty_like(x).conj())


def test_jax_arrays_in_and_out():
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("this JAX has no GPU")
    x, w = jax.numpy.asarray(Z), jax.numpy.asarray(W)
    for strategy in ("kernel", "callback", "sequence"):
        plan = mf.fft.FFT(x, kind="fft2").plan(epilog=weighted(w=w), strategy=strategy)
        found = plan.execute()
        assert isinstance(found, jax.Array)
        assert found.device.platform in ("gpu", "cuda")
        close(np.asarray(found), SPECTRUM * W)
        close(np.asarray(plan.reset_operands(2 * x).execute()), 2 * SPECTRUM * W)
    close(np.asarray(jax.numpy.abs(mf.fft.fft2(x * 2))), np.abs(2 * SPECTRUM))
    with pytest.raises(mf.UnsupportedError, match="read-only"):
        mf.fft.fft2(x, out=x)


def test_numba_arrays_in_and_out():
    cuda = pytest.importorskip("numba.cuda")
    x = cuda.to_device(Z)
    found = mf.fft.fft2(x, epilog=weighted(w=cuda.to_device(W)))
    assert cuda.is_cuda_array(found)
    close(found.copy_to_host(), SPECTRUM * W)


def test_arrays_of_several_frameworks_in_one_plan():
    torch = TORCH.library
    w = torch.from_numpy(W.copy()).cuda()
    plan = mf.fft.FFT(CUPY.array(Z), kind="fft2").plan(epilog=weighted(w=w))
    close(CUPY.numpy(plan.execute()), SPECTRUM * W)
    w *= 2
    TORCH.synchronize()
    close(CUPY.numpy(plan.execute()), 2 * SPECTRUM * W)


@strategies
def test_numpy_arrays_on_the_gpu(strategy):
    x, w = Z.copy(), W.copy()
    plan = mf.fft.FFT(x, kind="fft2").plan(epilog=weighted(w=w), **HOST.choices(strategy))
    found = plan.execute()
    assert type(found) is np.ndarray
    close(found, SPECTRUM * W)
    x *= 2  # the input is copied at each run
    close(plan.execute(), 2 * SPECTRUM * W)
    out = np.zeros((40, 24), np.complex64).T
    assert plan.execute(out=out) is out
    close(out, 2 * SPECTRUM * W)
    kept = np.zeros_like(Z)
    mf.fft.fft2(Z, prolog=keep(kept=kept), **HOST.choices(strategy))
    np.testing.assert_array_equal(kept, Z)
    image = np.abs(Z)
    blurred = mf.fft.spectral_filter(image, mf.gaussian(sigma=1.0), **HOST.choices(strategy))
    close(blurred, mf.fft.spectral_filter(image, mf.gaussian(sigma=1.0)))


@on_gpu
def test_the_cpu_refuses_a_gpus_arrays(space):
    with pytest.raises(mf.UnsupportedError, match=r'x is on .*a CPU pipeline does not read.*execution="cuda"'):
        mf.fft.fft2(space.array(Z), execution="cpu")
    with pytest.raises(mf.UnsupportedError, match=r"operand 'w' is on .*a CPU pipeline does not read"):
        mf.fft.fft2(Z, epilog=weighted(w=space.array(W)))


def test_host_tensors_are_not_moved_silently():
    torch = TORCH.library
    with pytest.raises(mf.PlanError, match=r"x is in CPU memory.*array\.cuda\(\)"):
        mf.fft.fft2(torch.from_numpy(Z.copy()), execution="cuda")
    with pytest.raises(mf.PlanError, match="strategy='cpu' does not run on an array on a GPU"):
        mf.fft.fft2(CUPY.array(Z), strategy="cpu")


# --- several GPUs


@on_gpu
@strategies
@pytest.mark.multigpu
def test_a_plan_runs_where_its_input_is(space, strategy):
    with space.at(1):
        x, w = space.array(Z), space.array(W)
        out = space.array(np.zeros_like(Z))
        space.synchronize()
    with space.at(0):
        plan = mf.fft.FFT(x, kind="fft2").plan(epilog=weighted(w=w), strategy=strategy)
        found = plan.execute()
        assert space.device_of(found) == 1
        assert plan.execute(out=out) is out
        with space.at(1):
            space.synchronize()
        close(space.numpy(found), SPECTRUM * W)
        close(space.numpy(out), SPECTRUM * W)
        assert space.device_of(space.array(Z)) == 0  # the current one is as it was


@on_gpu
@pytest.mark.multigpu
def test_operands_on_another_gpu(space):
    with space.at(1):
        w, out = space.array(W), space.array(np.zeros_like(Z))
    with space.at(0):
        x = space.array(Z)
        with pytest.raises(mf.PlanError, match="operand 'w' is on GPU 1 and x on GPU 0"):
            mf.fft.fft2(x, epilog=weighted(w=w))
        with pytest.raises(mf.PlanError, match="out is on GPU 1, the plan on GPU 0"):
            mf.fft.fft2(x, out=out)


@pytest.mark.multigpu
@strategies
def test_one_problem_on_two_gpus_at_once(strategy):
    plans = []
    for device in (0, 1):
        with CUPY.at(device):
            w = CUPY.array((1 + device) * W)
            plan = mf.fft.FFT(CUPY.array(Z), kind="fft2").plan(epilog=weighted(w=w), strategy=strategy)
            plans.append((device, plan))
    for device, plan in [*plans, *plans[::-1]]:
        with CUPY.at(1 - device):
            found = plan.execute()
        with CUPY.at(device):
            CUPY.synchronize()
            close(CUPY.numpy(found), (1 + device) * SPECTRUM * W)
