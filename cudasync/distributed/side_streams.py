"""Floor 5. Streams beside an op's own stream, one on each further device that the op uses.

An op has one stream. Its commands on other devices go on these further streams. They wait for the
op's stream, which waits for them at the end. So the engine sees a single stream.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cudasync.driver import Event, Stream

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class StreamsBeside:
    """For ops on the first of `devices`; one op at a time enqueues on them."""

    def __init__(self, devices: Sequence[Any]) -> None:
        further = list(devices[1:])
        self._streams = [Stream(device) for device in further]
        self._begun = Event(devices[0]) if further else None
        self._ended = [Event(device) for device in further]

    @contextmanager
    def beside(self, stream: Any) -> Iterator[list[int]]:
        """The handles of a stream on each device, `stream` first.

        `stream` waits for all other streams at the end, also if the block raises.
        """
        if self._begun is not None:
            stream.record(self._begun)
            for each in self._streams:
                each.wait(self._begun)
        try:
            yield [stream.handle, *(each.handle for each in self._streams)]
        finally:
            for each, event in zip(self._streams, self._ended, strict=True):
                each.record(event)
                stream.wait(event)

    def close(self) -> None:
        """Close the streams; commands on them still run."""
        for each in self._streams:
            each.close()
