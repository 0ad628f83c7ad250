"""Floor 4, interchange. Where the engine's order meets streams that it does not manage.

`take_over` orders the engine's later work behind a stream, `hand_over` a stream's later work behind
the engine's. Both are device ops like any other: they read and write the handed memory. So they
come after its earlier uses and before its later ones, and carry its poison on.

`engine/foreign_streams` has the ops; this file tracks who may use which bytes meanwhile.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from cudasync.array.allocation import reap
from cudasync.array.interchange.stream_ownership import note_handed, note_taken
from cudasync.driver import Event, Stream
from cudasync.driver.streams.open_captures import Relaxed
from cudasync.engine import Op, engine
from cudasync.engine.foreign_streams import come_after, let_follow, refuse_captured

if TYPE_CHECKING:
    from cudasync.driver import Device
    from cudasync.driver.streams.stream import StreamLike

# Imports and exports of one device share this many streams, and wait for each other beyond it.
MOST_CROSSINGS = 8


def take_over(*things: Any, after: StreamLike | Event) -> Op:
    """Let the engine's later ops on `things` come after the work so far of a foreign stream.

    `things` is whatever `reads=` takes: arrays, foreign arrays, NumPy arrays, variables. `after` is
    a stream, anything with `__cuda_stream__`, or an event as last recorded. Returns the op at once;
    only the device waits. Raises ValueError for a stream that is being captured.
    """
    _need(things, "take_over")
    reap()
    if isinstance(after, Event):
        # Wait now: when the op is issued, the event may have been recorded again.
        through = crossing(after.device)
        through.wait(after)
        ready = through.record()
    else:
        stream = Stream.from_object(after)
        refuse_captured(stream)
        ready = stream.record()
    op = come_after(engine(), ready, things)
    note_taken(things)
    return op


def hand_over(*things: Any, to: StreamLike) -> None:
    """Let later work of a foreign stream come after the engine's ops so far on `things`.

    The stream may read and write, so it comes after all reads and writes of `things`. The engine
    does not see the stream's work: give `things` back with `take_over` before the engine uses them
    again. Until then the driver layer (`launch`, `memcpy_async`) takes these arrays on that stream.
    Blocks only if some of these ops are still behind a host op, which no stream can wait for, until
    they are no longer. Raises `OpError` if one of `things` is poisoned, ValueError for a stream
    that is being captured.
    """
    _need(things, "hand_over")
    reap()
    stream = Stream.from_object(to)
    refuse_captured(stream)
    let_follow(engine(), stream, things)
    note_handed(things, stream)


def wait_for_users(array: Any) -> None:
    """Wait for all ops so far on `array`, before code uses its memory without naming a stream.

    Raises `OpError` for poison.
    """
    engine().push(_nothing, reads=[array], writes=[array], name="export").wait()


def _nothing() -> None:
    """The op is there for its place in the order."""


_crossings: dict[int, list[Stream]] = {}
_turn = count()


def crossing(device: Device) -> Stream:
    """A stream of ours for imports and exports, an idle one if there is one.

    It lives as long as the process, so that other libraries may keep its handle.
    """
    made = _crossings.setdefault(device.ordinal, [])
    # A reset of their device closed the closed ones. Nothing leaves the list, so threads that meet
    # here make one too many at worst.
    mine = [stream for stream in made if not stream.is_closed]
    for stream in mine:
        with Relaxed():
            is_idle = stream.query()
        if is_idle:
            return stream
    if len(mine) >= MOST_CROSSINGS:
        return mine[next(_turn) % len(mine)]
    fresh = Stream(device)
    made.append(fresh)
    return fresh


def _need(things: tuple[Any, ...], function: str) -> None:
    if not things:
        raise TypeError(f"{function} takes at least one array or variable")
