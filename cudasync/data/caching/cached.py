"""Floor 4. The cursor of `cache`: kept items come from the store, others are made and kept.

A pass that ends early leaves its items, and the next pass goes on behind them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.data.caching.store import Passing
from cudasync.data.cursors import Cursor
from cudasync.data.failures import DataError, Failed, is_failed

if TYPE_CHECKING:
    from _thread import LockType
    from collections.abc import Callable

    from cudasync.data.caching.store import Store
    from cudasync.data.meters import Meter


class Cached(Cursor):
    """The items of the store, and behind them those of the source, which is opened when needed."""

    def __init__(
        self,
        store: Store,
        opened: Callable[[], Cursor],
        meter: Meter,
        maker: LockType | None = None,
    ) -> None:
        """With `maker`, the order of passes differs, so one pass alone fills the store.

        That pass holds `maker` and begins anew; others at the same time keep nothing.
        """
        super().__init__()
        self._maker = None
        if maker is not None and not store.is_whole:
            if maker.acquire(blocking=False):
                self._maker = maker
                store.forget()
            else:
                store = Passing()
        self._store, self._opened, self.meter = store, opened, meter
        self._at = 0
        # The source's position. A dropped pass may have kept items that this pass did not take.
        self._source_at = 0
        self._is_over = False

    def take(self, count: int) -> list[Any]:
        store = self._store
        found: list[Any] = []
        try:
            while len(found) < count and not self._is_over:
                # `is_whole` first: a complete store does not grow any more.
                is_whole = store.is_whole
                if self._at < store.count:
                    found.append(store.get(self._at))
                    self._at += 1
                elif is_whole:
                    self._is_over = True
                else:
                    self._made(count - len(found), found)
        except DataError as error:  # Of an item of the source that is skipped.
            self._is_over = True
            found.append(Failed(error))
        except Exception as error:
            self._is_over = True
            found.append(Failed(DataError(self.meter.stage, self._at, error)))
        self.meter.worked(len(found), 0.0)
        return found

    def _made(self, count: int, found: list[Any]) -> None:
        """Take items from the source and keep them; the returned items are the kept ones."""
        if not self.sources:
            self.sources = (self._opened(),)
        self.sources[0].advance(self._at - self._source_at)
        items = self.sources[0].take(count)
        self._source_at = self._at + len(items)
        self._is_over = len(items) < count or is_failed(items)
        for item in items:
            if item.__class__ is Failed:
                found.append(item)
                return
            self._store.put(self._at, item)
            found.append(self._store.get(self._at))
            self._at += 1
        if self._is_over:
            self._store.end(self._at)

    def advance(self, count: int) -> int:
        """Skip kept items at once; other items must be made, so that they are kept."""
        there = min(count, max(0, self._store.count - self._at))
        self._at += there
        return there + super().advance(count - there)

    def close(self) -> None:
        try:
            super().close()
            self._store.flush()
        finally:
            maker, self._maker = self._maker, None
            if maker is not None:
                maker.release()
