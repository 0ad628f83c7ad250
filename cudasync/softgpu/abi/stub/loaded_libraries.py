"""Cellar, abi. Finds the native libraries that this process has loaded, by their data symbols."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Final

RUNTIME: Final = "libcudart.so.13"
"""The runtime's library, and the version of each of its symbols."""
SLOTS: Final = "cudasync_native_slots"
NAMES: Final = "cudasync_native_names"
RECORDS: Final = "cudasync_native_records"
FINDINGS: Final = "cudasync_native_findings"
_RTLD_NOLOAD: Final = 4


def is_loaded_file(name: str) -> bool:
    """Whether a file whose name contains `name` is mapped into the process."""
    try:
        return f"/{name}" in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def native_library(soname: str) -> ctypes.CDLL | None:
    """The library of this name, if the process has loaded it and it is ours."""
    try:
        library = ctypes.CDLL(soname, mode=_RTLD_NOLOAD)
    except OSError:
        return None
    return library if hasattr(library, SLOTS) else None
