"""The parts of random programs: places, steps, and pushes of steps.

Every step declares its reads and writes. So a model can run a program without an engine, and a
judge can check a trace without its history. Each step alone is deterministic: its source and target
are the same view or do not overlap.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, TypeAlias

from helpers.engine_programs.places import CPU_ARRAY as CPU_ARRAY
from helpers.engine_programs.places import LENGTH as LENGTH
from helpers.engine_programs.places import Place, Token, View


@dataclass(frozen=True)
class Join:
    """target = 31 * target + 7 * the sum of first + the sum of second, by a host op.

    The three views may overlap in any way, because the sums are taken first.
    """

    target: View
    first: View
    second: View

    @property
    def reads(self):
        return (self.target, self.first, self.second)

    @property
    def writes(self):
        return (self.target,)


@dataclass(frozen=True)
class _Updates:
    """Changes its target by the content of its source."""

    target: View
    source: View

    @property
    def reads(self):
        return (self.target, self.source)

    @property
    def writes(self):
        return (self.target,)


@dataclass(frozen=True)
class Mix(_Updates):
    """target = 31 * target + factor * source + position, by a kernel or a host op."""

    factor: int


@dataclass(frozen=True)
class Add(_Updates):
    """target += source, by an operator."""


@dataclass(frozen=True)
class Total(_Updates):
    """target += the sum of source, by a reduction and an operator."""


@dataclass(frozen=True)
class Inner:
    """target += the inner product of first and second, by a matrix product and an operator.

    The three views are in the same place, and may overlap in any way.
    """

    target: View
    first: View
    second: View

    @property
    def reads(self):
        return (self.target, self.first, self.second)

    @property
    def writes(self):
        return (self.target,)


@dataclass(frozen=True)
class _Overwrites:
    """Writes the whole of its target. So it runs also on a poisoned target, and heals it."""

    target: View

    reads: ClassVar = ()

    @property
    def writes(self):
        return (self.target,)


@dataclass(frozen=True)
class Set(_Overwrites):
    """target = value + position, by a kernel narrowed with `Out` or by a host op."""

    value: int


@dataclass(frozen=True)
class Clear(_Overwrites):
    """Zero a device view by a device op that enqueues a memset itself."""


@dataclass(frozen=True)
class Draw(_Overwrites):
    """target = the next random numbers of the program's generator."""


@dataclass(frozen=True)
class Hold(_Overwrites):
    """A host op that waits for a latch, then works as `Set`. Meanwhile all pushes are made."""

    value: int


@dataclass(frozen=True)
class Fail(_Overwrites):
    """An op that raises, on the host or the device; if `is_late`, after it zeroed its target."""

    on_device: bool
    is_late: bool


@dataclass(frozen=True)
class Exhaust(_Overwrites):
    """An op that asks for more memory than exists, on the host or the device, and so fails."""

    on_device: bool


@dataclass(frozen=True)
class Wild(_Overwrites):
    """A kernel that stores far beyond its target, so that the device is lost."""


@dataclass(frozen=True)
class _Moves:
    """target = source."""

    target: View
    source: View

    @property
    def reads(self):
        return (self.source,)

    @property
    def writes(self):
        return (self.target,)


@dataclass(frozen=True)
class Copy(_Moves):
    """A copy by `cs.copy`, between any two memories."""


@dataclass(frozen=True)
class Direct(_Moves):
    """A copy from device to host by a host op that calls CUDA itself, on its own stream."""


@dataclass(frozen=True)
class Note:
    """A host op that writes its id into a token's log, or reads the log. Its result is the log."""

    token: Token
    is_write: bool

    @property
    def reads(self):
        return (self.token,)

    @property
    def writes(self):
        return (self.token,) if self.is_write else ()


@dataclass(frozen=True)
class Nest:
    """A host op that pushes. It updates a token; or it touches nothing and waits for its pushes."""

    token: Token | None
    inner: tuple[Push, ...]

    @property
    def reads(self):
        return () if self.token is None else (self.token,)

    writes = reads


@dataclass(frozen=True)
class Batch:
    """Steps in one place, all on the host or all on one device, pushed as one op."""

    inner: tuple[Push, ...]

    @property
    def steps(self) -> tuple[Step, ...]:
        return tuple(push.step for push in self.inner)

    @property
    def reads(self):
        return tuple(dict.fromkeys(place for step in self.steps for place in step.reads))

    @property
    def writes(self):
        return tuple(dict.fromkeys(place for step in self.steps for place in step.writes))

    @property
    def is_of_launches(self) -> bool:
        """True if the batch can be pushed again: a function belongs to one push."""
        return all(isinstance(s, (Mix, Set)) and s.target.space == "d" for s in self.steps)


@dataclass(frozen=True)
class _Asks:
    """A step in which the pushing thread waits for the writers of one place."""

    source: Place

    writes: ClassVar = ()

    @property
    def reads(self):
        return (self.source,)


@dataclass(frozen=True)
class Fetch(_Asks):
    """Copies a view to new host memory, and waits for that copy."""


@dataclass(frozen=True)
class Read(_Asks):
    """`array.numpy()`. Nobody sees its op, so only program order gives its place."""


@dataclass(frozen=True)
class Wait(_Asks):
    """`array.wait()` or `variable.wait()`."""


@dataclass(frozen=True)
class WaitAll:
    """`engine.waitall()`."""

    reads: ClassVar = ()
    writes: ClassVar = ()


@dataclass(frozen=True)
class ClearErrors:
    """`engine.clear_errors()`, after the results of all ops were recorded."""

    reads: ClassVar = ()
    writes: ClassVar = ()


@dataclass(frozen=True)
class Renew:
    """Drops a device array and makes another in its place: a free, and an allocation."""

    index: int
    value: int

    reads: ClassVar = ()
    writes: ClassVar = ()


Step: TypeAlias = (
    Mix
    | Join
    | Add
    | Total
    | Inner
    | Set
    | Clear
    | Draw
    | Hold
    | Fail
    | Exhaust
    | Wild
    | Copy
    | Direct
    | Note
    | Nest
    | Batch
    | Fetch
    | Read
    | Wait
    | WaitAll
    | ClearErrors
    | Renew
)

# Steps without an op that has a visible number.
UNNUMBERED = (Read, Wait, WaitAll, ClearErrors, Renew)


@dataclass(frozen=True)
class Push:
    """A step, the thread that pushes it, and its options."""

    step: Step
    thread: int = 0
    priority: int = 0
    # Push to the pool "io" instead of "compute"; for host ops only.
    to_io: bool = False


@dataclass(frozen=True)
class Program:
    """Pushes in order. Each thread makes its own pushes, in that order."""

    # The device of each device array.
    devices: tuple[int, ...]
    hosts: int
    tokens: int
    pushes: tuple[Push, ...]

    @property
    def threads(self) -> int:
        return 1 + max((push.thread for push in self.pushes), default=0)

    @property
    def is_ordered(self) -> bool:
        """True if program order is the order of the pushes, in every run."""
        return self.threads == 1 and not any(isinstance(p.step, Nest) for p in self.pushes)

    def by_id(self) -> dict[str, Push]:
        """Every push by its id: "3", and "3.1" for a push inside number 3."""
        found: dict[str, Push] = {}
        todo = [(str(number), push) for number, push in enumerate(self.pushes)]
        for id_, push in todo:
            found[id_] = push
            if isinstance(push.step, Nest):
                inner = (replace(each, thread=push.thread) for each in push.step.inner)
                todo += [(f"{id_}.{i}", each) for i, each in enumerate(inner)]
        return found


@dataclass(frozen=True)
class Setting:
    """The engine that a program runs on."""

    # 0: a growing number.
    streams: int = 3
    workers: int = 2
    io: int = 1
    # 0: no limit.
    limit: int = 0
    # 1: the serial engine.
    serial: int = 0
    # 0: workers also run short ops of arrays on the CPU.
    at_once: int = 1
    # 1: repeated launches join runs, after the fewest repetitions. Launches have no names then.
    replay: int = 0

    @property
    def holds(self) -> bool:
        """True if steps may hold, because no push has to wait for them."""
        return not self.limit and not self.serial


def needed(step: Step) -> tuple[Place, ...]:
    """Poison in these places fails a step: its reads, and the gaps of the views that it
    overwrites."""
    gapped = [each for each in step.writes if isinstance(each, View) and each.has_gaps]
    return (*step.reads, *gapped)
