"""Floor 1. The scheduler: another order of a program's commands, if the driver can choose it.

It needs an extra function of the driver, which is looked up by name. The software GPU has it,
unless it works on threads; nobody can choose a real driver's order.
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
    """Let "fifo" or "seed=N" choose the order inside the block; all earlier work is done first.

    Yields False if the order cannot be chosen. At the end all work is done as well, unless the
    device is lost. Raises CudaError for an unknown scheduler.
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
