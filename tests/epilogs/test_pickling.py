"""Callbacks travel to other processes: by name where that leads back to them, else by their code."""

from __future__ import annotations

import math
import os
import pickle
import subprocess
import sys
import textwrap
import types

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mathfuse
import mathfuse.epilogs as mf
from mathfuse.epilogs import pickling
from mathfuse.runtime.errors import CallbackError

ROOT = os.path.dirname(os.path.dirname(mathfuse.__file__))
SCALARS = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.complex_numbers(),
    st.floats(width=32).map(np.float32),
    st.integers(0, 255).map(np.uint8),
    st.complex_numbers().map(np.complex128),
)


@mf.epilog
def affine(value, factor, term=0.0):
    return value * factor + term


def plain(value):
    return value + 1


def run(script, tmp_path, name="script.py"):
    """Run a script in a fresh process that finds mathfuse and the modules in `tmp_path`."""
    (tmp_path / name).write_text(textwrap.dedent(script))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([ROOT, str(tmp_path)])}
    done = subprocess.run([sys.executable, name], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@given(SCALARS, SCALARS)
def test_a_round_trip_by_name_gives_an_equal_callback(factor, term):
    callback = affine(factor=factor, term=term) | mf.gelu
    again = pickle.loads(pickle.dumps(callback))
    assert again == callback
    assert hash(again) == hash(callback)


def test_options_kind_and_partial_bindings_travel():
    for callback in [
        affine,
        mf.prolog(affine),
        mf.epilog(affine, fastmath=False, precision="float64"),
        mf.epilog(plain),
        mf.hann,
        mf.hann | mf.prolog(mf.scale),
    ]:
        assert pickle.loads(pickle.dumps(callback)) == callback


def test_arrays_travel_along_and_stay_shared():
    array = np.arange(3.0)
    chain = mf.scale(factor=array) | mf.multiply(factor=array) | mf.add(term=mf.constant(array))
    again = pickle.loads(pickle.dumps(chain))
    assert again != chain
    assert again.bound["factor"] is again.bound["term"].array
    np.testing.assert_array_equal(again.bound["factor"], array)


def test_a_name_is_used_only_where_it_leads_back():
    assert pickling.reference(affine.function) == (__name__, "affine")
    assert pickling.reference(plain) == (__name__, "plain")
    assert pickling.reference(mf.gaussian.function) == ("mathfuse.epilogs.ready_made", "gaussian")

    @mf.epilog
    def plain_(value):
        return value * 3

    plain_.function.__qualname__ = "plain"  # another function of this module has that name
    for function in (plain_.function, (lambda value: value)):
        assert isinstance(pickling.reference(function), bytes)
    orphan = types.FunctionType(plain.__code__, {})
    assert isinstance(pickling.reference(orphan), bytes)


def test_functions_of_the_main_module_travel_by_code(monkeypatch):
    for name in ("__main__", "__mp_main__"):
        module = types.ModuleType(name)
        monkeypatch.setitem(sys.modules, name, module)
        exec("def found(value): return value + 1", module.__dict__)
        assert isinstance(pickling.reference(module.found), bytes)


def test_a_numba_dispatcher_travels_by_name(monkeypatch):
    numba = pytest.importorskip("numba")
    monkeypatch.setattr(sys.modules[__name__], "plain", numba.njit(plain))
    assert pickling.reference(mf.epilog(plain).function) == (__name__, "plain")


def test_one_code_gives_one_function():
    factor = 3.0
    callback = mf.epilog(lambda value, term: value * factor + term)
    data = pickle.dumps((callback, callback(term=1), callback(term=1)))
    (free, bound, same), again = pickle.loads(data), pickle.loads(data)
    assert bound == same == again[1]
    assert free(term=1) == bound
    assert bound.function(value=2, term=1) == 7
    assert bound != callback(term=1)  # the code of the moment, not the function that lives here


def test_code_travels_as_it_is_at_the_moment():
    factor = 3.0

    def scaled(value):
        return value * factor

    before = pickle.dumps(mf.epilog(scaled))
    factor = 4.0
    assert pickle.loads(before).function(2) == 6.0
    assert pickle.loads(pickle.dumps(mf.epilog(scaled))).function(2) == 8.0


def test_a_function_that_is_gone(monkeypatch):
    data = pickle.dumps(affine)
    monkeypatch.delattr(sys.modules[__name__], "affine")
    with pytest.raises(CallbackError, match=r"a stored callback is .*\.?test_pickling.affine, and there is no such"):
        pickle.loads(data)


def test_a_function_that_has_lost_an_operand(monkeypatch):
    data = pickle.dumps(affine(factor=2))
    monkeypatch.setattr(sys.modules[__name__], "affine", mf.epilog(lambda value, term: value + term))
    with pytest.raises(CallbackError, match="it was pickled when it had operands that it lacks now, 'factor'"):
        pickle.loads(data)


def test_to_a_fresh_process_by_name(tmp_path):
    (tmp_path / "blurred.pickle").write_bytes(pickle.dumps(mf.gaussian(sigma=2.0) | mf.scale(factor=np.float32(3))))
    output = run(
        """
        import pickle
        import sys
        callback = pickle.load(open("blurred.pickle", "rb"))
        import mathfuse.epilogs as mf
        import numpy as np
        assert callback == mf.gaussian(sigma=2.0) | mf.scale(factor=np.float32(3))
        assert "cloudpickle" not in sys.modules and "numba" not in sys.modules
        print(callback.function(value=1.0, index=(0,), shape=(8,), axes=(0,)))
        """,
        tmp_path,
    )
    assert output == "3.0"


def test_from_the_main_module_of_another_process(tmp_path):
    run(
        """
        import math
        import pickle
        import numpy as np
        import mathfuse.epilogs as mf
        from mathfuse.epilogs import signed_index

        OFFSET = 10.0

        def helper(x):
            return x + OFFSET

        @mf.epilog
        def decorated(value, index, factor, table):
            return helper(value) * factor + table[index] + signed_index(3, 4)

        def closure(power):
            return mf.epilog(lambda value: value**power)

        bound = decorated(factor=2.0, table=np.arange(3.0))
        callbacks = {"decorated": bound, "lambda": mf.epilog(lambda value: math.sqrt(value)), "closure": closure(3),
                     "chain": bound | closure(2) | mf.add(term=0.5)}
        pickle.dump(callbacks, open("callbacks.pickle", "wb"))
        """,
        tmp_path,
    )
    with open(tmp_path / "callbacks.pickle", "rb") as file:
        callbacks = pickle.load(file)
    assert mf.evaluate(callbacks["decorated"], 1.0, (2,)) == 23.0
    assert mf.evaluate(callbacks["lambda"], 9.0) == 3.0
    assert mf.evaluate(callbacks["closure"], 2.0) == 8.0
    assert mf.evaluate(callbacks["chain"], 1.0, (2,)) == 23.0**2 + 0.5
    assert callbacks["chain"].links[0] == callbacks["decorated"].links[0]
    assert pickle.loads(pickle.dumps(callbacks["decorated"])).function.__name__ == "decorated"


def test_through_the_workers_of_a_script(tmp_path):
    output = run(
        """
        import mathfuse.epilogs as mf
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context

        @mf.epilog
        def cubed(value, term):
            return value**3 + term

        def work(callback):
            return callback(term=1.0), mf.evaluate(callback(term=1.0), 2.0)

        if __name__ == "__main__":
            with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                (first, result), (second, _) = pool.map(work, [cubed, cubed])
            assert mf.evaluate(first, 2.0) == mf.evaluate(second, 2.0) == 9.0
            print(result, first.function.__name__)
        """,
        tmp_path,
    )
    assert output == "9.0 cubed"


def test_functions_of_a_users_module_travel_by_name(tmp_path):
    (tmp_path / "my_filters.py").write_text(
        "import mathfuse.epilogs as mf\n"
        "class Filters:\n"
        "    doubled = mf.epilog(lambda value: value * 2)\n"
        "    @mf.epilog\n"
        "    def tripled(value): return value * 3\n"
        "def make(n):\n"
        "    return mf.epilog(lambda value: value * n)\n"
    )
    run(
        """
        import pickle
        import sys
        import my_filters
        pickle.dump([my_filters.Filters.tripled], open("named.pickle", "wb"))
        assert "cloudpickle" not in sys.modules
        pickle.dump([my_filters.Filters.doubled, my_filters.make(4)], open("coded.pickle", "wb"))
        assert "cloudpickle" in sys.modules
        """,
        tmp_path,
    )
    assert (
        run(
            """
        import pickle
        import mathfuse.epilogs as mf
        callbacks = pickle.load(open("named.pickle", "rb")) + pickle.load(open("coded.pickle", "rb"))
        import my_filters
        assert callbacks[0] == my_filters.Filters.tripled
        print([mf.evaluate(callback, 5) for callback in callbacks])
        """,
            tmp_path,
            "second.py",
        )
        == "[15, 10, 20]"
    )


def test_nan_and_negative_zero_survive():
    for value in (math.nan, -0.0, np.float32("nan"), complex(-0.0, math.nan)):
        assert pickle.loads(pickle.dumps(mf.scale(factor=value))) == mf.scale(factor=value)
