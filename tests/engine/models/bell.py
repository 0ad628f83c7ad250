"""Rings of a pool: a ring that no worker takes would silence the pushes that come later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from helpers.concurrency.model_checking import Model

from cudasync.engine.host import state_transitions
from cudasync.engine.host.pool import WorkerPool
from cudasync.engine.host.slots import Slots
from cudasync.engine.host.states import State
from cudasync.engine.host.worker import Worker
from cudasync.engine.ledger import Ledger

Workers = Sequence[Callable[[], object]]


class _Slots(Slots):
    """Counts the workers that are started: they would take the ring, and look for work."""

    def __init__(self, count: int) -> None:
        super().__init__(count, lambda slot: None)
        self.starts: list[None] = []

    def start(self) -> bool:
        self.starts.append(None)
        return True


class _Coming(Model):
    """Workers at rest come by themselves while a thread rings. A slot is vacant."""

    make: type[WorkerPool] = WorkerPool
    asleep = 1

    def __init__(self) -> None:
        # No engine: none is looked at here.
        owner: Any = bool
        self.pool = self.make("compute", 3, Ledger(trace=False), owner)
        self.pool.slots = self.slots = _Slots(1)
        # Else a thread would be started for the watchdog.
        self.pool.is_watched = True
        self.sleepers = [Worker(self.pool) for _ in range(self.asleep)]
        for each in self.sleepers:
            self.pool.states.enter(each, State.ASLEEP)

    def workers(self) -> Workers:
        return [self.pool.ring, *(partial(self.come, each) for each in self.sleepers)]

    def come(self, worker: Worker) -> None:
        state_transitions.wake(worker)

    def holds(self) -> bool:
        """No worker is at rest: the ring is taken, or another worker comes and takes it."""
        return self.pool.is_silent() or bool(self.slots.starts)


class _TakesTheRing(_Coming):
    block = "pool.take_ring"


class AWorkerThatComesByItselfTakesTheRing(_TakesTheRing):
    pass


class TheLastOfTwoThatComeTakesTheRing(_TakesTheRing):
    asleep = 2


class RingThatIsLeft(_TakesTheRing):
    planted = "come, and leave the ring: nobody at rest takes it"

    class make(WorkerPool):
        def take_ring(self) -> None:
            pass


class LookAtTheBellBeforeTheRowChanges(_TakesTheRing):
    planted = "look at the bell, then change the row: a thread rings for this worker in between"

    def come(self, worker: Worker) -> None:
        rings = not self.pool.is_silent()
        self.pool.states.enter(worker, State.WORKING)
        if rings:
            self.pool.take_ring()


class _Ringing(_Coming):
    """Two threads ring."""

    block = "pool.ring_for_a_sleeper"

    def workers(self) -> Workers:
        return [self.pool.ring, *super().workers()]


class AThreadThatRingsLateStartsAWorker(_Ringing):
    pass


class RingWithoutASecondLook(_Ringing):
    planted = "look, then ring: the worker that was seen at rest has gone to work in between"

    class make(WorkerPool):
        def ring_for_a_sleeper(self) -> None:
            self.bell.ring()


class _Pushing(_Coming):
    """The bell rings already, and a thread pushes: it does not ring again."""

    def __init__(self) -> None:
        super().__init__()
        self.pool.bell.ring()
        self.found = False

    def workers(self) -> Workers:
        return [self.push, lambda: self.come(self.sleepers[0])]

    def push(self) -> None:
        """As in `Engine.push`. The heap stands for the log, too."""
        self.pool.heap.append((0, 1))
        if not self.pool.searching and self.pool.is_silent():
            self.pool.ring()

    def come(self, worker: Worker) -> None:
        super().come(worker)
        self.found = bool(self.pool.heap)

    def holds(self) -> bool:
        return self.found or bool(self.slots.starts)


class APushThatDoesNotRingIsSeen(_Pushing):
    pass


class WorkThatIsLookedForBeforeTheRingIsTaken(_Pushing):
    block = "pool.take_ring"
    planted = "look for work, then take the ring: a push in between relies on the ring"

    def come(self, worker: Worker) -> None:
        self.found = bool(self.pool.heap)
        state_transitions.wake(worker)
