"""The artifact store keeps what it is given, and nothing odd on disk ever reaches a caller."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mathfuse.runtime import cache
from mathfuse.runtime.cache import Artifact, Store
from tests import disks

KEY = "fft|complex64|sm_90a"
ARTIFACT = Artifact(b"\x00machine code\xff" * 40, {"name": "gaussian", "registers": 32, "arches": ["sm_90a"]})
ROOMY = 1 << 24


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "cache", ROOMY)


@pytest.fixture
def warnings(caplog):
    caplog.set_level(logging.DEBUG, logger="mathfuse")
    return lambda: [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def entry_file(store, key=KEY):
    return Path(store._file(key, ".artifact"))


def never():
    raise AssertionError("made although it was kept")


def forged(header: object, payload: bytes = b"code") -> bytes:
    """A file with a right checksum over a header of one's choice."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    body = cache._PREFIX.pack(cache._MAGIC, cache.SCHEMA, len(text), len(payload)) + text + payload
    return body + cache._digest(body)


# ---- what is kept comes back


@pytest.mark.parametrize("payload", [b"", b"\0", os.urandom(100_000)])
@pytest.mark.parametrize("metadata", [{}, {"a": 1, "b": "ü\ud800", "c": 0.1, "d": [1, [2.5, None]], "e": {"f": True}}])
def test_round_trip_in_another_store_object(store, payload, metadata):
    store.put(KEY, Artifact(payload, metadata))
    assert Store(store.path, ROOMY).get(KEY) == Artifact(payload, metadata)


@pytest.mark.parametrize("key", ["", "../../../etc/passwd", "a\0b", "ä\ud800", "k" * 100_000])
def test_any_text_is_a_key(store, key):
    store.put(key, ARTIFACT)
    assert store.get(key) == ARTIFACT
    assert store.get(key + " ") is None
    assert [file.parent for file in store.path.parent.rglob("*.artifact")] == [store.path]


def test_get_or_make_makes_once_and_logs_it(store, caplog):
    caplog.set_level(logging.DEBUG, logger="mathfuse")
    assert store.get_or_make(KEY, lambda: ARTIFACT, "gaussian") == ARTIFACT
    assert Store(store.path, ROOMY).get_or_make(KEY, never, "gaussian") == ARTIFACT
    made, hit = caplog.records
    assert made.levelno == logging.INFO
    assert made.getMessage().startswith("compiled gaussian [")
    assert made.getMessage().endswith(" ms")
    assert hit.levelno == logging.DEBUG
    assert hit.getMessage().startswith("cache hit: gaussian [")


def test_what_make_raises_is_passed_on_and_the_key_stays_free(store):
    with pytest.raises(ZeroDivisionError):
        store.get_or_make(KEY, lambda: 1 // 0)
    assert store.get_or_make(KEY, lambda: ARTIFACT) == ARTIFACT


@pytest.mark.parametrize("metadata", [{"shape": (1, 2)}, {1: "a"}, {"x": float("nan")}, {"x": b"bytes"}])
def test_metadata_that_json_would_change_is_refused(metadata):
    with pytest.raises((TypeError, ValueError)):
        Artifact(b"", metadata)


def test_only_the_entry_stays_and_it_is_private(store):
    previous = os.umask(0)
    try:
        store.get_or_make(KEY, lambda: ARTIFACT)
    finally:
        os.umask(previous)
    assert [file.name for file in store.path.iterdir()] == [entry_file(store).name]
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o700
    assert stat.S_IMODE(entry_file(store).stat().st_mode) == 0o600


def test_keys_may_be_made_within_keys(store, warnings):
    def outer():
        return Artifact(store.get_or_make("inner", lambda: ARTIFACT).payload, {"linked": True})

    assert store.get_or_make("outer", outer) == Artifact(ARTIFACT.payload, {"linked": True})
    assert store.info().entries == 2
    assert warnings() == []


# ---- nothing odd is trusted


ALTERED = {
    "empty": lambda content: b"",
    "prefix only": lambda content: content[: cache._PREFIX.size],
    "one byte short": lambda content: content[:-1],
    "half": lambda content: content[: len(content) // 2],
    "one byte more": lambda content: content + b"\0",
    "twice": lambda content: content * 2,
    "zeros": lambda content: bytes(len(content)),
    "text": lambda content: b"not an artifact " * 100,
    "older schema": lambda content: content[:8] + (cache.SCHEMA - 1).to_bytes(4, "little") + content[12:],
    "newer schema": lambda content: content[:8] + (cache.SCHEMA + 1).to_bytes(4, "little") + content[12:],
    "huge lengths": lambda content: content[:12] + b"\xff" * 12 + content[24:],
    "another key": lambda content: cache.encode(KEY + " ", ARTIFACT),
    "no header": lambda content: forged(b""),
    "header is a list": lambda content: forged([KEY]),
    "header without key": lambda content: forged({"metadata": {}}),
    "header without metadata": lambda content: forged({"key": KEY}),
    "metadata is a list": lambda content: forged({"key": KEY, "metadata": []}),
    "metadata holds NaN": lambda content: forged(b'{"key": "%s", "metadata": {"a": NaN}}' % KEY.encode()),
    "header is deep": lambda content: forged(b"[" * 100_000),
    "header is no UTF-8": lambda content: forged(b"\xff\xfe"),
}


@pytest.mark.parametrize("kind", ALTERED)
def test_an_odd_entry_is_rebuilt_with_one_logged_line(store, warnings, kind):
    store.put(KEY, ARTIFACT)
    entry_file(store).write_bytes(ALTERED[kind](entry_file(store).read_bytes()))
    assert store.get(KEY) is None
    assert store.get_or_make(KEY, lambda: ARTIFACT) == ARTIFACT
    assert store.get_or_make(KEY, never) == ARTIFACT
    assert len(warnings()) == 1
    assert str(entry_file(store)) in warnings()[0]


def test_a_bit_flipped_anywhere_is_found(store):
    content = cache.encode(KEY, Artifact(b"payload", {"a": 1}))
    for bit in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError, match=r"^(it|its) "):
            cache.decode(bytes(flipped), KEY)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300))
def test_no_content_gets_through_by_chance(content):
    with pytest.raises(ValueError, match=r"^(it|its) "):
        cache.decode(content, KEY)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=200) | json_values | st.fixed_dictionaries({"key": st.just(KEY), "metadata": json_values}))
def test_a_forged_header_is_an_artifact_or_a_value_error(header):
    try:
        artifact = cache.decode(forged(header), KEY)
    except ValueError:
        return
    assert header["key"] == KEY
    assert artifact == Artifact(b"code", header["metadata"])


def test_entries_that_are_not_private_files_are_not_used(store, warnings, tmp_path):
    store.put(KEY, ARTIFACT)
    real = tmp_path / "elsewhere"
    content = entry_file(store).read_bytes()

    def plant(what):
        entry_file(store).unlink()
        real.write_bytes(content)
        {
            "link": lambda: entry_file(store).symlink_to(real),
            "pipe": lambda: os.mkfifo(entry_file(store), 0o600),
            "world-writable": lambda: (entry_file(store).write_bytes(content), entry_file(store).chmod(0o666)),
        }[what]()

    for what in ("link", "pipe", "world-writable"):
        plant(what)
        assert store.get(KEY) is None
        assert store.get_or_make(KEY, lambda: ARTIFACT) == ARTIFACT
        assert store.get_or_make(KEY, never) == ARTIFACT
    assert real.read_bytes() == content
    assert len(warnings()) == 1


@pytest.mark.parametrize("victim", ["file", "folder"])
def test_what_belongs_to_another_user_is_not_used(store, warnings, monkeypatch, victim):
    store.put(KEY, ARTIFACT)
    if os.geteuid() == 0:
        os.chown(entry_file(store) if victim == "file" else store.path, 4242, 4242)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 4242)
    assert store.get(KEY) is None
    assert store.get_or_make(KEY, lambda: Artifact(b"mine")) == Artifact(b"mine")
    assert len(warnings()) == 1
    assert "belongs to user" in warnings()[0]


def test_a_folder_that_others_may_write_is_not_used(store, warnings):
    store.path.mkdir()
    store.path.chmod(0o777)
    for _ in range(3):
        assert store.get_or_make(KEY, lambda: ARTIFACT) == ARTIFACT
    assert list(store.path.iterdir()) == []
    assert (store.info().entries, store.clear(), store.info().trouble) == (0, 0, "others may write it")
    assert len(warnings()) == 1
    assert "others may write it" in warnings()[0]


# ---- a store that cannot work never gets in the way


def test_a_path_that_can_be_no_folder(tmp_path, warnings):
    (tmp_path / "file").write_text("in the way")
    for path in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/mathfuse")):
        broken = Store(path, ROOMY)
        for _ in range(3):
            assert broken.get(KEY) is None
            broken.put(KEY, ARTIFACT)
            assert broken.get_or_make(KEY, lambda: ARTIFACT) == ARTIFACT
        assert broken.info().entries == broken.clear() == 0
        assert broken.info().trouble
    assert len(warnings()) == 3


def test_a_folder_replaced_by_a_file_in_mid_flight(store, warnings):
    def sabotage():
        for file in store.path.iterdir():
            file.unlink()
        store.path.rmdir()
        store.path.write_text("now a file")
        return ARTIFACT

    assert store.get_or_make(KEY, sabotage) == ARTIFACT
    assert store.get_or_make(KEY, lambda: ARTIFACT) == ARTIFACT
    assert len(warnings()) == 1


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.ENOSPC, errno.EDQUOT, errno.EMFILE])
def test_nothing_can_be_created(store, warnings, monkeypatch, code):
    store.put("older", ARTIFACT)
    disks.refuse(monkeypatch, code)
    for _ in range(3):
        assert store.get_or_make(KEY, lambda: ARTIFACT) == ARTIFACT
    assert store.get_or_make("older", never) == ARTIFACT
    assert len(warnings()) == 1
    assert os.strerror(code) in warnings()[0]


@pytest.mark.skipif(os.geteuid() == 0, reason="permission bits do not bind root")
def test_a_read_only_folder(store, warnings):
    store.put("older", ARTIFACT)
    store.path.chmod(0o500)
    try:
        assert store.get_or_make(KEY, lambda: ARTIFACT) == ARTIFACT
        assert store.get_or_make("older", never) == ARTIFACT
    finally:
        store.path.chmod(0o700)
    assert len(warnings()) == 1


def test_a_full_disk_leaves_no_litter(store, warnings, monkeypatch):
    disks.fill(monkeypatch)
    for _ in range(3):
        assert store.get_or_make(KEY, lambda: Artifact(os.urandom(1 << 20))).metadata == {}
    assert list(store.path.iterdir()) == []
    assert len(warnings()) == 1
    assert os.strerror(errno.ENOSPC) in warnings()[0]


def test_a_lock_that_stays_taken_is_waited_for_once(store, warnings, monkeypatch):
    filelock = pytest.importorskip("filelock")
    monkeypatch.setattr(cache, "LOCK_TIMEOUT_S", 0.3)
    store = Store(store.path, ROOMY)
    store.put("another", ARTIFACT)
    with filelock.FileLock(store._file("a", ".lock")), filelock.FileLock(store._file("b", ".lock")):
        waits = []
        for key in "ab":
            start = time.perf_counter()
            assert store.get_or_make(key, lambda: ARTIFACT) == ARTIFACT
            waits.append(time.perf_counter() - start)
    assert waits[0] > 0.25 > waits[1]
    assert len(warnings()) == 1


def test_a_lock_file_left_by_a_dead_process_is_no_obstacle(store, warnings):
    store.path.mkdir(mode=0o700)
    Path(store._file(KEY, ".lock")).write_text("12345")
    start = time.perf_counter()
    assert store.get_or_make(KEY, lambda: ARTIFACT) == ARTIFACT
    assert time.perf_counter() - start < 1
    assert warnings() == []


def test_a_lock_name_that_cannot_be_opened(store, warnings):
    store.path.mkdir(mode=0o700)
    Path(store._file(KEY, ".lock")).mkdir()
    assert store.get_or_make(KEY, lambda: ARTIFACT) == ARTIFACT
    assert store.get_or_make(KEY, never) == ARTIFACT
    assert len(warnings()) == 1


# ---- size, clear, info


def test_the_least_recently_used_go_first_and_the_cap_holds(tmp_path):
    store = Store(tmp_path, 100_000)
    size = len(cache.encode("00", Artifact(bytes(8000))))
    for number in range(60):
        store.put(f"{number:02d}", Artifact(bytes(8000)))
        os.utime(entry_file(store, f"{number:02d}"), (number, number))
        if number >= 3:
            assert store.get("03") is not None  # in use all the time
        assert store.info().bytes <= 100_000
        assert store.get(f"{number:02d}") is not None
        os.utime(entry_file(store, f"{number:02d}"), (number, number))
    kept = [number for number in range(60) if entry_file(store, f"{number:02d}").exists()]
    assert kept[0] == 3
    assert kept[1:] == list(range(61 - len(kept), 60))
    assert len(kept) * size >= 60_000


def test_many_stores_that_do_not_see_each_other_stay_near_the_cap(tmp_path):
    stores = [Store(tmp_path, 1_000_000) for _ in range(4)]
    for number in range(400):
        stores[number % 4].put(str(number), Artifact(bytes(10_000)))
    assert stores[0].info().bytes <= 1_500_000


def test_an_artifact_above_the_cap_is_used_but_not_kept(tmp_path, warnings):
    store = Store(tmp_path / "cache", 1000)
    store.put("small", Artifact(b"s"))
    for _ in range(2):
        assert store.get_or_make(KEY, lambda: Artifact(bytes(2000))) == Artifact(bytes(2000))
    assert store.get("small") == Artifact(b"s")
    assert store.info().entries == 1
    assert len(warnings()) == 1


def test_puts_seldom_look_through_the_folder(store, monkeypatch):
    looks = []
    monkeypatch.setattr(
        Store, "_make_room", lambda self, needed, real=Store._make_room: looks.append(1) or real(self, needed)
    )
    for number in range(100):
        store.put(str(number), Artifact(bytes(1000)))
    assert len(looks) == 1


def test_leftovers_are_ignored_and_swept_when_old(store):
    store.put(KEY, ARTIFACT)
    base = str(entry_file(store)).removesuffix(".artifact")
    old, young = Path(base + ".abc_1234.tmp"), Path(base + ".zyx98765.tmp")
    lock = Path(base + ".lock")
    for file in (old, young, lock):
        file.write_bytes(b"half an arti")
    for file in (old, lock):
        os.utime(file, (1, 1))
    assert store.info().entries == 1
    Store(store.path, ROOMY).put("next", ARTIFACT)
    assert not old.exists()
    assert not lock.exists()
    assert young.exists()


def test_clear_removes_only_what_a_store_wrote(store):
    for number in range(5):
        store.put(str(number), ARTIFACT)
    foreign = [store.path / name for name in ("notes.txt", "my.artifact", "my.tmp", "my.lock")]
    for file in foreign:
        file.write_text("keep me")
    Path(str(entry_file(store)).removesuffix(".artifact") + ".abcd1234.tmp").touch()
    assert store.info() == cache.CacheInfo(store.path, 5, store.info().bytes, ROOMY)
    assert store.info().bytes > 5 * len(ARTIFACT.payload)
    assert store.clear() == 5
    assert sorted(store.path.iterdir()) == sorted(foreign)
    assert store.info().entries == store.clear() == 0


def test_the_default_store_follows_the_setting(tmp_path, monkeypatch):
    monkeypatch.setenv("MATHFUSE_CACHE_DIR", str(tmp_path / "one"))
    first = cache.default_store()
    assert first is cache.default_store()
    assert first.path.is_relative_to(tmp_path / "one")
    monkeypatch.setenv("MATHFUSE_CACHE_DIR", str(tmp_path / "two"))
    assert cache.default_store().path.is_relative_to(tmp_path / "two")


# ---- many at once


def test_threads_make_a_key_once(store):
    makes = []

    def make():
        makes.append(1)
        time.sleep(0.1)
        return ARTIFACT

    results = []
    threads = [threading.Thread(target=lambda: results.append(store.get_or_make(KEY, make))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [ARTIFACT] * 8
    assert len(makes) == 1


WORKER = """
import hashlib, logging, sys, time
from mathfuse.runtime.cache import Artifact, Store
from tests import disks
logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(message)s")
logging.getLogger("mathfuse").setLevel(logging.INFO)

def make(key):
    time.sleep(0.005)
    return Artifact(hashlib.sha256(key.encode()).digest() * 2000, {"key": key})

store = Store(sys.argv[1], int(sys.argv[2]))
for number in range(int(sys.argv[3])):
    key = f"key {number}"
    assert store.get_or_make(key, lambda: make(key), key) == make(key)
"""


def workers(folder, count, limit=ROOMY, keys=12):
    command = [sys.executable, "-c", WORKER, str(folder), str(limit), str(keys)]
    started = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in range(count)
    ]
    outputs = [process.communicate(timeout=120)[0] for process in started]
    assert [process.returncode for process in started] == [0] * count, "\n".join(outputs)
    return [output.splitlines() for output in outputs]


def test_sixteen_processes_on_one_cold_cache(store, tmp_path):
    lines = [line for output in workers(store.path, 16) for line in output]
    assert len(lines) == 12, lines  # each key made once, by whichever process; nothing to warn of
    assert all(line.startswith("INFO compiled key ") for line in lines)
    assert store.info().entries == 12
    assert len(list(store.path.iterdir())) == 12
    assert all(store.get(f"key {number}") is not None for number in range(12))


def test_a_second_process_makes_nothing(store):
    assert len(workers(store.path, 1)[0]) == 12
    assert workers(store.path, 2) == [[], []]


def test_processes_that_evict_and_damage_each_others_entries(store):
    """A cap for three entries and a vandal: every process still gets right artifacts, with one warning at most."""
    stop = threading.Event()

    def vandal():
        while not stop.wait(0.002):
            for file in store.path.glob("*.artifact"):
                with contextlib.suppress(FileNotFoundError):
                    os.truncate(file, 100)

    thread = threading.Thread(target=vandal)
    thread.start()
    try:
        outputs = workers(store.path, 6, limit=200_000)
    finally:
        stop.set()
        thread.join()
    assert all(sum("WARNING" in line for line in output) <= 1 for output in outputs)
    assert store.info().bytes <= 6 * 200_000


def test_a_writer_killed_in_mid_write(store, warnings):
    script = """
import os, sys
from mathfuse.runtime.cache import Artifact, Store
from tests import disks
def stuck(source, target):
    print("writing", flush=True)
    sys.stdin.read()
os.replace = stuck
Store(sys.argv[1], 1 << 24).get_or_make(sys.argv[2], lambda: Artifact(b"half"))
"""
    command = [sys.executable, "-c", script, str(store.path), KEY]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "writing\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert len(list(store.path.glob("*.tmp"))) == 1
    start = time.perf_counter()
    assert store.get_or_make(KEY, lambda: ARTIFACT) == ARTIFACT
    assert time.perf_counter() - start < 1
    assert store.info().entries == 1
    assert warnings() == []
    assert store.clear() == 1
    assert list(store.path.iterdir()) == []
