"""Floor 2. Epochs: one thread at a time is the combiner, and any other may take over.

The planning thread holds an `Epoch`. For each entry it stores the entry's index in `started`,
checks for a successor, plans, and stores its progress in `done`. It never releases the epoch. A
thread that wants to plan becomes the successor of the last epoch (`atomic.offer`) and marks it as
over. From then on the predecessor at most finishes the entry that it has begun. The predecessor
stores `started` and then looks at `is_over`; the successor stores `is_over` and then looks at
`started`. So one of them sees the other (`atomic`: two stores to one object). `started` and `done`
show whether the predecessor is inside an entry:

- not inside: it will see its successor before it touches anything. The histories stay in use.
- inside (suspended there, or running the op): the successor plans that entry again, on copies of
  its histories. This is the purpose of an epoch: histories of an older epoch are copied before
  use, so nobody sees later writes of the predecessor. If an entry is begun again and again, its
  successors give way first: see `log.back_off`. The entry may also be further on than `done`: see
  `log.passing`.

The single planner for all threads is flat combining (Hendler, Incze, Shavit, Tzafrir 2010); its
replacement is a revocable lock (Harris, Fraser 2005).
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
# Each epoch refers to the next. After so many epochs, old ones are linked to the latest, so this
# bounds the chain that an old epoch keeps alive.
_SHORTENED_EVERY = 32

# The last epoch of each such group, and the segments left behind. See `_shorten`.
Left: TypeAlias = "deque[weakref.ref[Epoch] | weakref.ref[Segment]]"


class Epoch:
    """One thread's time as combiner, within one segment of the log.

    Only the owner writes `done`, `started` and `histories_of`. `done` is None until the owner knows
    its predecessor's place, and it is written last.
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
        "slow_since",
        "started",
        "successor",
    )

    def __init__(
        self, number: int, predecessor: Epoch | None, segment: Segment, left: Left
    ) -> None:
        self.owner = get_ident()
        # Larger than the number of every earlier epoch.
        self.number = number
        self.segment = segment
        # The number of planned entries of the segment.
        self.done: int | None = None
        # The index of the last begun entry.
        self.started = -1
        # How often earlier combiners were overtaken in the entry where this epoch goes on; if ever,
        # that entry has the index `first`.
        self.restarts = 0
        self.first = -1
        # The index of an entry with many accesses, and the time when a thread first saw the owner
        # in it: see `log.back_off`. Any thread writes it.
        self.slow_since: tuple[int, float] | None = None
        # The number of the epoch that the histories in use belong to.
        self.histories_of = number
        self.predecessor = predecessor
        # Shared by all epochs of the log.
        self.left = left
        # A cell: the next epoch, or once that is over too, a later one. The owner begins no entry
        # once `is_over`. The successor stores it, or a thread that finds the successor suspended
        # before that store.
        self.successor: list[Epoch] = []
        self.is_over = False

    @property
    def is_idle(self) -> bool:
        """True if the owner is not in the middle of an entry."""
        return self.done is not None and self.started < self.done


def first(segment: Segment, number: int = 0) -> Epoch:
    """The first epoch of a log."""
    made = Epoch(number, None, segment, deque())
    made.done = 0
    return made


def latest(epoch: Epoch) -> Epoch:
    """The epoch without a successor, found from `epoch`."""
    while epoch.successor:
        epoch = epoch.successor[0]
    return epoch


def succeed(old: Epoch) -> Epoch:
    """Become the successor of the latest epoch. Never waits for another thread's progress, but may
    nap if an entry is long, or begun again and again: see `log.back_off`."""
    while True:
        # `latest`, inlined.
        while old.successor:
            old = old.successor[0]
        if old.started == old.done:
            # It is inside an entry.
            back_off.give_way(old)
            if old.successor:
                continue
        new = Epoch(old.number + 1, old, old.segment, old.left)
        if offer(old.successor, new) is new:
            break
    # The store before the look at `started`.
    old.is_over = True
    # A predecessor that does not know its own place has done nothing, and never will. But it may
    # not have marked its own predecessor as over.
    while (done := old.done) is None:
        old = old.predecessor or old
        old.is_over = True
        new.segment = old.segment
    if old.restarts and old.first == done:
        new.first = done
        new.restarts = old.restarts
    started = old.started
    if started < done:
        new.histories_of = old.histories_of
    elif started == done:
        new.first = done
        new.restarts += 1
    # Else it is inside an entry further on, which `new` reaches in the order of the log.
    new.started = done - 1
    new.done = done
    # Not needed any more; a kept link would keep the first epoch alive as long as the last.
    new.predecessor = None
    if not new.number % _SHORTENED_EVERY:
        _shorten(new)
        new.left.append(weakref.ref(old))
    return new


def enter_next_segment(old: Epoch) -> Epoch | None:
    """The owner of `old` is at the end of its segment: go on in the next segment.

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
    """Link the living epochs and segments in `left` directly to `latest`.

    Each epoch and segment refers to the next, so a reference to an old one would keep all later log
    alive. A combiner that runs an op for hours has such a reference, and the frames of a kept
    exception. From any old epoch, at most `_SHORTENED_EVERY` links lead to an epoch linked here.
    Nobody plans the skipped entries any more. A thread that looked at a cell before follows the
    longer chain. A thread too late to be a successor finds the cell taken, by whichever epoch.
    """
    left = latest.left
    for _ in range(len(left)):
        try:
            each = left.popleft()
        except IndexError:
            # Another thread has emptied it.
            return
        old = each()
        if old is None:
            continue
        # Else the owner of `latest` was suspended here, and other threads are ahead of it.
        if isinstance(old, Segment):
            if old.base < latest.segment.base:
                old.following[0] = latest.segment
        elif old.number < latest.number:
            old.successor[0] = latest
        left.append(each)
