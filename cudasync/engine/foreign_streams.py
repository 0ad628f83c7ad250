"""Floor 2. Streams that the engine does not manage: its work behind theirs, and theirs behind its.

True throughout: the engine never waits in a stream for work that it has not issued yet. So where
what a stream is to follow is still behind a host op, it is the caller that waits.
A stream that is captured is refused: an event that is recorded there never happens, and one of
ours that it waits for ends the capture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.driver.streams.open_captures import is_captured
from cudasync.engine.op import OpKind
from cudasync.errors import CudasyncError

if TYPE_CHECKING:
    from cudasync.driver import Event, Stream
    from cudasync.engine.op import Op


def come_after(engine: Any, ready: Event, things: Any) -> Op:
    """Order the engine's later ops on `things` behind `ready`, as it was recorded last."""

    def wait(stream: Stream) -> None:
        stream.wait(ready)

    op: Op = engine._push(
        wait, OpKind.WAIT, reads=things, writes=things, name="take over", device=ready.device
    )
    return op


def let_follow(engine: Any, stream: Stream, things: Any) -> None:
    """Order the later work of `stream` behind the engine's ops so far on `things`.

    Waits for those of them that are still behind a host op, and for no other. Raises OpError if
    one of `things` is poisoned, and what is wrong with the stream.
    """
    enqueued: list[CudasyncError | None] = []

    def release(last: Stream) -> None:
        try:
            stream.wait(last)
        except CudasyncError as error:
            # A stream that is no good is the caller's mistake, and no failure of the data.
            enqueued.append(error)
        else:
            enqueued.append(None)

    op = engine._push(
        release,
        OpKind.KERNEL,
        reads=things,
        writes=things,
        name="hand over",
        device=stream.device,
    )
    if not enqueued:
        op.wait()
    if not enqueued:
        # Its failure was cleared in between; the stream does not wait all the same.
        assert op.failure is not None
        raise op.failure.error()
    if enqueued[0] is not None:
        raise enqueued[0]


def refuse_captured(stream: Stream) -> None:
    """Raise ValueError for a stream that is captured: what it is given has no time to come."""
    if is_captured(stream.enter()):
        raise ValueError(
            f"{stream!r} is being captured: the engine can not come before or after work that goes "
            "into a graph; end the capture first, or record with cs.graph()"
        )
