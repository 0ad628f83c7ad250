"""The tower. A profile's record of one op; it keeps no op, data or result alive."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cudasync.engine.hazards.interval_map import Region
    from cudasync.engine.hazards.variable import Var

WALL = "wall clock"
VIRTUAL = "virtual clock"
# The kind of a record of an annotation, which is no op: see `annotation`.
ANNOTATION = "annotation"


@dataclass(frozen=True, slots=True)
class NodeTime:
    """A node of a graph, in one launch: the line that recorded it, its start and end."""

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

    `queued_us`, `issued_us` and `found_us` are wall clock times: of the push, of the start or the
    enqueuing on a stream, and of the moment when the end was noticed. `start_us` and `end_us` are
    times of `clock`. This is the wall clock, except for devices with a virtual clock. `place` is
    the stream or worker; None for an op that did not run, or whose end was not noticed.
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
    # The names of a graph segment's nodes, or of a batch's steps.
    nodes: tuple[str, ...] = ()
    # The nodes that have times, by this record's clock.
    node_times: tuple[NodeTime, ...] = ()
    reads: tuple[Region | Var, ...] = ()
    writes: tuple[Region | Var, ...] = ()
    before: list[Dependency] = field(default_factory=list)

    @property
    def has_times(self) -> bool:
        return self.start_us is not None and self.end_us is not None

    @property
    def duration_us(self) -> float:
        """The duration of the op, by its own clock; 0 if unknown."""
        if self.start_us is None or self.end_us is None:
            return 0.0
        return self.end_us - self.start_us

    @property
    def is_copy(self) -> bool:
        return self.kind in ("HtoD", "DtoH", "DtoD")

    def gap_after_us(self, other: Record) -> float | None:
        """The time from the end of `other` to the start of this op, by their common clock.

        Across clocks, the wall clock time from noticing the end of `other` to issuing this op.
        """
        if self.start_us is None or other.end_us is None:
            return None
        if self.clock == other.clock:
            return self.start_us - other.end_us
        if self.issued_us is None or other.found_us is None:
            return None
        return self.issued_us - other.found_us


@dataclass(frozen=True, slots=True)
class Dependency:
    """An op must come after `on`: `hazard` is RAW, WAR or WAW, `over` names the data.

    `is_reuse` is true if only memory orders the two: a result has the memory of an array that is
    gone. The program does not need such an order.
    """

    on: Record
    hazard: str
    over: str
    is_reuse: bool = False
