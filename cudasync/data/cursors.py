"""Floor 4. Cursors: one pass over the items of a stage, each used by one thread at a time.

True of every cursor:
- `take(n)` gives up to n items, in order; fewer only at the end, or where the last is a `Failed`;
- after either the cursor is over, and gives nothing more;
- `advance(n)` skips the items that `take(n)` would give, and raises a failure among them;
- the items depend on the data, the seed and the epoch, not on the number taken at a time.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from cudasync.data.failures import DataError, Failed, Origin, is_failed
from cudasync.data.trees import copied, shown
from cudasync.data.views import origin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from cudasync.data.meters import Meter
    from cudasync.data.views import View

PIECE = 256


class Cursor:
    """The common parts of cursors: skipping items, and closing the cursors that it draws from."""

    def __init__(self, *sources: Cursor) -> None:
        self.sources = sources

    def take(self, count: int) -> list[Any]:
        """Up to `count` items: see above."""
        raise NotImplementedError

    def advance(self, count: int) -> int:
        """Skip the next `count` items; the number that there were, fewer only at the end.

        Items whose position cannot be set are computed. DataError if one of them fails.
        """
        gone = 0
        while gone < count:
            wanted = min(count - gone, PIECE)
            found = self.take(wanted)
            if is_failed(found):
                raise found[-1].error
            gone += len(found)
            if len(found) < wanted:
                break
        return gone

    def origin(self, index: int) -> Origin:
        """The item of the source from which this cursor's item number `index` comes."""
        return Origin()

    def failed(self, stage: str, index: int, error: BaseException, item: Any = None) -> Failed:
        """The failure of a stage over item number `index` of this cursor, which is `item`."""
        found = self.origin(index)
        if found.text is None and item is not None:
            found = Origin(found.index, shown(item))
        return Failed(DataError(stage, index, error, found))

    def stop(self) -> None:
        """Tell work under way that its results are not wanted. Never blocks."""
        for each in self.sources:
            each.stop()

    def close(self) -> None:
        """End all work, from here to the source. Closing twice is harmless."""
        for each in self.sources:
            each.close()


class Numbered(Cursor):
    """The samples of a view."""

    def __init__(self, view: View, meter: Meter, on_error: str) -> None:
        super().__init__()
        self.view, self.meter, self.on_error = view, meter, on_error
        self.at = 0

    def numbers(self, count: int) -> range:
        """The next numbers of samples, marked as taken, for a stage that fetches the samples
        itself."""
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
                    found.append(self.failed(self.meter.stage, at, error))
                    self.at = len(self.view)
                    break
        self.meter.worked(len(found), time.perf_counter() - began, skipped)
        return found

    def origin(self, index: int) -> Origin:
        return origin(self.view, index)

    def advance(self, count: int) -> int:
        return super().advance(count) if self.on_error == "skip" else len(self.numbers(count))


class Once:
    """An iterator of the program's, whose items come once, whoever asks for them."""

    _NOTHING = object()

    def __init__(self, iterator: Iterator[Any]) -> None:
        self._iterator = iterator
        self._is_begun = False

    def __iter__(self) -> Iterator[Any]:
        if self._is_begun:
            if next(self._iterator, self._NOTHING) is self._NOTHING:
                return
            raise ValueError(
                "the source is an iterator, which gives its items once, and an earlier iteration "
                "has begun it and left some: give source() a function that returns a new iterator"
            )
        self._is_begun = True
        # Not `yield from`: closing this generator would close the program's iterator, too.
        for each in self._iterator:  # noqa: UP028
            yield each


class Iterated(Cursor):
    """The items of an iterable; its exception belongs to the sample that it should have given."""

    def __init__(self, iterable: Iterable[Any] | Callable[[], Iterable[Any]], meter: Meter) -> None:
        super().__init__()
        self._iterable, self.meter = iterable, meter
        self._iterator: Any = None
        self._given = 0
        self._is_over = False

    def origin(self, index: int) -> Origin:
        return Origin(index)

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
                found.append(copied(item))
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
