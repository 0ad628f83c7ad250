"""Cellar. Commands that move and fill memory.

Each end of a transfer is a `Place`: an address and its allocation, or no allocation for pageable
host memory. The allocation is checked again when the command executes. So memory freed between
the call and the execution is a fault and not a silent access.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudasync.softgpu.core.driver_types.result_codes import ILLEGAL_ADDRESS, DriverFailure
from cudasync.softgpu.core.driver_types.virtual_clock import copy_us
from cudasync.softgpu.core.memory.row_copies import move_rows
from cudasync.softgpu.core.streams.commands import Command, Step, Touched

if TYPE_CHECKING:
    from cudasync.softgpu.core.memory.allocation_table import Allocation
    from cudasync.softgpu.core.streams.streams import Stream

_memmove = ctypes.memmove
_memset = ctypes.memset


@dataclass(frozen=True, slots=True)
class Place:
    """The address and allocation at which bytes are read or written."""

    address: int
    allocation: Allocation | None
    keep: object = None
    """Keeps the staged bytes of a pageable source alive until they are copied.

    After the copy it is True."""

    @property
    def is_pageable(self) -> bool:
        return self.allocation is None

    @property
    def is_on_host(self) -> bool:
        """True for pageable and pinned memory, not for managed memory."""
        return self.allocation is None or self.allocation.kind.is_host

    @property
    def is_lost(self) -> bool:
        """True for memory of a failed context that was never allocated, or was freed."""
        allocation = self.allocation
        return allocation is not None and not allocation.is_live and bool(allocation.context.error)

    def check(self, size_bytes: int, what: str) -> None:
        """DriverFailure ILLEGAL_ADDRESS if the memory is not live yet, or not any more."""
        allocation = self.allocation
        if allocation is not None and size_bytes and not allocation.is_live:
            raise DriverFailure(
                ILLEGAL_ADDRESS,
                f"an illegal memory access was encountered: {what} of {size_bytes} bytes at "
                f"{self.address:#x}: not live: {allocation.describe()}",
            )


class Copy(Command):
    """`rows` rows of `size_bytes` bytes each; a plain copy has one row."""

    __slots__ = ("rows", "size_bytes", "source", "source_pitch", "target", "target_pitch")

    def __init__(
        self,
        stream: Stream,
        target: Place,
        source: Place,
        size_bytes: int,
        *,
        rows: int = 1,
        target_pitch: int = 0,
        source_pitch: int = 0,
    ) -> None:
        super().__init__(stream)
        self.target = target
        self.source = source
        self.size_bytes = size_bytes
        self.rows = rows
        self.target_pitch = target_pitch
        self.source_pitch = source_pitch

    def run(self) -> Step:
        if self.source.is_lost or self.target.is_lost:
            # Another context has failed; this one's own commands are not at fault.
            return Step.DONE
        self.source.check(self.size_bytes, "a copy from")
        self.target.check(self.size_bytes, "a copy to")
        target, source = self.target.address, self.source.address
        pitches = (0, self.target_pitch), (0, self.source_pitch)
        move_rows(target, source, (1, self.rows, self.size_bytes), *pitches)
        if self.source.keep is not None:
            # An event may keep this command, so drop the staged bytes.
            self.source = Place(source, None, keep=True)
        return Step.DONE

    @property
    def cost_us(self) -> float:
        return copy_us(self.size_bytes * self.rows)

    def touched(self) -> Touched:
        # Staged bytes belong to this command alone.
        reads = () if self.source.keep is not None else self._rows(self.source, self.source_pitch)
        return Touched(reads, self._rows(self.target, self.target_pitch))

    def _rows(self, place: Place, pitch: int) -> list[tuple[int, int]]:
        return _rows(place.address, self.size_bytes, self.rows, pitch)

    def describe(self) -> str:
        return f"a copy of {self.size_bytes * self.rows} bytes"


class Fill(Command):
    """Memset: `pattern` (1, 2 or 4 bytes) over `rows` rows of `size_bytes` bytes each."""

    __slots__ = ("pattern", "pitch", "rows", "size_bytes", "target")

    def __init__(
        self,
        stream: Stream,
        target: Place,
        pattern: bytes,
        size_bytes: int,
        *,
        rows: int = 1,
        pitch: int = 0,
    ) -> None:
        super().__init__(stream)
        self.target = target
        self.pattern = pattern
        self.size_bytes = size_bytes
        self.rows = rows
        self.pitch = pitch

    def run(self) -> Step:
        self.target.check(self.size_bytes, "a memset")
        for row in range(self.rows):
            _fill(self.target.address + row * self.pitch, self.pattern, self.size_bytes)
        return Step.DONE

    @property
    def cost_us(self) -> float:
        return copy_us(self.size_bytes * self.rows)

    def touched(self) -> Touched:
        return Touched((), _rows(self.target.address, self.size_bytes, self.rows, self.pitch))

    def describe(self) -> str:
        return f"a memset of {self.size_bytes * self.rows} bytes"


def _rows(start: int, size_bytes: int, rows: int, pitch: int) -> list[tuple[int, int]]:
    return [(start + row * pitch, start + row * pitch + size_bytes) for row in range(rows)]


def _fill(address: int, pattern: bytes, size_bytes: int) -> None:
    if not size_bytes:
        return
    if pattern == pattern[:1] * len(pattern):
        _memset(address, pattern[0], size_bytes)
        return
    # Write the pattern once, then double the written part.
    _memmove(address, pattern, len(pattern))
    done = len(pattern)
    while done < size_bytes:
        step = min(done, size_bytes - done)
        _memmove(address + done, address, step)
        done += step
