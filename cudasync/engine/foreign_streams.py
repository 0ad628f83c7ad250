"""Floor 2. Order between the engine's work and streams that the engine does not manage.

Invariant: the engine never lets a stream wait for unissued work. So if the awaited work is still
behind a host op, the caller waits.
A stream under capture is refused: an event recorded there never happens, and a wait there for an
event of the engine ends the capture.
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
    """Order the engine's later ops on `things` behind the last record of `ready`."""

    def wait(stream: Stream) -> None:
        stream.wait(ready)

    op: Op = engine._push(
        wait, OpKind.WAIT, reads=things, writes=things, name="take over", device=ready.device
    )
    return op


def let_follow(engine: Any, stream: Stream, things: Any) -> None:
    """Order the later work of `stream` behind the engine's ops so far on `things`.

    Waits only for ops that are still behind a host op. Raises OpError if one of `things` is
    poisoned, and the error of an invalid stream.
    """
    enqueued: list[CudasyncError | None] = []

    def release(last: Stream) -> None:
        try:
            stream.wait(last)
        except CudasyncError as error:
            # An invalid stream is the caller's mistake, not a failure of the data.
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
        # Its failure was cleared in between, but the stream does not wait.
        assert op.failure is not None
        raise op.failure.error()
    if enqueued[0] is not None:
        raise enqueued[0]


def refuse_captured(stream: Stream) -> None:
    """Raise ValueError for a stream under capture: work enqueued there does not run."""
    if is_captured(stream.enter()):
        raise ValueError(
            f"{stream!r} is being captured, and the engine cannot order ops with captured work: "
            f"end the capture first, or record with cs.graph()"
        )
