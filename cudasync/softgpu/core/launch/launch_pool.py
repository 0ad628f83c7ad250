"""Cellar. The memory of a grid for launches by its threads.

`interface/pending_launches.py` has the layout.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from cudasync.softgpu.core.driver_types.result_codes import OUT_OF_MEMORY, DriverFailure
from cudasync.softgpu.interface import pending_launches as pending
from cudasync.softgpu.interface.function_addresses import number_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.softgpu.interface.launch import Dim3

# Pages appear when they are touched: most grids touch few slots, and no error codes.
_FLAGS: Final = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000
_SLOT: Final = struct.Struct(pending.SLOT)


class DeviceLaunch(NamedTuple):
    """A launch by a thread; `parameters` is at least as long as the kernel's parameter block."""

    function: int
    grid: Dim3
    block: Dim3
    shared_bytes: int
    stream: int
    parameters: bytes


class LaunchPool:
    """Room for the launches of one grid."""

    def __init__(
        self,
        rows: Sequence[tuple[int, int]],
        *,
        most: int,
        depth: int,
        parameter_bytes: int,
        threads: int,
        ordinal: int,
        limits: Sequence[int],
    ) -> None:
        """Room for `most` launches; `rows` are the functions, as the layout has them.

        DriverFailure OUT_OF_MEMORY if the system has no room for so many threads.
        """
        self._slot_bytes = pending.SLOT_BYTES + -(-parameter_bytes // 16) * 16
        rows_at = pending.HEADER_BYTES
        self._slots_at = rows_at + -(-pending.ROW_BYTES * len(rows) // 64) * 64
        errors_at = self._slots_at + most * self._slot_bytes
        self.size = errors_at + 4 * threads
        self._most = most
        try:
            self._memory = mmap.mmap(-1, self.size, flags=_FLAGS)
        except OSError as problem:
            raise DriverFailure(
                OUT_OF_MEMORY, f"no memory is left for launches by {threads} threads"
            ) from problem
        self.address = start = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._put("<I", pending.MOST, most)
        self._put("<I", pending.DEPTH, depth)
        self._put("<I", pending.MOST_DEPTH, pending.DEEPEST)
        self._put("<I", pending.FUNCTIONS, len(rows))
        self._put("<I", pending.SLOT_SIZE, self._slot_bytes)
        self._put("<I", pending.ORDINAL, ordinal)
        self._put("<Q", pending.ROWS_AT, start + rows_at)
        self._put("<Q", pending.SLOTS_AT, start + self._slots_at)
        self._put("<Q", pending.ERRORS_AT, start + errors_at)
        self._put(f"<{pending.LIMIT_COUNT}Q", pending.LIMITS, *limits)
        self._put(f"<{2 * len(rows)}I", rows_at, *(number for row in rows for number in row))

    def _put(self, layout: str, offset: int, *values: int) -> None:
        struct.pack_into(layout, self._memory, offset, *values)

    def launches(self) -> list[DeviceLaunch]:
        """The launches of the finished grid: by block, and within a block in their order."""
        (taken,) = struct.unpack_from("<I", self._memory, pending.TAKEN)
        found: list[tuple[int, int, DeviceLaunch]] = []
        for index in range(min(taken, self._most)):
            at = self._slots_at + index * self._slot_bytes
            address, *sizes, shared, state, stream, block, order = _SLOT.unpack_from(
                self._memory, at
            )
            if state == pending.IS_LAUNCHED:
                x, y, z, *threads = sizes
                width, height, depth = threads
                data = self._memory[at + pending.SLOT_BYTES : at + self._slot_bytes]
                launch = DeviceLaunch(
                    number_of(address), (x, y, z), (width, height, depth), shared, stream, data
                )
                found.append((block, order, launch))
        found.sort(key=lambda each: each[:2])
        return [launch for _, _, launch in found]
