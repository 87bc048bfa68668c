"""Shared set-up: a cache of the run's own, GPU tests skipped with their reason, one Hypothesis profile."""

from __future__ import annotations

import functools
import os
import shutil
import tempfile

import hypothesis
import pytest

hypothesis.settings.register_profile("mathfuse", deadline=None, print_blob=True)
hypothesis.settings.load_profile("mathfuse")

GPUS_NEEDED = {"gpu": 1, "multigpu": 2}


def pytest_configure(config: pytest.Config) -> None:
    """Keep the user's own cache out of the tests; worker processes inherit the variables."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # JAX would take most of a GPU's memory
    if "MATHFUSE_CACHE_DIR" not in os.environ:
        os.environ["MATHFUSE_CACHE_DIR"] = config._mathfuse_cache = tempfile.mkdtemp(prefix="mathfuse-tests-")


def pytest_unconfigure(config: pytest.Config) -> None:
    if made := getattr(config, "_mathfuse_cache", None):
        shutil.rmtree(made, ignore_errors=True)
        del os.environ["MATHFUSE_CACHE_DIR"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for marker, needed in GPUS_NEEDED.items():
            if item.get_closest_marker(marker) and (reason := why_no_gpu(needed)):
                item.add_marker(pytest.mark.skip(reason=reason))


def why_no_gpu(needed: int) -> str:
    """The empty string where `needed` GPUs are at hand, else the reason for a skip."""
    count, reason = gpus()
    return "" if count >= needed else f"needs {needed} CUDA GPU(s): {reason or f'{count} found'}"


@functools.cache
def gpus() -> tuple[int, str]:
    """The number of CUDA devices, and where it is 0, why; the driver is asked directly, no framework is imported."""
    try:
        from cuda.bindings import driver
    except ImportError:
        return 0, "cuda-bindings is not installed"
    try:
        (status,) = driver.cuInit(0)
    except RuntimeError as error:  # no libcuda on this machine
        return 0, str(error).splitlines()[0]
    if status != driver.CUresult.CUDA_SUCCESS:
        return 0, status.name
    status, count = driver.cuDeviceGetCount()
    return (count, "") if status == driver.CUresult.CUDA_SUCCESS else (0, status.name)
