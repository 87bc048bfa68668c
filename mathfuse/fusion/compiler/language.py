"""What the callback language does not have, and what to write instead. Tables of messages."""

from __future__ import annotations

from typing import Any

import numpy as np

STATEMENTS = {
    "build_list": "a list needs memory at run time; write a tuple",
    "build_map": "a dict needs memory at run time; write plain variables",
    "build_set": "a set needs memory at run time; write a tuple",
    "Yield": "a generator cannot run inside a kernel; write a loop",
    "yield": "a generator cannot run inside a kernel; write a loop",
    "EnterWith": "`with` cannot run inside a kernel",
    "PopBlock": "`try` and `with` cannot run inside a kernel",
    "DelAttr": "attributes cannot be deleted inside a kernel",
    "SetAttr": "attributes cannot be assigned inside a kernel; return the value or assign to an operand's element",
    "DelItem": "elements cannot be deleted inside a kernel",
}

RAISES = "a callback cannot raise: nothing inside a kernel can catch it; return math.nan, or check before the plan"
ALLOCATES = "memory cannot be allocated inside a kernel; pass an array as an operand"
FORBIDDEN: dict[Any, str] = {
    print: "print() cannot run inside a kernel; call `callback.function` on sample values to look inside",
    **dict.fromkeys(
        (
            list,
            dict,
            set,
            np.array,
            np.zeros,
            np.ones,
            np.empty,
            np.full,
            np.arange,
            np.asarray,
            np.zeros_like,
            np.empty_like,
        ),
        ALLOCATES,
    ),
    **dict.fromkeys(
        (np.sum, np.mean, np.max, np.min, np.dot, np.prod),
        "reductions need the whole array; a callback sees one element at a time",
    ),
    open: "files cannot be opened inside a kernel",
    isinstance: "types are fixed when the callback is compiled; isinstance() is not needed",
    str: "strings cannot be made inside a kernel",
}
