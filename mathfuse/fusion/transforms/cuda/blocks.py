"""Transforms by own kernels in the place of cuFFT's: what they can do, and how they are run."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mathfuse.device.fft.block import Block, block_of
from mathfuse.device.fft.shapes import LONG, is_supported, stages_of
from mathfuse.device.fft.steps import SECTOR, deal
from mathfuse.fusion.compiler.cuda.blockcode import link
from mathfuse.fusion.compiler.cuda.blocks import NAME, SLOTS, BlockKernel
from mathfuse.fusion.transforms.cuda.layouts import TILE
from mathfuse.fusion.transforms.cuda.program import Transform
from mathfuse.runtime.cuda import driver
from mathfuse.runtime.cuda.cufft import Call, Hook, View

MOST_LINES = 1 << 31
SOURCE, TARGET = SLOTS.index("source"), SLOTS.index("target")
# Lines in a block, as measured on an H200: of rows that become interleaved, or threads of those that cease to be, and
# of columns between them.
TURNED, TURNED_THREADS, LONG_COLUMNS, COLUMN_THREADS = 4, 256, 2, 64


def fits_blocks(step: Transform, arch: str) -> bool:
    """Whether one kernel can do it: one axis that a block of threads holds."""
    call = step.call
    if len(call.lengths) > 1 or call.batch >= MOST_LINES or not is_supported(_complex_length(call), call.double):
        return False
    return _block(step, arch) is not None


def kernel_of(step: Transform, sides: Sequence[str], arch: str) -> BlockKernel:
    """The kernel for a transform with callbacks on some sides."""
    block, call, lines = _block(step, arch), step.call, step.block
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
        dense=(call.input.stride == 1, call.output.stride == 1),
        tiles=lines.tiles,
        nested=(lines.inner[0] < call.batch, lines.inner[1] < call.batch),
        paired=(
            _paired(call.input, lines.outer[0], lines.present[0]),
            _paired(call.output, lines.outer[1], lines.present[1]),
        ),
        present=lines.present,
        step=step.part,
        arch=arch,
    )


def _block(step: Transform, arch: str) -> Block | None:
    call, lines = step.call, step.block
    assert lines is not None
    stages = stages_of(_complex_length(call), call.double)
    across = all(_beside(view) for view in (call.input, call.output))
    of = functools.partial(block_of, stages, call.double, arch, slack=1 if step.transfer else 0)
    if step.part and (_beside(call.input) or _beside(call.output)):
        stages, wanted = deal(stages.length, call.double)
        tile = 1 if across else SECTOR // 2 if call.double else SECTOR
        stages = replace(stages, threads=-(-stages.threads // tile) * tile)
        return block_of(stages, call.double, arch, wanted, across=True, tile=tile)
    if lines.tiles != (1, 1):
        tile = math.gcd(max(lines.tiles), stages.threads)
        wanted = LONG_COLUMNS if stages.length > LONG else max(1, COLUMN_THREADS // stages.threads)
        return of(wanted, across=True, tile=tile)
    if not _turned(step):
        return of(across=across)
    wanted = TURNED if call.family == "r2c" else min(max(TURNED_THREADS // stages.threads, 2), TILE)
    return of(wanted, turned=True)


def _beside(view: View) -> bool:
    """Whether lines lie closer together than their elements."""
    return view.distance < view.stride


def _paired(view: View, outer: int, present: int | None) -> bool:
    """Whether two neighbours begin where a complex number may, and both are there; the array itself does."""
    return view.stride == 1 and not any(n % 2 for n in (view.distance, outer, present or 0))


def _turned(step: Transform) -> bool:
    """Whether packed lines are interleaved on the side of the spectrum, and on that only."""
    call = step.call
    if call.family == "c2c" or step.transfer or call.lengths[0] % 2:
        return False
    spectrum, other = (call.output, call.input) if call.family == "r2c" else (call.input, call.output)
    return _beside(spectrum) and not _beside(other)


def _complex_length(call: Call) -> int:
    """Of the complex transform that does it: of an even number of real ones half as long."""
    n = math.prod(call.lengths)
    return n // 2 if call.family != "c2c" and n % 2 == 0 else n


class BlockTransform:
    """A kernel with its parameters, used as `cufft.Transform` is; it needs no work area."""

    work_bytes = 0

    def __init__(self, step: Transform, hooks: Sequence[Hook], device: int) -> None:
        kernel = kernel_of(step, [hook.side for hook in hooks], driver.architecture(device))
        cubin, _ = link(kernel, [hook.ltoir for hook in hooks])
        loaded = driver.load_kernel(cubin, NAME, device)
        self._parameters = parameters(step, hooks)
        self._launch = driver.Launch(
            loaded, kernel.blocks(step.call.batch), kernel.block.threads, self._parameters, kernel.shared_bytes
        )
        self._stream = 0

    def set_stream(self, stream: int) -> None:
        self._stream = stream

    def run(self, source: int, target: int) -> None:
        """Transform from one device address to another; the caller holds the device guard."""
        self._parameters[SOURCE], self._parameters[TARGET] = source, target
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
            f"{side}_step": lines.steps[number],
        }
    return np.array([values.get(slot, 0) for slot in SLOTS], np.int64)
