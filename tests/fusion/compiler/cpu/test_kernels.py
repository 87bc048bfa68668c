"""Native kernels: one code for many values, a second process, threads at once, the processor's mode left as it was."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np

import mathfuse as mf
from mathfuse.fusion.compiler.cpu.kernels import analyse, elementwise
from mathfuse.fusion.compiler.cpu.spec import ElementwiseSpec

ROOT = Path(__file__).parents[4]


def spec(callback: mf.Callback, x: np.ndarray, **options) -> ElementwiseSpec:
    given = {"order": tuple(range(x.ndim)), "unit_stride": (True, True), **options}
    return ElementwiseSpec(callback, x.dtype, None, x.ndim, (x.ndim - 1,), dict(callback.bound), **given)


def apply(callback: mf.Callback, x: np.ndarray, **options) -> np.ndarray:
    kernel = elementwise(spec(callback, x, **options))
    out = x if options.get("in_place") else np.empty(x.shape, kernel.result_dtype)
    kernel.bind(callback.bound, x.shape)(x, out, (0,) * x.ndim)
    return out


PROGRAM = """
import logging, sys
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
import numpy as np, mathfuse as mf
y = mf.fft.rfft2(np.ones((8, 8), np.float32), epilog=mf.gaussian(sigma=2.0) | mf.scale(factor=3.0))
print("result", y[0, 0].real, "numba" in sys.modules)
"""


def test_a_second_process_compiles_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("MATHFUSE_CACHE_DIR", str(tmp_path))
    first, second = (
        subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    )
    assert "compiled gaussian | scale for the CPU" in first
    assert "compiled" not in second
    assert "result 192.0 True" in first
    assert "result 192.0 False" in second  # not even the compiler's front end is imported


def test_analysis_and_kernel_agree():
    x, table = np.zeros((3, 4), np.float32), np.ones(4)
    wanted = spec(mf.epilog(lambda value, index, table: value + table[index[-1]])(table=table), x)
    found, kernel = analyse(wanted), elementwise(wanted)
    for known in (found, kernel):
        assert (known.result_dtype, known.weak_bits, known.accesses) == (np.float64, 64, {"table": [[1]]})


def test_captured_arrays_are_those_of_the_callback_at_hand():
    def made(table: np.ndarray) -> mf.Callback:
        return mf.epilog(lambda value, index: value + table[index[0]])

    x = np.zeros(3)
    for table in (np.array([1.0, 2, 3]), np.array([10.0, 20, 30])):
        np.testing.assert_array_equal(apply(made(table), x), table)


def test_in_place_and_out_of_place_agree():
    x = np.random.default_rng(0).standard_normal((5, 37)).astype(np.complex64)
    callback = mf.gaussian(sigma=1.5) | mf.scale(factor=2.0)
    np.testing.assert_array_equal(apply(callback, x.copy(), in_place=True), apply(callback, x))


def test_threads_share_a_kernel():
    x = np.random.default_rng(0).standard_normal((64, 64))
    kernel = elementwise(spec(mf.scale(factor=2.0), x))
    results = [np.empty_like(x) for _ in range(8)]

    def work(k: int) -> None:
        for _ in range(50):
            kernel.bind({"factor": float(k)}, x.shape)(x, results[k], (0, 0))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k, result in enumerate(results):
        np.testing.assert_array_equal(result, k * x)


def test_subnormal_numbers_are_flushed_inside_and_nowhere_else():
    tiny = np.full(64, 1e-41, np.float32)
    assert (apply(mf.scale(factor=0.5), tiny) == 0).all()
    exact = mf.epilog(lambda value: value * 0.5, fastmath=False)
    np.testing.assert_array_equal(apply(exact, tiny), tiny * np.float32(0.5))
    assert (tiny * np.float32(0.5) != 0).all()  # NumPy's own arithmetic on this thread


def test_captured_arrays_in_foreign_byte_order_or_out_of_line():
    """They are copied once, and the copy lives as long as the bound kernel."""
    packed = np.zeros(4, [("tag", np.uint8), ("v", np.float64)])["v"]
    packed[:] = [1, 2, 3, 4]
    for table in (np.array([1, 2, 3, 4], ">f4"), np.array([1, 2, 3, 4], ">i2"), packed):
        callback = mf.epilog(lambda value, index: value + table[index[0]])  # noqa: B023
        np.testing.assert_array_equal(apply(callback, np.zeros(4)), [1, 2, 3, 4])
