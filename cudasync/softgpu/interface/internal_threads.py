"""Cellar. Internal threads: started by the software GPU, and without driver calls.

Each enters itself when it begins. They are known by number and not by their frames: a walk over
the frames of a running thread is not safe without a GIL, and may not end with one.
"""

from __future__ import annotations

import os
from _thread import start_new_thread
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from threading import get_ident, main_thread
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

# A waiter polls this often: its wake-up may have gone to a wait that was interrupted.
_LOOK_S = 0.1

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


def away_from_signals(work: Callable[[], T]) -> T:
    """`work()` on a thread that runs no signal handlers: the caller's, unless that is the main one.

    For libraries whose objects an interrupt would leave half given back. Ctrl-C is raised behind
    the work. A second one is raised at once, and leaves the work to its thread.
    """
    if get_ident() != main_thread().ident:
        return work()
    ended: SimpleQueue[None] = SimpleQueue()
    found: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        with entered():
            try:
                found.append(work())
            except BaseException as error:
                errors.append(error)
            ended.put(None)

    try:
        start_new_thread(run, ())
        _await(ended, found, errors)
    except Exception:
        # There may be no thread: none starts while the interpreter ends.
        raise
    except BaseException:
        _await(ended, found, errors)
        raise
    if errors:
        raise errors.pop()
    return found[0]


def _await(ended: SimpleQueue[None], found: list[T], errors: list[BaseException]) -> None:
    while not (found or errors):
        try:
            ended.get(timeout=_LOOK_S)
        except Empty:
            continue


if hasattr(os, "register_at_fork"):
    # A forked child has no internal threads.
    os.register_at_fork(after_in_child=OURS.clear)
