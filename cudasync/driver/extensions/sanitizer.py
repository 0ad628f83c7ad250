"""Floor 1. The sanitizer: checks of a program while it runs, if the driver can make them.

It needs extra functions of the driver, which are looked up by name. The software GPU has them,
unless it works on threads.
"""

from __future__ import annotations

import ctypes
import json
from typing import TYPE_CHECKING, Any

from cudasync.driver.probe import LIBRARY, ensure_driver
from cudasync.driver.result import failure
from cudasync.errors import CudasyncError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_BEGIN, _REPORT = "cudasyncSanitizeBegin", "cudasyncSanitizeReport"
_HOST, _END = "cudasyncSanitizeHost", "cudasyncSanitizeEnd"
_ADD = "cudasyncSanitizeAdd"
_REPORT_BYTES = 16 << 20


def begin(
    kinds: Iterable[str],
    *,
    most: int = 0,
    suppressions: Sequence[str] = (),
    tell: bool = False,
) -> None:
    """Check from now on. Raises CudasyncError on a real driver, CudaError if refused."""
    ensure_driver()
    if getattr(ctypes.CDLL(LIBRARY), _BEGIN, None) is None:
        raise CudasyncError("only the software GPU can check programs: set CUDASYNC_DEVICE=soft")
    settings = {
        "kinds": sorted(kinds),
        "most": most,
        "suppressions": list(suppressions),
        "tell": tell,
    }
    _call(_BEGIN, json.dumps(settings).encode())


def report() -> dict[str, Any]:
    """Run work that nobody waited for, check what is left, and return all findings so far."""
    text = ctypes.create_string_buffer(_REPORT_BYTES)
    _call(_REPORT, text, ctypes.c_uint(_REPORT_BYTES))
    found: dict[str, Any] = json.loads(text.value)
    return found


def host(address: int, size_bytes: int, *, writes: bool) -> None:
    """The calling thread reads or writes these bytes now."""
    _call(_HOST, ctypes.c_void_p(address), ctypes.c_size_t(size_bytes), ctypes.c_uint(writes))


def add(finding: dict[str, Any]) -> None:
    """Report what somebody else has found, as JSON: its kind, text, accesses, memory, missing."""
    _call(_ADD, json.dumps(finding).encode())


def end() -> None:
    """Stop checking."""
    _call(_END)


def _call(name: str, *arguments: Any) -> None:
    code = getattr(ctypes.CDLL(LIBRARY), name)(*arguments)
    if code:
        raise failure(code, name)
