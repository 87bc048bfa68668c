"""Where a plan runs."""

from __future__ import annotations

from typing import Any

from mathfuse.fusion.transforms.choices import Choices
from mathfuse.fusion.transforms.spaces import Space
from mathfuse.runtime import arrays


def space_of(x: Any, choices: Choices) -> Space:
    """Where to run: as asked for, else where the input is."""
    where = choices.execution or arrays.place(x, "x")
    choices.check(where)
    if where == "cuda":
        from mathfuse.fusion.transforms.cuda.space import CudaSpace  # the driver: only GPU plans pay for it

        return CudaSpace(x)
    from mathfuse.fusion.transforms.cpu.space import CpuSpace

    return CpuSpace()
