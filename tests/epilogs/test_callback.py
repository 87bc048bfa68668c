"""Callbacks as values: binding, chains, identity, copies and representation."""

from __future__ import annotations

import copy
import math
import re
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mathfuse.epilogs as mf
from mathfuse.runtime.errors import CallbackError


@mf.epilog
def affine(value, index, factor, term=0.0):
    return value * factor + term


@mf.epilog
def shifted(value, offset):
    return value + offset


@mf.prolog
def difference(value, index, source):
    return source[index] - value


# ---- binding


def test_binding_gives_a_new_value_and_defaults_are_bound():
    assert affine.free == ("factor",)
    assert affine.bound == {"term": 0.0}
    bound = affine(factor=2)
    assert affine.free == ("factor",)
    assert bound.free == ()
    assert bound.bound == {"factor": 2, "term": 0.0}
    assert bound(factor=3).bound == {"factor": 3, "term": 0.0}
    assert bound() == bound


def test_the_order_of_binding_does_not_matter():
    assert affine(factor=2)(term=1) == affine(term=1)(factor=2) == affine(term=1, factor=2)


def test_an_operand_may_have_any_name_that_is_not_reserved():
    @mf.epilog
    def odd(value, self, function, kind, positional):
        return value * self

    assert odd(self=1, function=2, kind=3, positional=4).bound == {"self": 1, "function": 2, "kind": 3, "positional": 4}


def test_a_callback_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        affine.kind = "prolog"
    with pytest.raises(FrozenInstanceError):
        affine.links[0].fastmath = False
    with pytest.raises(TypeError):
        affine.bound["term"] = 1.0


@pytest.mark.parametrize(
    ("bind", "message"),
    [
        (
            lambda: affine(1.0),
            "bind by name, callback(factor=…, term=…). To run the plain function, write "
            "callback.function(value=…, index=…, factor=…, term=…)",
        ),
        (
            lambda: mf.relu(1.0),
            "it has no operands to bind. To run the plain function, write callback.function(value=…)",
        ),
        (
            lambda: affine(value=1.0),
            "`value` cannot be bound, the pipeline gives it for each element. To run the plain",
        ),
        (lambda: affine(source=1.0), "`source` cannot be bound"),
        (lambda: affine(sigma=1.0), "there is no operand 'sigma': its operands are factor, term"),
        (lambda: affine(sigma=1.0, gamma=2), "there is no operand 'sigma', 'gamma': its operands are factor, term"),
        (lambda: mf.relu(sigma=1.0), "there is no operand 'sigma': it has no operands"),
        (lambda: affine(factor=[1, 2]), "operand 'factor' cannot be a list: pass numpy.asarray(factor)"),
        (lambda: (mf.gelu | shifted)(sigma=1), "there is no operand 'sigma': its operands are offset"),
    ],
)
def test_bindings_without_a_meaning(bind, message):
    with pytest.raises(CallbackError, match=re.escape(message)):
        bind()


def test_binding_errors_name_the_function_and_its_place():
    where = rf"epilog 'affine' \({re.escape(__file__)}:\d+\): .*\n    def affine\(value, index, factor, term=0.0\):$"
    with pytest.raises(CallbackError, match=where):
        affine(sigma=1)


def test_errors_of_a_chain_name_every_function():
    chain = affine | shifted
    where = [rf"'{name}' \({re.escape(__file__)}:\d+\)" for name in ("affine", "shifted")]
    quoted = r"\n    def affine\(value, index, factor, term=0.0\):\n    def shifted\(value, offset\):$"
    with pytest.raises(
        CallbackError, match=rf"^epilog {where[0]} \| {where[1]}: there is no operand 'sigma'.*{quoted}"
    ):
        chain(sigma=1)
    with pytest.raises(CallbackError, match=rf"^epilog {where[0]} \| {where[0]}: .* both have an operand 'factor'"):
        affine | affine
    with pytest.raises(CallbackError, match=rf"^chain {where[0]} \| {where[1]}: a chain is of one kind"):
        affine | mf.prolog(shifted)


# ---- chains


def test_a_chain_applies_the_left_one_first():
    chain = affine(factor=2) | shifted(offset=3)
    assert len(chain.links) == 2
    assert chain.function(value=5, index=(0,), shape=(1,), axes=(0,)) == 13
    assert (shifted(offset=3) | affine(factor=2)).function(value=5, index=(0,)) == 16


def test_chains_of_chains_are_flat():
    a, b, c = affine(factor=2), shifted(offset=3), mf.relu
    assert (a | b) | c == a | (b | c)
    assert hash((a | b) | c) == hash(a | (b | c))
    assert a | b != b | a


def test_binding_on_a_chain_binds_the_link_that_has_the_name():
    chain = affine | shifted
    assert chain.free == ("factor", "offset")
    assert chain.operands == ("factor", "term", "offset")
    assert chain(offset=1, factor=2) == affine(factor=2) | shifted(offset=1)


def test_the_function_of_a_chain():
    chain = affine | shifted(offset=3)
    assert chain.function(value=5, index=(0,), factor=2) == 13
    assert chain.function(value=5, index=(0,), factor=2, offset=4) == 14
    assert chain.function.__name__ == repr(chain) == "affine(factor, term=0.0) | shifted(offset=3)"
    with pytest.raises(TypeError, match="factor"):
        chain.function(value=5, index=(0,))
    with pytest.raises(TypeError, match="unexpected keyword argument 'gamma'"):
        chain.function(value=5, index=(0,), factor=2, gamma=1)


def test_the_function_of_a_chain_reads_source_and_constants():
    source, table = np.arange(4.0), np.arange(4.0)

    @mf.prolog
    def looked_up(value, index, table):
        return value + table[index]

    chain = difference | looked_up(table=mf.constant(table))
    assert chain.function(value=1.0, index=(3,), shape=(4,), axes=(0,), source=source) == 5.0


def test_a_chain_is_of_one_kind():
    message = re.escape("hann() is of kind prolog, relu() of kind epilog: write mf.prolog(…) around the second")
    with pytest.raises(CallbackError, match=message):
        mf.hann | mf.relu
    assert (mf.hann | mf.prolog(mf.relu)).kind == "prolog"


def test_only_the_first_link_reads_source():
    assert (difference | mf.prolog(mf.relu)).kind == "prolog"
    with pytest.raises(CallbackError, match="only the first callback of a chain can read `source`: put it first"):
        mf.hann | difference


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {}),
        ({"factor": 2}, {}),
        ({}, {"factor": 2}),
        ({"factor": 2}, {"factor": 2.0}),
        ({"factor": 2}, {"factor": 3}),
    ],
)
def test_an_operand_name_of_two_links_needs_one_value(first, second):
    with pytest.raises(CallbackError, match="both have an operand 'factor', and not one value for it: bind both"):
        mf.scale(**first) | mf.multiply(**second)


def test_one_array_for_two_links():
    array = np.zeros(3)
    chain = mf.scale(factor=array) | mf.multiply(factor=array)
    assert chain.bound == {"factor": array}
    assert chain(factor=2) == mf.scale(factor=2) | mf.multiply(factor=2)
    assert len((mf.scale(factor=math.nan) | mf.multiply(factor=math.nan)).links) == 2
    with pytest.raises(CallbackError, match="both have an operand 'factor'"):
        mf.scale(factor=array) | mf.multiply(factor=array.copy())


@pytest.mark.parametrize("other", [3, None, np.zeros(3), "relu"])
def test_only_callbacks_can_be_chained(other):
    with pytest.raises(CallbackError, match=r"which is not a callback: `\|` joins callbacks only"):
        mf.relu | other
    with pytest.raises(CallbackError, match=r"which is not a callback: `\|` joins callbacks only"):
        other | mf.relu


def test_a_plain_function_must_be_decorated_before_it_is_chained():
    def plain(value):
        return value

    with pytest.raises(
        CallbackError, match=r"cannot chain with plain, which is not a callback: decorate it with @mf\.epilog"
    ):
        mf.relu | plain


# ---- kinds


def test_an_epilog_can_be_a_prolog_and_back():
    assert mf.relu.as_kind("epilog") is mf.relu
    assert mf.relu.as_kind("prolog").kind == "prolog"
    assert mf.relu.as_kind("prolog") != mf.relu
    assert mf.relu.as_kind("prolog").as_kind("epilog") == mf.relu
    assert mf.hann.as_kind("epilog").kind == "epilog"


def test_a_prolog_that_reads_source_cannot_be_an_epilog():
    with pytest.raises(CallbackError, match="only a prolog can read `source`"):
        difference.as_kind("epilog")


# ---- identity

SCALARS = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.complex_numbers(),
    st.floats().map(np.float64),
    st.floats(width=32).map(np.float32),
    st.floats(width=16).map(np.float16),
    st.integers(-(2**31), 2**31 - 1).map(np.int32),
    st.integers(0, 255).map(np.uint8),
    st.complex_numbers().map(np.complex128),
    st.booleans().map(np.bool_),
)


@pytest.mark.parametrize(
    "values",
    [
        (1, 1.0, True, 1 + 0j, np.float64(1), np.float32(1), np.int64(1), np.int32(1), np.bool_(True), np.complex64(1)),
        (
            0.0,
            -0.0,
            complex(0, 0),
            complex(-0.0, 0),
            complex(0, -0.0),
            np.float64(0),
            np.float64(-0.0),
            np.float32(-0.0),
        ),
        (math.nan, 0.0, np.float32(np.nan), np.float64(np.nan), complex(math.nan, 0), complex(0, math.nan)),
        (np.zeros(3), np.zeros(3), np.zeros(()), 0.0),
    ],
)
def test_bound_values_compare_with_their_types(values):
    callbacks = [mf.scale(factor=value) for value in values]
    assert len(set(callbacks)) == len(values)
    assert [callbacks.index(callback) for callback in callbacks] == list(range(len(values)))


def test_nan_equals_itself_however_it_was_made():
    assert mf.scale(factor=math.nan) == mf.scale(factor=-float("nan")) == mf.scale(factor=math.inf - math.inf)
    assert mf.scale(factor=np.float32("nan")) == mf.scale(factor=-np.float32("nan"))


@given(SCALARS, SCALARS)
def test_equality_follows_type_and_value(a, b):
    one, other = mf.scale(factor=a), mf.scale(factor=b)
    assert (one == other) == ((type(a), repr(a)) == (type(b), repr(b)))
    assert mf.scale(factor=copy.deepcopy(a)) == one
    assert hash(mf.scale(factor=copy.deepcopy(a))) == hash(one)
    if one == other:
        assert hash(one) == hash(other)


def test_arrays_and_functions_compare_as_objects():
    array = np.arange(3.0)
    assert mf.scale(factor=array) == mf.scale(factor=array)
    assert hash(mf.scale(factor=array)) == hash(mf.scale(factor=array))
    assert mf.scale(factor=array) != mf.scale(factor=array[:])
    assert mf.scale(factor=mf.constant(array)) == mf.scale(factor=mf.constant(array))
    assert hash(mf.scale(factor=mf.constant(array))) == hash(mf.scale(factor=mf.constant(array)))
    assert mf.scale(factor=mf.constant(array)) != mf.scale(factor=array)
    assert mf.scale(factor=2) != mf.multiply(factor=2)
    assert mf.epilog(affine.function) == affine


def test_options_and_kind_are_part_of_the_identity():
    assert mf.epilog(affine, fastmath=False) != affine
    assert mf.epilog(affine, precision="float64") != affine
    assert mf.prolog(affine) != affine
    assert affine != "affine"
    assert affine.links[0] != "affine"


def test_a_bound_default_equals_the_default():
    assert mf.leaky_relu(slope=0.01) == mf.leaky_relu
    assert mf.leaky_relu(slope=np.float64(0.01)) != mf.leaky_relu


# ---- copies


def test_a_copy_keeps_the_arrays_and_a_deep_copy_copies_them():
    array = np.arange(3.0)
    chain = mf.scale(factor=array) | mf.multiply(factor=array) | mf.epilog(lambda value: value + 1)
    assert copy.copy(chain) == chain
    assert copy.copy(chain).bound["factor"] is array
    deep = copy.deepcopy(chain)
    assert [link.function for link in deep.links] == [link.function for link in chain.links]
    assert deep.bound["factor"] is not array
    np.testing.assert_array_equal(deep.bound["factor"], array)
    assert dict(deep.links[0].bindings)["factor"] is dict(deep.links[1].bindings)["factor"]


# ---- representation


def test_repr():
    array = np.zeros((3, 4), np.float32)
    assert repr(mf.gaussian(sigma=8.0) | mf.scale(factor=2)) == "gaussian(sigma=8.0) | scale(factor=2)"
    assert repr(affine) == "affine(factor, term=0.0)"
    assert repr(affine(factor=array)) == "affine(factor=float32[3, 4], term=0.0)"
    assert repr(affine(factor=mf.constant(array))) == "affine(factor=constant(float32[3, 4]), term=0.0)"
    assert repr(mf.scale(factor=np.float32(2))) == f"scale(factor={np.float32(2)!r})"
    assert repr(mf.epilog(lambda value: value)) == "<lambda>()"
