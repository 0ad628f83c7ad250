"""Floor 4. The counters of each stage while it runs, and the `stats()` made from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from cudasync.locks import Lock


@dataclass(slots=True)
class Meter:
    """Counts of one stage. Several threads add to it, under its lock, once per chunk."""

    stage: str
    workers: int = 1
    # The most ops at once that the stage asks for; 0 without a buffer.
    capacity: int = 0
    items: int = 0
    skipped: int = 0
    busy_s: float = 0.0
    # Processor time: less than `busy_s` if the stage waited for something else.
    cpu_s: float = 0.0
    # The number of ready entries in the buffer, summed over all looks.
    ready: int = 0
    looks: int = 0
    waits: int = 0
    waited_s: float = 0.0
    lock: Lock = field(default_factory=Lock, repr=False)

    def worked(
        self, items: int, seconds: float, skipped: int = 0, cpu_s: float | None = None
    ) -> None:
        with self.lock:
            self.items += items
            self.busy_s += seconds
            self.cpu_s += seconds if cpu_s is None else cpu_s
            self.skipped += skipped

    def looked(self, ready: int) -> None:
        """Count a look: a taker found `ready` entries in the buffer."""
        with self.lock:
            self.looks += 1
            self.ready += ready

    def waited(self, seconds: float) -> None:
        with self.lock:
            self.waits += 1
            self.waited_s += seconds


@dataclass(frozen=True, slots=True)
class StageStats:
    """One stage: samples done and skipped, seconds at work, and the state of its buffer.

    `cpu_s` is the part of these seconds in which it computed and did not wait. `full` is the
    average share of the buffer that was ready when an item was taken, None without a buffer;
    `waits` is how often nothing was ready.
    """

    stage: str
    items: int
    skipped: int
    busy_s: float
    cpu_s: float
    workers: int
    full: float | None
    waits: int
    waited_s: float


@dataclass(frozen=True, slots=True)
class PipelineStats:
    """The result of `Pipeline.stats`: a line per stage, from the source on.

    `bottleneck` names the stage with the most seconds at work per worker, None before any work.
    `waits` and `waited_s` belong to the consuming loop: how often it asked before the next item was
    ready, and how long it waited. `delivered` counts the items that it received.
    """

    stages: tuple[StageStats, ...]
    bottleneck: str | None
    delivered: int
    waits: int
    waited_s: float

    @property
    def skipped(self) -> int:
        """Samples that `on_error="skip"` left out, over all stages."""
        return sum(each.skipped for each in self.stages)

    def __str__(self) -> str:
        lines = [f"{'stage':24}{'items':>9}{'skipped':>9}{'busy s':>9}{'workers':>9}{'full':>7}"]
        for each in self.stages:
            full = "" if each.full is None else f"{each.full:.0%}"
            lines.append(
                f"{each.stage:24}{each.items:9}{each.skipped:9}{each.busy_s:9.3f}"
                f"{each.workers:9}{full:>7}"
            )
        lines.append(
            f"the loop waited for {self.waits} of {self.delivered} items, {self.waited_s:.3f} s; "
            f"bottleneck: {self.bottleneck}"
        )
        return "\n".join(lines)


def summed(meters: list[Meter], loop: Meter) -> PipelineStats:
    """The statistics of a run, with the stages in the order in which data pass them."""
    stages = tuple(
        StageStats(
            each.stage,
            each.items,
            each.skipped,
            each.busy_s,
            each.cpu_s,
            each.workers,
            each.ready / (each.looks * each.capacity) if each.looks and each.capacity else None,
            each.waits,
            each.waited_s,
        )
        for each in meters
    )
    busiest: Any = max(stages, key=lambda each: each.busy_s / each.workers, default=None)
    name = busiest.stage if busiest is not None and busiest.busy_s else None
    waits = meters[-1].waits if meters else 0
    return PipelineStats(stages, name, loop.items, waits, loop.waited_s)
