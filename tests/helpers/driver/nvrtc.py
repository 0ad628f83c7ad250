"""Whether NVRTC is available, for tests of CUDA C.

The tests' own packages include NVRTC, so a run without it fails. Only the bindings of CUDA 12 have
none: they do not accept the NVRTC of CUDA 13, which pip installs.
"""

from __future__ import annotations

import cuda.bindings
import pytest

from cudasync.driver.compiler import nvrtc
from cudasync.errors import CudasyncError


def _missing() -> str:
    """The reason why NVRTC cannot be available, or ""."""
    if not str(cuda.bindings.__version__).startswith("12."):
        return ""
    try:
        nvrtc.version()
    except CudasyncError as error:
        return str(error)
    return ""


MISSING = _missing()
needs_nvrtc = pytest.mark.skipif(bool(MISSING), reason=MISSING or "NVRTC is here")
