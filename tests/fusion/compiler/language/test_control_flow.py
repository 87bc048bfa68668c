"""Statements of the callback language: loops, branches, inner functions, tuples; compiled and in plain Python alike."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest

import mathfuse as mf

from .harness import plain, run

X = np.linspace(-3, 4, 24).reshape(2, 3, 4)


def nested_loops(value, index, shape):
    total = 0.0
    for i in range(shape[0]):
        for j in range(index[1] + 1):
            total += value * i - j
    return total


def counts_down(value, index):
    total = value
    for i in range(index[2] + 5, -2, -3):
        total = total * 0.5 + i
    return total


def while_with_break_and_continue(value, index):
    k, total = 0, value
    while True:
        k += 1
        if k % 2 == index[1] % 2:
            continue
        if k > 7:
            break
        total += k * value
    return total


def loop_with_else(value, index):
    found = -1
    for k in range(40):
        if k * k > value * value * 10:
            found = k
            break
    else:
        found = 99
    for k in range(3):
        if k == index[2]:
            break
    else:
        found += 0.5
    return found


def large_constant_range(value):
    total = 0.0
    for i in range(1000):
        total += value / (i + 1)
    return total


def triple_loop_too_large_to_unroll(value):
    total = 0
    for i in range(16):
        for j in range(16):
            for k in range(16):
                if (i + j + k) % 3 == 0:
                    total += 1
    return total * value


def conditional_chain(value, index):
    if value < -1:
        result = 1.0
    elif value < 0.5 and index[2] != 1 or index[0]:  # noqa: RUF021
        result = value
    elif not value > 2:
        result = value * value
    else:
        result = 3
    return result


def ternaries(value, index):
    a = 1.0 if value > 0 else 2
    return (a if index[1] else -a) if value < 2 or index[2] == 3 else value


def and_or_give_operands(value, index):
    return (value > 0 and value) or (index[2] and 7.5) or -1


def chained_comparisons(value, index):
    return 1 if -1 < value <= 2 != index[1] else 0


def early_returns(value, index):
    if index[0] == 1:
        return 1
    for k in range(index[2]):
        if value > k:
            return value * k
    return -value


def returns_of_different_types(value, index):
    if index[2] == 0:
        return True
    if index[2] == 1:
        return 3
    if index[2] == 2:
        return value
    return value > 0


def loop_over_axes(value, index, shape, axes):
    total = 0.0
    for a in axes:
        total += index[a] / shape[a]
        for b in axes:
            if a == b:
                continue
            total -= 0.1 * index[b]
    return value * total


def zip_and_enumerate(value, index, shape, axes):
    total = 0
    for k, (i, n) in enumerate(zip(index, shape)):
        total += k * i - n
    for k, a in enumerate(axes, start=2):
        total *= 1 + a * k
    for i in reversed(index):
        total = total * 2 + i
    return value + total


def membership(value, index, axes):
    inside = 1 in axes
    return value if inside and index[2] in (0, 3) and index[1] not in (1, 5) else -value


def tuples(value, index, shape):
    a, b, c = index
    (d, e), f = (shape[0], shape[1]), shape[2]
    a, b = b, a
    both = (a, b) + index[1:]  # noqa: RUF005
    x = both[::-1][0]
    return value + a * 2 + b * 3 + c * 5 + d * e * f + len(both) + both[-1] + x + sum(index) + max(shape) + min(index)


def slices(value, index, shape):
    rows, inner = index[:-1], shape[-2:]
    return value + sum(rows) * math.prod(inner) + (1 if index[1:] == (2, 3) else 0) + len(index[::2])


def tuple_indexed_at_run_time(value, index, shape):
    axis = index[2] % 3
    total = 0
    for k in range(index[1] + 1):
        total += shape[k]
    weights = (0.5, value, 2)
    return total + index[axis] + weights[axis] + index[-axis - 1]


def lambdas(value, index):
    scale = 2 + index[0]
    square = lambda z: z * z * scale  # noqa: E731
    shift = lambda z, by=0.5: z + by  # noqa: E731
    return square(shift(value)) + shift(value, by=index[2])


def inner_functions(value, index):
    offset = value + 1

    def polynomial(x, degree: int = 2) -> float:
        result = 0.0
        for _ in range(degree + 1):
            result = result * x + offset
        return result

    def twice(f, x):
        return f(f(x))

    if index[1] > 0:
        return twice(polynomial, value)
    return polynomial(value, degree=index[2])


def function_chosen_by_a_branch(value, index):
    f = math.floor if index[2] % 2 else abs
    g = (lambda z: z + 1) if value > 0 else (lambda z: z * index[1])
    return f(g(value))


def inner_function_in_a_loop(value, axes):
    total = 0.0
    for a in axes:
        add = lambda z, a=a: z + a  # noqa: E731
        total += add(value)
    for k in range(30):
        shift = lambda z: z * k  # noqa: E731, B023
        total += shift(value) + (lambda z: z - k)(value)
    return total


def makes_functions(value):
    def adder(amount):
        return lambda z: z + amount

    return adder(value)(2) * adder(1)(value)


def assignment_expressions(value, index):
    a = b = value * 2
    return (n := index[0] + 1) * a + (m if (m := index[2]) > 1 else b) + n


def variables_of_several_types(value, index):
    x = index[2]
    y = x // 2
    if x > 1:
        x = value + 0.25
    z = None
    for k in (0, 1):
        z = x if z is None else z + x * k
    return x + y + z


def conversion_in_a_loop(value, index):
    k = 1
    for _ in range(index[2] + 2):
        k = k * 1.5
    return k + value


def swaps_in_a_loop(value, index):
    a, b = 0, 1
    for _ in range(index[2] + 3):
        a, b = b, a + b
    return value * a + b


def deletes(value, index):
    extra = index[0] + 1
    result = value * extra
    del extra
    return result


def matches(value, index):
    match index[2]:
        case 0:
            return value
        case 1 | 2:
            return value * 2
        case _:
            return -1


def starred_arguments(value, index):
    return max(*index) + math.hypot(*(value, 2)) + helper_with_star(1, *index)


def helper_with_star(first, *rest):
    total = first
    for k, x in enumerate(rest):
        total += k * x
    return total


def helper_with_defaults(x, scale=2, *, shift=0.0):
    return x * scale + shift


def calls_helpers(value, index):
    return (
        helper_with_defaults(value, shift=index[1]) + helper_with_defaults(scale=value, x=3) + nested_helpers(value, 3)
    )


def nested_helpers(x, depth):
    return helper_with_defaults(helper_with_defaults(x, depth), depth)


def in_place_operators(value, index):
    x, k = value, index[2] + 1
    x += 1
    x -= k
    x *= 2
    x /= 3
    x **= 2
    k <<= 2
    k >>= 1
    k |= 1
    k &= 7
    k ^= 2
    k %= 5
    k //= 2
    return x + k


def passes(value):
    """A docstring."""
    if value > 0:
        pass
    ...  # noqa: PIE790
    return +value


def many_branches(value, index):
    a = value if index[0] else 1.0
    b = value if index[1] else a
    c = value if index[2] else b
    d = a if index[0] > index[1] else c
    e = b if index[0] > index[2] else d
    f = c if index[2] > index[1] else e
    return a + 2 * b + 3 * c + 5 * d + 7 * e + 11 * f


def fixed_and_other_values_in_turn(value, index):
    total = 0
    for x in (value, value * 2, index[0], 3):
        if x > 1:
            total += x
    return total


def text_constants(value, mode="reflect"):
    return value if mode == "reflect" else -value


FUNCTIONS = [
    f for f in list(globals().values()) if getattr(f, "__code__", None) and "value" in f.__code__.co_varnames[:1]
]


@pytest.mark.parametrize("function", [f for f in FUNCTIONS if f is not text_constants], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_equals_python(function, dtype):
    x = X.astype(dtype)
    for axes in ((0, 1, 2), (1,), ()) if "axes" in function.__code__.co_varnames else ((0, 1, 2),):
        expected = plain(function, x, axes)
        np.testing.assert_allclose(
            run(function, x, axes), expected, rtol=1e-5 if dtype == "float32" else 1e-13, atol=1e-5
        )


def test_constant_branches_are_pruned():
    def by_rank(value, index):
        if len(index) == 3:
            return value + index[2]
        return value + index[7]

    def by_global(value):
        return text_constants(value, "reflect") if LEVEL > 1 else undefined_name(value)  # noqa: F821

    np.testing.assert_allclose(run(by_rank, X), X + np.arange(4))
    np.testing.assert_allclose(run(by_global, X), X)


LEVEL = 2


def test_complex_values_flow_through_branches_and_loops():
    def function(value, index):
        result = 0
        for k in range(index[0] + 1):
            if k == 1:
                result += value * 1j
            elif k > 1:
                result = result * value
        return result if index[0] else value.real

    z = np.array([1 + 2j, 0.5 - 1j, -2 + 0.25j, 3j])
    np.testing.assert_allclose(run(function, z), plain(function, z))


def test_ranges_are_as_in_python():
    def function(value, index, out, starts, stops):
        i = index[0]
        n = 0
        for k in range(starts[i], stops[i], 3):
            n += 100 + k
        m = 0
        for k in range(starts[i], stops[i], -2):
            m += 100 + k
        for k in range(stops[i]):
            n += k
        out[i] = n * 10000 + m
        return value

    pairs = [(a, b) for a in (-3, 0, 5) for b in (-4, -3, 0, 1, 5, 6, 9)]
    starts, stops = np.array(pairs).T.copy()
    out = np.zeros(len(pairs), np.int64)
    run(function, np.zeros(len(pairs)), out=out, starts=starts, stops=stops)
    expected = [
        (sum(100 + k for k in range(a, b, 3)) + sum(range(b))) * 10000 + sum(100 + k for k in range(a, b, -2))
        for a, b in pairs
    ]
    assert out.tolist() == expected


def test_two_ranges_of_different_steps_at_one_place():
    def function(value, index):
        total = 0
        for step in (1, 2, 5):
            for k in range(0, index[0] + 30, step):
                total += k * step
        return total

    x = np.zeros(3)
    np.testing.assert_array_equal(run(function, x), plain(function, x))


def test_a_loop_that_ends_at_once_and_unit_extents():
    def function(value, shape):
        total = value
        for k in range(shape[0] - 1):
            total += k
        return total

    np.testing.assert_array_equal(run(function, np.array([2.5])), [2.5])
    assert run(function, np.zeros(0)).shape == (0,)


def test_wrapped_functions_are_called_as_their_wrapper():
    def doubled(f):
        @functools.wraps(f)
        def wrapper(*args):
            return 2 * f(*args)

        return wrapper

    @doubled
    def square(x):
        return x * x

    np.testing.assert_allclose(run(lambda value: square(value), X), 2 * X * X)


def test_callbacks_and_dispatchers_serve_as_helpers():
    class Dispatcher:
        def __init__(self, function):
            self.py_func = function

        def __call__(self, *args):
            return self.py_func(*args)

    compiled = Dispatcher(lambda x: x + 1)
    np.testing.assert_allclose(run(lambda value: compiled(mf.relu(value)), X), np.maximum(X, 0) + 1)
