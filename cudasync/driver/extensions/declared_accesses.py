"""Floor 1. Checked mode, CUDASYNC_CHECK=1: what an op enqueues is held to what the op declares.

A driver that can record what kernels do has functions that no other has; they are asked for by
name, once. The software GPU has them: it fails a launch that did more, as it fails one that strays,
and refuses a copy that would. A real driver has not: then only what is known without running
anything is checked, and that is said once.
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
    """What may happen to the bytes [start, end)."""

    start: int
    end: int
    reads: bool
    writes: bool

    def words(self) -> tuple[int, int, int]:
        """As the driver takes it."""
        return self.start, self.end, 1 * self.reads | 2 * self.writes


def is_checked() -> bool:
    """Whether CUDASYNC_CHECK asks for it. CudasyncError for a value that is neither 0 nor 1."""
    wish = os.environ.get(VARIABLE) or "0"
    if wish not in ("0", "1"):
        raise CudasyncError(f"{VARIABLE}={wish!r}: it takes 0 or 1")
    return wish == "1"


def can_record() -> bool:
    """Whether the driver of this process records what kernels do."""
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
    # To hold nothing to anything is how to ask.
    if begin(None, 0, None):
        return None
    end()
    return begin, end


@cache
def warn_unless_recorded() -> None:
    """Say once that checked mode is less than it is on the software GPU."""
    if not can_record():
        warnings.warn(
            f"{VARIABLE}=1: this driver does not record what kernels access, so only narrowings "
            "that contradict the PTX are found; CUDASYNC_DEVICE=soft finds all",
            RuntimeWarning,
            stacklevel=3,
        )


@contextmanager
def declaring(rows: Sequence[Declared], op: str | None) -> Iterator[None]:
    """Within, what this thread enqueues may access what `rows` say, and no more.

    `op` is the op's name and place, for the error. None holds to nothing what is enqueued within,
    also inside of another `declaring`. Does nothing where the driver does not record.
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
