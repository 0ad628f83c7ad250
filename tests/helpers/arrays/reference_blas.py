"""A library with cuBLAS's interface that computes on the software GPU: reference_blas.c, compiled.

What cudasync makes of cuBLAS's signatures, its order on streams, handles and workspaces runs by
it as it does by the real one, which needs a GPU.
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
    """The library, made in `folder`."""
    compiler = c_compiler()
    assert compiler is not None
    path = folder / "libreference_blas.so"
    # No product and its sum are one rounding: the same on every machine.
    options = ["-O1", "-Wall", "-Werror", "-ffp-contract=off", "-shared", "-fPIC"]
    subprocess.run([compiler, *options, "-o", path, SOURCE, "-ldl"], check=True)
    return path


def opened(path: Path) -> Any:
    """The library, for what it has beside cuBLAS's functions: counts, and failures at will."""
    library = ctypes.CDLL(str(path))
    library.reference_stream.restype = ctypes.c_void_p
    library.reference_workspace.restype = ctypes.c_void_p
    return library
