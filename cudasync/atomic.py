"""Floor 0. The only operations that threads may share data through without a lock.

Each is one C call on a built-in type: CPython runs it without another thread in between, by the
GIL or, on a free-threaded build, by the critical section of that object. What an algorithm may
rely on is written at each one, and `tests/test_atomic.py` holds us to it. Nothing else in the
library claims to be atomic.
"""

from __future__ import annotations

from collections import deque
from itertools import count
from typing import Generic, TypeVar

T = TypeVar("T")


class Tickets:
    """Numbers 1, 2, 3, ...: each is handed out exactly once, to exactly one caller.

    Assumes that `count.__next__` is one C call. Order of numbers is the order of calls.
    """

    __slots__ = ("next",)

    def __init__(self) -> None:
        self.next = count(1).__next__


class Inbox(Generic[T]):
    """A queue that any thread, a finaliser or a signal handler may put into.

    `put` never blocks and never runs Python code of ours or of the item, so it is safe while the
    same thread is anywhere in the library, in particular inside a garbage collection. Items
    leave in the order they came; no two callers of `take` get the same one.
    """

    __slots__ = ("_items", "put")

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self.put = self._items.append

    def __bool__(self) -> bool:
        return bool(self._items)

    def take(self) -> T | None:
        """Remove and return the oldest item; None when there is none. Never blocks."""
        try:
            return self._items.popleft()
        except IndexError:
            return None


class Once(Generic[T]):
    """A cell that is written once: the first `offer` wins, every caller learns the winner.

    The compare-and-set is `dict.setdefault` with a string key, one C call.
    """

    __slots__ = ("_cell",)

    def __init__(self) -> None:
        self._cell: dict[str, T] = {}

    def offer(self, value: T) -> T:
        """Write `value` if nothing is written yet; return what is written now."""
        return self._cell.setdefault("value", value)

    def get(self) -> T | None:
        """What is written, None before that."""
        return self._cell.get("value")
