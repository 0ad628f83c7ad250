"""Floor 0. A lock that Ctrl-C leaves free.

Signal handlers run behind calls. Up to Python 3.13 `with lock:` takes the lock within one
instruction; from 3.14 on its `__enter__` is a call like any other, and a KeyboardInterrupt behind
it belongs to no `with` yet: the lock stays taken, and every other thread waits for ever. So
`__enter__` is a function of Python there, which undoes what it did. No signal is looked at between
its return and the block. `__exit__` stays C: a function would look for signals before it released.

The same holds of `lock.acquire()` before a `try` in every Python. Write

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
    """A re-entrant lock. Outside of its `with` no thread holds it, wherever Ctrl-C came."""

    __slots__ = ()

    # Whether the calling thread holds it.
    is_held_here = RLock._is_owned  # type: ignore[attr-defined]

    if sys.version_info >= (3, 14):

        def __enter__(self) -> bool:
            try:
                return self.acquire()
            except BaseException:
                # An acquire that failed leaves it to its holder, and that is another thread.
                if self.is_held_here():
                    self.release()
                raise
