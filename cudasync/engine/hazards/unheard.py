"""Floor 2. What orders an op and does not poison it, of all that it reads.

Gaps do: see `all_memory`. Where an op reads all memory, so does what a failed op left in memory
that is not ours, or was: mostly nobody can reach that any more. It does not matter whether the op
writes all memory, too; a fence behind what such an op wrote only reads. What the op names besides
poisons it, wherever that is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.engine.hazards.all_memory import wrecks
from cudasync.engine.hazards.interval_map import Everywhere

if TYPE_CHECKING:
    from cudasync.engine.hazards.history import History
    from cudasync.engine.hazards.interval_map import IntervalMap, Region


def unheard_of(
    ranges: IntervalMap, regions: tuple[Region, ...], histories: list[History]
) -> list[History]:
    """Those of `histories` that an op which reads `regions` is not poisoned by. The ranges were
    split for it before."""
    found = [history for history in histories if history.is_gap]
    if Everywhere in map(type, regions):
        everywhere = [each for each in regions if each.__class__ is Everywhere]
        plain = [each for each in regions if each.__class__ is not Everywhere]
        named = {history for region in plain for history in ranges.peek(region)}
        found += [history for history in wrecks(ranges, everywhere) if history not in named]
    return found
