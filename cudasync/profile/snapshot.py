"""The tower. Ops in flight now, and what each thread waits for, as plain data.

A look only reads. It plans, issues and waits for nothing, and calls no driver, so it works at any
moment, also in a signal handler. Concurrent changes may be missing, or be there twice.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, TypedDict

from cudasync.array.memory.statistics import allocated
from cudasync.driver import Device, Event, Stream
from cudasync.driver.streams.borrowed_stream import BorrowedStream
from cudasync.engine import general_push, observation
from cudasync.engine import waiters as waiting
from cudasync.engine.lifecycle.shutdown import in_flight
from cudasync.engine.log.combiner import COMBINER
from cudasync.engine.op_classes import DataFence, Fence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType, FrameType

    from cudasync.array.memory.statistics import Allocated
    from cudasync.engine import Engine, Op

# The most ops of one place that are named.
MOST = 20


class Group(TypedDict):
    """Ops in one place: a worker, a stream, or "waits"; the first ops as text."""

    where: str
    count: int
    ops: list[str]


class EngineLook(TypedDict):
    """One engine. `over_*` count ops since its creation; `running` has all workers, also idle."""

    number: int
    mode: str
    said: str
    over_host: int
    over_device: int
    failed: int
    in_flight: int
    running: list[Group]
    streams: list[Group]
    waiting: Group


class Waiter(TypedDict):
    """A thread that waits: the reason, and the line of the program, or "" if unknown."""

    thread: str
    waits_for: str
    at: str


class Look(TypedDict):
    """The state of a process at one moment, `at_s` of its monotonic clock.

    `threads` is None without a GIL, because the frames of other threads cannot be read safely.
    """

    pid: int
    program: str
    at_s: float
    unplanned: int
    engines: list[EngineLook]
    memory: list[Allocated]
    threads: list[Waiter] | None


def look() -> Look:
    """The state of this process now. Changes nothing, and never blocks."""
    return Look(
        pid=os.getpid(),
        program=" ".join(sys.argv),
        at_s=time.monotonic(),
        unplanned=COMBINER.unplanned,
        engines=[_engine(each) for each in sorted(observation.every_engine(), key=id)],
        memory=allocated(),
        threads=_threads(),
    )


def _engine(engine: Engine) -> EngineLook:
    running = list(_running(engine))
    issuer: Any = engine._issuer
    streams: dict[str, list[Op]] = {}
    if engine._serial is None:
        devices = list(issuer.devices.values())
        streams = {each.name: [] for device in devices for each in list(device.timelines)}
        for op, timeline in in_flight(issuer):
            streams.setdefault(timeline.name, []).append(op)
    seen = {op for each in (*running, *streams.items()) for op in each[1]}
    left = [op for op in list(engine._registered) if not op.finished]
    waits = [op for op in left if op not in seen and not isinstance(op, DataFence)]
    counters = engine._ledger.counters
    return EngineLook(
        number=id(engine),
        mode=engine.mode,
        said=repr(engine),
        over_host=engine._ran,
        over_device=counters.device_ops.taken,
        failed=counters.failed_ops.taken,
        # An op that a worker runs while it plans is not registered, so both sets count.
        in_flight=sum(not isinstance(op, DataFence) for op in {*left, *seen}),
        running=[_group(where, ops) for where, ops in running],
        streams=[_group(where, ops) for where, ops in sorted(streams.items())],
        waiting=_group("waits", waits, _with_reason),
    )


def _running(engine: Engine) -> Iterator[tuple[str, list[Op]]]:
    """Workers, each with its running op, if any."""
    if engine._serial is not None:
        # A serial engine has no workers: its ops run on the threads that push them.
        yield "the thread that pushed", list(engine._serial._running)
        return
    for pool in dict.fromkeys(list(engine._pools.values())):
        for worker in list(pool.workers):
            op = worker.op
            is_busy = op is not None and worker.is_in_op and not op.finished
            yield worker.name, [op] if is_busy else []


def _group(where: str, ops: list[Op], said: Callable[[Op], str] | None = None) -> Group:
    return Group(where=where, count=len(ops), ops=[(said or named)(op) for op in ops[:MOST]])


def _with_reason(op: Op) -> str:
    return f"{named(op)}, for {_some(before(op)) or 'its turn'}"


def before(op: Op) -> list[Op]:
    """The unfinished predecessors of `op`, the oldest first."""
    gate = None if op._node is None else op._node.gate
    left = [each for each in getattr(gate, "before", ()) if not each.finished]
    return sorted(left, key=lambda each: each.number)


def named(op: Op) -> str:
    """An op as text."""
    return f"{op.name} #{op.number} pushed at {op.push_site}"


def _some(ops: list[Op]) -> str:
    return ", ".join(map(named, ops[:3])) + (" and more" if len(ops) > 3 else "")


def _threads() -> list[Waiter] | None:
    """Each thread that waits, with the reason and the line."""
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return None
    names = {each.ident: each.name for each in threading.enumerate()}
    found = []
    for ident, top in sys._current_frames().items():
        what, at = _wait_in(top)
        if what is not None:
            site = "" if at is None else f"{at.f_code.co_filename}:{at.f_lineno}"
            found.append(Waiter(thread=str(names.get(ident, ident)), waits_for=what, at=site))
    return found


def _wait_in(frame: FrameType | None) -> tuple[str | None, FrameType | None]:
    """What a thread with these frames waits for, and the program's frame that waits."""
    what: str | None = None
    while frame is not None:
        if what is None and frame.f_code in _SAID:
            what = _SAID[frame.f_code](frame.f_locals)
        elif what is not None and not frame.f_globals.get("__name__", "").startswith("cudasync."):
            return what, frame
        frame = frame.f_back
    # Without a frame of the program, this is a thread of ours that waits for other threads.
    return None, None


def _op(found: dict[str, Any]) -> str:
    op: Op = found["op"]
    if not isinstance(op, DataFence):
        return named(op)
    left = [each for each in before(op) if not isinstance(each, Fence)]
    return _some(left) or "what was pushed before"


def _limit(found: dict[str, Any]) -> str:
    return f"fewer than {found['limit']} ops in flight (max_in_flight)"


def _work(found: dict[str, Any]) -> str:
    what = found["self"]
    if isinstance(what, Device):
        return f"all work of {what!r}"
    # Not `repr`, which reads the handle: the object may be closed meanwhile.
    where = what.fixed_device if isinstance(what, Stream) else what.device
    return f"{'an event' if isinstance(what, Event) else 'a stream'} of {where!r}"


# Functions that wait, with the text of the reason, from their local variables.
_SAID: dict[CodeType, Callable[[dict[str, Any]], str]] = {
    waiting.wait_for.__code__: _op,
    general_push._hold_back.__code__: _limit,
    **{each.synchronize.__code__: _work for each in (Stream, BorrowedStream, Event, Device)},
}
