"""What the callback language does not have, and what to write instead. Tables of messages."""

from __future__ import annotations

from typing import Any

import numpy as np

RAISES = "a callback cannot raise: nothing inside a kernel can catch it; return math.nan, or check before the plan"
TRY = "`try` has no meaning inside a kernel, where nothing raises; test the values with `if`"
WITH = "`with` cannot run inside a kernel"
YIELD = "a generator cannot run inside a kernel; write a loop"
ALLOCATES = "memory cannot be allocated inside a kernel; pass an array as an operand"
TEXT = "text cannot be made inside a kernel; run `callback.function` on sample values to look inside"
WHOLE_ARRAY = "reductions need the whole array; a callback sees one element at a time"

# By bytecode instruction: refused wherever it stands in a function.
INSTRUCTIONS = {
    "STORE_GLOBAL": "a callback cannot assign to a global; return the value or assign to an operand's element",
    "DELETE_GLOBAL": "a callback cannot delete a global",
    "IMPORT_NAME": "a callback cannot import; import at the top of the file",
    "LOAD_BUILD_CLASS": "a class cannot be made inside a kernel",
    "UNPACK_EX": "`a, *rest = …` is not there inside a callback; write slices: a, rest = items[0], items[1:]",
    "DICT_MERGE": "**keywords cannot be passed on inside a callback; write the arguments out",
    **dict.fromkeys(("SETUP_WITH", "BEFORE_WITH", "LOAD_SPECIAL"), WITH),
    **dict.fromkeys(("SETUP_FINALLY", "PUSH_EXC_INFO"), TRY),
    **dict.fromkeys(("YIELD_VALUE", "GET_YIELD_FROM_ITER"), YIELD),
}

# By a part of what Numba's front end says when it gives up.
GAVE_UP = {
    "cell variable": "an inner function can only use variables that were assigned before it, and not itself "
    "(recursion cannot run inside a kernel); write a loop, or define the other function first",
    "kwdefaults": "an inner function has no keyword-only arguments; write plain ones with defaults",
}

# By statement or expression of Numba's representation: refused where it is reached.
STATEMENTS = {
    "build_list": "a list needs memory at run time; write a tuple",
    "build_map": "a dict needs memory at run time; write plain variables",
    "build_set": "a set needs memory at run time; write a tuple",
    "build_string": TEXT,
    "Yield": YIELD,
    "yield": YIELD,
    "EnterWith": WITH,
    "PopBlock": TRY,
    "DelAttr": "attributes cannot be deleted inside a kernel",
    "SetAttr": "attributes cannot be assigned inside a kernel; return the value or assign to an operand's element",
    "DelItem": "elements cannot be deleted inside a kernel",
    "Raise": RAISES,
    "StaticRaise": RAISES,
    "DynamicRaise": RAISES,
    "TryRaise": RAISES,
    "StaticTryRaise": RAISES,
    "DynamicTryRaise": RAISES,
}

# By called object.
FORBIDDEN: dict[Any, str] = {
    print: "print() cannot run inside a kernel; call `callback.function` on sample values to look inside",
    open: "files cannot be opened inside a kernel",
    input: "nobody can answer inside a kernel",
    isinstance: "types are fixed when the callback is compiled; isinstance() is not needed",
    type: "types are fixed when the callback is compiled; type() is not needed",
    next: "iterators cannot be advanced by hand inside a callback; write a loop",
    iter: "iterators cannot be advanced by hand inside a callback; write a loop",
    sorted: "sorted() needs memory at run time; compare with min() and max()",
    **dict.fromkeys((str, repr, format, ascii, chr, bytes), TEXT),
    **dict.fromkeys((map, filter, any, all), "it runs over objects at run time; write a loop"),
    **dict.fromkeys((getattr, setattr, hasattr, vars, eval, exec), "names are looked up when the callback is compiled"),
    **dict.fromkeys((list, dict, set, frozenset, bytearray), ALLOCATES),
    **dict.fromkeys((np.array, np.zeros, np.ones, np.empty, np.full, np.arange, np.asarray, np.linspace), ALLOCATES),
    **dict.fromkeys((np.zeros_like, np.ones_like, np.empty_like, np.full_like, np.stack, np.concatenate), ALLOCATES),
    **dict.fromkeys((np.sum, np.mean, np.max, np.min, np.prod, np.std, np.var, np.median, np.any, np.all), WHOLE_ARRAY),
    **dict.fromkeys((np.dot, np.vdot, np.inner, np.matmul, np.cumsum, np.sort, np.argmax, np.argmin), WHOLE_ARRAY),
}
