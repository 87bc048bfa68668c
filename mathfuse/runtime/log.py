"""The library's one logger: silent unless the application asks, INFO for what ran and how long, DEBUG for audits."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

logger = logging.getLogger("mathfuse")
logger.addHandler(logging.NullHandler())


@contextmanager
def timed(message: str, *args: object, level: int = logging.INFO) -> Iterator[None]:
    """Log `message % args` with the milliseconds that the block took; a block that raises logs nothing."""
    start = time.perf_counter()
    yield
    logger.log(level, message + ": %.1f ms", *args, 1e3 * (time.perf_counter() - start))
