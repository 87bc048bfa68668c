"""mathfuse.runtime.settings and .log"""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from mathfuse.runtime import settings
from mathfuse.runtime.errors import UnsupportedError
from mathfuse.runtime.log import logger, timed

NUMBERS = {
    "MATHFUSE_NUM_WORKERS": settings.workers,
    "MATHFUSE_BLOCK_BYTES": settings.block_bytes,
    "MATHFUSE_CACHE_LIMIT": settings.cache_limit_bytes,
    "MATHFUSE_PLAN_CACHE_LIMIT": settings.plan_cache_bytes,
}


@pytest.mark.parametrize(
    ("text", "size"), [("1", 1), (" 4096 ", 4096), ("64K", 64 << 10), ("2m", 2 << 20), ("3 G", 3 << 30)]
)
def test_sizes(text, size):
    assert settings.parse_size(text) == size


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "1T", "many", "K", "1e6", "²"])
@pytest.mark.parametrize("variable", NUMBERS)
def test_a_bad_number_is_an_error_that_names_the_variable(monkeypatch, variable, text):
    monkeypatch.setenv(variable, text)
    with pytest.raises(UnsupportedError, match=f"{variable}.*positive whole number"):
        NUMBERS[variable]()


@pytest.mark.parametrize("variable", NUMBERS)
def test_a_number_set_in_the_environment_wins_and_an_empty_one_counts_as_unset(monkeypatch, variable):
    monkeypatch.delenv(variable, raising=False)
    default = NUMBERS[variable]()
    assert default >= 1
    monkeypatch.setenv(variable, "3")
    assert NUMBERS[variable]() == 3
    monkeypatch.setenv(variable, "")
    assert NUMBERS[variable]() == default


@pytest.mark.parametrize(
    ("affinity", "quota", "cpus"),
    [
        (8, "", 8),
        (8, "max 100000", 8),
        (8, "200000 100000", 2),
        (8, "250000 100000", 3),
        (8, "50000 100000", 1),
        (2, "800000 100000", 2),
        (4, "nonsense", 4),
    ],
)
def test_usable_cpus(affinity, quota, cpus):
    assert settings.usable_cpus(affinity, quota) == cpus


def test_cache_dir(monkeypatch, tmp_path):
    monkeypatch.setenv("MATHFUSE_CACHE_DIR", str(tmp_path / "here"))
    assert settings.cache_dir() == tmp_path / "here"
    monkeypatch.setenv("MATHFUSE_CACHE_DIR", "~/there")
    assert settings.cache_dir() == Path.home() / "there"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MATHFUSE_CACHE_DIR", "relative")
    assert settings.cache_dir() == tmp_path / "relative"
    monkeypatch.setenv("MATHFUSE_CACHE_DIR", "~no-such-user/cache")
    with pytest.raises(UnsupportedError, match="MATHFUSE_CACHE_DIR: '~no-such-user/cache': "):
        settings.cache_dir()


def test_cache_dir_defaults_to_the_users_cache_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("MATHFUSE_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert settings.cache_dir().name == "mathfuse"


def test_the_log_is_silent_by_default_and_tells_milliseconds_when_asked(caplog):
    assert any(isinstance(handler, logging.NullHandler) for handler in logger.handlers)
    with caplog.at_level(logging.INFO, logger="mathfuse"), timed("compiled %s", "gaussian"):
        pass
    assert caplog.messages[0].startswith("compiled gaussian: ")
    assert caplog.messages[0].endswith(" ms")


def test_a_block_that_raises_logs_no_time(caplog):
    with caplog.at_level(logging.INFO, logger="mathfuse"), pytest.raises(KeyError), timed("compiled"):
        raise KeyError
    assert not caplog.messages
