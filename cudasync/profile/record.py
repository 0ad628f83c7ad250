"""The tower. What a profile keeps of one op; it keeps no op, data or result alive."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cudasync.engine.hazards.interval_map import Region
    from cudasync.engine.hazards.variable import Var

WALL = "wall clock"
VIRTUAL = "virtual clock"
# The kind of a record that is no op, but a part of the program: see `annotating`.
ANNOTATION = "annotation"


@dataclass(frozen=True, slots=True)
class NodeTime:
    """A node of a graph, in one launch: where it was recorded, when it began and ended."""

    name: str
    push_site: str
    start_us: float
    end_us: float

    @property
    def duration_us(self) -> float:
        return self.end_us - self.start_us


@dataclass(slots=True, eq=False)
class Record:
    """One op: where it ran, when, and what it accessed. Times are in microseconds.

    `queued_us`, `issued_us` and `found_us` are of the wall clock: when it was pushed, when it began
    or was put on its stream, and when it was seen to be over. `start_us` and `end_us` are of
    `clock`, which is the wall clock too, but for ops of devices whose clock does not run with it.
    `place` is the stream or worker; None for an op that did not run, or whose end was not seen.
    """

    number: int
    name: str
    kind: str
    push_site: str
    queued_us: float
    device: int | None = None
    pool: str = ""
    place: str | None = None
    has_failed: bool = False
    clock: str = WALL
    issued_us: float | None = None
    found_us: float | None = None
    start_us: float | None = None
    end_us: float | None = None
    size_bytes: int = 0
    # Of a graph's segment: the names of its nodes; of a batch, those of its steps.
    nodes: tuple[str, ...] = ()
    # Those of them that have times, by the clock of this.
    node_times: tuple[NodeTime, ...] = ()
    reads: tuple[Region | Var, ...] = ()
    writes: tuple[Region | Var, ...] = ()
    before: list[Dependency] = field(default_factory=list)

    @property
    def has_times(self) -> bool:
        return self.start_us is not None and self.end_us is not None

    @property
    def duration_us(self) -> float:
        """How long it ran, by its own clock; 0 if that is not known."""
        if self.start_us is None or self.end_us is None:
            return 0.0
        return self.end_us - self.start_us

    @property
    def is_copy(self) -> bool:
        return self.kind in ("HtoD", "DtoH", "DtoD")

    def gap_after_us(self, other: Record) -> float | None:
        """From the end of `other` to the start of this, by the one clock of both; across clocks by
        the wall clock, from when the end of `other` was seen to when this was issued."""
        if self.start_us is None or other.end_us is None:
            return None
        if self.clock == other.clock:
            return self.start_us - other.end_us
        if self.issued_us is None or other.found_us is None:
            return None
        return self.issued_us - other.found_us


@dataclass(frozen=True, slots=True)
class Dependency:
    """`op` has to come after `on`: `hazard` is RAW, WAR or WAW, `over` says over what."""

    on: Record
    hazard: str
    over: str
