"""Floor 4. Cursors over a part of the items, or over all of them in another order."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.data.cursors import Cursor
from cudasync.data.failures import DataError, Failed, Origin, is_failed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cudasync.data.meters import Meter


class Sliced(Cursor):
    """Every `step`-th item from `start` on, at most `most` of them."""

    def __init__(self, source: Cursor, start: int, step: int, most: int | None) -> None:
        super().__init__(source)
        self._source, self._lead, self._step = source, start, step
        self._start = start
        self._left = most

    def take(self, count: int) -> list[Any]:
        if self._left is not None:
            count = min(count, self._left)
        found: list[Any] = []
        try:
            while len(found) < count:
                self._source.advance(self._lead)
                self._lead = self._step - 1
                wanted = count if self._step == 1 else 1
                items = self._source.take(wanted)
                found += items
                if len(items) < wanted or is_failed(items):
                    break
        except DataError as error:  # Of an item that is skipped.
            found.append(Failed(error))
        if self._left is not None:
            self._left = 0 if is_failed(found) else self._left - len(found)
        return found

    def origin(self, index: int) -> Origin:
        return self._source.origin(self._start + index * self._step)

    def advance(self, count: int) -> int:
        if self._left is not None:
            count = min(count, self._left)
        if not count:
            return 0
        there = self._source.advance(self._lead + (count - 1) * self._step + 1)
        gone = max(0, there - self._lead - 1 + self._step) // self._step
        self._lead = self._step - 1
        if self._left is not None:
            self._left = self._left - gone if gone == count else 0
        return gone


class Filtered(Cursor):
    """The items for which `fn` is true."""

    def __init__(self, source: Cursor, fn: Callable[[Any], Any], meter: Meter) -> None:
        super().__init__(source)
        self._source, self._fn, self.meter = source, fn, meter
        self._seen = 0
        self._is_over = False

    def take(self, count: int) -> list[Any]:
        found: list[Any] = []
        while len(found) < count and not self._is_over:
            wanted = count - len(found)
            items = self._source.take(wanted)
            self._is_over = len(items) < wanted or is_failed(items)
            began = time.perf_counter()
            for item in items:
                try:
                    if item.__class__ is Failed or self._fn(item):
                        found.append(item)
                except Exception as error:
                    found.append(self._source.failed(self.meter.stage, self._seen, error, item))
                    self._is_over = True
                    break
                self._seen += 1
            self.meter.worked(len(items), time.perf_counter() - began)
        return found


class Shuffled(Cursor):
    """Each item is drawn from a buffer of the next ones, as in tf.data."""

    def __init__(self, source: Cursor, key: Sequence[int], buffer: int) -> None:
        super().__init__(source)
        self._source, self._size = source, buffer
        self._random = np.random.default_rng(list(key))
        self._buffer: list[Any] | None = None
        self._failed: Failed | None = None

    def take(self, count: int) -> list[Any]:
        if self._buffer is None:
            self._buffer = self._drawn(self._size)
        buffer = self._buffer
        found: list[Any] = []
        for new in self._drawn(count):
            at = int(self._random.integers(len(buffer)))
            found.append(buffer[at])
            buffer[at] = new
        while len(found) < count and buffer:
            at = int(self._random.integers(len(buffer)))
            buffer[at], buffer[-1] = buffer[-1], buffer[at]
            found.append(buffer.pop())
        if len(found) < count and self._failed is not None:
            found.append(self._failed)
            self._failed = None
        return found

    def _drawn(self, count: int) -> list[Any]:
        """The next items of the source; a failure comes behind the buffered items."""
        if self._failed is not None:
            return []
        items = self._source.take(count)
        if is_failed(items):
            self._failed = items.pop()
        return items
