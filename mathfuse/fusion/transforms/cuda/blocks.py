"""Transforms by own kernels in the place of cuFFT's: what they can do, and how they are run."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mathfuse.device.fft.block import Block, block_of
from mathfuse.device.fft.shapes import is_supported, stages_of
from mathfuse.fusion.compiler.cuda.blockcode import link
from mathfuse.fusion.compiler.cuda.blocks import NAME, SLOTS, BlockKernel
from mathfuse.fusion.transforms.cuda.program import Lines, Transform
from mathfuse.runtime.cuda import driver
from mathfuse.runtime.cuda.cufft import Call, Hook

MOST_LINES = 1 << 31
SOURCE, TARGET = SLOTS.index("source"), SLOTS.index("target")


def fits_blocks(call: Call, arch: str) -> bool:
    """Whether one kernel can do it: one axis that a block of threads holds."""
    if len(call.lengths) > 1 or call.batch >= MOST_LINES or not is_supported(_complex_length(call), call.double):
        return False
    return _block(call, arch) is not None


def kernel_of(call: Call, lines: Lines, forward: bool, sides: Sequence[str], arch: str) -> BlockKernel:
    """The kernel for a transform with callbacks on some sides."""
    block = _block(call, arch)
    assert block is not None
    return BlockKernel(
        length=call.lengths[0],
        block=block,
        double=call.double,
        forward=forward,
        real=(call.family == "r2c", call.family == ("r2c" if "transfer" in sides else "c2r")),
        load="prolog" in sides,
        store="epilog" in sides,
        transfer="transfer" in sides,
        dense=(call.input.stride == 1, call.output.stride == 1),
        nested=lines.inner < call.batch,
        arch=arch,
    )


def _block(call: Call, arch: str) -> Block | None:
    across = call.input.distance < call.input.stride and call.output.distance < call.output.stride
    return block_of(stages_of(_complex_length(call)), across, call.double, arch)


def _complex_length(call: Call) -> int:
    """Of the complex transform that does it: of an even number of real ones half as long."""
    n = math.prod(call.lengths)
    return n // 2 if call.family != "c2c" and n % 2 == 0 else n


class BlockTransform:
    """A kernel with its parameters, used as `cufft.Transform` is; it needs no work area."""

    work_bytes = 0

    def __init__(self, step: Transform, hooks: Sequence[Hook], device: int) -> None:
        assert step.block
        call, arch = step.call, driver.architecture(device)
        kernel = kernel_of(call, step.block, step.forward, [hook.side for hook in hooks], arch)
        cubin, _ = link(kernel, [hook.ltoir for hook in hooks])
        loaded = driver.load_kernel(cubin, NAME, device)
        self._parameters = parameters(call, step.block, hooks)
        self._launch = driver.Launch(
            loaded, kernel.blocks(call.batch), kernel.block.threads, self._parameters, kernel.shared_bytes
        )
        self._stream = 0

    def set_stream(self, stream: int) -> None:
        self._stream = stream

    def run(self, source: int, target: int) -> None:
        """Transform from one device address to another; the caller holds the device guard."""
        self._parameters[SOURCE], self._parameters[TARGET] = source, target
        self._launch(self._stream)


def parameters(call: Call, lines: Lines, hooks: Sequence[Hook]) -> np.ndarray:
    """What a launch is given, but for the addresses of source and target."""
    infos: dict[str, int] = {hook.side: hook.info for hook in hooks}
    values = {
        "load_info": infos.get("prolog", 0),
        "transfer_info": infos.get("transfer", 0),
        "store_info": infos.get("epilog", 0),
        "batch": call.batch,
        "inner": lines.inner,
        "source_outer": lines.source,
        "target_outer": lines.target,
        "source_stride": call.input.stride,
        "source_distance": call.input.distance,
        "target_stride": call.output.stride,
        "target_distance": call.output.distance,
    }
    return np.array([values.get(slot, 0) for slot in SLOTS], np.int64)
