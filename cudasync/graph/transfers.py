"""Floor 3. Copies and fills as what they do, so that passes can join them and aim them elsewhere.

Who records one says so: a node with a `transfer` does that and nothing else.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cudasync.driver import memcpy_async, memset_async
from cudasync.driver.memory.box_copies import Box, memcpy_box_async
from cudasync.driver.memory.peer_access import can_access_peer
from cudasync.engine.hazards.interval_map import Region, keep_what_lies_between

if TYPE_CHECKING:
    from typing import TypeAlias

    from cudasync.driver import Device, Stream
    from cudasync.graph.aiming import Aim

    # Bytes, and the device that they are on; None on the host.
    Place: TypeAlias = "tuple[Region, Device | None]"


class Bytes:
    """Bytes of a device, as the driver layer takes them."""

    def __init__(self, region: Region, device: Device) -> None:
        self.device = device
        self._memory = region.start, region.end - region.start, False

    def __cudasync_memory__(self, _: object) -> tuple[int, int, bool]:
        return self._memory


@dataclass(frozen=True)
class Transfer:
    """Bytes from one place to another, or `value` to each byte of a place where it has no source.

    With a `box` it is that alone which is copied, from the first byte of each place on. With a
    `count`, which may be an argument of a graph, it is so many elements of `element_bytes` each,
    and at `most` that many. The memory is kept alive by the node.
    """

    target: Place
    source: Place | None = None
    value: int = 0
    box: Box | None = None
    count: Any = None
    element_bytes: int = 0
    most: int = 0

    @property
    def regions(self) -> Any:
        """What it only reads, updates, and overwrites."""
        read = () if self.source is None else (self.source[0],)
        return keep_what_lies_between(read, (), (self.target[0],))

    @property
    def is_for_calls(self) -> bool:
        """True for a copy between devices of which one can not use the other's memory.

        Calls go through the host then; whether a node of the driver's graphs may, nobody says.
        """
        to = self.target[1]
        of = None if self.source is None else self.source[1]
        if to is None or of is None or to is of:
            return False
        return not (can_access_peer(to, of) and can_access_peer(of, to))

    def on(self, stream: Stream) -> None:
        """Enqueue it."""
        if self.target[0].start == self.target[0].end:
            # A count of 0.
            return
        if self.source is None:
            memset_async(_operand(self.target), self.value, stream=stream)
        elif self.box is not None:
            target, source = _operand(self.target), _operand(self.source)
            memcpy_box_async(target, source, self.box, stream=stream)
        else:
            memcpy_async(_operand(self.target), _operand(self.source), stream=stream)

    def joined(self, other: Transfer) -> Transfer | None:
        """Both as one; None where they do not lie beside each other, in one order on both sides."""
        if (self.source is None) != (other.source is None) or self.value != other.value:
            return None
        if self.box is not None or other.box is not None:
            return None
        first, last = sorted((self, other), key=lambda each: each.target[0].start)
        target = _joined(first.target, last.target)
        if target is None:
            return None
        if first.source is None or last.source is None:
            return Transfer(target, None, self.value)
        source = _joined(first.source, last.source)
        if source is None or _meet(source[0], target[0]):
            return None
        return Transfer(target, source)

    def aimed(self, aim: Aim) -> Transfer:
        """The same between other places, and of another size. ValueError for a count that is too
        large."""
        target = aim.region(self.target[0]), self.target[1]
        source = None if self.source is None else (aim.region(self.source[0]), self.source[1])
        if not aim.is_slot(self.count):
            return replace(self, target=target, source=source)
        count = int(aim.value(self.count))
        if not 0 <= count <= self.most:
            raise ValueError(f"a copy of {count} elements: its sides have {self.most}")
        size = count * self.element_bytes
        target = _of_size(target, size)
        return replace(self, target=target, source=source and _of_size(source, size))


def _of_size(place: Place, size: int) -> Place:
    return Region(place[0].start, place[0].start + size), place[1]


def _operand(place: Place) -> Any:
    region, device = place
    if device is not None:
        return Bytes(region, device)
    return (ctypes.c_char * (region.end - region.start)).from_address(region.start)


def _joined(first: Place, last: Place) -> Place | None:
    if first[1] is not last[1] or first[0].end != last[0].start:
        return None
    return Region(first[0].start, last[0].end), first[1]


def _meet(one: Region, other: Region) -> bool:
    return one.start < other.end and other.start < one.end
