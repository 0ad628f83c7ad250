"""Floor 3. Descriptions of copies and fills, by which passes join them and aim them elsewhere.

The code that records a copy attaches its description: a node with a `transfer` does that transfer
and nothing else.
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
    from cudasync.graph.retargeting import Aim

    # Bytes, and the device that they are on; None on the host.
    Place: TypeAlias = "tuple[Region, Device | None]"


class Bytes:
    """Bytes of a device, in the form that the driver layer takes."""

    def __init__(self, region: Region, device: Device) -> None:
        self.device = device
        self._memory = region.start, region.end - region.start, False

    def __cudasync_memory__(self, _: object) -> tuple[int, int, bool]:
        return self._memory


@dataclass(frozen=True)
class Transfer:
    """A copy of bytes from one place to another, or a fill of a place with `value` if it has no
    source.

    With a `box` only the box is copied, from the first byte of each place on. With a `count`, which
    may be an argument of a graph, the copy has `count` elements of `element_bytes` each, and at
    most `most` elements. The node keeps the memory alive.
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
        """The regions that it only reads, updates, and overwrites."""
        read = () if self.source is None else (self.source[0],)
        return keep_what_lies_between(read, (), (self.target[0],))

    @property
    def is_for_calls(self) -> bool:
        """True for a copy between devices without peer access.

        Calls then go through the host; no documentation says that nodes of the driver's graphs may.
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
        """Both as one transfer; None unless they are adjacent, in the same order on both sides."""
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
        """The same transfer between other places, and of another size. ValueError if the count is
        too large."""
        target = aim.region(self.target[0]), self.target[1]
        source = None if self.source is None else (aim.region(self.source[0]), self.source[1])
        if not aim.is_slot(self.count):
            return replace(self, target=target, source=source)
        count = int(aim.value(self.count))
        if not 0 <= count <= self.most:
            raise ValueError(
                f"a copy of {count} elements exceeds its arrays, which have {self.most}"
            )
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
