"""Floor 4. Where items are kept: in memory.

An item is kept packed, and unpacked for each use: its arrays are read-only, for they are upon the
memory that is kept, and all else is new each time.

True of every store:
- items come one behind the other, and stay; `count` says how many there are;
- who puts one says which number it has, and is not heard if that is there: so two passes at once,
  one of which was dropped, keep nothing twice;
- it is whole once somebody has come to the end.
"""

from __future__ import annotations

from typing import Any, Protocol

from cudasync.data.packing import packed, unpacked
from cudasync.locks import Lock


class Store(Protocol):
    """See above. Any thread may ask; it raises OSError where it can not go on."""

    @property
    def count(self) -> int: ...

    @property
    def is_whole(self) -> bool: ...

    def get(self, number: int) -> Any: ...

    def put(self, number: int, item: Any) -> None: ...

    def end(self, count: int) -> None:
        """There are no more than these."""

    def forget(self) -> None:
        """Begin anew."""

    def flush(self) -> None:
        """Keep what was put beyond the end of this process."""


class InMemory:
    """The items of a pipeline in this process."""

    def __init__(self) -> None:
        self._items: list[tuple[bytes, list[bytes]]] = []
        self._lock = Lock()
        self.is_whole = False

    @property
    def count(self) -> int:
        return len(self._items)

    def get(self, number: int) -> Any:
        return unpacked(*self._items[number])

    def put(self, number: int, item: Any) -> None:
        head, buffers = packed(item)
        kept = head, [bytes(each) for each in buffers]
        with self._lock:
            if number == len(self._items):
                self._items.append(kept)

    def end(self, count: int) -> None:
        with self._lock:
            self.is_whole = len(self._items) == count

    def forget(self) -> None:
        with self._lock:
            self._items.clear()

    def flush(self) -> None:
        pass
