"""Floor 2. Who is the combiner: one thread at a time, and any other may take over at any moment.

Planning goes through the log entry by entry. The thread that does it holds an `Epoch`: it says in
`started` which entry it has begun with, looks whether it has a successor, plans, and says in
`done` how far it is. There is no release: whoever wants to plan becomes the successor of the
last epoch (`atomic.offer`), marks it as over, and from then on the predecessor at most finishes
the entry that it has begun. Both store to the epoch first and look at it then, one `started` and
one `is_over`, so one of them sees the other (`atomic`: two stores to one object). Whether the
predecessor is in the middle of an entry can be told from `started` and `done`:

- not in the middle: it will see its successor before it touches anything. Histories go on as they
  are.
- in the middle (suspended there, or running the op right now): that entry is planned once more,
  on copies of the histories it touches. This is what an epoch is: the histories of an older one are
  copied before use, so what the predecessor may still write to its own is seen by nobody. Where
  that happens to an entry again and again, its successors give way first: see `log.back_off`.

Flat combining (Hendler, Incze, Shavit, Tzafrir 2010) is the idea of the one who does it for all;
revocable locks (Harris, Fraser 2005) the idea of taking it away.
"""

from __future__ import annotations

import weakref
from collections import deque
from threading import get_ident
from typing import TypeAlias

from cudasync.atomic import Segment, offer
from cudasync.engine.log import back_off

# A worker looks up from the log after this many entries.
STRETCH = 1024
# Epochs refer to the next one each. Every so many, those that are left are led past what lies
# between, so this bounds what an old one keeps.
_SHORTENED_EVERY = 32

# The last epochs of so many each, and the segments that were left. See `_shorten`.
Left: TypeAlias = "deque[weakref.ref[Epoch] | weakref.ref[Segment]]"


class Epoch:
    """One thread's time as combiner, within one segment of the log.

    `done`, `started` and `histories_of` are written by the owner alone; `done` is None until it has
    worked out where its predecessor stands, and is the last of them to be written.
    """

    __slots__ = (
        "__weakref__",
        "done",
        "first",
        "histories_of",
        "is_over",
        "left",
        "number",
        "owner",
        "predecessor",
        "restarts",
        "segment",
        "started",
        "successor",
    )

    def __init__(
        self, number: int, predecessor: Epoch | None, segment: Segment, left: Left
    ) -> None:
        self.owner = get_ident()
        # Larger than that of every epoch before.
        self.number = number
        self.segment = segment
        # How many entries of the segment are planned; the index of the one begun with last.
        self.done: int | None = None
        self.started = -1
        # How often the entry where it goes on was begun before and left by who was overtaken in it;
        # if ever, that entry is the one at index `first`.
        self.restarts = 0
        self.first = -1
        # The number of the epoch whose histories are in use.
        self.histories_of = number
        self.predecessor = predecessor
        # Of the whole log.
        self.left = left
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
    """Become the successor of the latest epoch. Never waits for another thread to go on, but may
    nap where an entry is begun again and again: see `log.back_off`."""
    while True:
        # `latest`, written out.
        while old.successor:
            old = old.successor[0]
        if old.restarts and old.done == old.first <= old.started:
            back_off.give_way(old)
            if old.successor:
                continue
        new = Epoch(old.number + 1, old, old.segment, old.left)
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
    if old.restarts and old.first == done:
        new.first = done
        new.restarts = old.restarts
    if old.started < done:
        new.histories_of = old.histories_of
    else:
        new.first = done
        new.restarts += 1
    new.started = done - 1
    new.done = done
    # Not needed any more, and else the first epoch would live as long as the last.
    new.predecessor = None
    if not new.number % _SHORTENED_EVERY:
        _shorten(new)
        new.left.append(weakref.ref(old))
    return new


def enter_next_segment(old: Epoch) -> Epoch | None:
    """The owner of `old` has come to the end of its segment: go on in the next one.

    None if another thread has taken over meanwhile.
    """
    new = Epoch(old.number + 1, None, old.segment.next(), old.left)
    new.histories_of = old.histories_of
    new.done = 0
    if offer(old.successor, new) is not new:
        return None
    old.is_over = True
    _shorten(new)
    new.left.append(weakref.ref(old))
    new.left.append(weakref.ref(old.segment))
    return new


def _shorten(latest: Epoch) -> None:
    """Let what was left, and is still referred to, lead straight to `latest`.

    Epochs and segments refer to the next one each, so whoever has hold of an old one would keep the
    log of all that came after it: an op that a worker runs for hours as the combiner, or the frames
    of an exception that somebody keeps. From an old epoch it is at most so many to one that is led
    on from here. Nobody plans what lies between any more; who has looked at a cell before goes the
    long way; and who comes too late to be a successor finds that another one is first in the cell,
    whichever.
    """
    left = latest.left
    for _ in range(len(left)):
        try:
            each = left.popleft()
        except IndexError:
            # Another thread does the same.
            return
        old = each()
        if old is None:
            continue
        # Else the owner of `latest` was suspended right here, and others are ahead of it.
        if isinstance(old, Segment):
            if old.base < latest.segment.base:
                old.following[0] = latest.segment
        elif old.number < latest.number:
            old.successor[0] = latest
        left.append(each)
