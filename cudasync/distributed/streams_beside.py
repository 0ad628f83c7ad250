"""Floor 5. Streams beside that of an op, one on each further device that it has a part on.

An op has one stream. What it enqueues on other devices goes on these, behind what its own stream
has so far, and its own stream goes on behind them: to the engine all of it is on one stream.
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
        """The handles of a stream on each device: `stream`, which waits for all others at the end,
        also where the block raises."""
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
        """Give the streams back; what is on them still runs."""
        for each in self._streams:
            each.close()
