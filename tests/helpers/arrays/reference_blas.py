"""A library with cuBLAS's interface that computes on the software GPU: reference_blas.c, compiled.

The tests run cudasync's use of cuBLAS with this library: signatures, stream order, handles and
workspaces. The real one needs a GPU.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

from helpers.repository.checkout import ROOT

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = ROOT / "tests" / "helpers" / "arrays" / "reference_blas.c"


def c_compiler() -> str | None:
    """The C compiler of this machine, if there is one."""
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def compiled(folder: Path) -> Path:
    """Compile the library into `folder`."""
    compiler = c_compiler()
    assert compiler is not None
    path = folder / "libreference_blas.so"
    # A product and a sum are rounded separately, so that every machine gives the same result.
    options = ["-O1", "-Wall", "-Werror", "-ffp-contract=off", "-shared", "-fPIC"]
    subprocess.run([compiler, *options, "-o", path, SOURCE, "-ldl"], check=True)
    return path


def opened(path: Path) -> Any:
    """Open the library, for its functions beside cuBLAS's: counts, and failures on demand."""
    library = ctypes.CDLL(str(path))
    library.reference_stream.restype = ctypes.c_void_p
    library.reference_workspace.restype = ctypes.c_void_p
    return library
