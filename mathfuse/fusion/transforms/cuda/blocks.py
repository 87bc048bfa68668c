"""Transforms by own kernels in the place of cuFFT's: what they can do, and how they are run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mathfuse.device.fft.shapes import is_supported
from mathfuse.fusion.compiler.cuda.blockcode import link
from mathfuse.fusion.compiler.cuda.blocks import NAME, SLOTS, BlockKernel
from mathfuse.fusion.transforms.cuda.configurations import block_for, complex_length
from mathfuse.fusion.transforms.cuda.program import Transform
from mathfuse.runtime.cuda import driver
from mathfuse.runtime.cuda.cufft import Hook, View

MOST_LINES = 1 << 31
MOST_INTERLEAVED = 16
SOURCE, TARGET = SLOTS.index("source"), SLOTS.index("target")


def fits_blocks(step: Transform, arch: str) -> bool:
    """Whether one kernel can do it: one axis that a block of threads holds."""
    call = step.call
    if len(call.lengths) > 1 or call.batch >= MOST_LINES or not is_supported(complex_length(call), call.double):
        return False
    return block_for(step, arch) is not None


def kernel_of(step: Transform, sides: Sequence[str], arch: str) -> BlockKernel:
    """The kernel for a transform with callbacks on some sides."""
    block, call, lines = block_for(step, arch), step.call, step.block
    assert block is not None
    assert lines is not None
    return BlockKernel(
        length=call.lengths[0],
        block=block,
        double=call.double,
        forward=step.forward,
        real=(call.family == "r2c", call.family == ("r2c" if "transfer" in sides else "c2r")),
        load="prolog" in sides,
        store="epilog" in sides,
        transfer="transfer" in sides,
        strides=(_known(call.input), _known(call.output)),
        tiles=lines.tiles,
        steps=lines.steps,
        nested=(lines.inner[0] < call.batch, lines.inner[1] < call.batch),
        paired=(
            _paired(call.input, lines.outer[0], lines.present[0]),
            _paired(call.output, lines.outer[1], lines.present[1]),
        ),
        present=lines.present,
        half=step.half,
        step=step.part,
        arch=arch,
    )


def _known(view: View) -> int | None:
    """A stride that the code may have in it: few are, of dense lines and of those that lie interleaved."""
    return view.stride if view.stride <= MOST_INTERLEAVED else None


def _paired(view: View, outer: int, present: int | None) -> bool:
    """Whether two neighbours begin where a complex number may, and both are there; the array itself does."""
    return view.stride == 1 and not any(n % 2 for n in (view.distance, outer, present or 0))


class BlockTransform:
    """A kernel with its parameters, used as `cufft.Transform` is; it needs no work area."""

    work_bytes = 0

    def __init__(self, step: Transform, hooks: Sequence[Hook], device: int) -> None:
        kernel = kernel_of(step, [hook.side for hook in hooks], driver.architecture(device))
        cubin, _ = link(kernel, [hook.ltoir for hook in hooks])
        loaded = driver.load_kernel(cubin, NAME, device)
        words = parameters(step, hooks)
        self._words, threads = words.data, kernel.block.threads
        self._launch = driver.Launch(loaded, kernel.blocks(step.call.batch), threads, words, kernel.shared_bytes)
        self._stream = 0

    def set_stream(self, stream: int) -> None:
        self._stream = stream

    def run(self, source: int, target: int) -> None:
        """Transform from one device address to another; the caller holds the device guard."""
        words = self._words
        words[SOURCE], words[TARGET] = source, target
        self._launch(self._stream)


def parameters(step: Transform, hooks: Sequence[Hook]) -> np.ndarray:
    """What a launch is given, but for the addresses of source and target."""
    infos: dict[str, int] = {hook.side: hook.info for hook in hooks}
    call, lines = step.call, step.block
    assert lines is not None
    values = {
        "load_info": infos.get("prolog", 0),
        "transfer_info": infos.get("transfer", 0),
        "store_info": infos.get("epilog", 0),
        "batch": call.batch,
    }
    for number, (side, view) in enumerate((("source", call.input), ("target", call.output))):
        values |= {
            f"{side}_stride": view.stride,
            f"{side}_distance": view.distance,
            f"{side}_inner": lines.inner[number],
            f"{side}_outer": lines.outer[number],
        }
    return np.array([values.get(slot, 0) for slot in SLOTS], np.int64)
