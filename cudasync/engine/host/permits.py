"""Floor 2. The limit of a pool: how many threads may run its ops at once.

A thread that is about to run ops of a pool appends itself to the pool's `holders`; the first `size`
of them hold a permit. The list's lock gives all threads one order, so no two threads believe that
they hold the last permit, and at least `size` of them hold one.

A worker that got no permit sleeps, even if ops are ready. It stores `is_refused`, makes a step on
`holders`, and looks once more. A thread that gives its permit back removes itself from `holders`,
then looks at `is_refused`, and rings. So one of the two sees the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.atomic import meet

if TYPE_CHECKING:
    from cudasync.engine.host.worker import Worker


class Permits:
    """The permits of one pool: a counting semaphore on which nobody blocks."""

    __slots__ = ("holders", "is_refused", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        # In the order of their requests. One thread at most once.
        self.holders: list[Worker] = []
        # A worker may sleep because it got no permit: the next returned permit rings.
        self.is_refused = False

    def take(self, worker: Worker) -> bool:
        """Take a permit; False if there is none: then the caller must call `give_back`."""
        holders = self.holders
        holders.append(worker)
        # Only requests before this one count, and the append made them visible. A copy: the index
        # is a search, during which others may leave.
        if len(holders) <= self.size:
            return True
        try:
            return holders.copy().index(worker) < self.size
        except ValueError:
            # The request was taken away: the caller came so late that it was taken for suspended.
            return False

    def take_beyond(self, worker: Worker) -> None:
        """Take a permit even if there is none: the thread is inside an op, whose wait is over."""
        self.holders.append(worker)

    def give_back(self, worker: Worker) -> bool:
        """Give a permit back, or a request for one; True if the caller must ring."""
        try:
            self.holders.remove(worker)
        except ValueError:
            # Another thread took it away, and rang: see `WorkerPool.rescue`.
            return False
        if not self.is_refused:
            return False
        self.is_refused = False
        return True

    def are_left(self) -> bool:
        """True if a worker about to sleep could take a permit; else the next return rings."""
        if len(self.holders) < self.size:
            return True
        self.is_refused = True
        meet(self.holders)
        return len(self.holders) < self.size
