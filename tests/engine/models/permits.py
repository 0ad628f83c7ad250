"""Permits of a pool: never more than there are, and no worker sleeps beside one that is free."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from helpers.concurrency.model_checking import Model

from cudasync.engine.host.permits import Permits

Workers = Sequence[Callable[[], object]]


class _Limited(Model):
    """Three threads want one of two permits, and give it back."""

    block = "permits.take"
    make: type = Permits

    def __init__(self) -> None:
        self.permits = self.make(2)
        self.inside: list[object] = []
        self.most: list[list[int]] = [[], [], []]

    def workers(self) -> Workers:
        return [lambda: self.use(0), lambda: self.use(1), lambda: self.use(2)]

    def use(self, index: int) -> None:
        worker: Any = object()
        if self.permits.take(worker):
            self.inside.append(worker)
            self.most[index].append(len(self.inside))
            self.inside.remove(worker)
        self.permits.give_back(worker)

    def holds(self) -> bool:
        found = [count for each in self.most for count in each]
        # Two of three at least: a request is refused only behind two others.
        assert len(found) >= 1
        return max(found) <= 2 and not self.permits.holders


class NoMoreRunThanThereArePermits(_Limited):
    pass


class PermitsCountedBeforeTheRequest(_Limited):
    planted = "look whether one is left, then take it: two threads take the last one"

    class make(Permits):
        def take(self, worker: Any) -> bool:
            is_left = len(self.holders) < self.size
            self.holders.append(worker)
            return is_left


class _TakenAway(Model):
    """A worker asks for the only permit, and the watchdog takes its request away."""

    block = "permits.take"
    make: type = Permits

    def __init__(self) -> None:
        self.permits = self.make(1)
        self.holder: Any = object()
        self.late: Any = object()
        self.permits.take(self.holder)

    def workers(self) -> Workers:
        return [self.ask, lambda: self.permits.give_back(self.late)]

    def ask(self) -> None:
        # True only if the request goes at once: as if it went after the answer.
        self.permits.take(self.late)
        self.permits.give_back(self.late)

    def holds(self) -> bool:
        return self.permits.holders == [self.holder]


class ARequestThatIsTakenAwayIsNoError(_TakenAway):
    pass


class RequestThatIsTakenForPresent(_TakenAway):
    planted = "look for the request, which must be there: whoever took it away ends the worker"

    class make(Permits):
        def take(self, worker: Any) -> bool:
            self.holders.append(worker)
            return len(self.holders) <= self.size or self.holders.index(worker) < self.size


class _Refused(Model):
    """One holds the only permit, and gives it back while another is about to sleep."""

    block = "permits.give_back"
    make: type = Permits

    def __init__(self) -> None:
        self.permits = self.make(1)
        self.holder: Any = object()
        self.permits.take(self.holder)
        self.rings: list[bool] = []
        self.stays_awake: list[bool] = []

    def workers(self) -> Workers:
        return [self.end, self.sleep]

    def end(self) -> None:
        self.rings.append(self.permits.give_back(self.holder))

    def sleep(self) -> None:
        self.stays_awake.append(self.permits.are_left())

    def holds(self) -> bool:
        return self.stays_awake[0] or self.rings[0]


class ARefusedWorkerIsRung(_Refused):
    pass


class RefusedAfterTheLastLook(_Refused):
    planted = "look, then say that one was refused: the permit comes back in between"

    class make(Permits):
        def are_left(self) -> bool:
            if len(self.holders) < self.size:
                return True
            self.is_refused = True
            return False
