"""Floor 2. Back-off: a superseding thread first gives the combiner time to finish its entry.

Any thread may take over at any moment, and the entry under way is then entered again. With a long
entry and several planners, each would begin it anew, and none would finish it. So an epoch counts
how often its first entry was begun before. A successor naps longer, the larger the count is, and
then takes over all the same. The first successor takes over at once: mostly the combiner is
suspended, or runs a long op, and little work is lost.

So no thread waits for ever, even if many are suspended in one entry. The naps grow with the time
that the entry has had, so they are of the order of its duration.

An entry with thousands of accesses takes long to plan, and a planner that is slow is not suspended.
Taking over would cost more than waiting, since all of its histories are copied. So its planner has
a time that grows with the number of accesses (`is_slow`). In this time no thread takes over, and
the watchdog replaces no worker.
"""

from __future__ import annotations

from threading import get_ident
from time import monotonic, sleep
from typing import TYPE_CHECKING

from cudasync.engine.op import Op
from cudasync.engine.op_classes import Fence

if TYPE_CHECKING:
    from cudasync.engine.log.epoch import Epoch

# Each nap is twice as long as the last. An entry that was begun again n times gets 2 n - 1 naps:
# 0.1, 0.7, 3.1, 12.7 ms, and so on, four times as long each time.
FIRST_NAP_S = 100e-6
# The naps do not grow after so many restarts: 13 s. A longer entry may be begun for ever.
MOST = 9
# An entry with more accesses than this has a time of its own: so much for each access. On an idle
# machine planning takes 1 to 3 us for each.
MANY, PER_ACCESS_S = 1000, 100e-6
# The naps beside such an entry grow to this.
LONGEST_NAP_S = 10e-3


def is_slow(epoch: Epoch) -> bool:
    """True if the owner of `epoch`, another thread, may just need long for the entry that it is in.

    A thread that asks in the middle of its own entry, in a finaliser, would wait for itself.
    """
    started, done = epoch.started, epoch.done
    if done is None or started < done or epoch.owner == get_ident():
        return False
    entries = epoch.segment.entries
    entry = entries[started] if started < len(entries) else None
    if not isinstance(entry, Op):
        return False
    if entry._claims and not entry.finished and (not epoch.restarts or epoch.first != started):
        # The owner runs its function, which may take for ever. (An earlier combiner may run the
        # function of an entry that was begun again: then the owner plans it.)
        return False
    count = len(entry._reads) + len(entry._writes) + sum(map(len, entry._regions or ()))
    if entry.__class__ is Fence:
        # It comes after all of these.
        count = len(entry._engine._registered)
    if count <= MANY:
        return False
    # The first look of any thread begins the time.
    first, since = epoch.slow_since or (-1, 0.0)
    if first != started:
        epoch.slow_since = started, monotonic()
        return True
    return monotonic() - since < count * PER_ACCESS_S


def give_way(old: Epoch) -> None:
    """Nap until `old` has left the entry that it is in, or is over, or its time is up.

    Return at once if the calling thread owns `old`: then the caller has interrupted it.
    """
    first, nap_s = old.first, FIRST_NAP_S
    if old.owner == get_ident():
        return
    while is_slow(old) and not old.successor:
        sleep(nap_s)
        nap_s = min(2 * nap_s, LONGEST_NAP_S)
    nap_s = FIRST_NAP_S
    for _ in range(2 * min(old.restarts, MOST) - 1):
        # Not `started`: an owner that is about to begin gets the time as well.
        if old.done != first or old.successor:
            return
        sleep(nap_s)
        nap_s *= 2
