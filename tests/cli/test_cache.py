"""`mathfuse cache info|clear`"""

from __future__ import annotations

import pytest

from mathfuse import cli
from mathfuse.cli.cache import size


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (512 << 20, "512.0 MiB"), (3 << 30, "3.0 GiB")],
)
def test_sizes_for_people(number, text):
    assert size(number) == text


def test_info_then_clear(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MATHFUSE_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("MATHFUSE_CACHE_LIMIT", "1M")
    assert cli.main(["cache", "info"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith(f"path     {tmp_path}")
    assert shown[1] == "entries  0"
    assert shown[2] == "size     0 B of 1.0 MiB"
    assert len(shown) == 3
    assert cli.main(["cache", "clear"]) == 0
    assert capsys.readouterr().out.startswith("removed 0 entries from ")


def test_info_tells_that_nothing_can_be_kept(monkeypatch, capsys):
    monkeypatch.setenv("MATHFUSE_CACHE_DIR", "/proc/x")
    assert cli.main(["cache", "info"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[3].startswith("trouble  ")
    assert shown[3].endswith("; what cannot be kept is compiled each time")
