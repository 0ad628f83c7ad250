"""Floor 1, graphs. A copy, of bytes in a row or of rows."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex

from cuda.bindings import driver

from cudasync.driver.graph.work.work import Work
from cudasync.driver.operand import address_of, memory_of

if TYPE_CHECKING:
    from cudasync.driver.device import Device

_HOST = driver.CUmemorytype.CU_MEMORYTYPE_HOST
_DEVICE = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE


class Rows(NamedTuple):
    """How many, and how far apart the beginnings are in the target and in the source, in bytes."""

    number: int
    target_pitch: int
    source_pitch: int


class Copy(Work):
    """A copy from one piece of memory to another, on the host or any device.

    Both are of one size, or `rows` says how many rows of `size_bytes` each there are, and how far
    apart. (cuGraphAddMemcpyNode)
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
            raise ValueError("the target is read-only")
        if size_bytes is None and (rows is not None or room != given):
            raise ValueError(
                f"the target has {room} bytes, the source {given}: give size_bytes, of a row each"
            )
        size = given if size_bytes is None else operator.index(size_bytes)
        lines = Rows(*rows) if rows is not None else Rows(1, size, size)
        if lines.number < 1 or size < 1 or min(lines.target_pitch, lines.source_pitch) < size:
            raise ValueError(
                f"{lines.number} rows of {size} bytes, {lines.target_pitch} and "
                f"{lines.source_pitch} apart: there is nothing to copy, or rows overlap"
            )
        for name, most, pitch in (
            ("target", room, lines.target_pitch),
            ("source", given, lines.source_pitch),
        ):
            if (lines.number - 1) * pitch + size > most:
                raise ValueError(
                    f"{lines.number} rows of {size} bytes do not fit the {name}, {most}"
                )
        self._kept = target, source
        self._sides = ("dst", to, to_device), ("src", of, of_device)
        self._size = size
        self._rows = lines

    def params(self, device: Device) -> tuple[Any, ...]:
        params = driver.CUDA_MEMCPY3D()
        for side, place, on in self._sides:
            setattr(params, side + "MemoryType", _HOST if on is None else _DEVICE)
            name = "Host" if on is None else "Device"
            setattr(params, side + name, address_of(place) if on is None else place)
        params.dstPitch, params.srcPitch = self._rows.target_pitch, self._rows.source_pitch
        params.dstHeight = params.srcHeight = self._rows.number
        params.WidthInBytes, params.Height, params.Depth = self._size, self._rows.number, 1
        return params, device.context.handle()
