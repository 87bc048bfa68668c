"""Tasks shared by threads: each has a run of neighbours to begin with, and helps the others when it is done."""

from __future__ import annotations

import functools
import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def share(run: Callable[[T], object], tasks: Sequence[T], workers: int) -> None:
    """Call `run` on every task with up to `workers` threads, the calling one among them; raise what a task raises.

    Neighbouring tasks go to one thread, since boxes next to each other in memory share cache lines. A thread takes from
    the front of its own run and, when that is empty, from the far ends of the others'. One pool serves the process, and
    whoever calls also works, so that nested and simultaneous calls cannot wait for each other.
    """
    workers = min(workers, len(tasks))
    if workers < 2:
        for task in tasks:
            run(task)
        return
    runs = [deque(tasks[len(tasks) * i // workers : len(tasks) * (i + 1) // workers]) for i in range(workers)]

    def work(me: int) -> None:
        try:
            for other in (*range(me, workers), *range(me)):
                take = runs[other].popleft if other == me else runs[other].pop
                while True:
                    try:
                        task = take()
                    except IndexError:
                        break
                    run(task)
        except BaseException:
            for rest in runs:
                rest.clear()
            raise

    helpers = [_pool(workers).submit(work, i) for i in range(1, workers)]
    try:
        work(0)
    finally:
        started = [helper for helper in helpers if not helper.cancel()]
        errors = [error for helper in started if (error := helper.exception())]
    if errors:
        raise errors[0]


@functools.cache
def _pool(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers - 1, thread_name_prefix="mathfuse")


if hasattr(os, "register_at_fork"):  # threads do not survive a fork
    os.register_at_fork(after_in_child=_pool.cache_clear)
