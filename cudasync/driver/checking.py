"""Floor 1. Checked mode, CUDASYNC_CHECK=1: launches are held to what they were said to access.

A driver that can record what kernels do has a function that no other has; it is asked for by name,
once. The software GPU has it, and fails a launch that did more, as it fails one that strays. A real
driver has not: then only what is known without running anything is checked, and that is said once.
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

    from cudasync.driver.kernel import Kernel

VARIABLE = "CUDASYNC_CHECK"
_FUNCTION = "cudasyncExpectAccesses"


class Expected(NamedTuple):
    """What a launch may do to the memory behind one of its parameters.

    `by_hand`: the caller says so; else it was inferred.
    """

    parameter: int
    start: int
    end: int
    reads: bool
    writes: bool
    by_hand: bool

    def words(self) -> tuple[int, int, int, int]:
        """As the driver takes it."""
        flags = 1 * self.reads | 2 * self.writes | 4 * self.by_hand
        return self.parameter, self.start, self.end, flags


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
def _recorder() -> Any:
    """The driver's function, or None."""
    ensure_driver()
    found: Any = getattr(ctypes.CDLL(LIBRARY), _FUNCTION, None)
    if found is None:
        return None
    found.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_char_p)
    # Taking back what nobody expects is how to ask.
    return None if found(None, None, 0, None) else found


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
def expecting(kernel: Kernel, rows: Sequence[Expected], site: str) -> Iterator[None]:
    """Within, the launch of `kernel` by this thread may access what `rows` say, and no more.

    `site` is where that was said, for the error. Does nothing where the driver does not record.
    """
    recorder = _recorder()
    if recorder is None or not rows:
        yield
        return
    words = [word for row in rows for word in row.words()]
    table = (ctypes.c_uint64 * len(words))(*words)
    code = recorder(int(kernel.get()), table, len(rows), site.encode())
    if code:
        raise failure(code, _FUNCTION)
    try:
        yield
    finally:
        # The launch has used it up, unless it was refused.
        recorder(None, None, 0, None)
