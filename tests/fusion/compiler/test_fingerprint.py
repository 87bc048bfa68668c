"""A fingerprint is the same wherever the same code runs, and another whenever what is compiled could be another."""

from __future__ import annotations

import builtins
import gc
import importlib
import itertools
import math
import os
import subprocess
import sys
import textwrap
import types
import weakref

import numpy as np
import pytest

import mathfuse.epilogs as mf
from mathfuse.fusion.compiler.fingerprint import describe, fingerprint, watch

COUNTER = itertools.count()


def load(text, **names):
    """A module of its own with this text, `mf`, `math`, `np` and `names` at hand."""
    module = types.ModuleType(f"user{next(COUNTER)}")
    module.__dict__.update(mf=mf, math=math, np=np, **names)
    exec(compile(textwrap.dedent(text), module.__name__, "exec"), module.__dict__)
    return module


def digest(text, **names):
    """The fingerprint of the callback `f` of a text, which may be a bare expression of `value`."""
    if "\n" not in text:
        text = f"@mf.epilog\ndef f(value, index, shape, axes, w=0): return {text}"
    return fingerprint(load(text, **names).f)


# ---- what counts


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("value * 2", "value * 3"),
        ("value * 2", "value * 2.0"),
        ("value * 1", "value * True"),
        ("value * 0.0", "value * -0.0"),
        ("value * 2j", "value * 2"),
        ("value * 0.1", "value * 0.10000000000000002"),
        ("value + 2", "value - 2"),
        ("value < 2", "value <= 2"),
        ("value if value > 0 else w", "w if value > 0 else value"),
        ("math.sin(value)", "math.cos(value)"),
        ("math.sin(value)", "np.sin(value)"),
        ("value.real", "value.imag"),
        ("index[0]", "index[-1]"),
        ("index[0]", "shape[0]"),
        ("index[0:1]", "index[0:2]"),
        ("(lambda x: x * 2)(value)", "(lambda x: x * 3)(value)"),
        ("(1, 2)[index[0]]", "(1, 2.0)[index[0]]"),
        ("value * (index[0] in {1, 2})", "value * (index[0] in {1, 3})"),
    ],
)
def test_other_code_is_another_fingerprint(one, other):
    assert digest(one) == digest(one)
    assert digest(one) != digest(other)


def test_signature_default_and_options_count():
    texts = [
        "@mf.epilog\ndef f(value, a, b): return value",
        "@mf.epilog\ndef f(value, b, a): return value",
        "@mf.epilog\ndef f(value, a, b=1): return value",
        "@mf.epilog\ndef f(value, a, b=2): return value",
        "@mf.epilog\ndef f(value, a, *, b=2): return value",
        "@mf.epilog\ndef f(value, a, *, b=2.0): return value",
        "@mf.epilog(fastmath=False)\ndef f(value, a, b): return value",
        "@mf.epilog(precision='float64')\ndef f(value, a, b): return value",
        "@mf.epilog\ndef g(value, a, b): return value\nf = g | g(a=1, b=1) if False else g(a=1, b=1) | g(a=1, b=1)",
    ]
    assert len({digest(text) for text in texts}) == len(texts)


@pytest.mark.parametrize(
    "values",
    [
        (1, 1.0, True, 1 + 0j, np.float32(1), np.float64(1), np.int8(1), np.int16(1), np.bool_(True)),
        (0.0, -0.0, math.nan, math.inf, 1e-320, 0, None, "0.0", b"0.0"),
        ((1, 2), (2, 1), (1, (2,)), (1, 2.0), (), slice(1, 2), slice(2, 1), range(1, 2)),
        (np.float32, np.float64, np.int32, float, int, complex, np.dtype("f4"), np.dtype("f8")),
        (np.exp, np.sin, math.exp, np.real, np.imag, abs, max, min, round),
        (np.zeros(2), np.zeros((2, 2)), np.zeros(2, "f4"), np.zeros(2, ">f8")),
        (math, np),
        (1 << 70, -(1 << 70)),
    ],
)
@pytest.mark.parametrize("where", ["global", "closure", "default of a helper", "in a tuple"])
def test_captured_values_count_with_their_types(values, where):
    text = {
        "global": "@mf.epilog\ndef f(value): return (value, K)",
        "closure": "def make(K):\n  @mf.epilog\n  def f(value): return (value, K)\n  return f\nf = make(K)",
        "default of a helper": "def h(x, k=K): return (x, k)\n@mf.epilog\ndef f(value): return h(value)",
        "in a tuple": "K = (1, (K,))\n@mf.epilog\ndef f(value): return (value, K)",
    }[where]
    digests = [digest(text, K=value) for value in values]
    assert len(set(digests)) == len(values)
    assert digests == [digest(text, K=value) for value in values]


HELPERS = """
def inner(x): return x * {number}
def outer(x): return inner(x) + 1
def make(k):
    def helper(x): return outer(x) * k
    return helper
scaled = make({captured})
@mf.epilog
def f(value): return scaled(value)
"""


def test_helpers_count_at_any_depth():
    variants = [HELPERS.format(number=number, captured=captured) for number in (2, 3) for captured in (2, 3)]
    assert len({digest(text) for text in variants}) == 4
    assert digest(variants[0]) == digest(variants[0])


def test_globals_count_as_they_are_now():
    module = load(HELPERS.format(number=2, captured=3))
    before = fingerprint(module.f)
    inner, module.inner = module.inner, lambda x: x * 5
    assert fingerprint(module.f) != before
    module.inner = inner
    assert fingerprint(module.f) == before
    module.abs = lambda x: x
    assert fingerprint(module.f) == before  # not named


def test_a_global_may_hide_a_builtin():
    module = load("@mf.epilog\ndef f(value): return abs(value)")
    before = fingerprint(module.f)
    module.abs = lambda x: x
    assert fingerprint(module.f) != before
    module.abs = builtins.abs
    assert fingerprint(module.f) == before


def test_mutual_recursion_ends():
    text = """
    def even(n): return True if n == 0 else odd(n - 1)
    def odd(n): return False if n == {number} else even(n - 1)
    @mf.epilog
    def f(value): return even(value)
    """
    assert digest(text.format(number=0)) != digest(text.format(number=1))


def test_a_long_chain_of_helpers_needs_no_deep_stack():
    lines = ["def h0(x): return x", *(f"def h{k}(x): return h{k - 1}(x) + {k}" for k in range(1, 3000))]
    digest("\n".join([*lines, "@mf.epilog", "def f(value): return h2999(value)"]))


def test_callbacks_and_dispatchers_called_as_helpers_stand_for_their_functions():
    numba = pytest.importorskip("numba")
    text = "{decorator}\ndef h(value): return value * {number}\n@mf.epilog\ndef f(value): return h(value)"
    for decorator in ("@mf.epilog", "@jit"):
        digests = [digest(text.format(decorator=decorator, number=k), jit=numba.njit) for k in (2, 3, 2)]
        assert digests[0] == digests[2] != digests[1]


# ---- numbers in modules


@pytest.fixture
def user_package(tmp_path, monkeypatch):
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "__init__.py").write_text("from lab import settings")
    (tmp_path / "lab" / "settings.py").write_text(
        "FACTOR = 2.0\nOTHER = 1\nNAMES = ('a',)\ndef scale(x): return x * FACTOR"
    )
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    yield importlib.import_module("lab")
    for name in ("lab", "lab.settings"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    "text",
    [
        "value * settings.FACTOR",
        "value * lab.settings.FACTOR",
        "settings.scale(value)",
        "(lambda x: x * settings.FACTOR)(value)",
        "(lambda m: m.FACTOR * value)(settings)",
        "(settings if index[0] else math).FACTOR * value",
        "@mf.epilog\ndef f(value):\n  m = lab\n  s = m.settings\n  return value * s.FACTOR",
        "def h(m, x): return x * m.settings.FACTOR\n@mf.epilog\ndef f(value): return h(lab, value)",
        "def make(m):\n  @mf.epilog\n  def f(value): return value * m.settings.FACTOR\n  return f\nf = make(lab)",
    ],
)
def test_numbers_in_modules_count_however_they_are_reached(user_package, text):
    settings = user_package.settings
    module = load(
        text if "\n" in text else f"@mf.epilog\ndef f(value, index): return {text}", lab=user_package, settings=settings
    )
    before = fingerprint(module.f)
    settings.OTHER = 7
    assert fingerprint(module.f) == before
    settings.FACTOR = 3.0
    assert fingerprint(module.f) != before
    settings.FACTOR = 2.0
    assert fingerprint(module.f) == before


def test_a_missing_name_and_a_module_that_raises_are_left_to_the_compiler():
    lazy = types.ModuleType("lazy")
    lazy.__getattr__ = lambda name: 1 // 0
    for text in ("value * nothing", "value * lazy.nothing", "value * math.nothing.more"):
        assert len(digest(text, lazy=lazy)) == 40


def test_a_closure_cell_may_be_empty():
    assert digest("def make():\n  @mf.epilog\n  def f(value): return later(value)\n  return f\n  later = 1\nf = make()")


# ---- what does not count

PLAIN = """
K = 3.0
def helper(x):
    return x * K if x is not None else None
@mf.epilog
def f(value, w=2):
    y = helper(value) + w
    return y if y > 0 else 0.5
"""
DOCUMENTED = '''
"""A module."""
# Moved down by a few lines.


K: float = 3.0

def helper(x: float) -> float:
    """What a helper does."""
    return x * K if x is not None else None


@mf.epilog
def f(value, w=2):
    """Another text, {text}."""
    # A comment.
    y = helper(value) + w
    return y if y > 0 else 0.5
'''


def test_place_docstrings_comments_annotations_and_file_names_do_not_count():
    assert digest(PLAIN) == digest(DOCUMENTED) == digest(DOCUMENTED.replace("{text}", "longer"))


def test_bound_values_do_not_count():
    callback = load("@mf.epilog\ndef f(value, index, w, b): return value * w[index] + b").f
    assert fingerprint(callback) == fingerprint(callback(b=1)) == fingerprint(callback(b=np.ones(3), w=np.ones(2)))


def test_contents_and_shapes_of_captured_arrays_do_not_count():
    text = "@mf.epilog\ndef f(value, index): return value * table[index]"
    table = np.arange(100_000.0)
    before = digest(text, table=table)
    table[:] = 7
    assert digest(text, table=table) == digest(text, table=np.ones(3)) == before
    frozen = digest(text, table=mf.constant(table))
    assert frozen == digest(text, table=mf.constant(np.ones(3))) != before


def test_one_array_under_two_names_is_not_two_arrays():
    text = "@mf.epilog\ndef f(value, index): return a[index] * b[index]"
    one, two = np.ones(3), np.ones(3)
    assert digest(text, a=one, b=one) == digest(text, a=two, b=two)
    assert digest(text, a=one, b=one) != digest(text, a=one, b=two) == digest(text, a=two, b=one)


def test_the_kind_does_not_count():
    module = load("def g(value): return value * 2\nf = mf.epilog(g)\np = mf.prolog(g)")
    assert fingerprint(module.f) == fingerprint(module.p)


def test_arrays_of_other_frameworks_and_bare_interfaces():
    class Bare:
        __array_interface__ = np.ones((2, 3)).__array_interface__

    text = "@mf.epilog\ndef f(value, index): return value * table[index]"
    assert digest(text, table=Bare()) != digest(text, table=types.SimpleNamespace())
    torch = pytest.importorskip("torch")
    assert (
        digest(text, table=torch.ones(2)) == digest(text, table=torch.zeros(3)) != digest(text, table=torch.ones(2, 2))
    )


class Opaque:
    pass


def test_other_objects_count_by_type_and_never_by_address():
    first, second = digest("value * K", K=Opaque()), digest("value * K", K=Opaque())
    assert first == second != digest("value * K", K=types.SimpleNamespace())
    callback = load("@mf.epilog\ndef f(value): return value * K", K=(Opaque(), Opaque, lambda x: x, np.ones(2), math)).f
    assert "0x7" not in str(describe(callback))


# ---- across processes

SCRIPT = """
import mathfuse.epilogs as mf, numpy as np, math
from mathfuse.fusion.compiler.fingerprint import fingerprint
table, other = np.ones(4), np.zeros(4)
NAMES = ("one", "two", "three")
def helper(x, mode="soft"):
    return table[0] * x if mode in {"soft", "hard", "none", "very hard"} else other[0]
def make(k, f):
    @mf.epilog
    def g(value, index, sigma=1.0):
        return f(value) * k + math.pi * np.sqrt(sigma) if index[0] in (1, 2) else len(NAMES)
    return g
print(fingerprint(make(0.1, helper)), fingerprint(make(0.1, helper) | mf.gelu), fingerprint(mf.gaussian(sigma=3.0)))
"""


def test_processes_agree_whatever_the_hash_seed():
    outputs = {
        subprocess.check_output([sys.executable, "-c", SCRIPT], text=True, env={**os.environ, "PYTHONHASHSEED": seed})
        for seed in ("0", "1", "12345")
    }
    (line,) = outputs
    assert len(set(line.split())) == 3


def test_ready_made_callbacks_differ_unless_their_code_is_the_same():
    callbacks = {name: fingerprint(value) for name, value in vars(mf).items() if isinstance(value, mf.Callback)}
    assert callbacks.pop("scale") == callbacks["multiply"]  # both are `value * factor`
    assert len(set(callbacks.values())) == len(callbacks) > 15


# --- what is remembered, and watched ----------------------------------------------------------------------------------


def watched_things():
    """A callback that names a global, a closure cell, a helper's global and an attribute of a module."""
    module = types.ModuleType("watched_settings")
    module.FACTOR = 2.0
    namespace = {"GAIN": 1.0, "settings": module, "helper": None}
    exec("def helper(x):\n    return x * GAIN\n", namespace)
    exec(
        "def make(cell):\n    def f(value):\n        return helper(value) * settings.FACTOR + cell\n    return f\n",
        namespace,
    )
    function = namespace["make"](3.0)
    return mf.epilog(function), function, namespace, module


def test_a_cell_that_is_filled_or_emptied_is_seen():
    def make():
        @mf.epilog
        def scaled(value):
            return value * factor  # noqa: F821 — deleted below

        empty = watch(scaled)
        factor = 2.0
        filled = watch(scaled)
        assert not empty()
        assert filled()
        del factor
        return filled

    assert not make()()


def test_defaults_and_lazy_modules_are_watched():
    lazy = types.ModuleType("lazy")
    values = {"FACTOR": 2.0}
    lazy.__getattr__ = values.__getitem__

    def helper(x, *, gain=1.0):
        return x * gain * lazy.FACTOR

    callback = mf.epilog(lambda value: helper(value))
    unchanged = watch(callback)
    assert unchanged()
    helper.__kwdefaults__["gain"] = 3.0
    assert not unchanged()
    unchanged = watch(callback)
    values["FACTOR"] = 4.0
    assert not unchanged()


@pytest.mark.parametrize("change", ["global", "helper", "module", "cell", "code"])
def test_a_change_is_seen_at_once(change):
    callback, function, namespace, module = watched_things()
    before, unchanged = fingerprint(callback), watch(callback)
    assert unchanged()
    assert fingerprint(callback) == before
    if change == "global":
        namespace["GAIN"] = 4.0
    elif change == "helper":
        exec("def helper(x):\n    return -x\n", namespace)
    elif change == "module":
        module.FACTOR = 5.0
    elif change == "cell":
        function.__closure__[0].cell_contents = 6.0
    else:
        function.__code__ = function.__code__.replace(co_consts=(None, 7.0))
    assert not unchanged()
    assert fingerprint(callback) != before or change == "code"


def test_what_is_remembered_keeps_nothing_alive():
    def make():
        big = np.zeros(10)
        function = lambda value, index: value + big[index[0]]  # noqa: E731
        return mf.epilog(function), weakref.ref(big), weakref.ref(function)

    callback, big, function = make()
    fingerprint(callback)
    watch(callback)
    del callback
    gc.collect()
    assert big() is None
    assert function() is None
