"""What differs between machines: triple, layout, and which function computes what. Tables only."""

from __future__ import annotations

from dataclasses import dataclass, field

# What LLVM does in line on a CPU; everything else is libm's there, and libdevice's on a GPU, under the same names.
INTRINSICS = frozenset("fabs floor ceil trunc rint copysign sqrt".split())

# Approximations that fastmath allows in float32 on a GPU (PTX ISA: ex2.approx, lg2.approx, sqrt.approx, all .ftz).
CUDA_FAST = {
    "exp": "__nv_fast_expf",
    "log": "__nv_fast_logf",
    "log2": "__nv_fast_log2f",
    "log10": "__nv_fast_log10f",
    "exp2": "llvm.nvvm.ex2.approx.ftz.f",
    "sqrt": "llvm.nvvm.sqrt.approx.ftz.f",
}


@dataclass(frozen=True)
class Target:
    """A machine to compile for.

    Parameters
    ----------
    name
        ``"cpu"`` or ``"cuda"``.
    triple, data_layout
        LLVM's names for it.
    library
        Pattern of a math function's symbol, by precision in bits.
    fast
        Symbols that replace a float32 function under fastmath.
    """

    name: str
    triple: str
    data_layout: str
    library: dict[int, str] = field(hash=False)
    fast: dict[str, str] = field(hash=False)

    @property
    def is_cuda(self) -> bool:
        return self.name == "cuda"

    def symbol(self, function: str, bits: int, fastmath: bool) -> str:
        """The symbol that computes ``function`` on reals of ``bits`` bits."""
        if fastmath and bits == 32 and function in self.fast:
            return self.fast[function]
        if function in INTRINSICS and not self.is_cuda:
            return f"llvm.{function}.f{bits}"
        return self.library[bits].format(function)


CPU = Target("cpu", "", "", {32: "{}f", 64: "{}"}, {})

CUDA = Target(
    "cuda",
    "nvptx64-nvidia-cuda",
    "e-p:64:64:64-i1:8:8-i8:8:8-i16:16:16-i32:32:32-i64:64:64-i128:128:128-f32:32:32-f64:64:64-"
    "v16:16:16-v32:32:32-v64:64:64-v128:128:128-n16:32:64",
    {32: "__nv_{}f", 64: "__nv_{}"},
    CUDA_FAST,
)
