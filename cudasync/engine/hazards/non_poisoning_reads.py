"""Floor 2. Histories of an op's reads that order the op and do not poison it.

Gaps are such histories: see `all_memory`. If an op reads all memory, so are failed writes in memory
that is not ours (any more): mostly nobody can reach that memory. So is memory of recordings that no
launch was pushed of. This also holds if the op does not write all memory, since a fence behind such
an op only reads. Memory that the op also names poisons it, wherever that memory is.
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
    """The histories that do not poison an op that reads `regions`. The ranges were split for the op
    before."""
    found = [history for history in histories if history.is_gap]
    if Everywhere in map(type, regions):
        everywhere = [each for each in regions if each.__class__ is Everywhere]
        plain = [each for each in regions if each.__class__ is not Everywhere]
        named = {history for region in plain for history in ranges.peek(region)}
        found += [history for history in wrecks(ranges, everywhere) if history not in named]
    return found
