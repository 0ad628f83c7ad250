"""Floor 2. A timeline: one stream, what was issued to it, and how far it has come.

True under `plan.LOCK`:
- `in_flight` holds the issued and unfinished ops in order of seq; the last issued has seq `issued`;
- `clock[t]` is the greatest seq of timeline t that everything issued from now on comes after.
  The dict is replaced, never changed, so that ops may keep a reference to it.

`issue_lock` is held while an op's waits, launch and event record go to the stream, so that the
record covers that op and nothing later. It is taken without `plan.LOCK`, never the other way.
"""

from __future__ import annotations

import threading
from collections import deque
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeAlias

from cudasync.driver import Stream
from cudasync.errors import CudasyncError

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.driver import Device
    from cudasync.engine.events import PooledEvent
    from cudasync.engine.op import Op

    Report: TypeAlias = Callable[[Op, PooledEvent, CudasyncError | None], None]


class Timeline:
    """One stream as a counter: what was issued, what has finished, what it is ordered behind."""

    def __init__(self, device: Device, name: str, *, priority: int = 0) -> None:
        self.device = device
        self.name = name
        self.priority = priority
        # The life of the device's context that the stream belongs to.
        self._token = device.context.token
        self.issue_lock = threading.RLock()
        self.issued = 0
        self.finished = 0
        self.in_flight: deque[Op] = deque()
        self.clock: dict[Timeline, int] = {}
        # Ops chosen for this stream and not issued yet, so that the choice spreads them.
        self.reserved = 0
        self._stream: Stream | None = None
        self._watcher: Watcher | None = None

    @property
    def stream(self) -> Stream:
        """The stream, made at its first use. The caller holds `issue_lock`."""
        if self._stream is None:
            self._stream = Stream(self.device, priority=self.priority)
        return self._stream

    @property
    def is_gone(self) -> bool:
        """True once a reset of the device has ended the stream and all that was on it."""
        return self._token is not self.device.context.token

    @property
    def load(self) -> int:
        """Ops issued or about to be, and not known to have finished."""
        return len(self.in_flight) + self.reserved

    @property
    def tail(self) -> Op | None:
        """The op issued last if it is unfinished and nothing else is on its way here."""
        return self.in_flight[-1] if self.in_flight and not self.reserved else None

    def is_behind(self, timeline: Timeline, seq: int) -> bool:
        """True if whatever is issued here now comes after (timeline, seq) without a wait."""
        return timeline is self or timeline.finished >= seq or self.clock.get(timeline, 0) >= seq

    def learn(self, op: Op) -> None:
        """This stream now waits for `op`: it is behind it, and behind all that was before it."""
        # What is known to have finished needs no remembering: else streams of engines that have
        # closed would gather here.
        clock = {t: seq for t, seq in self.clock.items() if t.finished < seq}
        for timeline, seq in op._clock.items():
            if clock.get(timeline, 0) < seq:
                clock[timeline] = seq
        assert op._timeline is not None
        clock[op._timeline] = max(clock.get(op._timeline, 0), op._seq)
        clock.pop(self, None)
        self.clock = clock

    def watch(self, op: Op, report: Report) -> None:
        """Have `report` called once the stream has reached `op`, which is issued and unfinished.

        Never blocks. The caller holds `plan.LOCK`; the event is pinned until the report is done.
        """
        assert op._event is not None
        if self._watcher is None:
            self._watcher = Watcher(self.name)
        op._event.pins += 1
        self._watcher.ask(op, op._event, report)

    def close(self) -> None:
        """End the watcher and destroy the stream. The caller has seen to it that it is idle."""
        if self._watcher is not None:
            self._watcher.close()
        if self._stream is not None:
            self._stream.close()

    def __repr__(self) -> str:
        return f"<Timeline {self.name} issued {self.issued} finished {self.finished}>"


class Watcher:
    """The thread that waits on a stream's events with the GIL released, and reports.

    It starts with the first question and sleeps between questions. A stream finishes its ops in
    order, so one thread per stream answers in the best order there is.
    """

    def __init__(self, name: str) -> None:
        self._questions: SimpleQueue[tuple[Op, PooledEvent, Report] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._main, name=f"cudasync {name}", daemon=True)
        self._thread.start()

    def ask(self, op: Op, event: PooledEvent, report: Report) -> None:
        self._questions.put((op, event, report))

    def close(self) -> None:
        self._questions.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=5.0)

    def _main(self) -> None:
        while (question := self._questions.get()) is not None:
            op, event, report = question
            try:
                if not op.finished:
                    event.event.synchronize()
            except CudasyncError as error:
                report(op, event, error)
            else:
                report(op, event, None)
