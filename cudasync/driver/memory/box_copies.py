"""Floor 1. Copies of separate rows: a box of bytes, in one call of the driver.

A box is rows of bytes, and slices of rows. On either side a row begins one pitch behind the row
before, and a slice begins `height` pitches behind the slice before. Rows and slices of one side do
not overlap. Boxes with two axes also use the driver's call for three axes: by the manual the call
for two may refuse pitches on one device that cuMemAllocPitch did not choose.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from cuda.bindings import driver

from cudasync.driver.memory.operand import address_of, memory_of
from cudasync.driver.result import failure
from cudasync.driver.streams.chosen_stream import as_stream

if TYPE_CHECKING:
    from cudasync.driver.device import Device
    from cudasync.driver.streams.stream import StreamLike

# The largest pitch. (CU_DEVICE_ATTRIBUTE_MAX_PITCH, the same on all devices)
MAX_PITCH = (1 << 31) - 1

_HOST = driver.CUmemorytype.CU_MEMORYTYPE_HOST
_DEVICE = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE


class Box(NamedTuple):
    """`slices` of `rows` of `width` bytes. Pitches are in bytes, heights in rows."""

    width: int
    rows: int
    slices: int
    target_pitch: int
    source_pitch: int
    target_height: int
    source_height: int

    @property
    def size_bytes(self) -> int:
        return self.width * self.rows * self.slices

    def raise_unless_it_fits(self, target_size: int, source_size: int) -> None:
        """Raise ValueError for a box that is empty, overlaps itself, or exceeds a side's bytes."""
        width, rows, slices = self[:3]
        if (
            min(width, rows, slices) < 1
            or min(self.target_pitch, self.source_pitch) < width
            or min(self.target_height, self.source_height) < rows
        ):
            raise ValueError(
                f"{rows} rows of {width} bytes, {self.target_pitch} and "
                f"{self.source_pitch} apart: a copy needs at least one byte, and rows that do "
                f"not overlap"
            )
        for side, most, pitch, height in (
            ("target", target_size, self.target_pitch, self.target_height),
            ("source", source_size, self.source_pitch, self.source_height),
        ):
            if ((slices - 1) * height + rows - 1) * pitch + width > most:
                raise ValueError(
                    f"{rows * slices} rows of {width} bytes do not fit the {side}, {most}"
                )

    def params(
        self, target: Any, target_device: Device | None, source: Any, source_device: Device | None
    ) -> Any:
        """CUDA_MEMCPY3D, from the first byte of each side and its device, None on the host."""
        sides = ("dst", target, target_device), ("src", source, source_device)
        return self._described(driver.CUDA_MEMCPY3D(), sides)

    def peer_params(
        self, target: Any, target_device: Device, source: Any, source_device: Device
    ) -> Any:
        """CUDA_MEMCPY3D_PEER: it names the context of either side, and needs no peer access."""
        params = driver.CUDA_MEMCPY3D_PEER()
        params.dstContext = target_device.context.handle()
        params.srcContext = source_device.context.handle()
        sides = ("dst", target, target_device), ("src", source, source_device)
        return self._described(params, sides)

    def _described(self, params: Any, sides: tuple[tuple[str, Any, Device | None], ...]) -> Any:
        for side, place, on in sides:
            setattr(params, side + "MemoryType", _HOST if on is None else _DEVICE)
            name = "Host" if on is None else "Device"
            setattr(params, side + name, address_of(place) if on is None else place)
        params.dstPitch, params.srcPitch = self.target_pitch, self.source_pitch
        params.dstHeight, params.srcHeight = self.target_height, self.source_height
        params.WidthInBytes, params.Height, params.Depth = self.width, self.rows, self.slices
        return params


def memcpy_box_async(
    target: object, source: object, box: Box, *, stream: StreamLike | None = None
) -> None:
    """Copy `box` from `source` to `target` in the order of `stream`; return without waiting for it.

    Operands, order and errors are as for `memcpy_async`; each operand is the bytes from the start
    of its first row, gaps included. Bytes in the gaps of the target keep their value. Raises
    ValueError for a box that does not fit. (cuMemcpy3DAsync, cuMemcpy3DPeerAsync)
    """
    place, room, device, is_read_only = memory_of(target, "target", stream)
    origin, given, origin_device, _ = memory_of(source, "source", stream)
    if is_read_only:
        raise ValueError("the target is read-only: give writable memory")
    box.raise_unless_it_fits(room, given)
    on = as_stream(stream, device or origin_device)
    raw = on.enter()
    if device is not None and origin_device is not None and device is not origin_device:
        call = "cuMemcpy3DPeerAsync"
        code = driver.cuMemcpy3DPeerAsync(
            box.peer_params(place, device, origin, origin_device), raw
        )[0]
    else:
        call = "cuMemcpy3DAsync"
        code = driver.cuMemcpy3DAsync(box.params(place, device, origin, origin_device), raw)[0]
    if code:
        raise failure(code, call)
    if device is None:
        on.keep(target, box.size_bytes)
    if origin_device is None:
        on.keep(source, box.size_bytes)
