"""Floor 2. Who wants to take over leaves whoever is in an entry the time to come out of it.

Anybody may take over at any moment, and what was done of an entry is then done once more. An entry
that takes long, and several threads that want to plan: each would begin it anew, and none come to
its end. So an epoch knows how often its first entry was begun before, and who comes next naps the
longer, the more often that was, before it takes over all the same. The first time it does so at
once: mostly the other one is suspended, or runs a long op, and there is little to lose.

So nobody waits for ever, also if many are suspended in one entry; and the naps grow with what the
entry was given already, so they are of the order of the time that it takes.
"""

from __future__ import annotations

from threading import get_ident
from time import sleep
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cudasync.engine.log.epoch import Epoch

# Each nap is twice as long as the one before. An entry that was begun again n times is left alone
# for 2 n - 1 of them: 0.1, 0.7, 3.1, 12.7 ms, and so on, four times as long each time.
FIRST_NAP_S = 100e-6
# And no longer than after so many: 13 s. An entry that takes more may be begun for ever.
MOST = 9


def give_way(old: Epoch) -> None:
    """Nap until `old` is out of an entry that was begun before, or over, or has had its time.

    Not if it is the calling thread's own, interrupted by what wants to plan now.
    """
    first, nap_s = old.first, FIRST_NAP_S
    if old.owner == get_ident():
        return
    for _ in range(2 * min(old.restarts, MOST) - 1):
        # `started` is not looked at: who is about to begin may as well.
        if old.done != first or old.successor:
            return
        sleep(nap_s)
        nap_s *= 2
