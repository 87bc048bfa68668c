"""Tasks run once each, on every worker, errors come through, and nested or simultaneous use ends."""

from __future__ import annotations

import os
import threading
import time

import pytest

from mathfuse.fusion.workers import share


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 2, 33])
def test_each_task_runs_once(workers, count):
    seen = []
    share(seen.append, range(count), workers)
    assert sorted(seen) == list(range(count))


def test_more_than_one_thread_works():
    names = set()
    share(lambda _: (time.sleep(0.01), names.add(threading.get_ident())), range(16), 2)
    assert len(names) == 2


def test_a_task_that_fails_stops_the_rest_and_is_raised():
    done = []

    def task(i):
        if i in (3, 50):
            raise ValueError(i)
        time.sleep(0.001)
        done.append(i)

    with pytest.raises(ValueError, match=r"3|50"):
        share(task, range(100), 2)
    assert len(done) < 99


def test_nested_and_simultaneous_calls_end():
    seen = []

    def outer(i):
        share(lambda j: seen.append((i, j)), range(8), 4)

    threads = [threading.Thread(target=share, args=(outer, range(8), 4)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(seen) == 4 * 8 * 8


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-*threaded")
def test_works_after_a_fork():
    share(lambda _: time.sleep(0.001), range(8), 2)
    child = os.fork()
    if child == 0:
        share(lambda _: None, range(8), 2)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
