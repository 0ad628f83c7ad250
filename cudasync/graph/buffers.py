"""Floor 3. Memory that a program names and that may have no value when it is used.

The owner of a buffer of the driver layer may close it; a launch that would use the buffer is then
refused. Arrays live as long as the graph.

Memory that a recording made has no value before a launch is pushed. An op without a function
becomes its last writer when the recording ends, with a failure: whoever reads the memory gets a
RecordingError. The first launch makes another such op the last writer, one that has not failed.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from cudasync.driver import DeviceBuffer
from cudasync.driver.memory.buffer import DeviceView
from cudasync.engine.failure import Failure
from cudasync.engine.log import fences
from cudasync.errors import ClosedError, RecordingError
from cudasync.graph.node import Node
from cudasync.locks import Lock

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cudasync.engine.hazards.accesses import Accesses
    from cudasync.engine.hazards.interval_map import Region


class Buffers:
    """The buffers that nodes name, each with the first such node."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._users: dict[DeviceBuffer, Node] = {}
        for node in nodes:
            for buffer in _named(node):
                self._users.setdefault(buffer, node)

    def __bool__(self) -> bool:
        return bool(self._users)

    def raise_if_closed(self) -> None:
        """Raise ClosedError if one of them was freed."""
        for buffer, node in self._users.items():
            if buffer.is_closed:
                raise ClosedError(
                    f"node {node.index} ({node.name}), recorded at {node.push_site}, uses a buffer "
                    f"of {buffer.size_bytes} bytes that was closed: record the graph with an "
                    f"open buffer"
                )


def _named(thing: Any) -> Iterable[DeviceBuffer]:
    if isinstance(thing, DeviceBuffer):
        yield thing
    elif isinstance(thing, DeviceView):
        yield thing.buffer
    elif isinstance(thing, Node):
        yield from _named(thing.kept)
        if thing.launch is not None:
            yield from _named(thing.launch.kept)
        if thing.control is not None:
            yield from _named(thing.control.bodies)
    elif isinstance(thing, (tuple, list)):
        for each in thing:
            yield from _named(each)


class NotLaunched(Failure):
    """Why an array that a recording made cannot be read."""

    def error(self, *, hint: str = "") -> Any:
        """A fresh exception for one waiter."""
        self.handle()
        return RecordingError(*self.cause.args)


class Unlaunched:
    """The memory that one recording made and its nodes write, until a launch is pushed."""

    def __init__(self, engine: Any, regions: Sequence[Region], site: str) -> None:
        self._regions = regions
        self._is_launched = False
        self._lock = Lock()
        cause = RecordingError(
            f"the array was made in the recording at {site}, and no launch of that graph has been "
            "pushed: it has no value before g.instantiate().launch()"
        )
        fences.overwrite(engine, regions, NotLaunched(0, "recording", site, cause))

    def launched(self, engine: Any, accesses: Accesses) -> None:
        """A launch with these accesses is about to be pushed. Later calls do nothing.

        Memory that the launch does not touch was dropped by a pass: it may be another's by now.
        """
        # With a lock, because the failure of a first launch must not be undone by a second one.
        with self._lock:
            if not self._is_launched:
                fences.overwrite(engine, touched(self._regions, accesses))
                self._is_launched = True


def made_by(nodes: Sequence[Node], allocated: Iterable[Region]) -> list[Region]:
    """The memory that a recording made and its nodes write: results of operations, and memory of
    its own that it `allocated`."""
    made = {
        each.expression.result.region
        for each in nodes
        if each.expression is not None and each.expression.is_of_the_graph
    }
    written = ((), (), tuple(r for node in nodes for part in node.hazards[0][1:] for r in part))
    return [*made, *(each for each in touched(allocated, (written, (), ())) if each not in made)]


def touched(regions: Iterable[Region], accesses: Accesses) -> list[Region]:
    """The regions that overlap the byte ranges of these accesses."""
    ranges = sorted(each for part in accesses[0] for each in part)
    starts = [each[0] for each in ranges]
    ends = list(accumulate((each[1] for each in ranges), max))
    found = []
    for each in regions:
        before = bisect_left(starts, each.end)
        if before and ends[before - 1] > each.start:
            found.append(each)
    return found
