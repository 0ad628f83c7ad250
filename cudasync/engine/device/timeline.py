"""Floor 2. A timeline: one stream, the ops issued to it, and a counter of its progress.

One thread at a time issues to a timeline: its holder, which took the timeline for a claimed op.
Nobody waits for a timeline; a thread that does not get it uses another stream. Only the holder
writes `issued`, `clock` and the stream, and adds to `in_flight`. Any thread may write `finished`
and remove from `in_flight`: ending an op twice is harmless, and so is a `finished` that is too
small.

`clock[t]` is the greatest seq of timeline t that all work issued from now on comes after. The dict
is replaced, never changed, so that ops may keep a reference to it.
"""

from __future__ import annotations

from _thread import start_new_thread
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, TypeAlias

from cudasync.driver import Stream
from cudasync.driver.streams.open_captures import Relaxed
from cudasync.engine import current
from cudasync.errors import CudasyncError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cudasync.engine.device.events import RingEvent
    from cudasync.engine.device.stream_group import StreamGroup
    from cudasync.engine.device.streams import DeviceStreams
    from cudasync.engine.op import Op
    from cudasync.engine.op_classes import DeviceOp

    # The place of an issued op: timeline, seq, event, and the stream's clock then. A plain tuple,
    # since each op makes one.
    Point: TypeAlias = "tuple[Timeline, int, RingEvent, dict[Timeline, int]]"
    Report: TypeAlias = Callable[[DeviceOp, Point, CudasyncError | None], None]


# The only key of `Timeline.holder`: plain, so that no Python code runs in the one C call.
ISSUER: Final = "issuer"


class Timeline:
    """One stream as a counter: issued work, finished work, and the work that precedes it."""

    def __init__(
        self, streams: DeviceStreams, name: str, group: StreamGroup, place: int = 0
    ) -> None:
        self.streams = streams
        # Its group, and at which place there it stands, or before: several threads may add streams.
        self.group = group
        self.place = place
        # Ops of this group may follow the last op here.
        self.followers = group.followers
        self.device = streams.device
        self.name = name
        self.priority = group.priority
        # Under ISSUER the op that is being issued here. One of several threads succeeds in a
        # `setdefault`; after Ctrl-C it shows the stream's holder.
        self.holder: dict[str, DeviceOp] = {}
        self.issued = 0
        self.finished = 0
        # The finished seq by the last query of the driver; waiters are not yet notified.
        self.reached = 0
        # The last op here that work unknown to the engine may hold up. Only the holder writes it.
        self.risk = 0
        # The number of predecessors that needed no wait. Only the holder writes it.
        self.elided = 0
        # By seq.
        self.in_flight: dict[int, DeviceOp] = {}
        self.tail: DeviceOp | None = None
        self.clock: dict[Timeline, int] = {}
        self._stream: Stream | None = None
        self._watchers: list[Watcher] = []

    def take(self, op: DeviceOp) -> bool:
        """Become the holder, for `op`, which the caller has claimed; False if another thread is."""
        return self.holder.setdefault(ISSUER, op) is op

    def give_back(self, op: DeviceOp) -> None:
        """Let other threads issue here, if the caller is the holder for `op`. Repeatable."""
        if self.holder.get(ISSUER) is op:
            self.holder.clear()

    @property
    def stream(self) -> Stream:
        """The stream, which the holder makes at its first use."""
        if self._stream is None:
            # CUDA's convention: the smaller number goes first.
            self._stream = Stream(self.device, priority=-self.priority)
        return self._stream

    @property
    def has_stream(self) -> bool:
        """True once an op was issued here, or was about to be."""
        return self._stream is not None

    @property
    def is_gone(self) -> bool:
        """True once a reset of the device has ended the stream and its work."""
        return self.streams.is_gone

    @property
    def load(self) -> int:
        """The number of issued ops that are not known to be over, and of the op being issued."""
        return self.issued - self.finished + bool(self.holder)

    @property
    def is_free(self) -> bool:
        """True if nobody issues here, and all issued ops are known to be over."""
        issued = self.issued
        return not self.holder and (self.finished >= issued or self.reached >= issued)

    @property
    def is_at_risk(self) -> bool:
        """True if an op here may be held up, and is not known to be over."""
        risk = self.risk
        return risk > self.finished and risk > self.reached

    def delays(self, before: Sequence[Op]) -> bool:
        """True if an op that comes after `before`, issued here now, would be behind unfinished work
        that does not precede it."""
        tail, issued = self.tail, self.issued
        if tail is None or tail.finished or self.finished >= issued or self.reached >= issued:
            return False
        for each in before:
            point = each._point
            if each is tail or (point is not None and point[3].get(self, 0) >= issued):
                return False
        return True

    def ask(self) -> bool:
        """Ask the driver whether all work here is over. Never blocks, and notifies nobody."""
        issued, tail = self.issued, self.tail
        point = None if tail is None else tail._point
        if tail is not None and point is not None:
            event, pool = point[2], self.streams.events
            if pool.pin(tail, event):
                try:
                    if not event.query():
                        return False
                except CudasyncError:
                    # A wait for the op will report it.
                    return False
                finally:
                    pool.unpin(event)
        # The last op here is over, or was by then.
        self.reached = max(self.reached, issued)
        self.group.news = object()
        return not self.holder and self.reached >= self.issued

    def is_behind(self, timeline: Timeline, seq: int) -> bool:
        """True if work issued here now comes after (timeline, seq) without a wait."""
        return timeline is self or timeline.finished >= seq or self.clock.get(timeline, 0) >= seq

    def learn(self, point: Point) -> None:
        """This stream now waits for `point`: it is behind `point` and all that precedes it."""
        # Finished points are dropped: else streams of closed engines would gather here.
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
            # Two threads may each start a watcher: then both answer, and the second is also kept.
            self._watchers.append(Watcher())
        self._watchers[0].ask(op, point, report)

    def dismiss(self) -> None:
        """Let the watcher end. Never blocks."""
        for watcher in self._watchers:
            watcher.close()

    def close(self) -> None:
        """End the watcher and destroy the stream. The caller ensures that the stream is idle."""
        self.dismiss()
        if self._stream is not None:
            try:
                # Returns at once, and releases the operands of copies.
                with Relaxed():
                    self._stream.synchronize()
            finally:
                self._stream.close()

    def __repr__(self) -> str:
        return f"<Timeline {self.name} issued {self.issued} finished {self.finished}>"


class Watcher:
    """The thread that waits on a stream's events with the GIL released, and reports.

    It starts with the first question and sleeps between questions. A stream finishes its ops in
    order, so one thread per stream answers in the best possible order.
    """

    def __init__(self) -> None:
        self._questions: SimpleQueue[tuple[DeviceOp, Point, Report] | None] = SimpleQueue()
        start_new_thread(self._main, ())

    def ask(self, op: DeviceOp, point: Point, report: Report) -> None:
        self._questions.put((op, point, report))

    def close(self) -> None:
        """End once all questions are answered. Does not wait."""
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
