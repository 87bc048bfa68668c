"""Configurations of own kernels that were the fastest on an H200, by ``python -m benchmarks fft configurations``.

By work, complex length and whether in float64.
"""

from __future__ import annotations

FASTEST: dict[tuple[str, int, bool], str] = {}
