"""Floor 2. How many workers a pool has: slots, and the threads that are started for them.

There are as many slots as the pool has workers, one more for each worker that waits inside of its
op, and one for each that was replaced. A thread that starts a worker takes nothing away before it
has: the new thread itself takes the slot, so a starter that is suspended is in nobody's way.
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
    """The slots of one pool. `main(slot)` is what a thread of it does."""

    __slots__ = ("_main", "started", "surplus", "vacant")

    def __init__(self, count: int, main: Callable[[Slot], None]) -> None:
        self._main = main
        # Those that no thread was started for.
        self.vacant: list[Slot] = [Slot() for _ in range(count)]
        # Those that a thread was started for, which may not have come to take its slot.
        self.started: dict[Slot, None] = {}
        # One item per worker that is to end.
        self.surplus: list[None] = []

    def start(self) -> bool:
        """Start a worker if there is a slot for one; False if there is none. Never blocks."""
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
        """The thread that was started for `slot` has come: True if it is the first."""
        is_first = slot.take(who)
        with suppress(ValueError):
            self.vacant.remove(slot)
        self.started.pop(slot, None)
        return is_first

    def lend(self) -> None:
        """The calling worker waits inside of its op: another one may work meanwhile."""
        self.vacant.append(Slot())

    def take_back(self) -> bool:
        """It goes on. False if another worker has come meanwhile: then one is to end."""
        while self.vacant:
            with suppress(IndexError):
                if self.vacant.pop().take(self):
                    return True
        self.surplus.append(None)
        return False

    def is_one_too_many(self) -> bool:
        """True for as many workers as are to end, each once."""
        if not self.surplus:
            # As mostly: an exception costs more than all else before a worker sleeps.
            return False
        try:
            self.surplus.pop()
        except IndexError:
            return False
        return True

    def replace(self, worker: Worker) -> None:
        """Start another worker instead of `worker`, which ends when it comes on.

        Any number of threads may do it, and again: one comes of it.
        """
        slot = offer(worker.successors, Slot())
        if not slot.is_taken:
            start_new_thread(self._main, (slot,))

    def start_again(self) -> None:
        """Of a thread that was started nothing was seen for a while: start another one."""
        for slot in list(self.started):
            if slot.is_taken:
                self.started.pop(slot, None)
            else:
                start_new_thread(self._main, (slot,))
