"""Floor 4. The stores of a cache; here the one in memory.

An item is kept packed, and unpacked for each use. Its arrays are read-only, because they lie upon
the kept memory; everything else is new each time.

True of every store:
- items come one behind the other, and stay; `count` is their number;
- `put` names the item's number, and is ignored if that item exists. So two passes at once, one of
  them dropped, keep nothing twice;
- the store is complete once a pass has come to the end.
"""

from __future__ import annotations

from typing import Any, Protocol

from cudasync.data.packing import packed, unpacked
from cudasync.locks import Lock


class Store(Protocol):
    """See above. Any thread may ask. Raises OSError if it cannot go on."""

    @property
    def count(self) -> int: ...

    @property
    def is_whole(self) -> bool: ...

    def get(self, number: int) -> Any: ...

    def put(self, number: int, item: Any) -> None: ...

    def end(self, count: int) -> None:
        """Mark the store as complete with these items."""

    def forget(self) -> None:
        """Begin anew."""

    def flush(self) -> None:
        """Save the items for later processes."""


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


class Passing:
    """The store of a pass that keeps nothing: the item that was put last can be got."""

    count, is_whole = 0, False

    def get(self, number: int) -> Any:
        return self._item

    def put(self, number: int, item: Any) -> None:
        # As from another store: arrays are read-only, and everything else is new.
        head, buffers = packed(item)
        self._item = unpacked(head, [bytes(each) for each in buffers])

    def end(self, count: int) -> None:
        pass

    def forget(self) -> None:
        pass

    def flush(self) -> None:
        pass
