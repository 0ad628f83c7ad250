"""Whether NVRTC is here, for tests of CUDA C.

It comes with the tests' own packages, so a run without it is a red one. Only to the bindings of
CUDA 12 it is not here: they do not take the NVRTC of 13, which is the one that pip finds.
"""

from __future__ import annotations

import cuda.bindings
import pytest

from cudasync.driver.compiler import nvrtc
from cudasync.errors import CudasyncError


def _missing() -> str:
    """Why there can not be one here, or ""."""
    if not str(cuda.bindings.__version__).startswith("12."):
        return ""
    try:
        nvrtc.version()
    except CudasyncError as error:
        return str(error)
    return ""


MISSING = _missing()
needs_nvrtc = pytest.mark.skipif(bool(MISSING), reason=MISSING or "NVRTC is here")
