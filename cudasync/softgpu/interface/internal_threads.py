"""Cellar. Threads that the software GPU has started and that make no driver calls.

Each enters itself when it begins. They are known by number, and not by what they run: to walk over
the frames of a thread that goes on meanwhile is not safe without a GIL, and finds no end with one.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from threading import get_ident
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Entered and left by one C call each.
OURS: set[int] = set()


@contextmanager
def entered() -> Iterator[None]:
    """The calling thread is one of them, for as long as this lasts."""
    OURS.add(get_ident())
    try:
        yield
    finally:
        OURS.discard(get_ident())


if hasattr(os, "register_at_fork"):
    # A child has none of them.
    os.register_at_fork(after_in_child=OURS.clear)
