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
"""

from __future__ import annotations

import sys
from _thread import RLock


class Lock(RLock):  # type: ignore[misc]  # Final to typeshed alone.
    """A re-entrant lock. No thread holds it outside its `with`, wherever Ctrl-C came."""

    __slots__ = ()

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
