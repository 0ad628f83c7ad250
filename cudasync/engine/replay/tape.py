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
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from cudasync.atomic import Roll
from cudasync.driver.device import ISSUE_FIRST
from cudasync.driver.extensions import exploration
from cudasync.engine import current
from cudasync.engine.device import device_push
from cudasync.engine.device.ready import settle
from cudasync.engine.host.watchdog import WATCHDOG
from cudasync.engine.lifecycle import refusal
from cudasync.engine.log.combiner import COMBINER
from cudasync.engine.op import OpKind, site_of
from cudasync.engine.replay.learning import Kinds, Launches, period
from cudasync.engine.replay.run import JoinedLaunch, Run, flush
from cudasync.engine.replay.sequence import (
    NEVER,
    PATIENCE,
    USUAL,
    Call,
    RepeatedCalls,
    Step,
    any_exist,
    noted,
)

if TYPE_CHECKING:
    import weakref
    from collections.abc import Callable, Container, Sequence
    from types import FrameType

    from cudasync.driver import Device
    from cudasync.engine.engine import Engine
    from cudasync.engine.hazards.accesses import Accesses
    from cudasync.engine.replay.sequence import Piece, StepKey

# Launches between two searches, and launches that are learnt before a pause.
SEARCH_EVERY = 16
WINDOW = 256
# Behind so many launches without a period, one is searched for whose numbers change: any period of
# equal numbers would have come by then.
CHANGING = 192
# Pauses in ticks of 32 issued ops, each longer by the factor.
FIRST_PAUSE = 16
LONGER = 4
LONGEST_PAUSE = 1 << 16
# A sequence is forgotten behind so many launches in a row that joined none of its runs.
TRIAL = 64
# A thread keeps so many sequences.
MOST_KNOWN = 8

_LOG = COMBINER.log
_push = device_push.push
_maybe_inside = current.maybe_inside
_maybe_engine = current.maybe_engine


class Replayable(Protocol):
    """A bound kernel, or a plan of an operation on arrays, as its tape sees it."""

    def call_of(
        self,
        kernel: Any,
        args: Sequence[Any],
        accesses: Accesses,
        frame: FrameType,
        *,
        changes: bool,
    ) -> Call | str:
        """The launch of `kernel` with these arguments, to be made again, with other numbers if it
        `changes`; or why it cannot be."""

    def piece_of(self, steps: Sequence[Step], device: Device) -> Piece:
        """The launches of `steps` as a graph."""


class Tape:
    """What one thread has launched, and what it is expected to launch next."""

    __slots__ = (
        "__weakref__",
        "_asked",
        "_calls",
        "_cycle",
        "_found",
        "_is_behind_wait",
        "_kinds",
        "_known",
        "_launches",
        "_pause",
        "_takes_memory",
        "_ticks",
        "engine",
        "entries",
        "has_waited",
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
        self.thread = threading.get_ident()
        self.step: Step = NEVER
        # The sequence under way, and those that this thread knows, the latest last.
        self.sequence: RepeatedCalls | None = None
        self._known: list[RepeatedCalls] = []
        # The value of the context's engine for which `step` is expected.
        self.engine: Engine | None = None
        # The run under way, its cells, and the place of its entry in the log. A run that is not the
        # last entry, or whose place is unknown, takes nobody: then `length` is -1.
        self.run: Run | None = None
        self.slots: dict[int, Any] = {}
        self.entries: Sequence[object] = ()
        self.length = -1
        # True if this thread has waited since the last launch that was learnt. A round begins
        # there, so that a wait ends a whole run.
        self.has_waited = False
        # True if `pushed` is to be called.
        self.is_attentive = True
        self.reason = ""
        self._pause = FIRST_PAUSE
        self._ticks = 0
        # The number of launches that were learnt when the round was found, and whether it begins
        # behind a wait.
        self._found, self._is_behind_wait = 0, False
        # The calls of `pushed` since the last pause.
        self._asked = 0
        self._learn()

    def _learn(self) -> None:
        """Begin to learn anew."""
        self.is_attentive = True
        self._launches = Launches()
        # The numbers of the round that is captured, and its calls so far. By kind instead, if
        # numbers of its calls change.
        self._cycle: list[int] = []
        self._calls: list[Call] = []
        self._kinds: Kinds | None = None
        # True if launches of the round take memory for their results. Then two rounds are captured:
        # a name that is bound again still has its memory when the new value is computed.
        self._takes_memory = False

    @property
    def is_interested(self) -> bool:
        """True unless the next launch is certainly not replayed, and not learnt."""
        return self.is_attentive or self.step.bound is not None

    def wanted(self, ahead: int = 0) -> Callable[[], Any] | None:
        """A weak reference to the memory that the result of the next launch had in earlier rounds,
        or of the launch so far `ahead`. None if there were none, or it took none."""
        step = self.step
        if step.bound is not None:
            if not ahead:
                return step.memory
            steps = step.sequence.steps
            return steps[(step.index + ahead) % len(steps)].memory
        memory, round_ = self._launches.memory, len(self._cycle)
        if self._takes_memory and len(memory) >= round_ > ahead:
            return memory[ahead - round_]
        return None

    def reserved(self) -> Container[Any]:
        """Weak references to the memory of all results of a round."""
        # No sets: what is gone has no hash.
        if self.step.bound is not None:
            return [each.memory for each in self.step.sequence.steps]
        return self._launches.memory[-len(self._cycle) :]

    def join(self, args: Sequence[Any], frame: FrameType) -> JoinedLaunch | None:
        """The op of a launch of `step.bound` with these arguments, if it is the next of its
        sequence. None if it must be pushed as ever."""
        step = self.step
        if (
            frame.f_lasti != step.at
            or frame.f_code is not step.code
            or _maybe_engine() is not self.engine
            or not (taken := step.takes(args))
        ):
            return None
        if len(self.entries) == self.length:
            op = JoinedLaunch()
            op._run, op._step, op._taken = self.run, step, taken  # type: ignore[assignment]
            if self.slots.setdefault(step.index, op) is op:
                following = step.following
                if following is not None:
                    self.step = following
                else:
                    self.complete(step)
                return op  # type: ignore[no-any-return]
        return self.begin(step, frame, taken)

    def begin(self, step: Step, frame: FrameType, taken: Any) -> JoinedLaunch | None:
        """Begin a run with the launch that `step` stands for, at `frame`; it is `taken` with this
        answer. None if it must be pushed as ever. A run that this makes complete is issued."""
        sequence = step.sequence
        engine = sequence.engine
        if sequence.is_dropped or sequence.slow >= PATIENCE:
            self._give_up("the program takes long between its launches, or few follow each other")
            self._rest(self.reason)
            return None
        if (
            not engine._is_direct
            or engine._ledger.recorder is not None
            or _maybe_inside() is not None
            or exploration.is_under_way
            or _LOG.is_told
            # Only kernels of a module have checks, and plans are not replayed in checked mode.
            or getattr(step.launch.kernel, "check", None) is not None
        ):
            return None
        if not self.is_attentive:
            # A loop goes on: others may, too.
            self.is_attentive, self._asked, self._pause = True, 0, FIRST_PAUSE
        if sequence.has_wanted:
            sequence.prepare_wanted()
        # A run may begin anywhere in the first round.
        step = sequence.steps[step.index % sequence.period]
        if self.has_waited:
            self.has_waited = False
            if step.index:
                step = self._turned(step)
                sequence = step.sequence
            else:
                sequence.is_timely = True
        step = sequence.beginning(step.index)
        run = Run(step, frame)
        op = JoinedLaunch()
        op._run, op._step, op._taken = run, step, taken
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
            self.complete(step)
        else:
            self.step = following
            # The length first: an entry that comes in between is behind the run.
            if length and entries[length - 1] is run:
                self.length = length
        if engine._is_closed:
            refusal.raise_if_refused(run)
        return op

    def _turned(self, step: Step) -> Step:
        """The thread has waited before this launch, in the middle of a round. If it often does, the
        round is to begin here: then a wait ends a whole run. Returns the step of the launch."""
        sequence = step.sequence
        sequence.late += 1
        if sequence.late != USUAL or sequence.is_timely:
            return step
        try:
            turned = sequence.turned(step.index)
        except Exception:
            # It stays as it is, and works.
            return step
        self._replace(sequence, turned)
        return turned.steps[0]

    def _replace(self, sequence: RepeatedCalls, other: RepeatedCalls) -> None:
        self._known = [other if each is sequence else each for each in self._known]
        self.sequence = other

    def complete(self, last: Step) -> None:
        """The run under way has all launches of its sequence, up to `last`: issue it."""
        steps = last.sequence.steps
        self.step = steps[last.end % len(steps)]
        self._issue()

    def flush(self) -> None:
        """This thread waits: issue the run under way, if there is one. Waits for no thread."""
        self.has_waited = True
        self._issue()

    def _issue(self) -> None:
        run = self.run
        if run is None:
            return
        self.let_go()
        if run._before is None and run._node is None and not run.finished:
            piece = run.piece
            _push(
                run._engine,
                run._enqueue,
                piece.accesses,
                piece.name,
                run._device,
                None,  # type: ignore[arg-type]
                piece.names,
                piece.known,
                OpKind.KERNEL,
                None,
                run,
            )
        else:
            flush(run)

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
        memory: Callable[[], Any] | None = None,
    ) -> None:
        """A launch of `kernel` was pushed as ever, at `frame`: `bound` was called. `memory` is a
        weak reference to what its result took from the pool."""
        if not engine._replays:
            # The next engine of this thread may replay.
            self.is_attentive, self._ticks = False, 1
            return
        code, at = frame.f_code, frame.f_lasti
        self._asked += 1
        # What the pool was asked for.
        wanted = self.wanted()
        expected = self.step
        if expected.bound is not None:
            counters = engine._ledger.counters
            if expected.bound is not bound or expected.code is not code or expected.at != at:
                counters.missed_launches.next()
            elif expected.accesses[0] != accesses[0]:
                counters.missed_memory.next()
            elif not expected.takes(args):
                counters.missed_numbers.next()
                self._let_change(expected, bound.call_of, (kernel, args, accesses, frame))
        if self._known and self._is_known((bound, code, at, accesses[0]), args, engine):
            return
        launches = self._launches
        has_waited, self.has_waited = self.has_waited, False
        key = launches.add((bound, code, at), args, accesses[0], memory, has_waited=has_waited)
        count = len(launches.recent)
        if self._cycle:
            kinds = self._kinds
            number = launches.recent[-1] if kinds is None else kinds.of(key)
            place = len(self._calls)
            is_next = number == self._cycle[place]
            if not place and (not is_next or has_waited < self._is_behind_wait):
                # The round begins later. If it does not, it is searched for anew.
                if count - self._found > len(self._cycle):
                    self._learn()
            elif not is_next:
                self._learn()
            elif memory is not None and memory is not wanted:
                # Once it has the memory of earlier rounds, it is captured.
                self._calls.clear()
                self._found = count
            else:
                changes = kinds is not None and number in kinds.changing
                call = bound.call_of(kernel, args, accesses, frame, changes=changes)
                if isinstance(call, str):
                    self._rest(f"{site_of(code, at)}: {call}")
                    return
                self._calls.append(call._replace(memory=memory))
                if place + 1 == len(self._cycle):
                    self._replay(bound, kernel.device, engine)
        elif count % SEARCH_EVERY == 0:
            self._search()
        # A round that takes memory may never get the same again. Any other is captured soon.
        is_settling = self._takes_memory or not self._cycle
        if is_settling and self._asked >= (2 * WINDOW if self._takes_memory else WINDOW):
            self._rest(self._first_difference())

    def _search(self) -> None:
        """Search the launches so far for a round."""
        launches = self._launches
        self._found = len(launches.recent)
        cycle, self._is_behind_wait = launches.period()
        if not cycle and self._found >= CHANGING:
            self._kinds = kinds = Kinds(launches.keys)
            alike = [kinds.each[each] for each in launches.recent]
            cycle, self._is_behind_wait = period(alike, launches.starts)
        self._takes_memory = any(launches.memory[-len(cycle) :]) if cycle else False
        self._cycle = 2 * cycle if self._takes_memory else cycle

    def _replay(self, bound: Replayable, device: Device, engine: Engine) -> None:
        """The round is captured: expect it from now on."""
        calls = self._calls
        # Also where an interrupt comes before the end.
        self._learn()
        if any(call.launch.kernel.device is not device for call in calls):
            self._rest("its launches are on several devices")
            return
        sequence = RepeatedCalls(engine, calls, device, lambda steps: bound.piece_of(steps, device))
        try:
            sequence.prepare()
        except Exception as error:
            self._rest(f"no graph could be made of it: {error}")
            return
        self._asked = 0
        self._pause = FIRST_PAUSE
        self._known = [*self._known, sequence][-MOST_KNOWN:]
        self._expect(sequence, sequence.steps[0])

    def _let_change(self, step: Step, call_of: Callable[..., Any], launch: Sequence[Any]) -> None:
        """A launch had other numbers than `step`. If that comes often, they may change."""
        sequence = step.sequence
        if step.changes:
            # The number has no place in the parameter, or is of another class.
            return
        place = step.index % sequence.period
        sequence.numbers_missed[place] += 1
        if sequence.numbers_missed[place] != USUAL or sequence.is_dropped:
            return
        call = call_of(*launch, changes=True)
        if isinstance(call, str) or not call.changes:
            return
        # On an error it stays as it is, and works.
        with suppress(Exception):
            self._replace(sequence, sequence.with_changing(place, call))

    def _expect(self, sequence: RepeatedCalls, step: Step) -> None:
        # A run under way is of another sequence, or ended by the launch that was just pushed.
        self.length = -1
        self.engine = _maybe_engine()
        self.sequence, self.step = sequence, step

    def _is_known(self, place: StepKey, args: Sequence[Any], engine: Engine) -> bool:
        """True if a sequence has the launch: what follows it there is expected next. A sequence
        that has been of no use for long is forgotten."""
        sequence = self.sequence
        if sequence is not None:
            if sequence.matched:
                # The launches so far were others than those of its rounds, and not in a row.
                sequence.matched = sequence.misses = self._asked = 0
                self._learn()
            sequence.misses += 1
            if sequence.is_dropped or sequence.misses >= TRIAL:
                self._give_up("the launches changed")
        found = None
        for each in self._known:
            step = each.find(place, args) if each.engine is engine else None
            # The one under way before all, then the latest.
            if step is not None and (found is None or found.sequence is not self.sequence):
                found = step
        if found is None:
            step, (bound, code, at, _) = self.step, place
            if (
                bound is step.bound
                and code is step.code
                and at == step.at
                and step.sequence.engine is engine
            ):
                # It is the next but for its memory or its numbers. What follows may be equal again.
                steps = step.sequence.steps
                self._expect(step.sequence, steps[(step.index + 1) % len(steps)])
            return False
        steps = found.sequence.steps
        self._expect(found.sequence, steps[(found.index + 1) % len(steps)])
        return True

    def _give_up(self, reason: str) -> None:
        """Forget the sequence that was expected."""
        sequence, self.sequence, self.step = self.sequence, None, NEVER
        self._known = [each for each in self._known if each is not sequence and not each.is_dropped]
        self.reason = reason
        self._learn()

    def _rest(self, reason: str) -> None:
        """Learn nothing for a while."""
        self._learn()
        self._asked = 0
        self.is_attentive = False
        self.reason = reason
        self._ticks = self._pause
        self._pause = min(LONGER * self._pause, LONGEST_PAUSE)

    def tick(self) -> None:
        """Another 32 ops were issued."""
        if not self.is_attentive:
            self._ticks -= 1
            if self._ticks <= 0:
                self.is_attentive = True

    def forget(self) -> None:
        """Nothing is expected any more, and no run is under way: the process was forked."""
        self.__init__()  # type: ignore[misc]

    def _first_difference(self) -> str:
        """What differs between the last two launches from one place in the program."""
        keys = self._launches.keys
        latest: dict[tuple[Any, int], Any] = {}
        said = "no launches were repeated"
        for number in self._launches.recent:
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

    def said(self, engine: Engine) -> str:
        """What it replays on `engine`, or why it does not."""
        names = {each.ident: each.name for each in threading.enumerate()}
        thread = names.get(self.thread, f"thread {self.thread}")
        sequence = self.sequence
        if sequence is None or sequence.engine is not engine:
            return f"{thread}: {self.reason or 'still learning'}"
        where = ", ".join(dict.fromkeys(site_of(each.code, each.at) for each in sequence.steps[:3]))
        graphs = sequence.graphs
        changing = sum(each.changes for each in sequence.steps[: sequence.period])
        numbers = f", {changing} of them with other numbers each time" * bool(changing)
        return (
            f"{thread}: replays {sequence.period} launches from {where}{numbers}: "
            f"{sequence.total} launches so far, with {graphs} graph{'s' * (graphs != 1)}"
        )


_TAPES: Roll[weakref.ref[Any]] = Roll()


def rounds() -> Tape | None:
    """The rounds of this thread's loop, for whoever takes memory for a launch; None if there are
    none."""
    tape: Tape = LOCAL.tape
    return tape if tape.is_interested else None


class _Local(threading.local):
    def __init__(self) -> None:
        self.tape = Tape()
        noted(_TAPES, self.tape)


LOCAL = _Local()


def _issue_all() -> None:
    """A device is about to be synchronised, or a module to be unloaded: issue the runs of all
    threads. Waits for no thread."""
    LOCAL.tape.flush()
    if any_exist() and COMBINER.unplanned:
        COMBINER.plan()
        settle()


ISSUE_FIRST.append(_issue_all)


def is_wanted(replay: bool | None) -> bool:
    """Whether an engine with this argument replays."""
    return os.environ.get("CUDASYNC_REPLAY", "0") != "0" if replay is None else replay


def report(engine: Engine) -> str:
    """A line for each thread that has launched something."""
    if not engine._replays:
        return "replay is off: Engine(replay=True), or CUDASYNC_REPLAY=1"
    tapes = filter(None, [ref() for ref in _TAPES.all()])
    return "\n".join(sorted(tape.said(engine) for tape in tapes))
