"""Floor 2. The number of workers of a pool: slots, and the threads started for them.

A pool has as many slots as workers, one more for each worker that waits inside its op, and one for
each replaced worker. A starter takes nothing away before the new thread runs: that thread itself
takes the slot, so a suspended starter blocks nobody.
"""

from __future__ import annotations

from _thread import start_new_thread
from contextlib import suppress
from typing import TYPE_CHECKING

from cudasync.atomic import offer
from cudasync.engine.host.states import Slot

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.engine.host.worker import Worker


class Slots:
    """The slots of one pool. A thread started for a slot runs `main(slot)`."""

    __slots__ = ("_main", "started", "surplus", "vacant")

    def __init__(self, count: int, main: Callable[[Slot], None]) -> None:
        self._main = main
        # Slots without a started thread.
        self.vacant: list[Slot] = [Slot() for _ in range(count)]
        # Slots with a started thread, which may not have taken its slot yet.
        self.started: dict[Slot, None] = {}
        # One item per worker that must end.
        self.surplus: list[None] = []

    def start(self) -> bool:
        """Start a worker if a slot is vacant, else return False. Never blocks."""
        slot = None
        with suppress(IndexError):
            slot = self.vacant[-1]
        if slot is None:
            return False
        # Not a `threading.Thread`, whose start waits for the new thread and takes a lock.
        start_new_thread(self._main, (slot,))
        self.started[slot] = None
        with suppress(ValueError):
            self.vacant.remove(slot)
        return True

    def take(self, slot: Slot, who: object) -> bool:
        """A thread that was started for `slot` runs: True if it is the first."""
        is_first = slot.take(who)
        with suppress(ValueError):
            self.vacant.remove(slot)
        self.started.pop(slot, None)
        return is_first

    def lend(self) -> None:
        """The calling worker waits inside its op: another worker may work meanwhile."""
        self.vacant.append(Slot())

    def take_back(self) -> bool:
        """Its wait is over. False if another worker has come meanwhile: then one must end."""
        while self.vacant:
            with suppress(IndexError):
                if self.vacant.pop().take(self):
                    return True
        self.surplus.append(None)
        return False

    def is_one_too_many(self) -> bool:
        """True once for each worker that must end."""
        if not self.surplus:
            # The usual case: an exception would cost more than all else before a worker sleeps.
            return False
        try:
            self.surplus.pop()
        except IndexError:
            return False
        return True

    def replace(self, worker: Worker) -> None:
        """Start another worker instead of `worker`, which ends when it runs again.

        Repeated and concurrent calls yield one worker.
        """
        slot = offer(worker.successors, Slot())
        if not slot.is_taken:
            start_new_thread(self._main, (slot,))

    def start_again(self) -> None:
        """A started thread has not shown up for a while: start another one."""
        for slot in list(self.started):
            if slot.is_taken:
                self.started.pop(slot, None)
            else:
                start_new_thread(self._main, (slot,))
