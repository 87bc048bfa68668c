"""What is known of a callback's use without its machine code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mathfuse.runtime.dtypes import named


class Analysis:
    """What lowering found out (see :meth:`~.lowering.Facts.metadata`), read back from an artifact's metadata.

    ``result_dtype`` is what is stored, ``accesses`` how operands are read (see :class:`~.operands.Accesses`),
    ``assigned`` the operands that are written to, ``weak_bits`` the width of bound scalars in the parameter block.
    """

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self.result_dtype = named(metadata["result_dtype"])
        self.weak_bits: int = metadata["weak_bits"]
        self.accesses: dict[str, list] = metadata["accesses"]
        self.assigned: tuple[str, ...] = tuple(metadata["assigned"])
