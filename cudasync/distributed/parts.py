"""Floor 5. Long arrays in parts, and arrays of a device through pinned memory, between processes.

Input and output of a call are rows of one length: one row, or one for each rank. A part is some
columns of both. Each part is copied to the host, transported and copied back, in slots of pinned
memory that are used in turn. So these three steps of different parts overlap. Hazards keep a slot
from being overwritten too early.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cudasync import xp
from cudasync.array import copy, empty
from cudasync.array.host.memory import CPU
from cudasync.distributed import argument_checks
from cudasync.driver import PinnedBuffer

# A part of all rows together. Long enough for a transport's full speed, short enough to overlap.
STAGED_BYTES = 4 << 20
# A part of arrays on the CPU alone: below the limit of one call of MPI.
MOST_BYTES = 1 << 30
# One slot is copied to the host, one is transported, one is copied back.
_SLOTS = 3


class Slots:
    """Pinned memory of one communicator, for the input and output of parts of device arrays."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._life: object = None
        self._buffers: list[Any] = []
        self._next = 0

    def take(self, nbytes: int) -> Any:
        """The next slot's bytes; hazards order new ops behind the slot's earlier ops."""
        life = self._device.context.token
        if life is not self._life:
            # A reset of the device has freed the pinned memory.
            self._life, self._buffers = life, [None] * (2 * _SLOTS)
        number, self._next = self._next, (self._next + 1) % len(self._buffers)
        found = self._buffers[number]
        if found is None or found.size < nbytes:
            size = 1 << max(12, (nbytes - 1).bit_length())
            found = PinnedBuffer(size, self._device).view((size,), np.uint8)
            self._buffers[number] = found
        return found[:nbytes]


def columns(rows: int, length: int, itemsize: int, most_bytes: int) -> list[tuple[int, int]]:
    """The parts of `length` columns, at least one; each has at most `most_bytes`, or one column."""
    width = max(1, most_bytes // max(1, rows * itemsize))
    return [(start, min(start + width, length)) for start in range(0, length, width)] or [(0, 0)]


class Rows:
    """An array of the caller's as rows, and its copies on the host, part by part.

    `x` is None if this rank has no array in the call.
    """

    def __init__(self, x: Any, rows: int, length: int) -> None:
        self.whole = x
        self.rows = rows
        self.is_far = x is not None and x.device != CPU
        # A copy if `x` is not contiguous. Such a copy is only read: see `written` for outputs.
        self.matrix: Any = None if x is None else xp.reshape(x, (rows, length))

    def on_host(self, part: tuple[int, int], slots: Slots) -> Any:
        """The memory of a part on the CPU: the array's own, or a slot."""
        if self.matrix is None:
            return None
        columns = self.matrix[:, part[0] : part[1]]
        if not self.is_far:
            return columns
        taken = slots.take(columns.nbytes) if columns.nbytes else np.empty(0, np.uint8)
        return taken.view(columns.dtype).reshape(columns.shape)

    def fetch(self, near: Any, part: tuple[int, int], name: str, priority: int) -> None:
        """Push the copy of a device's part to the host."""
        if self.is_far and near.size:
            out_of = self.matrix[:, part[0] : part[1]]
            copy(near, out_of, name=f"{name} (to the CPU)", priority=priority)

    def store(self, near: Any, part: tuple[int, int], name: str, priority: int) -> None:
        """Push the copy of a part back to the device."""
        if self.is_far and near.size:
            into = self.matrix[:, part[0] : part[1]]
            copy(into, near, name=f"{name} (to the device)", priority=priority)


def written(out: Any, rows: int, length: int) -> tuple[Rows, Any]:
    """The output as rows; and new memory to copy from if `out` has gaps, else None."""
    if out is None or out.is_contiguous:
        return Rows(out, rows, length), None
    made = empty(out.shape, out.dtype, device=out.device)
    return Rows(made, rows, length), made


def is_apart(x: Any, out: Any, rank: int, size: int) -> bool:
    """False if a part of `out` may be written before later parts of `x` are read.

    This is so if both share memory, unless they are the same elements, or one is this rank's row
    of the other.
    """
    if x is None or out is None or argument_checks.is_same(x, out):
        return True
    if x.region[1] <= out.region[0] or out.region[1] <= x.region[0]:
        return True
    small, large = sorted((x, out), key=lambda each: int(each.size))
    if not (small.is_contiguous and large.is_contiguous) or large.size != size * small.size:
        return False
    return bool(small.ptr == large.ptr + rank * small.nbytes)
