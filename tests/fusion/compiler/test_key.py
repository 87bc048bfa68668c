"""Keys of artifacts: whatever code depends on is in them."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

import mathfuse as mf
from mathfuse.fusion.compiler.key import artifact_key
from mathfuse.fusion.compiler.signature import OperandType, Signature

ARRAY = OperandType("float32", 2, True)
SIGNATURE = Signature.of(mf.gaussian, np.dtype(np.complex64), 2, (0, 1), {"sigma": 8.0})
OTHERS = {
    "callback": mf.relu,
    "value_dtype": np.dtype(np.complex128),
    "ndim": 3,
    "axes": (1,),
    "operands": (("sigma", ARRAY),),
    "source": ARRAY,
    "shape": (4, 5),
}


@pytest.mark.parametrize("field", [field.name for field in fields(Signature)])
def test_every_field_of_a_signature_is_in_the_key(field):
    """Half spectra of 4 and of 5 real numbers have as many elements: only `shape` tells them apart."""
    assert artifact_key("fft", replace(SIGNATURE, **{field: OTHERS[field]}), "sm_90a") != artifact_key(
        "fft", SIGNATURE, "sm_90a"
    )


def test_what_is_not_of_the_signature_is_in_the_key():
    keys = {artifact_key(*given, **more) for given, more in (
        (("fft", SIGNATURE, "sm_90a"), {}), (("elementwise", SIGNATURE, "sm_90a"), {}),
        (("fft", SIGNATURE, "sm_80"), {}), (("fft", SIGNATURE, "sm_90a"), {"side": "prolog"}),
    )}  # fmt: skip
    assert len(keys) == 4
