"""Floor 1, graphs. Copy nodes, of contiguous bytes or of rows."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, SupportsIndex

from cudasync.driver.graph.work.work import Work
from cudasync.driver.memory.box_copies import Box
from cudasync.driver.memory.operand import memory_of

if TYPE_CHECKING:
    from cudasync.driver.device import Device


class Copy(Work):
    """A copy from one piece of memory to another, on the host or any device.

    Both have one size, or `rows` gives the number of rows of `size_bytes` each, and their pitches
    in the target and the source. (cuGraphAddMemcpyNode)
    """

    kind = "memcpy"
    add = "cuGraphAddMemcpyNode"
    change = "cuGraphExecMemcpyNodeSetParams"

    def __init__(
        self,
        target: object,
        source: object,
        *,
        size_bytes: SupportsIndex | None = None,
        rows: tuple[int, int, int] | None = None,
    ) -> None:
        to, room, to_device, is_read_only = memory_of(target, "target", None)
        of, given, of_device, _ = memory_of(source, "source", None)
        if is_read_only:
            raise ValueError("the target is read-only: give writable memory")
        if size_bytes is None and (rows is not None or room != given):
            raise ValueError(
                f"the target has {room} bytes, the source {given}: give size_bytes, the size of "
                f"a row"
            )
        size = given if size_bytes is None else operator.index(size_bytes)
        number, target_pitch, source_pitch = (1, size, size) if rows is None else rows
        box = Box(size, number, 1, target_pitch, source_pitch, number, number)
        box.raise_unless_it_fits(room, given)
        self._kept = target, source
        self._sides = to, to_device, of, of_device
        self._box = box

    def params(self, device: Device) -> tuple[Any, ...]:
        return self._box.params(*self._sides), device.context.handle()
