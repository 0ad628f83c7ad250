"""Floor 0. A lock that Ctrl-C leaves free.

Python runs signal handlers after calls. Up to Python 3.13 `with lock:` takes the lock within one
instruction. From 3.14 on its `__enter__` is an ordinary call, and a KeyboardInterrupt after it
belongs to no `with` yet: the lock stays taken, and every other thread waits for ever. So
`__enter__` is a Python function there, and releases the lock after an interrupt. Python checks for
no signal between its return and the block. `__exit__` stays C: a Python function would check for
signals before it releases.

In every Python the same problem exists for `lock.acquire()` before a `try`. Write

    try:
        lock.acquire()
        ...
        lock.release()
    except BaseException:
        if lock.is_held_here():
            lock.release()
        raise

A forked child has one thread, and a lock of another thread would stay taken there for ever. So all
locks but those of the forking thread are free in a child. What such a lock protects may have been
left in the middle of a change, as by a thread that was interrupted.
"""

from __future__ import annotations

import os
import sys
import weakref
from _thread import RLock
from itertools import count

# The living locks, by number.
_LOCKS: dict[int, weakref.ref[Lock]] = {}
_numbers = count()


class Lock(RLock):  # type: ignore[misc]  # Final to typeshed alone.
    """A re-entrant lock. No thread holds it outside its `with`, wherever Ctrl-C came."""

    __slots__ = ()

    def __init__(self) -> None:
        number = next(_numbers)
        _LOCKS[number] = weakref.ref(self, lambda _: _LOCKS.pop(number, None))

    # Whether the calling thread holds it.
    is_held_here = RLock._is_owned  # type: ignore[attr-defined]

    if sys.version_info >= (3, 14):

        def __enter__(self) -> bool:
            try:
                return self.acquire()
            except BaseException:
                # If the acquire failed, another thread may hold the lock.
                if self.is_held_here():
                    self.release()
                raise


def _free_all() -> None:
    """In a forked child: free the locks that threads of the parent had."""
    for each in list(_LOCKS.values()):
        lock = each()
        if lock is not None and not lock.is_held_here():
            lock._at_fork_reinit()  # type: ignore[attr-defined]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_all)
