"""mathfuse compiles Python prolog and epilog functions into the inner loops of FFT and matrix-multiply kernels.

Every public name is imported at its first use, so that `import mathfuse` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mathfuse import fft as fft
    from mathfuse.epilogs import *  # noqa: F403
    from mathfuse.fusion.compiler import compile as compile
    from mathfuse.fusion.elementwise import elementwise as elementwise
    from mathfuse.fusion.transforms import clear_plans as clear_plans
    from mathfuse.runtime.errors import CallbackError as CallbackError
    from mathfuse.runtime.errors import MathFuseError as MathFuseError
    from mathfuse.runtime.errors import PlanError as PlanError
    from mathfuse.runtime.errors import ToolchainError as ToolchainError
    from mathfuse.runtime.errors import UnsupportedError as UnsupportedError

__version__ = "0.1.0"

_SUBMODULES = ("fft",)
_EXPORTS = {
    "mathfuse.epilogs": """
        Callback Constant constant epilog prolog
        add band_pass bias clamp conjugate_multiply gaussian gelu gelu_tanh half hamming hann leaky_relu multiply
        normalise power_spectrum relu scale sigmoid silu tanh
        angular_frequency clamped_index radial_frequency signed_frequency signed_index wrapped_index
    """,
    "mathfuse.fusion.compiler": "compile",
    "mathfuse.fusion.elementwise": "elementwise",
    "mathfuse.fusion.transforms": "clear_plans",
    "mathfuse.runtime.errors": "CallbackError MathFuseError PlanError ToolchainError UnsupportedError",
}
_HOME = {name: module for module, names in _EXPORTS.items() for name in names.split()}

__all__ = ["__version__", *_SUBMODULES, *_HOME]


def __getattr__(name: str) -> object:
    if name in _SUBMODULES:
        return import_module(f"mathfuse.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'mathfuse' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
