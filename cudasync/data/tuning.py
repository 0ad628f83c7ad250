"""Floor 4. How many workers: chosen from what was counted, as AUTOTUNE of tf.data does.

`Climber` is for a stage with `workers="auto"` while it runs: one more as long as that is worth it.
`chosen` is for `Pipeline.tune`: all stages at once, from the counts of an epoch. Neither changes
what comes, only when.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cudasync.data.meters import StageStats

# What is waited for from elsewhere (a disk, a network) takes threads beyond the processors.
MOST_PER_CORE = 4
# A window is a tenth of a second or longer, with so many chunks.
WINDOW_S, WINDOW_CHUNKS = 0.1, 8
# One more worker is kept if it is worth that much; else it is taken back, and that is that.
_LEAST_GAIN = 1.05
# Below this share of looks that found nothing ready, there are workers enough.
_FEW_WAITS = 0.1
# The loop is to find its next item there with some room to spare.
_SPARE = 0.8


def cores() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0))


class Climber:
    """The number of workers of one stage: a climb to where one more is worth nothing.

    Fed with what was counted since the last time. While who takes had to wait, a worker is added;
    if samples come no faster by it, as with a function that holds the GIL, it is taken back.
    """

    def __init__(self, most: int, begin: int = 1) -> None:
        self.workers, self._most = min(begin, most), most
        self._rate_before: float | None = None
        self._is_settled = False

    def told(self, items: int, seconds: float, waits: int, looks: int) -> int:
        """How many workers there are to be from now on."""
        rate = items / seconds
        before, self._rate_before = self._rate_before, None
        if self._is_settled:
            return self.workers
        if before is not None and rate < _LEAST_GAIN * before:
            self.workers -= 1
            self._is_settled = True
        elif waits > _FEW_WAITS * looks and self.workers < self._most:
            self.workers += 1
            self._rate_before = rate
        return self.workers


def chosen(stages: Mapping[str, StageStats], loop_s: float, items: int) -> dict[str, int]:
    """Workers for each stage, so that one item takes no longer than `loop_s`, the loop's own time.

    A worker goes to whichever stage is slowest, until all are fast enough, or the processors are
    taken: a stage takes as much of one as its workers computed, and not waited.
    """
    found = dict.fromkeys(stages, 1)
    items = max(1, items)
    takes = {name: each.busy_s / items for name, each in stages.items()}
    share = {
        name: min(1.0, each.cpu_s / each.busy_s) if each.busy_s else 1.0
        for name, each in stages.items()
    }
    while found:
        slowest = max(found, key=lambda name: takes[name] / found[name])
        used = sum(share[name] * found[name] for name in found)
        is_enough = takes[slowest] / found[slowest] <= _SPARE * loop_s
        is_full = used + share[slowest] > cores() or found[slowest] >= MOST_PER_CORE * cores()
        if is_enough or is_full:
            break
        found[slowest] += 1
    return found
