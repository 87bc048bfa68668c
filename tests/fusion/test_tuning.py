"""Timings that are remembered: whole or not there; whatever befalls their files costs a timing, and no more."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from mathfuse.fusion.tuning import Row, fastest, recall, remember
from mathfuse.runtime import cache
from mathfuse.runtime.cache import default_store
from tests import disks
from tests.processes import killed_while_it_writes, together

KEY, OTHER = "fft of [64, 1024] on a GPU", "another problem"
ROWS = (
    Row("sequence", 0.25),
    Row("kernel (epilog inside)", 0.125, settings=("16·4 / 4 × 2", "")),
    Row("callback", why_not="cuFFT does not do it"),
)
PROCESSES = 16


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Of the artifacts, in a cache of the test's own."""
    monkeypatch.setenv("MATHFUSE_CACHE_DIR", str(tmp_path))
    return tmp_path / "artifacts"


def file_of(folder: Path) -> Path:
    (file,) = folder.glob("*.artifact")
    return file


def names(folder: Path) -> set[str]:
    return {file.suffix for file in folder.iterdir()}


# --- what is remembered


def test_rows_come_back_with_times_and_reasons():
    assert recall(KEY) == ()
    remember(KEY, ROWS)
    assert recall(KEY) == ROWS
    assert fastest(recall(KEY)) == ROWS[1]
    assert [row.result for row in recall(KEY)] == ["250.0 µs", "125.0 µs", "cuFFT does not do it"]


def test_problems_stay_apart_and_the_last_rows_count():
    remember(KEY, ROWS)
    remember(OTHER, ROWS[:1])
    remember(KEY, ROWS[1:])
    assert (recall(KEY), recall(OTHER)) == (ROWS[1:], ROWS[:1])


# --- what happens to files

DAMAGED = {
    "empty": lambda content: b"",
    "one byte short": lambda content: content[:-1],
    "half": lambda content: content[: len(content) // 2],
    "one byte more": lambda content: content + b"\0",
    "zeros": lambda content: bytes(len(content)),
    "another number": lambda content: content.replace(b"0.25", b"0.75"),
    "text": lambda content: b'{"rows": []}',
    "another entry": lambda content: cache.encode(OTHER, cache.Artifact(b"", {"rows": []})),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_entry_is_none_and_is_replaced(folder, kind):
    remember(KEY, ROWS)
    file = file_of(folder)
    file.write_bytes(DAMAGED[kind](file.read_bytes()))
    assert recall(KEY) == ()
    remember(KEY, ROWS)
    assert recall(KEY) == ROWS


def test_a_bit_flipped_anywhere_is_found(folder):
    remember(KEY, ROWS)
    file = file_of(folder)
    content = file.read_bytes()
    for position in range(len(content)):
        file.write_bytes(content[:position] + bytes([content[position] ^ 1 << position % 8]) + content[position + 1 :])
        assert recall(KEY) == (), position


@pytest.mark.parametrize(
    "rows",
    [None, 3, "abc", {"a": 1}, [1], [["a", 1.0]], [["a", 1.0, ""]], [["a", "1.0", "", []]], [[1, 1.0, "", []]],
     [["a", 1.0, None, []]], [["a", 1.0, "", "16 / 1 × 1"]], [["a", 1.0, "", [3]]]],
)  # fmt: skip
def test_an_entry_of_another_form_is_none_and_is_replaced(folder, rows):
    remember(KEY, ROWS)
    file = file_of(folder)
    name = cache.decode_any(file.read_bytes())[0]
    file.write_bytes(cache.encode(name, cache.Artifact(b"", {"rows": rows})))
    assert recall(KEY) == ()
    remember(KEY, ROWS)
    assert recall(KEY) == ROWS


def test_times_that_are_no_numbers_are_none(folder):
    (row,) = remember(KEY, [Row("sequence", float("nan"))])
    assert row == Row("sequence")


@pytest.mark.parametrize("what", ["folder", "link", "pipe"])
def test_what_is_no_file_of_its_own_is_none(folder, tmp_path, what):
    remember(KEY, ROWS)
    file = file_of(folder)
    elsewhere = file.rename(tmp_path / "elsewhere")
    {"folder": file.mkdir, "link": lambda: file.symlink_to(elsewhere), "pipe": lambda: os.mkfifo(file)}[what]()
    assert recall(KEY) == ()
    remember(KEY, ROWS)  # if it can
    assert recall(KEY) == (() if what == "folder" else ROWS)


def test_a_full_disk_keeps_what_was_there(folder, monkeypatch):
    remember(KEY, ROWS)
    disks.fill(monkeypatch)
    remember(KEY, ROWS[1:])
    remember(OTHER, ROWS)
    assert (recall(KEY), recall(OTHER)) == (ROWS, ())
    assert [*folder.iterdir()] == [file_of(folder)]


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.ENOSPC, errno.EDQUOT, errno.EMFILE])
def test_where_nothing_can_be_written_older_rows_are_read(monkeypatch, code):
    remember(KEY, ROWS)
    disks.refuse(monkeypatch, code)
    remember(KEY, ROWS[1:])
    remember(OTHER, ROWS)
    assert (recall(KEY), recall(OTHER)) == (ROWS, ())


@pytest.mark.skipif(os.geteuid() == 0, reason="permission bits do not bind root")
def test_a_read_only_folder(folder):
    remember(KEY, ROWS)
    folder.chmod(0o500)
    try:
        remember(OTHER, ROWS)
        assert (recall(KEY), recall(OTHER)) == (ROWS, ())
    finally:
        folder.chmod(0o700)


def test_a_cache_that_is_a_file(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("MATHFUSE_CACHE_DIR", str(tmp_path / "file"))
    remember(KEY, ROWS)
    assert recall(KEY) == ()


# --- many processes

MANY = """
from mathfuse.fusion.tuning import Row, recall, remember
number, key, count = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
mine = tuple(Row(f"way {k} of process {number}", number + k / 64) for k in range(40))
#go
remember(f"of process {number}", mine)
for _ in range(count):
    remember(key, mine)
    rows = recall(key)
    assert len(rows) == 40 and len({row.name.split(" of ")[1] for row in rows}) == 1, rows
    assert [row.milliseconds % 1 for row in rows] == [k / 64 for k in range(40)]
"""
WRITER = """
from mathfuse.fusion.tuning import Row, remember
remember(sys.argv[1], [Row("unfinished", 1.0)])
"""


def test_sixteen_processes_with_one_problem(folder):
    together(MANY, PROCESSES, KEY, 20)
    found = recall(KEY)
    assert len(found) == 40
    assert found == recall(f"of process {found[0].name.rpartition(' ')[2]}")
    assert all(len(recall(f"of process {number}")) == 40 for number in range(PROCESSES))
    assert (default_store().info().entries, names(folder)) == (PROCESSES + 1, {".artifact"})


def test_a_writer_that_is_killed_loses_nothing(folder):
    remember(KEY, ROWS)
    for key in (KEY, OTHER):
        killed_while_it_writes(".artifact", WRITER, key)
    assert names(folder) == {".artifact", ".tmp"}
    assert (recall(KEY), recall(OTHER)) == (ROWS, ())
    remember(OTHER, ROWS[:1])
    assert recall(OTHER) == ROWS[:1]
