"""Floor 1. Checked mode, CUDASYNC_CHECK=1: compares an op's accesses with its declarations.

A driver that can record the accesses of kernels has extra functions, which are looked up by name,
once. The software GPU has them: it fails a launch with undeclared accesses, as it fails a launch
with invalid accesses, and refuses an undeclared copy. A real driver lacks them: then only static
checks are made, and a warning says so once.
"""

from __future__ import annotations

import ctypes
import os
import warnings
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from cudasync.driver.probe import LIBRARY, ensure_driver
from cudasync.driver.result import failure
from cudasync.errors import CudasyncError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

VARIABLE = "CUDASYNC_CHECK"
_BEGIN, _END = "cudasyncBeginDeclared", "cudasyncEndDeclared"


class Declared(NamedTuple):
    """The declared accesses to the bytes [start, end)."""

    start: int
    end: int
    reads: bool
    writes: bool

    def words(self) -> tuple[int, int, int]:
        """The declaration in the driver's form."""
        return self.start, self.end, 1 * self.reads | 2 * self.writes


def is_checked() -> bool:
    """Whether CUDASYNC_CHECK is 1. Raises CudasyncError for a value other than 0 and 1."""
    wish = os.environ.get(VARIABLE) or "0"
    if wish not in ("0", "1"):
        raise CudasyncError(f"{VARIABLE}={wish!r}: set it to 0 or 1")
    return wish == "1"


def can_record() -> bool:
    """Whether the driver of this process records the accesses of kernels."""
    return _recorder() is not None


@cache
def _recorder() -> tuple[Any, Any] | None:
    """The driver's two functions, or None."""
    ensure_driver()
    library = ctypes.CDLL(LIBRARY)
    begin: Any = getattr(library, _BEGIN, None)
    end: Any = getattr(library, _END, None)
    if begin is None or end is None:
        return None
    begin.argtypes = (ctypes.c_void_p, ctypes.c_uint, ctypes.c_char_p)
    # A declaration without checks tests whether the driver records now.
    if begin(None, 0, None):
        return None
    end()
    return begin, end


@cache
def warn_unless_recorded() -> None:
    """Warn once that checked mode finds less than on the software GPU."""
    if not can_record():
        warnings.warn(
            f"{VARIABLE}=1: this driver records no accesses of kernels, so only declarations "
            f"that contradict the PTX are found; CUDASYNC_DEVICE=soft finds all",
            RuntimeWarning,
            stacklevel=3,
        )


@contextmanager
def declaring(rows: Sequence[Declared], op: str | None) -> Iterator[None]:
    """Inside the block, work that this thread enqueues may make only the accesses in `rows`.

    `op` is the op's name and place, for the error. With None the work is not checked, also inside
    another `declaring`. Does nothing if the driver does not record.
    """
    recorder = _recorder()
    if recorder is None:
        yield
        return
    begin, end = recorder
    words = [word for row in rows for word in row.words()]
    table = (ctypes.c_uint64 * len(words))(*words)
    code = begin(table, len(rows), None if op is None else op.encode())
    if code:
        raise failure(code, _BEGIN)
    try:
        yield
    finally:
        end()
