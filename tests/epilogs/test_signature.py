"""What may be decorated, and what the messages say where it may not."""

from __future__ import annotations

import functools
import math
import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from mathfuse.epilogs import Callback, epilog, prolog
from mathfuse.runtime.errors import CallbackError


def silu(value, index, bias, gate=1.0):
    y = value + bias[index[-1]]
    return y / (1 + math.exp(-y)) * gate


class Model:
    weight = 2.0

    def method(self, value):
        return value * self.weight

    def __call__(self, value):
        return value * self.weight


def test_the_parameters_are_sorted_by_name():
    def function(sigma, shape, value, *, index, low=1, source, axes):
        return value

    link = prolog(function).links[0]
    assert link.parameters == ("sigma", "shape", "value", "index", "low", "source", "axes")
    assert link.reserved == ("shape", "value", "index", "source", "axes")
    assert link.operands == ("sigma", "low")
    assert link.bindings == (("low", 1),)


@pytest.mark.parametrize("decorate", [epilog, prolog])
def test_bare_and_with_options(decorate):
    bare, optioned = decorate(silu), decorate(fastmath=False, precision="float64")(silu)
    assert isinstance(bare, Callback)
    assert isinstance(optioned, Callback)
    assert bare.function is optioned.function is silu
    assert (bare.links[0].fastmath, bare.links[0].precision) == (True, None)
    assert (optioned.links[0].fastmath, optioned.links[0].precision) == (False, "float64")
    assert bare.kind == decorate.__name__


def test_a_decorated_callback_keeps_its_bindings_and_options():
    bound = epilog(silu, fastmath=False)(bias=np.zeros(3), gate=2.0)
    again = epilog(bound, precision="float64")
    assert again.bound == bound.bound
    assert (again.links[0].fastmath, again.links[0].precision) == (False, "float64")
    assert epilog(bound) == bound
    assert prolog(bound).kind == "prolog"


def test_lambdas_nested_functions_closures_and_exec():
    factor = 3.0

    def nested(value):
        return value * factor

    namespace: dict = {}
    exec("def made(value, term): return value + term", namespace)
    assert epilog(lambda value: value + 1).function(value=2) == 3
    assert epilog(nested).function(value=2) == 6
    assert epilog(namespace["made"]).function(value=2, term=3) == 5
    with pytest.raises(CallbackError, match=r"epilog 'made' \(<string>:1\): there is no operand 'other'"):
        epilog(namespace["made"])(other=1)


def test_a_numba_dispatcher_stands_for_its_python_function():
    numba = pytest.importorskip("numba")
    assert epilog(numba.njit(silu)).function is silu
    assert epilog(numba.njit(silu)).free == ("bias",)


def test_it_reads_like_the_function():
    callback = epilog(gelu_like)
    assert callback.__name__ == callback.__qualname__ == "gelu_like"
    assert callback.__doc__ == "A docstring."
    assert callback.__module__ == __name__
    assert callback.__wrapped__ is gelu_like


def gelu_like(value):
    """A docstring."""
    return value


async def asynchronous(value):
    return value


def generator(value):
    yield value


async def asynchronous_generator(value):
    yield value


def positional_only(value, /, sigma):
    return value * sigma


def starred(value, *rest):
    return value


def keywords(value, **rest):
    return value


def nothing_reserved(x, sigma):
    return x * sigma


def reserved_default(value, index=()):
    return value


def list_default(value, *, weights=[1, 2]):  # noqa: B006
    return value


def none_default(value, weight=None):
    return value


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (asynchronous, "an async function cannot be a callback: write a plain `def`"),
        (generator, "a generator cannot be a callback: return one value instead of yielding"),
        (asynchronous_generator, "a generator cannot be a callback"),
        (positional_only, "remove the `/`"),
        (starred, "*args has no meaning in a callback: name every operand"),
        (keywords, "**kwargs has no meaning in a callback: name every operand"),
        (nothing_reserved, "it takes none of value, index, shape, axes, source: call the element `value`"),
        (reserved_default, "`index` is given by the pipeline: remove its default"),
        (list_default, "bad default: operand 'weights' cannot be a list: pass numpy.asarray(weights)"),
        (
            none_default,
            "bad default: operand 'weight' cannot be a NoneType: bind a number or an array, or leave weight",
        ),
    ],
)
@pytest.mark.parametrize("decorate", [epilog, prolog])
def test_signatures_without_a_meaning(decorate, function, message):
    with pytest.raises(CallbackError, match=re.escape(message)):
        decorate(function)


def test_an_epilog_has_no_source():
    with pytest.raises(
        CallbackError, match="only a prolog can read `source`, the whole input: use `value` and `index`"
    ):
        epilog(lambda value, source: value)


@pytest.mark.parametrize(
    ("candidate", "message"),
    [
        (
            functools.partial(silu, gate=2),
            "decorate the function itself and bind by name, epilog(function)(name=value)",
        ),
        (Model().method, "method is a method: write a function, and pass what it reads from its object as operands"),
        (Model, "Model is a type: write a function, and pass the state of the class as operands"),
        (staticmethod(silu), "silu is a staticmethod: write @staticmethod above @epilog, not below it"),
        (classmethod(silu), "write @staticmethod above @epilog"),
        (math.exp, "exp is a builtin_function_or_method: wrap it, epilog(lambda value: exp(value))"),
        (np.exp, "exp is a ufunc: wrap it, epilog(lambda value: exp(value))"),
        (Model(), "is a Model: decorate a function, @epilog above its `def`"),
        (3.0, "epilog takes a plain Python function, and 3.0 is a float: decorate a function"),
    ],
)
def test_what_is_no_plain_function(candidate, message):
    with pytest.raises(CallbackError, match=re.escape(message)):
        epilog(candidate)


def test_options_are_checked():
    with pytest.raises(CallbackError, match="precision='float32': write precision='float64', or leave it out"):
        epilog(precision="float32")
    with pytest.raises(CallbackError, match="fastmath=1: write True or False"):
        prolog(silu, fastmath=1)  # type: ignore[call-overload]


def test_errors_name_file_line_and_function_and_quote_the_definition():
    def decorated(value, *values):
        return value

    line = decorated.__code__.co_firstlineno
    with pytest.raises(CallbackError) as caught:
        epilog(decorated)
    assert f"epilog 'decorated' ({__file__}:{line}):" in str(caught.value)
    assert str(caught.value).endswith("\n    def decorated(value, *values):")


def test_the_quoted_line_is_below_the_decorators():
    @epilog
    @(lambda function: function)
    def decorated(value, sigma):
        return value

    with pytest.raises(CallbackError, match=r"\n    def decorated\(value, sigma\):$"):
        decorated(gamma=1)


def test_in_a_notebook_messages_name_the_cell(monkeypatch):
    """IPython compiles a cell as a temporary file, whose name tells a reader nothing."""
    shell = SimpleNamespace(compile=SimpleNamespace(format_code_name=lambda name: ("Cell", "In[3]")))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    with pytest.raises(CallbackError, match=r"\(Cell In\[3\]:\d+\)"):
        epilog(lambda *value: value)
    shell.compile.format_code_name = lambda name: None  # a function from a module
    with pytest.raises(CallbackError, match=r"test_signature\.py"):
        epilog(lambda *value: value)
