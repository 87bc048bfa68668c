"""cuFFT's table: what it is told, in which order, what its errors mean, without a GPU; `test_gpu_cufft.py` computes."""

from __future__ import annotations

import ctypes
import gc
from types import SimpleNamespace

import numpy as np
import pytest

from mathfuse.runtime.cuda import cufft
from mathfuse.runtime.cuda.cufft import Call, Hook, Transform, View
from mathfuse.runtime.cuda.prototypes import TYPES
from mathfuse.runtime.errors import PlanError, ToolchainError, UnsupportedError

CALL = Call("r2c", False, (4, 6), 3, View((4, 8), 1, 32), View((4, 4), 2, 40))


class Library:
    """cuFFT as its table sees it; `failing` names functions and the status they give."""

    def __init__(self, **failing):
        self.failing, self.calls = failing, []

    def functions(self):
        table = {**cufft.PROTOTYPES, "set_callback": cufft.SET_CALLBACK_PROTOTYPE}
        return SimpleNamespace(**{name: self._function(name, letters) for name, letters in table.items()})

    def _function(self, name, letters):
        def call(*arguments):
            assert len(arguments) == len(letters)
            for letter, argument in zip(letters, arguments, strict=True):
                TYPES[letter].from_param(argument)
            seen = tuple(_value(argument) for argument in arguments)
            self.calls.append((name, *seen))
            if name == "cufftCreate":
                arguments[0]._obj.value = 9
            if name == "cufftMakePlanMany64":
                arguments[-1]._obj.value = 1 << 33
            if name == "cufftGetVersion":
                arguments[0]._obj.value = 12103
            return self.failing.get(name, 0)

        return call

    @property
    def names(self):
        return [name for name, *_ in self.calls]


def _value(argument):
    argument = getattr(argument, "_obj", argument)
    return list(argument) if isinstance(argument, ctypes.Array) else getattr(argument, "value", argument)


@pytest.fixture
def library(driver, monkeypatch):
    fake = Library()
    functions = fake.functions()
    monkeypatch.setattr(cufft, "library", lambda: functions)
    return fake


def test_a_plan_is_made_with_hooks_set_before_it(library, driver):
    hooks = [
        Hook("prolog", np.dtype("float32"), b"load", 1000),
        Hook("epilog", np.dtype("complex64"), b"store!", 2000),
    ]
    transform = Transform(CALL, hooks, device=1)
    assert library.calls == [
        ("cufftCreate", 0),
        ("cufftSetAutoAllocation", 9, 0),
        ("set_callback", 9, None, b"load", 4, 2, 1000),
        ("set_callback", 9, None, b"store!", 6, 4, 2000),
        ("cufftMakePlanMany64", 9, 2, [4, 6], [4, 8], 1, 32, [4, 4], 2, 40, 0x2A, 3, 0),
    ]
    assert transform.work_bytes == 1 << 33
    assert driver.contexts.stack == []
    library.calls.clear()
    transform.set_stream(5)
    transform.set_work_area(1 << 40)
    transform.run(100, 200, True)
    transform.run(200, 100, False)
    assert library.calls == [
        ("cufftSetStream", 9, 5),
        ("cufftSetWorkArea", 9, 1 << 40),
        ("cufftXtExec", 9, 100, 200, -1),
        ("cufftXtExec", 9, 200, 100, 1),
    ]


def test_a_plan_is_given_back_once(library):
    transform = Transform(CALL)
    transform.destroy()
    transform.destroy()
    assert library.names.count("cufftDestroy") == 1
    transform = Transform(CALL)
    del transform
    gc.collect()
    assert library.names.count("cufftDestroy") == 2


@pytest.mark.parametrize(
    ("function", "status", "error", "message"),
    [
        ("cufftCreate", 7, ToolchainError, "cufftCreate: CUFFT_SETUP_FAILED"),
        ("cufftMakePlanMany64", 2, PlanError, "memory does not suffice for Call.*process stays usable"),
        ("cufftMakePlanMany64", 8, UnsupportedError, "does not do this transform for Call.*CUFFT_INVALID_SIZE"),
        ("cufftMakePlanMany64", 16, UnsupportedError, "CUFFT_NOT_SUPPORTED"),
        ("cufftMakePlanMany64", 99, ToolchainError, "status 99"),
        ("set_callback", 4, ToolchainError, "cufftXtSetJITCallback: CUFFT_INVALID_VALUE"),
    ],
)
def test_errors_are_told_by_name_and_leave_no_plan(library, function, status, error, message):
    library.failing[function] = status
    with pytest.raises(error, match=message):
        Transform(CALL, [Hook("prolog", np.dtype("float32"), b"x", 1)])
    assert library.names.count("cufftDestroy") == (function != "cufftCreate")


def test_a_failing_run_is_an_error(library):
    transform = Transform(CALL)
    library.failing["cufftXtExec"] = 6
    with pytest.raises(ToolchainError, match="cufftXtExec: CUFFT_EXEC_FAILED"):
        transform.run(1, 2, True)


def test_the_version(library):
    assert cufft.version() == (12, 1, 3)


class Loaded:
    """A library with some functions, as ctypes loads it."""

    def __init__(self, *names):
        for name in names:
            setattr(self, name, SimpleNamespace())


def test_both_names_of_the_callback_setter_are_known():
    for name in cufft.SET_CALLBACK:
        functions = cufft.table_of(Loaded(*cufft.PROTOTYPES, name))
        assert len(functions.set_callback.argtypes) == 6
        assert functions.cufftXtExec.argtypes == (ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
    with pytest.raises(ToolchainError, match="no LTO callbacks"):
        cufft.table_of(Loaded(*cufft.PROTOTYPES))
    with pytest.raises(ToolchainError, match="lacks a function"):
        cufft.table_of(Loaded("cufftCreate", *cufft.SET_CALLBACK))


def test_a_missing_library_names_the_extra(monkeypatch):
    from cuda import pathfinder

    def missing(name):
        raise pathfinder.DynamicLibNotFoundError("nowhere")

    cufft.library.cache_clear()
    monkeypatch.setattr(pathfinder, "load_nvidia_dynamic_lib", missing)
    with pytest.raises(ToolchainError, match=r'cuFFT was not found: pip install "mathfuse\[cu13\]".*nowhere'):
        cufft.library()
    cufft.library.cache_clear()
