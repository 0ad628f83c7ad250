"""Cellar. Copies of boxes: bytes in rows, rows in slices, at either end.

Rows begin `pitch` bytes apart, slices `pitch * height` bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.core.driver_types.result_codes import (
    ILLEGAL_ADDRESS,
    INVALID_VALUE,
    DriverFailure,
)
from cudasync.softgpu.core.driver_types.virtual_clock import copy_us
from cudasync.softgpu.core.memory.host_pages import is_mapped
from cudasync.softgpu.core.memory.row_copies import move_rows
from cudasync.softgpu.core.streams.commands import Command, Step, Touched

if TYPE_CHECKING:
    from cudasync.softgpu.core.memory.copy_commands import Place
    from cudasync.softgpu.core.memory.memory_manager import MemoryManager
    from cudasync.softgpu.core.streams.streams import Stream

# CUmemorytype.
HOST: Final = 1
DEVICE: Final = 2
ARRAY: Final = 3
UNIFIED: Final = 4


@dataclass(frozen=True, slots=True)
class End:
    """One side of CUDA_MEMCPY3D."""

    kind: int
    address: int
    x_bytes: int = 0
    y: int = 0
    z: int = 0
    pitch: int = 0
    height: int = 0
    array: int = 0
    """The array's handle if `kind` is ARRAY; `address` is then the array's start."""
    bounds: tuple[int, int, int] | None = None
    """For an array: the bytes of a row, the rows of a slice, the slices."""


@dataclass(frozen=True, slots=True)
class Box:
    """CUDA_MEMCPY3D."""

    source: End
    target: End
    width: int
    height: int
    depth: int

    @property
    def size_bytes(self) -> int:
        return self.width * self.height * self.depth


def line(target: Place, source: Place, size_bytes: int) -> Box:
    """The box of a plain copy."""
    return Box(_end(source, size_bytes), _end(target, size_bytes), size_bytes, 1, 1)


def _end(place: Place, pitch: int, height: int = 1) -> End:
    found = place.allocation
    kind = HOST if found is None or found.kind.is_host else DEVICE
    return End(kind, place.address, pitch=pitch, height=height)


def rectangle(
    target: Place, source: Place, width: int, height: int, pitches: tuple[int, int]
) -> Box:
    """The box of a copy of rows; the pitches are the target's and the source's."""
    to, of = pitches
    return Box(_end(source, of, height), _end(target, to, height), width, height, 1)


def strides(end: End, box: Box) -> tuple[int, int]:
    """The distances from row to row and from slice to slice."""
    pitch = end.pitch or end.x_bytes + box.width
    return pitch, pitch * (end.height or end.y + box.height)


def place_of(memory: MemoryManager, end: End, box: Box) -> Place:
    """The place of an end's first byte; DriverFailure if the box is not within memory."""
    if end.bounds is not None:
        _check_bounds(end, box, end.bounds)
    if end.kind not in (HOST, DEVICE, ARRAY, UNIFIED):
        raise DriverFailure(INVALID_VALUE, f"unknown memory type {end.kind}")
    row, slice_bytes = strides(end, box)
    if row < end.x_bytes + box.width and box.height * box.depth > 1:
        raise DriverFailure(INVALID_VALUE, f"the pitch {row} is less than the bytes of a row")
    if slice_bytes < row * (end.y + box.height) and box.depth > 1:
        raise DriverFailure(
            INVALID_VALUE, f"the height {end.height} is less than the rows of a slice"
        )
    span = 0
    if box.size_bytes:
        span = (box.depth - 1) * slice_bytes + (box.height - 1) * row + box.width
    first = end.address + end.z * slice_bytes + end.y * row + end.x_bytes
    find = memory.place if end.kind in (DEVICE, ARRAY) else memory.any_place
    return find(first, span)


def _check_bounds(end: End, box: Box, bounds: tuple[int, int, int]) -> None:
    starts, lengths = (end.x_bytes, end.y, end.z), (box.width, box.height, box.depth)
    for start, length, most in zip(starts, lengths, bounds, strict=True):
        if start + length > most:
            what = " x ".join(map(str, bounds))
            raise DriverFailure(
                INVALID_VALUE,
                f"{lengths} at {starts} do not fit into an array of {what} (bytes, rows, slices)",
            )


class BoxCopy(Command):
    """A memcpy node, or a copy of a box; pageable memory is checked when it executes."""

    __slots__ = ("box", "source", "target")

    def __init__(self, stream: Stream, box: Box, target: Place, source: Place) -> None:
        super().__init__(stream)
        self.box = box
        self.target = target
        self.source = source

    def run(self) -> Step:
        box = self.box
        if not box.size_bytes:
            return Step.DONE
        to_row, to_slice = strides(box.target, box)
        of_row, of_slice = strides(box.source, box)
        _check(self.source, box, of_row, of_slice, "a copy from")
        _check(self.target, box, to_row, to_slice, "a copy to")
        move_rows(
            self.target.address,
            self.source.address,
            (box.depth, box.height, box.width),
            (to_slice, to_row),
            (of_slice, of_row),
        )
        return Step.DONE

    def touched(self) -> Touched:
        return Touched(
            _rows(self.source, self.box.source, self.box),
            _rows(self.target, self.box.target, self.box),
        )

    @property
    def cost_us(self) -> float:
        return copy_us(self.box.size_bytes)

    def describe(self) -> str:
        return f"a copy of {self.box.size_bytes} bytes"


def _rows(place: Place, end: End, box: Box) -> list[tuple[int, int]]:
    if not box.size_bytes:
        return []
    row, slice_bytes = strides(end, box)
    starts = (
        place.address + z * slice_bytes + y * row
        for z in range(box.depth)
        for y in range(box.height)
    )
    return [(start, start + box.width) for start in starts]


def _check(place: Place, box: Box, row: int, slice_bytes: int, what: str) -> None:
    place.check(box.size_bytes, what)
    span = (box.depth - 1) * slice_bytes + (box.height - 1) * row + box.width
    if place.is_pageable and not is_mapped(place.address, span):
        raise DriverFailure(
            ILLEGAL_ADDRESS, f"{what} {span} bytes at {place.address:#x}: no memory any more"
        )
