"""Floor 2. A sequence: launches that a thread makes again and again in the same order.

A sequence has `unit` steps, which are some rounds of its period. A step says what the next call
must equal. A piece is a stretch of steps, and does the work of that stretch as one op. The floor
that knows graphs makes a piece a graph of the driver; until then it is launched call by call.
"""

from __future__ import annotations

import weakref
from collections import Counter, deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from weakref import WeakMethod

from cudasync.atomic import Roll
from cudasync.driver.kernels.launch_sequences import LaunchSequence
from cudasync.engine.batch.failed_step import Steps, reported
from cudasync.engine.batch.union import Union
from cudasync.engine.hazards.damage import Damage
from cudasync.engine.log.histories import Known
from cudasync.engine.log.node import origins_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import CodeType
    from typing import TypeAlias

    from cudasync.driver import Device, Event, Launch, Stream
    from cudasync.engine.engine import Engine
    from cudasync.engine.hazards.accesses import Accesses
    from cudasync.engine.op import Regions
    from cudasync.errors import CudaError

    # What is called, the place in the program, and the regions.
    StepKey: TypeAlias = tuple[object, CodeType, int, Regions]

# A run has at most so many launches, unless the period itself is longer.
UNIT = 32
# Nor has it more than a program makes in this time, so that an idle device does not wait for them.
HOLD_S = 150e-6
# A sequence gains nothing if not even so many launches fit, or if so few come before a wait. So
# many such runs in a row end it.
SHORT = 3
PATIENCE = 3
# A piece that came so often becomes a graph; so many pieces of a sequence do.
USUAL = 3
MOST_GRAPHS = 8


class Call(NamedTuple):
    """What is known of one call of a period."""

    bound: Any
    code: CodeType
    at: int
    takes: Callable[[Sequence[Any]], Any]
    launch: Launch
    accesses: Accesses
    name: str
    # Where its result lies, if the call takes memory of the pool for it; called, since the memory
    # may be gone.
    memory: Callable[[], Any] | None
    changes: bool


class Step:
    """What a call must equal to be the next of its sequence, and the step behind it.

    It has regions and a packed launch, never arrays.
    """

    __slots__ = (*Call._fields, "end", "following", "index", "sequence")

    bound: Any
    code: CodeType
    at: int
    # False unless the call's arguments have these regions and numbers. True if they do; for a call
    # that changes, the arguments as packed bytes.
    takes: Callable[[Sequence[Any]], Any]
    launch: Launch
    accesses: Accesses
    name: str
    memory: Callable[[], Any] | None
    # True if the numbers are others in each round.
    changes: bool
    # The place in the unit, and the place behind the last step of its run.
    index: int
    end: int
    sequence: RepeatedCalls
    # None behind the last of a run.
    following: Step | None


# What a thread expects that replays nothing: no call is its.
NEVER = Step()
NEVER.bound = None


class Piece(Protocol):
    """The work of a stretch of steps, as one op."""

    name: str
    accesses: Accesses
    # Its kernels, and what it does without damaged data: see `Op._salvage`.
    names: Steps
    is_graph: bool
    known: Known

    def enqueue(
        self, stream: Stream, event: Event | None = None, arguments: Sequence[bytes] = ()
    ) -> None:
        """Enqueue the work, with the packed arguments of the calls that change, and record the
        event behind it."""


class RepeatedCalls:
    """The steps of a sequence, and its pieces by their first step and their number of steps."""

    __slots__ = (
        "__weakref__",
        "_came",
        "_make",
        "_paces_s",
        "_pieces",
        "_places",
        "_shorter",
        "_wanted",
        "changes",
        "device",
        "engine",
        "is_dropped",
        "is_timely",
        "late",
        "matched",
        "misses",
        "numbers_missed",
        "period",
        "slow",
        "steps",
        "total",
    )

    def __init__(
        self,
        engine: Engine,
        calls: Sequence[Call],
        device: Device,
        make: Callable[[Sequence[Step]], Piece],
    ) -> None:
        self.engine = engine
        self.device = device
        self.period = len(calls)
        # True if some of its calls do.
        self.changes = any(call.changes for call in calls)
        # How often a call of the round had another number, by its place.
        self.numbers_missed: Counter[int] = Counter()
        self.is_dropped = False
        # How many runs in a row were slow or short: see `Tape`.
        self.slow = 0
        # The launches of its runs, and those since a launch was pushed; launches that were pushed
        # since.
        self.total = self.matched = self.misses = 0
        # How often a wait came in the middle of a round.
        self.late = 0
        # True if one came before the round. Then the round begins well, even if it is several.
        self.is_timely = False
        # What a launch took the program in the last two runs. One of them may have been suspended.
        self._paces_s = (0.0, 0.0)
        self._make = make
        self._pieces: dict[tuple[int, int], Piece] = {}
        # How often a piece came that is no graph, and those that are to become graphs.
        self._came: dict[tuple[int, int], int] = {}
        self._wanted: list[tuple[int, int]] = []
        rounds = max(1, UNIT // self.period)
        # A run of the whole unit; and by its first and last place, runs of a part of it.
        self.steps = self._run(0, [*calls] * rounds)
        self._shorter: dict[tuple[int, int], Step] = {}
        self._places: dict[StepKey, Step] = {
            (step.bound, step.code, step.at, step.accesses[0]): step
            for step in reversed(self.steps[: self.period])
        }
        noted(_EVERY, self)
        # A reset of the device ends it.
        life = calls[0].launch.module.token
        if life is not None:
            life.refusing.append(weakref.ref(self))

    def _run(self, first: int, calls: Sequence[Call]) -> list[Step]:
        """The steps of a run of these calls, from the place `first` of the unit on."""
        made: list[Step] = []
        for index, call in enumerate(calls, first):
            step = Step()
            for name, value in zip(Call._fields, call, strict=True):
                setattr(step, name, value)
            step.index, step.end, step.sequence = index, first + len(calls), self
            step.following = None
            if made:
                made[-1].following = step
            made.append(step)
        return made

    def beginning(self, index: int) -> Step:
        """The step of a run that begins at this place of a round. The run is the whole unit, or as
        much of it as the program launches in `HOLD_S`."""
        most = HOLD_S / (min(self._paces_s) or 1e-9)
        if most >= len(self.steps):
            return self.steps[index]
        # Few lengths, and the same places in each round: each stretch becomes a graph.
        count, period = 1 << max(0, int(most).bit_length() - 1), self.period
        if count >= period:
            end = count // period * period
        else:
            parts = -(-period // count)
            end = min(index + -(-period // parts), period)
        found = self._shorter.get((index, end))
        if found is None:
            calls = [_call_of(each) for each in self.steps[index:end]]
            found = self._shorter.setdefault((index, end), self._run(index, calls)[0])
        return found

    def note(self, count: int, elapsed_s: float, *, is_whole: bool) -> None:
        """A run of so many launches took the program so long. It is whole if no wait, or other
        entry of the log, has ended it."""
        self.total += count
        self.matched += count
        pace_s = elapsed_s / count
        self._paces_s = self._paces_s[1], pace_s
        if pace_s * SHORT > HOLD_S or (count < SHORT and not is_whole):
            self.slow += 1
        else:
            self.slow = 0

    def find(self, place: StepKey, args: Sequence[Any]) -> Step | None:
        """The step of the first round that a call equals: what it calls, where, and with what."""
        step = self._places.get(place)
        return step if step is not None and step.bound is not None and step.takes(args) else None

    def turned(self, first: int) -> RepeatedCalls:
        """The same rounds, which begin at the step `first`. Blocks as `prepare`, and raises its
        errors."""
        round_ = [*self.steps[first : self.period], *self.steps[:first]]
        return self._of([_call_of(step) for step in round_])

    def with_changing(self, index: int, call: Call) -> RepeatedCalls:
        """The same rounds with `call` at this place, whose numbers change. Blocks as `prepare`, and
        raises its errors."""
        calls = [_call_of(step) for step in self.steps[: self.period]]
        calls[index % self.period] = call
        return self._of(calls)

    def _of(self, calls: Sequence[Call]) -> RepeatedCalls:
        made = RepeatedCalls(self.engine, calls, self.device, self._make)
        made.prepare()
        made.total = self.total
        return made

    def prepare(self) -> None:
        """Make the whole unit a graph. Blocks for some milliseconds. Raises the errors of that."""
        self._become_graph(0, len(self.steps))

    def prepare_wanted(self) -> None:
        """Make graphs of the pieces that came often. Blocks as `prepare`."""
        while self._wanted:
            first, count = self._wanted.pop()
            # On an error it stays as it is, and works.
            with suppress(Exception):
                self._become_graph(first, count)

    def piece(self, first: int, count: int) -> Piece:
        """The work of `count` steps from `first` on. Never blocks."""
        key = first, count
        found: Piece | None = self._pieces.get(key)
        if found is None:
            found = self._pieces[key] = CallByCall(self.steps[first : first + count])
        if not found.is_graph:
            came = self._came[key] = self._came.get(key, 0) + 1
            if came == USUAL and len(self._came) <= MOST_GRAPHS and count > 1:
                self._wanted.append(key)
        return found

    @property
    def has_wanted(self) -> bool:
        """True if `prepare_wanted` has something to do."""
        return bool(self._wanted)

    @property
    def graphs(self) -> int:
        """How many of its pieces are graphs."""
        return sum(each.is_graph for each in list(self._pieces.values()))

    def refuse(self) -> None:
        """The device was reset."""
        self.drop()

    def drop(self) -> None:
        """Let no call be its next any more."""
        self.is_dropped = True
        for step in self.steps:
            step.bound = None
        for first in list(self._shorter.values()):
            left: Step | None = first
            while left is not None:
                left.bound = None
                left = left.following

    def _become_graph(self, first: int, count: int) -> None:
        self._pieces[first, count] = self._make(self.steps[first : first + count])


def _call_of(step: Step) -> Call:
    return Call(*(getattr(step, name) for name in Call._fields))


_EVERY: Roll[weakref.ref[Any]] = Roll()


def any_exist() -> bool:
    """True if some thread has a sequence."""
    return len(_EVERY) > 0


def noted(roll: Roll[weakref.ref[Any]], thing: object) -> None:
    """Note `thing` in `roll` for as long as it lives."""
    number = 0
    number = roll.add(weakref.ref(thing, lambda _: roll.remove(number)))


def drop_all_of(kernel_or_engine: object) -> None:
    """Drop each sequence of this engine, or with launches of this kernel. Its calls are pushed as
    ever from now on, and raise what there is to raise."""
    for each in filter(None, [ref() for ref in _EVERY.all()]):
        kernels = [step.launch.kernel for step in each.steps]
        if each.engine is kernel_or_engine or kernel_or_engine in kernels:
            each.drop()


class CallByCall:
    """A piece that is launched call by call on one stream."""

    is_graph = False

    def __init__(self, steps: Sequence[Step]) -> None:
        self._calls = [step.launch for step in steps]
        # The places of those whose numbers change, and copies of all with arguments of one run.
        self.changing = [at for at, step in enumerate(steps) if step.changes]
        self._idle: deque[tuple[list[Launch], LaunchSequence]] = deque()
        self._hazards = [step.accesses for step in steps]
        union = Union()
        for each in self._hazards:
            union.add(each)
        self.accesses = union.accesses()
        self.name = name_of(len(steps))
        self.known = Known()
        self.names: Steps = _Names(step.name for step in steps)
        self.names.salvage = WeakMethod(self.salvage)
        self._launches = LaunchSequence(self._calls)

    def enqueue(
        self, stream: Stream, event: Event | None = None, arguments: Sequence[bytes] = ()
    ) -> None:
        if not arguments:
            self._launches.on(self._calls, stream, event)
            return
        calls, launches = self._filled(arguments)
        launches.on(calls, stream, event)
        # The driver has read the arguments.
        self._idle.append((calls, launches))

    def _filled(self, arguments: Sequence[bytes]) -> tuple[list[Launch], LaunchSequence]:
        """Copies of the calls with these arguments, which nobody else has."""
        try:
            calls, launches = self._idle.pop()
        except IndexError:
            calls = [*self._calls]
            for at in self.changing:
                calls[at] = calls[at].aimed(None, {})
            launches = LaunchSequence(calls)
        for at, bits in zip(self.changing, arguments, strict=True):
            calls[at].block.buffer[: len(bits)] = bits
        return calls, launches

    def salvage(self, op: Any) -> Callable[..., Any] | None:
        """See `Op._salvage`: the launches that need no data that failed before `op`."""
        if op._before is not None:
            # Its plan has no origins: a source has failed since, with its device.
            return None
        damage = Damage.before(origins_of(op))
        op.left_out = left_out = damage.left_out(self._hazards)
        calls = self._filled(op.arguments)[0] if op.arguments else self._calls
        rest = [each for i, each in enumerate(calls) if i not in left_out]
        if not rest:
            op._damage = damage
            return None

        def enqueue(stream: Stream, event: Event | None = None) -> None:
            LaunchSequence(rest).on(rest, stream, event)
            # Only now: until then the op has damaged all that it writes.
            op._damage = damage

        return enqueue


class _Names(Steps):
    """The kernels of a piece that is launched call by call."""

    def said_of(self, error: CudaError) -> str:
        return reported(self, error)


def name_of(count: int) -> str:
    """The name of a run's op."""
    return f"replay of {count}"
