"""Programs: lists of steps over buffers, with one way of fusing; plain data.

A step is a transform by cuFFT or an own kernel, with or without callbacks, or a generated elementwise kernel. What is
done to each element (prolog, conversion, padding, copy, scale, epilog) is a `Map` in either case: on its own, or a
transform's callback.
"""

from __future__ import annotations

from dataclasses import dataclass

from mathfuse.device.fft.shapes import LONGEST_BLOCK
from mathfuse.device.fft.steps import Step
from mathfuse.fusion.elementwise.layouts import Layout
from mathfuse.fusion.transforms.cuda.layouts import Lines, Side
from mathfuse.fusion.transforms.pipeline import Role
from mathfuse.runtime.cuda.cufft import Call
from mathfuse.runtime.dtypes import HALF


@dataclass(frozen=True)
class Fuse:
    """Whether what is done on the way in, and on the way out, becomes a callback.

    With `gather` the input is read by the callback at its own addresses even where cuFFT could see it, which then takes
    the algorithm for an array without gaps. With `block` own kernels transform one axis after the other, not cuFFT, one
    of more than `longest` elements in steps, and rows lie interleaved between them, `tile` each; None: as many as is
    usual for columns of that length.
    """

    load: bool = False
    store: bool = False
    gather: bool = False
    block: bool = False
    tile: int | None = None
    longest: int = LONGEST_BLOCK


@dataclass(frozen=True)
class Buffer:
    """Memory: "x" the input, "out" the result, others are rooms in the workspace.

    Of more than one `tile`, for own kernels only, so many rows of the two innermost axes lie interleaved.
    """

    name: str
    layout: Layout
    tile: int = 1

    @property
    def writable(self) -> bool:
        return self.name != "x"

    def __str__(self) -> str:
        return self.name if self.tile == 1 else f"{self.name} ({self.tile} rows interleaved)"


@dataclass(frozen=True)
class Map:
    """``target[i] = f(source[i])`` over the target's index space; outside the source, an element is 0.

    Of a source that is larger only what has a place in the target is taken.

    Parameters
    ----------
    role
        The callback; None only copies, converts, pads or scales.
    scale, scale_after
        A factor, applied before or after the callback.
    """

    role: Role | None
    source: Buffer
    target: Buffer
    scale: float = 1.0
    scale_after: bool = False

    @property
    def padded(self) -> bool:
        return self.source.layout.shape != self.target.layout.shape

    def __str__(self) -> str:
        done: list[str] = [self.role] if self.role else []
        smaller = any(n < m for n, m in zip(self.target.layout.shape, self.source.layout.shape))
        done += ["cut" if smaller else "pad"] if self.padded else []
        done += ["scale"] if self.scale != 1 else []
        return " → ".join([self.source.name, *(done or ["copy"]), self.target.name])


@dataclass(frozen=True)
class Hook:
    """A map as a callback of a transform, and how that sees its side; `direct`: the element lies where it says.

    With `axis` an own kernel tells a line along it and an element of that; `across` tells that it then reads arrays
    across their lines.
    """

    map: Map
    side: Side
    direct: bool
    axis: int | None = None
    across: bool = False


@dataclass(frozen=True)
class Transform:
    """One call of cuFFT, or of an own kernel that does the same by blocks of threads.

    With `transfer`, of own kernels only, it is forward, that, and back; with `part` one step of a longer transform.
    """

    call: Call
    forward: bool
    source: Buffer
    target: Buffer
    load: Hook | None = None
    store: Hook | None = None
    transfer: Hook | None = None
    block: Lines | None = None
    part: Step | None = None

    @property
    def hooks(self) -> list[Hook]:
        return [hook for hook in (self.load, self.transfer, self.store) if hook]

    @property
    def half(self) -> tuple[bool, bool]:
        """Whether it reads, and writes, half precision without a callback, as own kernels do."""
        read, written = self.source.layout.dtype, self.target.layout.dtype
        return not self.load and read in HALF, not self.store and written in HALF

    def __str__(self) -> str:
        shape = "×".join(map(str, self.call.lengths)) + (f" of {self.part.length}" if self.part else "")
        inside = [f"half precision {done}" for done, so in zip(("read", "written"), self.half) if so]
        inside += [f"{hook.map.role or 'convert'} inside" for hook in self.hooks]
        given, kept = self.block.present if self.block else (None, None)
        inside += [f"{given} elements given"] if given else []
        inside += [f"{kept} kept"] if kept else []
        source = str(self.load.map.source if self.load else self.source)
        target = str(self.store.map.target if self.store else self.target)
        family = f"{self.call.family} and back" if self.transfer else self.call.family
        name = f"{'blocks' if self.block else 'cuFFT'} {family}({shape}) × {self.call.batch}"
        return " → ".join([source, ", ".join([name, *inside]), target])


def moved_bytes(step: Map | Transform) -> int:
    """What a step reads and writes, but for operands."""
    if isinstance(step, Map):
        return step.source.layout.nbytes + step.target.layout.nbytes
    source = step.load.map.source if step.load else step.source
    target = step.store.map.target if step.store else step.target
    return source.layout.nbytes + target.layout.nbytes


@dataclass(frozen=True)
class Program:
    """Steps in order, and the rooms of the workspace they use."""

    fuse: Fuse
    steps: tuple[Map | Transform, ...]
    rooms: tuple[Buffer, ...]

    @property
    def transforms(self) -> list[Transform]:
        return [step for step in self.steps if isinstance(step, Transform)]

    @property
    def maps(self) -> list[Map]:
        return [step for step in self.steps if isinstance(step, Map)]

    @property
    def in_place(self) -> bool:
        """Whether it works where input and result are the same memory: cuFFT then knows."""
        return all(hook.direct for hook in self.hooks) and not any(step.source.name == "x" for step in self.maps)

    @property
    def hooks(self) -> list[Hook]:
        return [hook for step in self.transforms for hook in step.hooks]

    @property
    def fuses(self) -> bool:
        """Whether anything is done inside of transforms: a callback, a conversion."""
        return any(step.hooks or any(step.half) for step in self.transforms)
