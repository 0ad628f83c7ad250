"""Floor 2. A timeline: one stream, what was issued to it, and how far it has come.

One thread at a time issues to a timeline: who took it for an op that it has claimed. Nobody waits
for it; who does not get it goes to another stream. The holder alone writes `issued`, `clock` and
the stream, and adds to `in_flight`. `finished` and the removal from `in_flight` are anybody's: to
finish an op twice is harmless, and so is a `finished` that is too small.

`clock[t]` is the greatest seq of timeline t that everything issued from now on comes after. The
dict is replaced, never changed, so that ops may keep a reference to it.
"""

from __future__ import annotations

from _thread import start_new_thread
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, TypeAlias

from cudasync.driver import Stream
from cudasync.engine import current
from cudasync.errors import CudasyncError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cudasync.engine.device.events import RingEvent
    from cudasync.engine.device.stream_group import StreamGroup
    from cudasync.engine.device.streams import DeviceStreams
    from cudasync.engine.op import Op
    from cudasync.engine.op_classes import DeviceOp

    # Where an op was issued: its place on a timeline, its event, what the stream knew then. A plain
    # tuple, since one is made per op.
    Point: TypeAlias = "tuple[Timeline, int, RingEvent, dict[Timeline, int]]"
    Report: TypeAlias = Callable[[DeviceOp, Point, CudasyncError | None], None]


# The only key of `Timeline.holder`: plain, so that no Python code runs in the one C call.
ISSUER: Final = "issuer"


class Timeline:
    """One stream as a counter: what was issued, what has finished, what it is ordered behind."""

    def __init__(self, streams: DeviceStreams, name: str, group: StreamGroup) -> None:
        self.streams = streams
        # Whose ops may follow the last one here.
        self.followers = group.followers
        self.device = streams.device
        self.name = name
        self.priority = group.priority
        # Under ISSUER the op that is being issued here. Of several that put theirs there by
        # `setdefault` one succeeds; after Ctrl-C it can be told whose the stream was.
        self.holder: dict[str, DeviceOp] = {}
        self.issued = 0
        self.finished = 0
        # Another count of what has finished, as the driver was asked; nobody was told yet.
        self.reached = 0
        # The last op here that may be held up by something that the engine does not know. Written
        # by the holder alone.
        self.risk = 0
        # Predecessors that needed no wait. Written by the holder alone.
        self.elided = 0
        # By seq.
        self.in_flight: dict[int, DeviceOp] = {}
        self.tail: DeviceOp | None = None
        self.clock: dict[Timeline, int] = {}
        self._stream: Stream | None = None
        self._watchers: list[Watcher] = []

    def take(self, op: DeviceOp) -> bool:
        """Become the one who issues here, for `op`, which is the caller's; False if somebody else
        is."""
        return self.holder.setdefault(ISSUER, op) is op

    def give_back(self, op: DeviceOp) -> None:
        """Let others issue here, if the caller took it for `op`. Harmless to repeat."""
        if self.holder.get(ISSUER) is op:
            self.holder.clear()

    @property
    def stream(self) -> Stream:
        """The stream, made at its first use by the one who issues."""
        if self._stream is None:
            # CUDA's convention: the smaller number goes first.
            self._stream = Stream(self.device, priority=-self.priority)
        return self._stream

    @property
    def has_stream(self) -> bool:
        """True once something was issued here, or was about to be."""
        return self._stream is not None

    @property
    def is_gone(self) -> bool:
        """True once a reset of the device has ended the stream and all that was on it."""
        return self.streams.is_gone

    @property
    def load(self) -> int:
        """Ops issued, and not known to have finished, or about to be."""
        return self.issued - self.finished + bool(self.holder)

    @property
    def is_free(self) -> bool:
        """True if nobody issues here, and all that was issued is known to be over."""
        issued = self.issued
        return not self.holder and (self.finished >= issued or self.reached >= issued)

    @property
    def is_at_risk(self) -> bool:
        """True if something here may be held up, and is not known to be over."""
        risk = self.risk
        return risk > self.finished and risk > self.reached

    def delays(self, before: Sequence[Op]) -> bool:
        """True if what is issued here now, and comes after `before`, is behind work that it does
        not come after, and that is not known to be over."""
        tail, issued = self.tail, self.issued
        if tail is None or tail.finished or self.finished >= issued or self.reached >= issued:
            return False
        for each in before:
            point = each._point
            if each is tail or (point is not None and point[3].get(self, 0) >= issued):
                return False
        return True

    def ask(self) -> bool:
        """Ask the driver whether all that is here is over. Never blocks, and tells nobody."""
        issued, tail = self.issued, self.tail
        point = None if tail is None else tail._point
        if tail is not None and point is not None:
            event, pool = point[2], self.streams.events
            if pool.pin(tail, event):
                try:
                    if not event.query():
                        return False
                except CudasyncError:
                    # Whoever waits for it will be told.
                    return False
                finally:
                    pool.unpin(event)
        # The last op here is over, or was by then.
        self.reached = max(self.reached, issued)
        return not self.holder and self.reached >= self.issued

    def is_behind(self, timeline: Timeline, seq: int) -> bool:
        """True if whatever is issued here now comes after (timeline, seq) without a wait."""
        return timeline is self or timeline.finished >= seq or self.clock.get(timeline, 0) >= seq

    def learn(self, point: Point) -> None:
        """This stream now waits for `point`: it is behind it, and all that was before it."""
        # What is known to have finished needs no remembering: else streams of engines that have
        # closed would gather here.
        clock = {t: seq for t, seq in self.clock.items() if t.finished < seq}
        there, its_seq, _, known = point
        for timeline, seq in known.items():
            if clock.get(timeline, 0) < seq:
                clock[timeline] = seq
        clock[there] = max(clock.get(there, 0), its_seq)
        clock.pop(self, None)
        self.clock = clock
        if there.is_at_risk:
            self.risk = self.issued + 1

    def watch(self, op: DeviceOp, point: Point, report: Report) -> None:
        """Have `report` called once the stream has reached `op`, which is issued. Never blocks."""
        if not self._watchers:
            # Two threads may each start one: then both answer, and the second is kept as well.
            self._watchers.append(Watcher())
        self._watchers[0].ask(op, point, report)

    def dismiss(self) -> None:
        """Let the watcher end. Never blocks."""
        for watcher in self._watchers:
            watcher.close()

    def close(self) -> None:
        """End the watcher and destroy the stream. The caller has seen to it that it is idle."""
        self.dismiss()
        if self._stream is not None:
            try:
                # At once, and it lets go of the memory that copies used.
                self._stream.synchronize()
            finally:
                self._stream.close()

    def __repr__(self) -> str:
        return f"<Timeline {self.name} issued {self.issued} finished {self.finished}>"


class Watcher:
    """The thread that waits on a stream's events with the GIL released, and reports.

    It starts with the first question and sleeps between questions. A stream finishes its ops in
    order, so one thread per stream answers in the best order there is.
    """

    def __init__(self) -> None:
        self._questions: SimpleQueue[tuple[DeviceOp, Point, Report] | None] = SimpleQueue()
        start_new_thread(self._main, ())

    def ask(self, op: DeviceOp, point: Point, report: Report) -> None:
        self._questions.put((op, point, report))

    def close(self) -> None:
        """End once all questions are answered. Does not wait: nothing is left to be done here."""
        self._questions.put(None)

    def _main(self) -> None:
        with current.working(None):
            self._answer()

    def _answer(self) -> None:
        while (question := self._questions.get()) is not None:
            op, point, report = question
            try:
                timeline, _, event, _ = point
                pool = timeline.streams.events
                if pool.pin(op, event):
                    try:
                        event.synchronize()
                    finally:
                        pool.unpin(event)
            except CudasyncError as error:
                report(op, point, error)
            else:
                report(op, point, None)
            # Hold nothing while asleep.
            del question, op, point, report, timeline, pool, event
