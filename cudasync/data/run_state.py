"""Floor 4. The common state of the stages of one run: their meters, and numbers of workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.data.meters import Meter

if TYPE_CHECKING:
    from collections.abc import Callable


class Opening:
    """Passed to each stage when it is opened, from the source on.

    Parts that are opened later than the stages behind them (of `concat`, or passes of `repeat`)
    have a `part` of their own, which keeps their place. A part that is opened again has the same
    meters.
    """

    def __init__(self, chosen: dict[str, int], names: dict[str, int] | None = None) -> None:
        self._chosen = chosen
        # The number of stages of each verb, over all parts.
        self._names: dict[str, int] = {} if names is None else names
        self._entries: list[Meter | Opening] = []
        self._at = 0

    def meter(self, verb: str, workers: int = 1) -> Meter:
        """The meter of the opening stage, named for its verb, with a number from the second stage
        on."""
        found = self._next(lambda: self._made(verb, workers))
        assert isinstance(found, Meter)
        return found

    def part(self) -> Opening:
        """An opening for a part that is opened later."""
        found = self._next(lambda: Opening(self._chosen, self._names))
        assert isinstance(found, Opening)
        return found

    def again(self) -> Opening:
        """The same opening, for one more pass over the same stages."""
        self._at = 0
        for each in self._entries:
            if isinstance(each, Opening):
                each.again()
        return self

    def workers(self, stage: str) -> int | None:
        """The number chosen for a stage in an earlier epoch; None if there is none."""
        return self._chosen.get(stage)

    def chose(self, stage: str, workers: int) -> None:
        """From the next epoch on, the stage begins with this number."""
        self._chosen[stage] = workers

    def meters(self) -> list[Meter]:
        """All meters, in the order in which data pass the stages."""
        found: list[Meter] = []
        for each in list(self._entries):
            found += each.meters() if isinstance(each, Opening) else [each]
        return found

    def items(self) -> int:
        """The items that all stages had in their hands, to see whether a pass drew any."""
        return sum(each.items + each.skipped for each in self.meters())

    def _next(self, make: Callable[[], Meter | Opening]) -> Meter | Opening:
        if self._at == len(self._entries):
            self._entries.append(make())
        self._at += 1
        return self._entries[self._at - 1]

    def _made(self, verb: str, workers: int) -> Meter:
        count = self._names[verb] = self._names.get(verb, 0) + 1
        return Meter(verb if count == 1 else f"{verb} {count}", workers)
