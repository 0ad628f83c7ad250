"""Floor 4. Cursors over several others: one behind the other, side by side, or in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.data.cursors import Cursor
from cudasync.data.failures import DataError, Failed, Origin, is_failed
from cudasync.data.views import together

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from cudasync.data.run_state import Opening


class Chained(Cursor):
    """One cursor after the other, each opened when needed and closed when over."""

    def __init__(self, opens: Iterable[Callable[[], Cursor]]) -> None:
        super().__init__()
        self._opens = iter(opens)

    def take(self, count: int) -> list[Any]:
        found: list[Any] = []
        while len(found) < count and self._is_open():
            wanted = count - len(found)
            try:
                items = self.sources[0].take(wanted)
                found += items
                if is_failed(items):
                    self._end()
                else:
                    self._gave(len(items), is_over=len(items) < wanted)
            except DataError as error:
                self._end()
                found.append(Failed(error))
        return found

    def advance(self, count: int) -> int:
        gone = 0
        while gone < count and self._is_open():
            wanted = count - gone
            there = self.sources[0].advance(wanted)
            gone += there
            self._gave(there, is_over=there < wanted)
        return gone

    def _is_open(self) -> bool:
        """Whether there is a cursor to draw from; the next one is opened if one is over."""
        if not self.sources and (opened := next(self._opens, None)) is not None:
            self.sources = (opened(),)
        return bool(self.sources)

    def _gave(self, count: int, *, is_over: bool) -> None:
        if is_over:
            self.sources[0].close()
            self.sources = ()

    def _end(self) -> None:
        self._opens = iter(())
        for each in self.sources:
            each.close()
        self.sources = ()


class Repeated(Chained):
    """Passes over the same stages, without end if `is_endless`.

    An endless repetition ends if a pass draws nothing from its sources, as nothing would come any
    more. It fails if many passes in a row draw items and give none, as behind a filter.
    """

    MOST_FRUITLESS = 100

    def __init__(
        self, opens: Iterable[Callable[[], Cursor]], opening: Opening, *, is_endless: bool
    ) -> None:
        super().__init__(opens)
        self._opening, self._is_endless = opening, is_endless
        self._drawn = self._given_before = self._given = self._fruitless = 0

    def _gave(self, count: int, *, is_over: bool) -> None:
        super()._gave(count, is_over=is_over)
        self._given += count
        if not (is_over and self._is_endless):
            return
        drawn, before = self._opening.items(), self._drawn
        is_fruitless = self._given == self._given_before
        self._drawn, self._given_before = drawn, self._given
        self._fruitless = self._fruitless + 1 if is_fruitless else 0
        if is_fruitless and drawn == before:
            self._end()
        elif self._fruitless == self.MOST_FRUITLESS:
            error = ValueError(
                f"the last {self._fruitless} passes drew items and gave none: see what the stages "
                f"before repeat() leave out"
            )
            raise DataError("repeat", self._given, error)


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

    def origin(self, index: int) -> Origin:
        return together(each.origin(index) for each in self.sources)

    def advance(self, count: int) -> int:
        gone = min([each.advance(count) for each in self.sources], default=0)
        self._is_over = self._is_over or gone < count
        return gone


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
            else:
                self._gave(len(items), wanted)
        return found

    def advance(self, count: int) -> int:
        gone = 0
        while gone < count and self._turns:
            wanted = min(self._left, count - gone)
            there = self._turns[self._turn].advance(wanted)
            gone += there
            self._gave(there, wanted)
        return gone

    def _gave(self, count: int, wanted: int) -> None:
        """Go on to the next cursor at the end of a block, or of the cursor in turn."""
        self._left -= count
        if count < wanted:
            del self._turns[self._turn]
            self._left = self._block
        elif not self._left:
            self._turn += 1
            self._left = self._block
        self._turn %= max(1, len(self._turns))
