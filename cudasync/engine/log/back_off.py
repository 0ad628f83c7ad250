"""Floor 2. Back-off: a superseding thread first gives the combiner time to finish its entry.

Any thread may take over at any moment, and the entry under way is then entered again. With a long
entry and several planners, each would begin it anew, and none would finish it. So an epoch counts
how often its first entry was begun before. A successor naps longer, the larger the count is, and
then takes over all the same. The first successor takes over at once: mostly the combiner is
suspended, or runs a long op, and little work is lost.

So no thread waits for ever, even if many are suspended in one entry. The naps grow with the time
that the entry has had, so they are of the order of its duration.
"""

from __future__ import annotations

from threading import get_ident
from time import sleep
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cudasync.engine.log.epoch import Epoch

# Each nap is twice as long as the last. An entry that was begun again n times gets 2 n - 1 naps:
# 0.1, 0.7, 3.1, 12.7 ms, and so on, four times as long each time.
FIRST_NAP_S = 100e-6
# The naps do not grow after so many restarts: 13 s. A longer entry may be begun for ever.
MOST = 9


def give_way(old: Epoch) -> None:
    """Nap until `old` has left the entry that was begun before, or is over, or its time is up.

    Return at once if the calling thread owns `old`: then the caller has interrupted it.
    """
    first, nap_s = old.first, FIRST_NAP_S
    if old.owner == get_ident():
        return
    for _ in range(2 * min(old.restarts, MOST) - 1):
        # Not `started`: an owner that is about to begin gets the time as well.
        if old.done != first or old.successor:
            return
        sleep(nap_s)
        nap_s *= 2
