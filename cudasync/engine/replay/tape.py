"""Floor 2. The tape of a thread: finds the launches that it repeats, and lets them join runs.

A thread's tape is in one of four states. It *learns*: each launch gets a number, and the last
numbers are searched for a period. It *captures* the next round as steps. It *replays*: `step` is
what the next launch must equal. Or it *pauses*, since nothing was repeated; each pause is longer
than the last. A launch that is not the next of the sequence is pushed as ever, and costs a
comparison.

`kernels/kernel.py` inlines the join, the path of a launch that matches.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, Protocol

from cudasync.driver.device import ISSUE_FIRST
from cudasync.driver.extensions import exploration
from cudasync.engine import current
from cudasync.engine.device import device_push
from cudasync.engine.host.watchdog import WATCHDOG
from cudasync.engine.lifecycle import refusal
from cudasync.engine.log import node as nodes
from cudasync.engine.log.combiner import COMBINER
from cudasync.engine.op import OpKind, site_of
from cudasync.engine.replay.run import PATIENCE, JoinedLaunch, Run, flush
from cudasync.engine.replay.sequence import NEVER, Call, RepeatedCalls, Step

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import CodeType, FrameType

    from cudasync.driver import Device
    from cudasync.engine.engine import Engine
    from cudasync.engine.hazards.accesses import Accesses
    from cudasync.engine.replay.sequence import Piece

# A period is at most so long, came so often in a row, and so many launches were repeated.
MOST_PERIOD = 64
ROUNDS = 3
LEAST = 32
# Launches between two searches, and launches that are learnt before a pause.
SEARCH_EVERY = 16
WINDOW = 256
# Pauses in ticks of 32 issued ops, each longer by the factor.
FIRST_PAUSE = 16
LONGER = 4
LONGEST_PAUSE = 1 << 16
# A sequence is given up behind so many launches that are not of it, and has paid after so many that
# were.
TRIAL = 64
PAID = 512

_LOG = COMBINER.log
_push = device_push.push
_maybe_inside = current.maybe_inside
_maybe_engine = current.maybe_engine


class Replayable(Protocol):
    """A bound kernel, as its tape sees it."""

    def call_of(
        self, kernel: Any, args: Sequence[Any], accesses: Accesses, frame: FrameType
    ) -> Call | str:
        """The launch of `kernel` with these arguments, to be made again; or why it cannot be."""

    def piece_of(self, steps: Sequence[Step], device: Device) -> Piece:
        """The launches of `steps` as a graph."""


class Tape:
    """What one thread has launched, and what it is expected to launch next."""

    __slots__ = (
        "__weakref__",
        "_calls",
        "_cycle",
        "_misses",
        "_numbers",
        "_pause",
        "_recent",
        "_ticks",
        "engine",
        "entries",
        "is_attentive",
        "length",
        "reason",
        "run",
        "sequence",
        "slots",
        "step",
        "thread",
    )

    def __init__(self) -> None:
        self.thread = threading.current_thread().name
        self.step: Step = NEVER
        self.sequence: RepeatedCalls | None = None
        # The value of the context's engine for which `step` is expected.
        self.engine: Engine | None = None
        # The run under way, its cells, and the place of its entry in the log. A run that is not the
        # last entry, or whose place is unknown, takes nobody: then `length` is -1.
        self.run: Run | None = None
        self.slots: dict[int, Any] = {}
        self.entries: Sequence[object] = ()
        self.length = -1
        # True if `pushed` is to be called.
        self.is_attentive = True
        self.reason = ""
        self._pause = FIRST_PAUSE
        self._ticks = 0
        self._misses = 0
        self._learn()
        _TAPES.add(self)

    def _learn(self) -> None:
        """Begin to learn anew."""
        self.is_attentive = True
        self._numbers: dict[Any, int] = {}
        self._recent: list[int] = []
        # The numbers of the round that is captured, and its calls so far.
        self._cycle: list[int] = []
        self._calls: list[Call] = []

    def begin(self, step: Step, frame: FrameType) -> JoinedLaunch | None:
        """Begin a run with the launch that `step` stands for, at `frame`. None if it must be pushed
        as ever. A run that this makes complete is issued."""
        sequence = step.sequence
        engine = sequence.engine
        if sequence.is_dropped or sequence.slow >= PATIENCE:
            self._give_up("the program takes long between its launches, or few follow each other")
            return None
        if (
            not engine._is_direct
            or engine._ledger.recorder is not None
            or _maybe_inside() is not None
            or exploration.is_under_way
            or _LOG.is_told
            or step.launch.kernel.check is not None  # type: ignore[attr-defined]
        ):
            return None
        if sequence.has_wanted:
            sequence.prepare_wanted()
        # A run may begin anywhere in the first round.
        step = sequence.steps[step.index % sequence.period]
        run = Run(step, frame)
        op = JoinedLaunch()
        op._run, op._step = run, step
        slots: dict[int, Any] = {step.index: op}
        run._slots = slots
        # Until the last store, nobody joins.
        self.length = -1
        self.run, self.slots = run, slots
        _LOG.append(run)
        compute: Any = engine._compute
        if not compute.is_watched:
            # A thread that launches no more, and does not wait, is stood in for.
            WATCHDOG.watch(compute)
        self.entries = entries = _LOG.tail.entries
        length = len(entries)
        following = step.following
        if following is None:
            self.complete(frame)
        else:
            self.step = following
            # The length first: an entry that comes in between is behind the run.
            if length and entries[length - 1] is run:
                self.length = length
        if engine._is_closed:
            refusal.raise_if_refused(run)
        return op

    def complete(self, frame: FrameType) -> None:
        """The run under way has all launches of its sequence: issue it."""
        run = self.run
        assert run is not None
        self.let_go()
        self.step = run.sequence.steps[0]
        piece = run.piece
        _push(
            run._engine,
            run._enqueue,
            piece.accesses,
            piece.name,
            run._device,
            frame,
            piece.names,
            piece.known,
            OpKind.KERNEL,
            None,
            run,
        )

    def flush(self) -> None:
        """Issue the run under way, if there is one. Waits for no thread."""
        run = self.run
        if run is not None:
            if not nodes.is_planned(run):
                flush(run)
            self.let_go()

    def let_go(self) -> None:
        """Nobody joins the run under way any more, and this thread keeps nothing of it alive."""
        self.length = -1
        self.run, self.slots = None, {}

    def pushed(
        self,
        bound: Replayable,
        kernel: Any,
        args: Sequence[Any],
        accesses: Accesses,
        engine: Engine,
        frame: FrameType,
    ) -> None:
        """A launch of `kernel` was pushed as ever, at `frame`: `bound` was called."""
        code, at = frame.f_code, frame.f_lasti
        if not engine._replays:
            self._rest("replay is off")
            return
        sequence = self.sequence
        if sequence is not None:
            if sequence.engine is not engine:
                if sequence.engine._is_closed:
                    self._give_up("its engine was closed")
                else:
                    return
            elif self._goes_on(bound, args, code, at):
                return
        numbers = self._numbers
        scalars = tuple([each for each in args if each.__class__ in _NUMBERS])
        key = bound, code, at, accesses[0], scalars
        number = numbers.setdefault(key, len(numbers))
        recent = self._recent
        recent.append(number)
        cycle = self._cycle
        if cycle:
            place = len(self._calls)
            if number == cycle[place]:
                call = bound.call_of(kernel, args, accesses, frame)
                if isinstance(call, str):
                    self._rest(f"{site_of(code, at)}: {call}")
                    return
                self._calls.append(call)
                if place + 1 == len(cycle):
                    self._replay(bound, kernel.device, engine)
            else:
                self._learn()
        elif len(recent) % SEARCH_EVERY == 0:
            self._cycle = _period(recent)
            if not self._cycle and len(recent) >= WINDOW:
                self._rest(self._first_difference())

    def _replay(self, bound: Replayable, device: Device, engine: Engine) -> None:
        """The round is captured: expect it from now on."""
        calls = self._calls
        if any(call.launch.kernel.device is not device for call in calls):
            self._rest("its launches are on several devices")
            return
        sequence = RepeatedCalls(engine, calls, device, lambda steps: bound.piece_of(steps, device))
        try:
            sequence.prepare()
        except Exception as error:
            self._rest(f"no graph could be made of it: {error}")
            return
        self._learn()
        self._misses = 0
        self.reason = ""
        if self.run is not None:
            # Its cells are of another sequence.
            self.length = -1
        self.engine = _maybe_engine()
        self.sequence = sequence
        self.step = sequence.steps[0]

    def _goes_on(self, bound: Replayable, args: Sequence[Any], code: CodeType, at: int) -> bool:
        """While it replays, a launch was none of the run: True if the sequence is still the right
        one. If the launch is of the sequence, what follows it is expected next."""
        sequence = self.sequence
        assert sequence is not None
        if sequence.is_dropped:
            self._give_up("its module was closed, or its device reset")
            return False
        for step in sequence.steps[: sequence.period]:
            if step.bound is bound and step.at == at and step.code is code and step.takes(args):
                self.step = sequence.steps[(step.index + 1) % len(sequence.steps)]
                return True
        if sequence.matched:
            sequence.matched = self._misses = 0
            self._learn()
            return True
        self._misses += 1
        if self._misses >= TRIAL:
            self._give_up("the launches changed")
        return False

    def _give_up(self, reason: str) -> None:
        """Expect nothing any more. What has paid is followed by learning, else by a pause."""
        sequence, self.sequence, self.step = self.sequence, None, NEVER
        assert sequence is not None
        self._misses = 0
        if sequence.total >= PAID:
            self.reason, self._pause = reason, FIRST_PAUSE
        else:
            self._rest(reason)

    def _rest(self, reason: str) -> None:
        """Learn nothing for a while."""
        self._learn()
        self.is_attentive = False
        self.reason = reason
        self._ticks = self._pause
        self._pause = min(LONGER * self._pause, LONGEST_PAUSE)

    def tick(self) -> None:
        """Another 32 ops were issued."""
        if not self.is_attentive:
            self._ticks -= 1
            if self._ticks <= 0:
                self._learn()

    def forget(self) -> None:
        """Nothing is expected any more, and no run is under way: the process was forked."""
        self.__init__()  # type: ignore[misc]

    def _first_difference(self) -> str:
        """What differs between the last two launches from one place in the program."""
        keys = list(self._numbers)
        latest: dict[tuple[Any, int], Any] = {}
        said = "no launches were repeated"
        for number in self._recent:
            bound, code, at, regions, scalars = keys[number]
            before = latest.get((code, at))
            latest[code, at] = bound, regions, scalars
            if before is None or before == latest[code, at]:
                continue
            if before[0] is not bound:
                said = f"{site_of(code, at)}: another kernel or shape"
            elif before[2] != scalars:
                pairs = zip(before[2], scalars, strict=False)
                first = next(((one, two) for one, two in pairs if one != two), None)
                if first is not None:
                    said = f"{site_of(code, at)}: a number was {first[0]}, then {first[1]}"
            else:
                said = f"{site_of(code, at)}: other memory"
        return said

    def said(self) -> str:
        """What it replays, or why it does not."""
        sequence = self.sequence
        if sequence is None:
            return f"{self.thread}: {self.reason or 'still learning'}"
        where = ", ".join(dict.fromkeys(site_of(each.code, each.at) for each in sequence.steps[:3]))
        return (
            f"{self.thread}: replays {sequence.period} launches from {where}: "
            f"{sequence.total} launches so far, with {sequence.graphs} graphs"
        )


# Numbers among the arguments of a launch.
_NUMBERS = frozenset({int, float, bool})
_TAPES: weakref.WeakSet[Tape] = weakref.WeakSet()


class _Local(threading.local):
    def __init__(self) -> None:
        self.tape = Tape()


LOCAL = _Local()
ISSUE_FIRST.append(lambda: LOCAL.tape.flush())


def _period(recent: list[int]) -> list[int]:
    """The shortest round that `recent` ends with several times; empty if there is none."""
    last = recent[-1]
    for period in range(1, min(MOST_PERIOD, len(recent) // ROUNDS) + 1):
        if recent[-1 - period] == last:
            tail = recent[-max(ROUNDS * period, LEAST) :]
            if len(tail) >= LEAST and tail[period:] == tail[:-period]:
                return recent[-period:]
    return []


def is_wanted(replay: bool | None) -> bool:
    """Whether an engine with this argument replays."""
    return os.environ.get("CUDASYNC_REPLAY", "0") != "0" if replay is None else replay


def report(engine: Engine) -> str:
    """A line for each thread that has launched something."""
    if not engine._replays:
        return "replay is off: Engine(replay=True), or CUDASYNC_REPLAY=1"
    return "\n".join(sorted(tape.said() for tape in list(_TAPES)))
