"""Floor 4. Cursors over several others: one behind the other, side by side, or in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.data.cursors import Cursor
from cudasync.data.failures import Failed, is_failed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


class Chained(Cursor):
    """One cursor after the other, each opened when needed and closed when over."""

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
                break  # An endless repetition of nothing would loop for ever.
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
    """`block` items of each in turn; a cursor that is over is left out from then on."""

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
