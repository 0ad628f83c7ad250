"""Floor 3. A launch between the work of a stream that the engine does not manage.

Earlier and later work of the stream may touch the graph's memory. So all ops of the launch come
after the earlier work and before the later work, by variables of this launch's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.driver import Stream
from cudasync.engine import current
from cudasync.engine.foreign_streams import come_after, let_follow, refuse_captured
from cudasync.graph.parts.completion_variables import Between

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import FrameType

    from cudasync.driver.streams.stream import StreamLike
    from cudasync.engine import Op
    from cudasync.graph.instance import Instance


def launch_on(
    instance: Instance,
    values: Mapping[str, Any],
    stream: StreamLike,
    engine: Any,
    frame: FrameType,
) -> Op:
    """Push a launch behind the earlier work of `stream`, and before its later work.

    Raises as `Executable.launch` does; nothing was pushed then.
    """
    on = Stream.from_object(stream)
    if current.is_in_op():
        raise ValueError(
            "an op cannot launch a graph on a stream, because the op itself is work of the "
            "stream: call exe.launch() without a stream, or launch outside the op"
        )
    refuse_captured(on)
    instance.raise_if_gone()
    between = Between()
    come_after(engine, on.record(), [between.begin])
    op = instance.push(engine, frame, values, between)
    let_follow(engine, on, [between.begin, *between.ends])
    return op
