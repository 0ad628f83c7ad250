"""Floor 4. The number of workers, chosen from counts, as in tf.data's AUTOTUNE.

`Climber` serves a running stage with `workers="auto"`: it adds a worker while that pays. `chosen`
serves `Pipeline.tune`: all stages at once, from the counts of an epoch. Both change when items
come, never which.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cudasync.data.meters import StageStats

# Workers that wait for other resources (a disk, a network) may exceed the processors by this.
MOST_PER_CORE = 4
# A window is at least this long, with at least this many chunks.
WINDOW_S, WINDOW_CHUNKS = 0.1, 8
# The least gain for which an added worker stays; below it the worker goes, and the climb ends.
_LEAST_GAIN = 1.05
# Below this share of looks that found nothing ready, there are enough workers.
_FEW_WAITS = 0.1
# The next item should be ready within this share of the loop's time.
_SPARE = 0.8


def cores() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0))


class Climber:
    """The number of workers of one stage: it climbs until one more worker gains nothing.

    It receives the counts since its last call. While takers had to wait, a worker is added. If
    samples come no faster, as with a function that holds the GIL, the worker is removed.
    """

    def __init__(self, most: int, begin: int = 1) -> None:
        self.workers, self._most = min(begin, most), most
        self._rate_before: float | None = None
        self._is_settled = False

    def told(self, items: int, seconds: float, waits: int, looks: int) -> int:
        """The number of workers from now on."""
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

    The slowest stage gets a worker, until all are fast enough, or the processors are taken. A
    worker takes the share of a processor in which it computed and did not wait.
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
