"""Floor 2. Who is the combiner: one thread at a time, and any other may take over at any moment.

Planning goes through the log entry by entry. The thread that does it holds an `Epoch`: it says in
`started` which entry it has begun with, looks whether it has a successor, plans, and says in
`done` how far it is. There is no release: whoever wants to plan becomes the successor of the
last epoch (`atomic.offer`), marks it as over, and from then on the predecessor at most finishes
the entry that it has begun. Both store to the epoch first and look at it then, one `started` and
one `is_over`, so one of them sees the other (`atomic`: two stores to one object). Whether the
predecessor is in the middle of an entry can be told from `started` and `done`:

- not in the middle: it will see its successor before it touches anything. States go on as they are.
- in the middle (suspended there, or running the op right now): that entry is planned once more,
  on copies of the states it touches. This is what an epoch is: the states of an older one are
  copied before use, so what the predecessor may still write to its own is seen by nobody.

Flat combining (Hendler, Incze, Shavit, Tzafrir 2010) is the idea of the one who does it for all;
revocable locks (Harris, Fraser 2005) the idea of taking it away.
"""

from __future__ import annotations

import weakref
from collections import deque
from threading import get_ident
from typing import TypeAlias

from cudasync.atomic import Segment, offer

# A worker looks up from the log after this many entries.
STRETCH = 1024
# Threads that take over from each other all the time are no reason to keep all their epochs.
_SHORTENED_EVERY = 64

# Epochs that were overtaken in the middle of an entry. See `_shorten`.
Overtaken: TypeAlias = "deque[weakref.ref[Epoch]]"


class Epoch:
    """One thread's time as combiner, within one segment of the log.

    `done`, `started` and `states` are written by the owner alone; `done` is None until it has
    worked out where its predecessor stands, and is the last of them to be written.
    """

    __slots__ = (
        "__weakref__",
        "done",
        "is_over",
        "number",
        "overtaken",
        "owner",
        "predecessor",
        "segment",
        "started",
        "states",
        "successor",
    )

    def __init__(
        self, number: int, predecessor: Epoch | None, segment: Segment, overtaken: Overtaken
    ) -> None:
        self.owner = get_ident()
        # Larger than that of every epoch before.
        self.number = number
        self.segment = segment
        # How many entries of the segment are planned; the index of the one begun with last.
        self.done: int | None = None
        self.started = -1
        # The epoch whose states are in use.
        self.states = number
        self.predecessor = predecessor
        # Of the whole log.
        self.overtaken = overtaken
        # A cell: who takes over, or once that one is over too, one after it. Nothing is begun any
        # more once `is_over`, which the successor stores, and whoever finds it suspended before it
        # has.
        self.successor: list[Epoch] = []
        self.is_over = False

    @property
    def is_idle(self) -> bool:
        """True if the owner is not in the middle of an entry."""
        return self.done is not None and self.started < self.done


def first(segment: Segment, number: int = 0) -> Epoch:
    """The epoch that begins a log."""
    made = Epoch(number, None, segment, deque())
    made.done = 0
    return made


def latest(epoch: Epoch) -> Epoch:
    """The epoch that has no successor yet, from one that may have."""
    while epoch.successor:
        epoch = epoch.successor[0]
    return epoch


def succeed(old: Epoch) -> Epoch:
    """Become the successor of the latest epoch. Never blocks."""
    while True:
        old = latest(old)
        new = Epoch(old.number + 1, old, old.segment, old.overtaken)
        if offer(old.successor, new) is new:
            break
    # The store before the look at `started`.
    old.is_over = True
    # A predecessor that had not worked out its own place has done nothing, and never will: but it
    # may not have marked its own predecessor yet.
    while (done := old.done) is None:
        old = old.predecessor or old
        old.is_over = True
    new.segment = old.segment
    if old.started < done:
        new.states = old.states
    else:
        # Its owner may be in this entry for long: it may be an op that never ends.
        old.overtaken.append(weakref.ref(old))
    new.started = done - 1
    new.done = done
    # Not needed any more, and else the first epoch would live as long as the last.
    new.predecessor = None
    if not new.number % _SHORTENED_EVERY:
        _shorten(new)
    return new


def enter_next_segment(old: Epoch) -> Epoch | None:
    """The owner of `old` has come to the end of its segment: go on in the next one.

    None if another thread has taken over meanwhile.
    """
    new = Epoch(old.number + 1, None, old.segment.next(), old.overtaken)
    new.states = old.states
    new.done = 0
    if offer(old.successor, new) is not new:
        return None
    old.is_over = True
    _shorten(new)
    return new


def _shorten(latest: Epoch) -> None:
    """Let those who were overtaken lead straight to `latest`, and keep nothing that lies between.

    Epochs and segments refer to the next one each, so an op that a worker runs for hours as the
    combiner would keep the log of all these hours. Who has looked at a cell before goes the long
    way. Nobody plans what lies between any more, and who comes too late to be a successor finds
    that another one is first in the cell, whichever.
    """
    overtaken = latest.overtaken
    for _ in range(len(overtaken)):
        try:
            each = overtaken.popleft()
        except IndexError:
            # Another thread does the same.
            return
        old = each()
        if old is None:
            continue
        if old.number < latest.number:
            # Else the owner of `latest` was suspended right here, and others are ahead of it.
            old.successor[0] = latest
            if old.segment is not latest.segment and old.segment.following:
                old.segment.following[0] = latest.segment
        overtaken.append(each)
