"""Floor 1. Launches that follow each other on one stream, enqueued in one go.

What the driver is called with is worked out once for a stream; then each launch costs the call of
the driver and no Python of its own.
"""

from __future__ import annotations

from itertools import starmap
from operator import length_hint
from typing import TYPE_CHECKING, Any

from cuda.bindings import driver

from cudasync.driver.context import here
from cudasync.driver.kernels.launch import STREAM, ready
from cudasync.driver.result import failure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.driver.kernels.launch import Launch
    from cudasync.driver.streams.event import Event
    from cudasync.driver.streams.stream import Stream

_NOWHERE = object()
_INDEX = "_cudasync_launch"


class LaunchSequence:
    """How to enqueue certain launches of one device in a row.

    It holds their packed arguments and neither the launches nor what these keep alive, so it may be
    kept: whoever enqueues brings the launches, and `is_of` tells whether they are the same. A
    launch has its block of arguments for itself as long as it lives, and this holds the block.
    """

    __slots__ = ("_blocks", "_context", "_latest", "_modules")

    def __init__(self, launches: Sequence[Launch]) -> None:
        self._blocks = [each.block for each in launches]
        # For each module, the index of one launch of a kernel of it.
        modules = {each.module: i for i, each in enumerate(launches)}
        self._modules = tuple(modules.values())
        self._context = launches[0].kernel.device.context
        # As `Launch._latest`: the stream, the life of the context, a call of the driver for each.
        self._latest: tuple[object, object, list[tuple[Any, ...]]] = (_NOWHERE, None, [])

    def is_of(self, launches: Sequence[Launch]) -> bool:
        """True if it was made for these, in this order. AttributeError if one is no launch."""
        return [each.block for each in launches] == self._blocks

    def on(
        self,
        launches: Sequence[Launch],
        stream: Stream,
        event: Event | None = None,
    ) -> list[None]:
        """Enqueue `launches`, for which it was made, on `stream`; then record `event`.

        Returns what each of them returns. Raises what `Launch.on` does; `failed_launch` tells which
        it was. Those behind it are not enqueued. (cuLaunchKernel, cuEventRecord)
        """
        latest, token, calls = self._latest
        if not (
            (owned := stream._owned) is not None
            and owned.raw is latest
            and here.token is token is self._context.token
        ):
            calls = self._on_another(launches, stream)
        for index in self._modules:
            if launches[index].module.raw is None:
                # Closed since: that says so.
                calls = self._on_another(launches, stream)
        remaining = iter(calls)
        try:
            # Looked up at each use, as a program's `driver.cuLaunchKernel` is.
            for (code,) in starmap(driver.cuLaunchKernel, remaining):
                if code:
                    raise failure(code, "cuLaunchKernel")
        except BaseException as error:
            # An interrupt may come before the first.
            vars(error)[_INDEX] = max(len(calls) - length_hint(remaining) - 1, 0)
            raise
        if event is not None:
            # `Stream.record`, written out.
            theirs = event.owned
            if here.token is theirs.token and theirs.raw is not None and calls:
                code = driver.cuEventRecord(theirs.raw, calls[0][STREAM])[0]
                if code:
                    raise failure(code, "cuEventRecord")
                event.was_recorded = True
            else:
                stream.record(event)
        return [None] * len(calls)

    def _on_another(self, launches: Sequence[Launch], stream: Stream) -> list[tuple[Any, ...]]:
        """What to call the driver with on another stream than the last."""
        calls = []
        try:
            for each in launches:
                raw = ready(each.kernel, stream)
                calls.append((*each.head, raw, each.block.address, 0))
        except BaseException as error:
            # An interrupt may come behind the last.
            vars(error)[_INDEX] = min(len(calls), len(launches) - 1)
            raise
        if stream._owned is not None:
            self._latest = (raw, stream._owned.token, calls)
        return calls


def failed_launch(error: BaseException) -> int | None:
    """The index of the launch that `error` came up at, if it comes from a `LaunchSequence`."""
    index: int | None = vars(error).get(_INDEX)
    return index
