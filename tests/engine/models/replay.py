"""A run of repeated launches: each is in the run before its seal, or pushed as ever, never both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from helpers.concurrency.model_checking import Model

from cudasync.atomic import offer
from cudasync.engine.replay.run import SEALED, Run

Workers = Sequence[Callable[[], object]]
_UNIT = 3


class _Pieces:
    """A sequence, as its run sees it: a piece is its number of launches."""

    changes = True

    def note(self, count: int, elapsed_s: float, *, is_whole: bool) -> None:
        assert is_whole is (count == _UNIT)

    def piece(self, first: int, count: int) -> Any:
        assert count, "the first launch began the run"
        return SimpleNamespace(accesses=((), (), ()), names=(), name="run", launches=count)


def _launch() -> Any:
    """A launch whose numbers change."""
    return SimpleNamespace(_taken=b"7", _step=SimpleNamespace(changes=True))


class _Joined(Model):
    """One thread makes launches; the first has begun the run. Two others plan the run."""

    block = "run.join"
    make: type[Run] = Run

    def __init__(self) -> None:
        self.run: Any = self.make.__new__(self.make)
        self.run.sequence = _Pieces()
        self.run._first, self.run._end = 0, _UNIT
        self.run._began, self.run.count = 0.0, None
        self.run._pieces = []
        self.slots: dict[int, object] = {0: _launch()}
        self.run._slots = self.slots
        self.joined = 1
        self.sealed: list[int] = []

    def workers(self) -> Workers:
        return [self.launch, self.plan, self.plan]

    def launch(self) -> None:
        for index in (1, 2):
            # `BoundKernel.__call__`: it goes on to the next step after a success only.
            if not self.join(index):
                return
            self.joined += 1

    def join(self, index: int) -> bool:
        op = _launch()
        return self.slots.setdefault(index, op) is op

    def plan(self) -> None:
        piece = self.run.piece
        self.sealed += [piece.launches, len(self.run.arguments)]

    def holds(self) -> bool:
        return self.sealed == [self.joined] * 4


class EveryLaunchIsInTheRunOrNot(_Joined):
    pass


class LaunchesWithoutACell(_Joined):
    planted = "look whether the run is sealed, then store: a launch behind the seal is lost"

    def join(self, index: int) -> bool:
        if self.slots.get(index) is SEALED:
            return False
        self.slots[index] = _launch()
        return True


class LaunchesPlacedByLength(_Joined):
    planted = "take the place by the number of cells: the seal is counted as a launch"

    def join(self, index: int) -> bool:
        op = _launch()
        return self.slots.setdefault(len(self.slots), op) is op


class _Planned(_Joined):
    """Two threads plan a run that nobody joins any more."""

    block = "run.piece"

    def workers(self) -> Workers:
        return [self.plan, self.plan]


class TwoPlannersFindOnePiece(_Planned):
    pass


class CellsLetGoFirst(_Planned):
    planted = "look for the piece, then at the cells: by then another planner may have let them go"

    class make(Run):
        @property
        def piece(self) -> Any:
            if self._pieces:
                return self._pieces[0]
            count = self._seal(self._slots)
            found: Any = self.sequence.piece(0, count)
            self.arguments = self._given(self._slots, count)
            piece = offer(self._pieces, found)
            self._slots = {}
            return piece
