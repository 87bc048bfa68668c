"""From the decorated function to numbers: ready-made callbacks, chains, the front end, what is compiled again."""

from __future__ import annotations

import logging
import math
import threading
from types import ModuleType
from typing import NamedTuple

import hypothesis
import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest

import mathfuse as mf
from mathfuse.fusion.compiler.language.frontend import frontend, quote

from .harness import COMPLEXES, REALS, assert_close, define, kernel_for, plain, run

RNG = np.random.default_rng(3)
EDGES = [0.0, -0.0, 40, -40, 200, -200, 1e-30, math.inf, -math.inf, math.nan]
FULL = RNG.normal(size=(3, 4, 5))

REAL = {
    "relu": mf.relu,
    "leaky_relu": mf.leaky_relu,
    "leaky_relu by channel": mf.leaky_relu(slope=np.float32([[0.1], [0.2], [0.3], [0.4]])),
    "gelu": mf.gelu,
    "gelu_tanh": mf.gelu_tanh,
    "silu": mf.silu,
    "sigmoid": mf.sigmoid,
    "tanh": mf.tanh,
    "clamp": mf.clamp(low=-1, high=0.5),
    "clamp to arrays": mf.clamp(low=-abs(FULL[0]), high=0.3),
}
EITHER = {
    "scale": mf.scale(factor=0.1),
    "add": mf.add(term=math.pi),
    "multiply": mf.multiply(factor=FULL.astype(np.float32)),
    "bias": mf.bias(bias=np.arange(5, dtype=np.float32)),
    "normalise": mf.normalise(mean=FULL[:, :1, :1].astype(np.float32), deviation=2.5),
    "power_spectrum": mf.power_spectrum,
    "conjugate_multiply": mf.conjugate_multiply(spectrum=(FULL + 1j).astype(np.complex64)),
    "gaussian": mf.gaussian(sigma=0.7),
    "band_pass": mf.band_pass(low=0.2, high=0.45),
    "hann": mf.hann,
    "hamming": mf.hamming,
}


def close(found, expected, absolute=2e-6):
    double = found.dtype in (np.float64, np.complex128)
    np.testing.assert_allclose(found, expected, rtol=1e-12 if double else 2e-6, atol=1e-14 if double else absolute)


# --- ready-made callbacks ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("name", REAL)
def test_ready_made_callbacks_of_reals(name, dtype):
    x = (4 * FULL).astype(dtype)
    wide = plain(REAL[name], x)
    found = run(REAL[name], x)
    assert found.dtype == (np.float64 if name == "clamp to arrays" else dtype)
    close(found, wide)
    if "arrays" not in name and "channel" not in name:
        edges = np.array(EDGES, dtype)
        expected = plain(REAL[name], edges)
        np.testing.assert_allclose(run(REAL[name], edges), expected, rtol=1e-6, atol=1e-37)


@pytest.mark.parametrize("dtype", [*REALS, *COMPLEXES])
@pytest.mark.parametrize("name", EITHER)
def test_ready_made_callbacks_of_any_type(name, dtype):
    x = (FULL * (1 + 0.5j) if dtype in COMPLEXES else FULL).astype(dtype)
    for axes in ((0, 1, 2), (1,), (2, 0)):
        close(run(EITHER[name], x, axes), plain(EITHER[name], x, axes))


@hypothesis.settings(max_examples=20)
@hypothesis.given(hnp.array_shapes(max_dims=5, max_side=5), st.data())
def test_filters_and_windows_at_any_rank_and_axes(shape, data):
    axes = tuple(data.draw(st.lists(st.integers(0, len(shape) - 1), unique=True)))
    callback = data.draw(st.sampled_from([mf.gaussian(sigma=0.7), mf.band_pass(low=0, high=0.4), mf.hann, mf.hamming]))
    x = RNG.normal(size=shape)
    close(run(callback, x, axes), plain(callback, x, axes))
    half = tuple(2 * n - 1 for n in shape)  # the extents shown need not be those of the array
    close(run(callback, x, axes, shape=half), plain(callback, x, axes, shape=half))


# --- chains -----------------------------------------------------------------------------------------------------------


def test_chains_apply_the_first_link_first():
    chain = mf.bias(bias=np.arange(5.0)) | mf.relu | mf.scale(factor=3)
    close(run(chain, FULL), 3 * np.maximum(FULL + np.arange(5), 0))
    close(run(chain, FULL), plain(chain, FULL))


def test_types_flow_through_a_chain():
    z = (FULL + 1j * FULL[::-1]).astype(np.complex64)
    power = mf.power_spectrum | mf.epilog(lambda value: math.sqrt(value) * 2)
    found = run(power, z)
    assert found.dtype == np.float32
    close(found, 2 * abs(z.astype(complex)))
    to_complex = mf.prolog(lambda value: value / 255) | mf.prolog(lambda value: value * 1j)
    pixels = np.arange(256, dtype=np.uint8)
    assert run(to_complex, pixels).dtype == np.complex64
    close(run(to_complex, pixels), pixels / 255 * 1j)


def test_a_chain_with_source_and_one_operand_in_two_links():
    difference = mf.prolog(lambda value, index, source, k: (value - source[index[0] - 1]) * k)
    again = mf.prolog(lambda value, k: value + k)
    x = np.arange(4.0) ** 2
    assert run(difference(k=2.0) | again(k=2.0), x).tolist() == [2 * (0 - 9) + 2, 4, 8, 12]


def test_a_link_may_return_a_constant_or_an_operand():
    x = np.ones(3, np.float32)
    constant = mf.epilog(lambda value: 2) | mf.epilog(lambda value: value + 0.5)
    assert run(constant, x).tolist() == [2.5] * 3
    operand = mf.epilog(lambda value, w: w)(w=np.arange(3.0)) | mf.scale(factor=2)
    assert run(operand, x).tolist() == [0, 2, 4]


def test_fastmath_counts_link_by_link():
    tiny = np.finfo(np.float32).smallest_subnormal
    x = np.array([3 * tiny], np.float32)
    exact = mf.epilog(lambda value: value + 0, fastmath=False)
    assert run(exact | exact, x)[0] == x[0]


# --- what a function may be -------------------------------------------------------------------------------------------


def test_lambdas_methods_and_nested_functions():
    def outer(scale):
        def inner(value):
            return value * scale

        return inner

    for function in (lambda value: value * 2.5, outer(2.5), mf.epilog(outer(2.5)).function):
        close(run(function, FULL), FULL * 2.5)


class Point(NamedTuple):
    x: float
    y: np.ndarray


POINT = Point(np.float64(2.5), np.arange(5.0))
settings = ModuleType("settings")
settings.inner = ModuleType("settings.inner")
settings.inner.OFFSET = 1.5


def test_captured_named_tuples_and_modules_of_modules():
    def function(value, index):
        point = POINT if len(index) > 2 else None
        return value * point.x + POINT.y[index[-1]] + settings.inner.OFFSET

    close(run(function, FULL), FULL * 2.5 + np.arange(5) + 1.5)


def test_a_constant_result_of_any_size():
    x = np.ones(2, np.float32)
    assert run(lambda value: 2**70, x).tolist() == [2.0**70] * 2
    assert run(lambda value: -(2**63), x).tolist() == [-(2**63)] * 2


def test_rebinding_a_global_takes_effect():
    scope = {}
    exec("def function(value):\n    return value * FACTOR\n", scope)
    for factor in (2, 3.5):
        scope["FACTOR"] = factor
        close(run(scope["function"], FULL), FULL * factor)


def test_reserved_parameters_in_any_order():
    def function(axes, w, shape, index, value):
        return value + w[index[axes[0]]] * shape[-1]

    w = np.arange(4.0)
    close(run(function, FULL, (1,), w=w), FULL + w[:, None] * 5)


def test_axes_are_compile_time_and_index_is_run_time():
    def function(value, index, axes):
        shuffled = axes[::-1] + (0,)  # noqa: RUF005
        return value + (index[shuffled[0]] if len(axes) == 2 else len(shuffled)) * 10

    close(run(function, FULL, (0, 2)), FULL + 10 * np.arange(5))
    close(run(function, FULL, (1,)), FULL + 20)


def test_every_rank_from_one_to_six():
    def function(value, index, shape):
        total = 0
        for i, n in zip(index, shape):
            total = total * n + i
        return value + total

    for rank in range(1, 7):
        x = np.zeros(tuple(range(2, 2 + rank)) if rank < 5 else (2,) * rank)
        assert run(function, x).ravel().tolist() == list(range(x.size))


def test_empty_arrays():
    for shape in ((0,), (3, 0), (0, 2)):
        assert run(mf.gaussian(sigma=1.0), np.zeros(shape)).shape == shape


# --- the front end ----------------------------------------------------------------------------------------------------


def test_liveness_and_assignments():
    def function(value, k):
        total = 0.0
        while k > 0:
            total += value
            k -= 1
        return total

    code = frontend(function)
    assert code.first == min(code.blocks)
    assert {"arg.value", "arg.k"} <= code.live[code.first]
    inner = [names for label, names in code.live.items() if label != code.first]
    assert any({"total", "k", "value"} <= names for names in inner)
    assert code.assignments["total"] > 1
    assert code.assignments["value"] == 1


def test_our_own_functions_are_read_once_and_users_each_time():
    assert frontend(mf.signed_frequency) is frontend(mf.signed_frequency)
    function = define("def function(value): return value\n")
    assert frontend(function) is not frontend(function)


def test_quotes_are_those_of_a_traceback():
    @mf.epilog
    def decorated(value):
        return value

    where, text = quote(decorated.function).split("\n")
    assert where.endswith(f"{decorated.function.__code__.co_firstlineno + 1}, in decorated")
    assert where.startswith(__file__)
    assert text == "    def decorated(value):"
    nowhere = {}
    exec(compile("def function(value): return value", "<nowhere>", "exec"), nowhere)
    assert quote(nowhere["function"]) == "<nowhere>:1, in function"


# --- compiled once, used by many --------------------------------------------------------------------------------------


def test_one_helper_in_two_types_and_both_fastmath_modes():
    def helper(x, k):
        return x / 3 * k + helper_of_the_helper(x)

    def helper_of_the_helper(x):
        return x * 0.1

    def function(value):
        return helper(value, 2) + helper(value, 0.5)

    for fastmath in (True, False):
        for dtype in ("float32", "float64", "complex64"):
            x = np.linspace(-1, 1, 9).astype(dtype)
            found = run(mf.epilog(function, fastmath=fastmath), x)
            assert found.dtype == dtype
            assert_close(found, x.astype(complex if dtype == "complex64" else float) * (2.5 / 3 + 0.2), units=6)


def test_a_known_callback_is_not_compiled_again(caplog):
    with caplog.at_level(logging.INFO, "mathfuse"):
        first, _ = kernel_for(lambda value: value * 0.7251, FULL)
        made = len(caplog.records)
        second, _ = kernel_for(lambda value: value * 0.7251, FULL)
    assert made > 0
    assert len(caplog.records) == made
    assert first.function is second.function


def test_many_threads_compile_and_run_at_once():
    results, errors = {}, []

    def work(k):
        try:
            callback = mf.epilog(define(f"def function(value): return value * {k % 3} + np.sin(value)\n"))
            results[k] = run(callback, FULL)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    for k, found in results.items():
        close(found, FULL * (k % 3) + np.sin(FULL))
