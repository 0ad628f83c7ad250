"""Cellar. Internal threads: started by the software GPU, and without driver calls.

Each enters itself when it begins. They are known by number and not by their frames: a walk over
the frames of a running thread is not safe without a GIL, and may not end with one.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from threading import get_ident
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Each change is one C call.
OURS: set[int] = set()


@contextmanager
def entered() -> Iterator[None]:
    """Context manager: the calling thread counts as internal."""
    OURS.add(get_ident())
    try:
        yield
    finally:
        OURS.discard(get_ident())


if hasattr(os, "register_at_fork"):
    # A forked child has no internal threads.
    os.register_at_fork(after_in_child=OURS.clear)
