"""Floor 4. Cursors: one pass over what a stage gives, each used by one thread at a time.

True of every cursor:
- `take(n)` gives up to n items, in order; fewer only at the end, or where the last is a `Failed`;
- after either it is over, and gives nothing more;
- what it gives depends on the data, the seed and the epoch, not on how many are taken at a time.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.data.failures import DataError, Failed, is_failed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from cudasync.data.meters import Meter
    from cudasync.data.views import View

PIECE = 256


class Cursor:
    """What is common to cursors: leaving out, and closing those that it draws from."""

    def __init__(self, *sources: Cursor) -> None:
        self.sources = sources

    def take(self, count: int) -> list[Any]:
        """Up to `count` items: see above."""
        raise NotImplementedError

    def advance(self, count: int) -> None:
        """Leave out the next `count` items. Those that can not be told are computed."""
        while count > 0:
            gone = len(self.take(min(count, PIECE)))
            if not gone:
                return
            count -= gone

    def stop(self) -> None:
        """Tell all that is under way that nobody wants it. Never blocks."""
        for each in self.sources:
            each.stop()

    def close(self) -> None:
        """End what was begun, from here to the source. Closing twice is harmless."""
        for each in self.sources:
            each.close()


class Numbered(Cursor):
    """The samples of a view."""

    def __init__(self, view: View, meter: Meter, on_error: str) -> None:
        super().__init__()
        self.view, self.meter, self.on_error = view, meter, on_error
        self.at = 0

    def numbers(self, count: int) -> range:
        """The next numbers of samples, as taken, for a stage that fetches them on its own."""
        first, self.at = self.at, min(self.at + count, len(self.view))
        return range(first, self.at)

    def take(self, count: int) -> list[Any]:
        found: list[Any] = []
        began = time.perf_counter()
        skipped = 0
        while len(found) < count and self.at < len(self.view):
            for at in self.numbers(count - len(found)):
                try:
                    found.append(self.view[at])
                except Exception as error:
                    if self.on_error == "skip":
                        skipped += 1
                        continue
                    found.append(Failed(DataError(self.meter.stage, at, error)))
                    self.at = len(self.view)
                    break
        self.meter.worked(len(found), time.perf_counter() - began, skipped)
        return found

    def advance(self, count: int) -> None:
        if self.on_error == "skip":
            super().advance(count)
        else:
            self.numbers(count)


class Iterated(Cursor):
    """The items of an iterable, whose exception is that of the sample it should have given."""

    def __init__(self, iterable: Iterable[Any] | Callable[[], Iterable[Any]], meter: Meter) -> None:
        super().__init__()
        self._iterable, self.meter = iterable, meter
        self._iterator: Any = None
        self._given = 0
        self._is_over = False

    def take(self, count: int) -> list[Any]:
        found: list[Any] = []
        if self._is_over:
            return found
        began = time.perf_counter()
        try:
            if self._iterator is None:
                whole: Any = self._iterable
                self._iterator = iter(whole if hasattr(whole, "__iter__") else whole())
            for item in self._iterator:
                found.append(item)
                if len(found) == count:
                    break
            else:
                self._is_over = True
        except Exception as error:
            self._is_over = True
            found.append(Failed(DataError(self.meter.stage, self._given + len(found), error)))
        self._given += len(found)
        self.meter.worked(len(found), time.perf_counter() - began)
        return found

    def close(self) -> None:
        self._is_over = True
        end = getattr(self._iterator, "close", None)
        self._iterator = None
        if end is not None:
            end()


class Sliced(Cursor):
    """Every `step`-th item from `start` on, `most` at most."""

    def __init__(self, source: Cursor, start: int, step: int, most: int | None) -> None:
        super().__init__(source)
        self._source, self._lead, self._step = source, start, step
        self._left = most

    def take(self, count: int) -> list[Any]:
        if self._left is not None:
            count = min(count, self._left)
        found: list[Any] = []
        if self._step == 1:
            self._source.advance(self._lead)
            self._lead = 0
            found = self._source.take(count) if count else []
        else:
            while len(found) < count:
                self._source.advance(self._lead)
                one = self._source.take(1)
                self._lead = self._step - 1
                found += one
                if not one or is_failed(one):
                    break
        if self._left is not None:
            self._left = 0 if is_failed(found) else self._left - len(found)
        return found

    def advance(self, count: int) -> None:
        if self._left is not None:
            count = min(count, self._left)
            self._left -= count
        self._source.advance(self._lead + max(0, count - 1) * self._step + (count > 0))
        self._lead = self._step - 1 if count else 0


class Filtered(Cursor):
    """The items of which `fn` is true."""

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
                    found.append(Failed(DataError(self.meter.stage, self._seen, error)))
                    self._is_over = True
                    break
                self._seen += 1
            self.meter.worked(len(items), time.perf_counter() - began)
        return found


class Chained(Cursor):
    """One cursor after the other, each opened when it is needed, closed when it is over."""

    def __init__(self, opens: Iterable[Callable[[], Cursor]], *, is_endless: bool = False) -> None:
        super().__init__()
        self._opens = iter(opens)
        self._is_endless = is_endless

    def take(self, count: int) -> list[Any]:
        found: list[Any] = []
        idle = 0
        while len(found) < count and not is_failed(found):
            if not self.sources:
                opened = next(self._opens, None)
                if opened is None:
                    break
                self.sources = (opened(),)
            items = self.sources[0].take(count - len(found))
            if len(items) < count - len(found) or is_failed(items):
                self.sources[0].close()
                self.sources = ()
            found += items
            idle = 0 if items else idle + 1
            if idle > 1 and not found and self._is_endless:
                break  # What is repeated without end is empty: it would be so for ever.
        if is_failed(found):
            self._opens = iter(())
        return found


class Parallel(Cursor):
    """Tuples of one item of each, until one is over."""

    def __init__(self, sources: Sequence[Cursor]) -> None:
        super().__init__(*sources)
        self._is_over = False

    def take(self, count: int) -> list[Any]:
        if self._is_over:
            return []
        taken = [each.take(count) for each in self.sources]
        found: list[Any] = []
        for row in zip(*taken, strict=False):
            failed = next((each for each in row if each.__class__ is Failed), None)
            found.append(failed or row)
            if failed:
                break
        self._is_over = len(found) < count or is_failed(found)
        return found

    def advance(self, count: int) -> None:
        for each in self.sources:
            each.advance(count)


class Interleaved(Cursor):
    """`block` items of each in turn; who is over is left out from then on."""

    def __init__(self, sources: Sequence[Cursor], block: int) -> None:
        super().__init__(*sources)
        self._turns = list(sources)
        self._block, self._left, self._turn = block, block, 0

    def take(self, count: int) -> list[Any]:
        found: list[Any] = []
        while len(found) < count and self._turns:
            wanted = min(self._left, count - len(found))
            items = self._turns[self._turn].take(wanted)
            found += items
            if is_failed(items):
                self._turns = []
            elif len(items) < wanted:
                del self._turns[self._turn]
                self._left = self._block
            else:
                self._left -= wanted
                if not self._left:
                    self._turn += 1
                    self._left = self._block
            self._turn %= max(1, len(self._turns))
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
        """The next of the source; a failure comes behind what the buffer holds."""
        if self._failed is not None:
            return []
        items = self._source.take(count)
        if is_failed(items):
            self._failed = items.pop()
        return items
