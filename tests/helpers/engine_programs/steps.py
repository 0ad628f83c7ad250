"""What random programs are made of: places, steps, and pushes of steps.

Every step says what it reads and writes, so that a program can be run by a model that knows
nothing of engines, and a trace be judged without knowing how it came about. Steps are such that
each alone is deterministic: within one step, source and target are the same view or do not overlap.
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

    The three may overlap in any way: the sums are taken first.
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
    """Changes its target by what its source holds."""

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

    The three are of one place, and may overlap in any way.
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
    """Writes the whole of its target, so it runs, and heals, also where that is poisoned."""

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
class Hold(_Overwrites):
    """A host op that waits for a latch, then does as `Set`: all pushes are made meanwhile."""

    value: int


@dataclass(frozen=True)
class Fail(_Overwrites):
    """An op that raises, on the host or the device; if `is_late`, once it has zeroed its target."""

    on_device: bool
    is_late: bool


@dataclass(frozen=True)
class Exhaust(_Overwrites):
    """An op that asks for more memory than there is, on the host or the device, and so fails."""

    on_device: bool


@dataclass(frozen=True)
class Wild(_Overwrites):
    """A kernel that stores far beyond its target: the device is lost by it."""


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
    """By `cs.copy`, between any two memories."""


@dataclass(frozen=True)
class Direct(_Moves):
    """Device to host by a host op that calls CUDA itself, on a stream of its own."""


@dataclass(frozen=True)
class Note:
    """A host op that writes its id into a token's log, or reads the log; the log is its result."""

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
    """A host op that pushes. It updates a token, or touches nothing and waits for all that."""

    token: Token | None
    inner: tuple[Push, ...]

    @property
    def reads(self):
        return () if self.token is None else (self.token,)

    writes = reads


@dataclass(frozen=True)
class Batch:
    """Steps of one place, all on the host or all on one device, pushed as one op."""

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
        """True if it can be pushed again as it is: a function belongs to one push."""
        return all(isinstance(s, (Mix, Set)) and s.target.space == "d" for s in self.steps)


@dataclass(frozen=True)
class _Asks:
    """A step of the pushing thread, which waits for the writers of one place."""

    source: Place

    writes: ClassVar = ()

    @property
    def reads(self):
        return (self.source,)


@dataclass(frozen=True)
class Fetch(_Asks):
    """Copy a view to new host memory, and wait for that copy."""


@dataclass(frozen=True)
class Read(_Asks):
    """`array.numpy()`: the op is nobody's to see, so only the order of the code places it."""


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
    """`engine.clear_errors()`, once what all ops came to has been taken down."""

    reads: ClassVar = ()
    writes: ClassVar = ()


@dataclass(frozen=True)
class Renew:
    """Let go of a device array and make another in its place: a free, and an allocation."""

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

# Steps that are no op with a number which one can see.
UNNUMBERED = (Read, Wait, WaitAll, ClearErrors, Renew)


@dataclass(frozen=True)
class Push:
    """A step, who pushes it, and how."""

    step: Step
    thread: int = 0
    priority: int = 0
    # To the pool "io" instead of "compute"; said of host ops only.
    to_io: bool = False


@dataclass(frozen=True)
class Program:
    """Pushes in order; each thread makes its own, in that order."""

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
        """True if the order of the code is the order of the pushes, in every run."""
        return self.threads == 1 and not any(isinstance(p.step, Nest) for p in self.pushes)

    def by_id(self) -> dict[str, Push]:
        """Every push by its id: "3", and "3.1" for what number 3 pushes."""
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

    streams: int = 3
    workers: int = 2
    io: int = 1
    # 0 for no limit.
    limit: int = 0
    # 1 for the serial engine.
    serial: int = 0
    # 0 for one that leaves short ops of arrays on the CPU to its workers, too.
    at_once: int = 1

    @property
    def holds(self) -> bool:
        """True if steps may hold: if no push has to wait for them."""
        return not self.limit and not self.serial


def needed(step: Step) -> tuple[Place, ...]:
    """What poisons a step: what it reads, and what lies in the gaps of the views it overwrites."""
    gapped = [each for each in step.writes if isinstance(each, View) and each.has_gaps]
    return (*step.reads, *gapped)
