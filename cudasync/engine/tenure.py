"""Floor 2. Who plans: one thread at a time, and any other may take over at any moment.

Planning goes through the log entry by entry. The thread that does it holds a `Tenure`: it says in
`started` which entry it has begun with, looks whether it has a successor, plans, and says in
`done` how far it is. There is no release: whoever wants to plan becomes the successor of the
last tenure (`atomic.offer`), and from then on the predecessor at most finishes the entry that it
has begun. Whether it is in the middle of one can be told from `started` and `done`:

- not in the middle: it will see its successor before it touches anything. States go on as they are.
- in the middle (suspended there, or running the op right now): that entry is planned once more,
  on copies of the states it touches. This is what an epoch is: the states of an older one are
  copied before use, so what the predecessor may still write to its own is seen by nobody.

Flat combining (Hendler, Incze, Shavit, Tzafrir 2010) is the idea of the one who does it for all;
revocable locks (Harris, Fraser 2005) the idea of taking it away.
"""

from __future__ import annotations

from threading import get_ident

from cudasync.atomic import Segment, offer

# A worker looks up from the log after this many entries.
STRETCH = 1024


class Tenure:
    """One thread's time as planner, within one segment of the log.

    `done`, `started` and `states` are written by the owner alone; `done` is None until it has
    worked out where its predecessor stands, and is the last of them to be written.
    """

    __slots__ = (
        "done",
        "epoch",
        "owner",
        "predecessor",
        "segment",
        "started",
        "states",
        "successor",
    )

    def __init__(self, epoch: int, predecessor: Tenure | None, segment: Segment) -> None:
        self.owner = get_ident()
        # Larger than that of every tenure before.
        self.epoch = epoch
        self.segment = segment
        # How many entries of the segment are planned; the index of the one begun with last.
        self.done: int | None = None
        self.started = -1
        # The epoch whose states are in use.
        self.states = epoch
        self.predecessor = predecessor
        # A cell: once it is not empty, this tenure is over.
        self.successor: list[Tenure] = []

    @property
    def is_idle(self) -> bool:
        """True if the owner is not in the middle of an entry."""
        return self.done is not None and self.started < self.done


def first(segment: Segment, epoch: int = 0) -> Tenure:
    """The tenure that begins a log."""
    tenure = Tenure(epoch, None, segment)
    tenure.done = 0
    return tenure


def latest(tenure: Tenure) -> Tenure:
    """The tenure that has no successor yet, from one that may have."""
    while tenure.successor:
        tenure = tenure.successor[0]
    return tenure


def succeed(old: Tenure) -> Tenure:
    """Become the successor of the latest tenure. Never blocks."""
    while True:
        old = latest(old)
        new = Tenure(old.epoch + 1, old, old.segment)
        if offer(old.successor, new) is new:
            break
    # A predecessor that had not worked out its own place has done nothing, and never will.
    while (done := old.done) is None:
        old = old.predecessor or old
    new.segment = old.segment
    if old.started < done:
        new.states = old.states
    new.started = done - 1
    new.done = done
    # Not needed any more, and else the first tenure would live as long as the last.
    new.predecessor = None
    return new


def enter_next_segment(old: Tenure) -> Tenure | None:
    """The owner of `old` has come to the end of its segment: go on in the next one.

    None if another thread has taken over meanwhile.
    """
    new = Tenure(old.epoch + 1, None, old.segment.next())
    new.states = old.states
    new.done = 0
    return new if offer(old.successor, new) is new else None
