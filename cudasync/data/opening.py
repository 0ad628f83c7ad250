"""Floor 4. What the stages of one run have in common: their meters, and workers chosen for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.data.meters import Meter

if TYPE_CHECKING:
    from collections.abc import Callable


class Opening:
    """Handed to each stage as it is opened, from the source on.

    What is opened later than the stages behind it (the parts of `concat`, the passes of `repeat`)
    has a `part` of its own, which keeps the place. A part that is opened again has the same meters.
    """

    def __init__(self, chosen: dict[str, int], names: dict[str, int] | None = None) -> None:
        self._chosen = chosen
        # How many stages of each verb there are, over all parts.
        self._names: dict[str, int] = {} if names is None else names
        self._entries: list[Meter | Opening] = []
        self._at = 0

    def meter(self, verb: str, workers: int = 1) -> Meter:
        """The meter of the stage that is opened: named for its verb, numbered from the second."""
        found = self._next(lambda: self._made(verb, workers))
        assert isinstance(found, Meter)
        return found

    def part(self) -> Opening:
        """For what is opened later."""
        found = self._next(lambda: Opening(self._chosen, self._names))
        assert isinstance(found, Opening)
        return found

    def again(self) -> Opening:
        """The same, for one more pass over the same stages."""
        self._at = 0
        for each in self._entries:
            if isinstance(each, Opening):
                each.again()
        return self

    def workers(self, stage: str) -> int | None:
        """How many were chosen for a stage in an epoch before; None if nothing."""
        return self._chosen.get(stage)

    def chose(self, stage: str, workers: int) -> None:
        """From the next epoch on the stage begins with so many."""
        self._chosen[stage] = workers

    def meters(self) -> list[Meter]:
        """All of them, in the order in which data meet the stages."""
        found: list[Meter] = []
        for each in list(self._entries):
            found += each.meters() if isinstance(each, Opening) else [each]
        return found

    def _next(self, make: Callable[[], Meter | Opening]) -> Meter | Opening:
        if self._at == len(self._entries):
            self._entries.append(make())
        self._at += 1
        return self._entries[self._at - 1]

    def _made(self, verb: str, workers: int) -> Meter:
        count = self._names[verb] = self._names.get(verb, 0) + 1
        return Meter(verb if count == 1 else f"{verb} {count}", workers)
