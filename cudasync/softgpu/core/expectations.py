"""Cellar. What a launch was said to do to its arguments, held against what it did.

A client that wants a launch checked says beforehand, on the same thread, what may be read and
written where. The launch is then recorded, and fails when it has done more: a byte read that holds
an old value and was not to be read, or one written that was not to be written. Where arguments
overlap, a byte may be used as any of them allows; that is what its client goes by, too.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

from cudasync.softgpu.core.results import ASSERT, DriverFailure
from cudasync.softgpu.recording import First, Recording, Touch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.softgpu.core.commands import Touched
    from cudasync.softgpu.core.modules import Function


@dataclass(frozen=True, slots=True)
class Expected:
    """What may happen to the memory of one argument; `by_hand`: not inferred, but declared."""

    parameter: int
    start: int
    end: int
    reads: bool
    writes: bool
    by_hand: bool

    def words(self) -> str:
        """How it was declared."""
        match self.reads, self.writes:
            case True, True:
                what = "read and written"
            case True, False:
                what = "read only (In)" if self.by_hand else "read only"
            case False, True:
                what = "overwritten without being read (Out)" if self.by_hand else "only written"
            case _:
                what = "never used as an address"
        return f"is declared to be {what}" if self.by_hand else f"was inferred to be {what}"


class Watcher(Protocol):
    """Whoever wants to know what a launch does: it is recorded for them."""

    @property
    def recording(self) -> Recording: ...

    def failure(self, function: Function) -> DriverFailure | None:
        """Why the launch fails after all, now that it is done; None if it does not."""

    def touched(self) -> Touched | None:
        """All that it has touched, if that is known."""


class Expectation:
    """What one launch was said to do at `site`, and the record of what it does."""

    def __init__(self, rows: Sequence[Expected], site: str) -> None:
        self._site = site
        self._rows = [row for row in rows if row.start < row.end]
        bounds = sorted({edge for row in self._rows for edge in (row.start, row.end)})
        self.recording = Recording(
            (low, high) for low, high in pairwise(bounds) if self._covering(low)
        )

    def _covering(self, address: int) -> list[Expected]:
        return [row for row in self._rows if row.start <= address < row.end]

    def touched(self) -> None:
        """Nobody looked beyond its arguments."""

    def failure(self, function: Function) -> DriverFailure | None:
        """What was done and not declared, as the failure of the launch; the first argument's."""
        found: list[tuple[Expected, First, Touch]] = []
        for index, (start, _) in enumerate(self.recording.ranges):
            rows = self._covering(start)
            # Whoever was narrowed by hand is to blame, where somebody was.
            blamed = min(rows, key=lambda row: (not row.by_hand, row.parameter))
            for kind, is_allowed in (
                (Touch.WRITTEN, any(row.writes for row in rows)),
                (Touch.READ_FIRST, any(row.reads for row in rows)),
            ):
                first = self.recording.first(index, kind)
                if first is not None and not is_allowed:
                    found.append((blamed, first, kind))
        if not found:
            return None
        row, first, kind = min(found, key=lambda each: each[0].parameter)
        parameter = function.module.source.function(function.name).parameters[row.parameter]
        offset = max(first.address, row.start) - row.start
        did = "written" if kind is Touch.WRITTEN else "read before this launch has written it"
        text = (
            f"an access that was not declared: kernel {function.name}, PTX line {first.line}, "
            f"called at {self._site}: argument {row.parameter + 1} ({parameter.name}) "
            f"{row.words()}, but its byte {offset} is {did}"
        )
        return DriverFailure(ASSERT, text)


class Expectations(threading.local):
    """What the calling thread expects of its next launch."""

    def __init__(self) -> None:
        self._function = 0
        self._rows: Sequence[Expected] = ()
        self._site = ""

    def expect(self, function: int, rows: Sequence[Expected], site: str) -> None:
        """Of the next launch of the function with that handle; nothing any more without rows."""
        self._function = function if rows else 0
        self._rows, self._site = rows, site

    def take(self, function: int) -> Expectation | None:
        """What is expected of this launch; used up by it, whichever function it is of."""
        if not self._function:
            return None
        is_meant = self._function == function
        rows, self._rows, self._function = self._rows, (), 0
        return Expectation(rows, self._site) if is_meant else None
