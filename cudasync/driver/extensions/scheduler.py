"""Floor 1. Another order of a program's commands, where the driver can choose it.

A driver that can has a function for it that no other has, which is asked for by name. The software
GPU has it, unless it works on threads; a real driver's order is nobody's to choose.
"""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cudasync.driver.probe import LIBRARY, ensure_driver
from cudasync.driver.result import failure

if TYPE_CHECKING:
    from collections.abc import Iterator

_SCHEDULE = "cudasyncSchedule"
_NOT_SUPPORTED = 801


@contextmanager
def scheduled(name: str) -> Iterator[bool]:
    """Have "fifo" or "seed=N" choose what is next inside of the block; all work is done before it.

    False where the order is nobody's to choose. At the end all work is done as well, unless the
    device is lost. CudaError for what is no scheduler.
    """
    ensure_driver()
    choose = getattr(ctypes.CDLL(LIBRARY), _SCHEDULE, None)
    code = _NOT_SUPPORTED if choose is None else choose(name.encode())
    if code == _NOT_SUPPORTED or choose is None:
        yield False
        return
    if code:
        raise failure(code, _SCHEDULE)
    try:
        yield True
    finally:
        choose(b"")
