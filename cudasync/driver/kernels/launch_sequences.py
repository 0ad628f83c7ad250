"""Floor 1. Sequences of launches on one stream, enqueued by one loop in C.

The driver's arguments are computed once for a stream; then each launch costs its driver call and no
further Python code.
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
    """The prepared driver calls for a sequence of launches of one device.

    It holds their packed arguments, but neither the launches nor their operands, so it may be kept
    for long. The caller passes the launches again, and `is_of` tells whether they are the same. A
    launch owns its block of arguments as long as it lives, and the sequence keeps the block.
    """

    __slots__ = ("_blocks", "_context", "_latest", "_modules")

    def __init__(self, launches: Sequence[Launch]) -> None:
        self._blocks = [each.block for each in launches]
        # For each module, the index of one launch of a kernel of it.
        modules = {each.module: i for i, each in enumerate(launches)}
        self._modules = tuple(modules.values())
        self._context = launches[0].kernel.device.context
        # As `Launch._latest`: the stream, the life of the context, the driver's arguments for each.
        self._latest: tuple[object, object, list[tuple[Any, ...]]] = (_NOWHERE, None, [])

    def is_of(self, launches: Sequence[Launch]) -> bool:
        """True if it was made for these in this order. Raises AttributeError for a non-launch."""
        return [each.block for each in launches] == self._blocks

    def on(
        self,
        launches: Sequence[Launch],
        stream: Stream,
        event: Event | None = None,
    ) -> list[None]:
        """Enqueue `launches`, for which it was made, on `stream`; then record `event`.

        Returns a None for each launch. Raises the errors of `Launch.on`; `failed_launch` tells
        which launch failed. Later launches are not enqueued. (cuLaunchKernel, cuEventRecord)
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
                # The module was closed: this raises.
                calls = self._on_another(launches, stream)
        remaining = iter(calls)
        try:
            # Looked up at each use, like `driver.cuLaunchKernel` in a program.
            for (code,) in starmap(driver.cuLaunchKernel, remaining):
                if code:
                    raise failure(code, "cuLaunchKernel")
        except BaseException as error:
            # An interrupt may come before the first.
            vars(error)[_INDEX] = max(len(calls) - length_hint(remaining) - 1, 0)
            raise
        if event is not None:
            # `Stream.record`, inlined.
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
        """The driver's arguments for another stream than the last."""
        calls = []
        try:
            for each in launches:
                raw = ready(each.kernel, stream)
                calls.append((*each.head, raw, each.block.address, 0))
        except BaseException as error:
            # An interrupt may come after the last.
            vars(error)[_INDEX] = min(len(calls), len(launches) - 1)
            raise
        if stream._owned is not None:
            self._latest = (raw, stream._owned.token, calls)
        return calls


def failed_launch(error: BaseException) -> int | None:
    """The index of the launch that raised `error`, if it comes from a `LaunchSequence`."""
    index: int | None = vars(error).get(_INDEX)
    return index
