"""Floor 4, copies. Pinned memory for copies in: the caller may change its data again at once.

A pinned buffer is reused once the copy that reads it has finished. Sizes are rounded up to powers
of two, so that a program with many sizes shares few buffers. Idle buffers beyond a limit are
dropped.

There is no lock, because an interrupt, or a finaliser that copies, may come anywhere in this code.
The worst result is a buffer that is not used again; its memory is freed when nothing reads it any
more.
"""

from __future__ import annotations

import math
import weakref
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from cudasync.atomic import Roll
from cudasync.driver import PinnedBuffer
from cudasync.errors import CudaError
from cudasync.graph.node import Node

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.driver import Device
    from cudasync.engine import Op

# Limit of idle pinned memory that is kept for later copies, in bytes, of all devices together.
KEPT_BYTES = 128 << 20

Pinned: TypeAlias = "np.ndarray[Any, Any]"


def forget(op: Op) -> None:
    """The op refers to the contents, which end with it."""


class Staging:
    """Pinned buffers of one device, each lent to one copy."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._buffers = _Buffers(None)

    def fill(self, source: Pinned) -> tuple[Pinned, Callable[[Op], None]]:
        """A pinned copy of `source`'s bytes in C order.

        Also returns a function that takes the copy back when the op that reads it has finished.
        """
        staged, take_back = self.lend(source.shape, source.dtype)
        np.copyto(staged, source)
        return staged.reshape(-1).view(np.uint8), take_back

    def lend(
        self, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> tuple[Pinned, Callable[[Op], None]]:
        """A pinned array, and a function that takes it back when the last op that uses it is over.

        The array must not be empty. For a lost device it is pageable, and the function `forget`.
        """
        size = math.prod(shape) * dtype.itemsize
        rounded = 1 << max(8, (size - 1).bit_length())
        buffers = self._of_now()
        pinned = buffers.take(rounded)
        if pinned is None:
            try:
                pinned = PinnedBuffer(rounded, self._device).view((rounded,), np.uint8)
            except CudaError as error:
                if not error.sticky:
                    raise
                # The device is lost: the op that uses the memory says so, and not its push.
                return np.empty(shape, dtype), forget
        # It returns to the buffers that lent it: after a reset that memory is gone.
        return pinned[:size].view(dtype).reshape(shape), partial(buffers.lend_until, pinned)

    def _of_now(self) -> _Buffers:
        """The buffers of the current life of the device's context: a reset ends the others."""
        token = self._device.context.token
        buffers = self._buffers
        if buffers.token is not token:
            buffers = self._buffers = _Buffers(token)
        return buffers


_stagings: dict[int, Staging] = {}


def staging_of(device: Device) -> Staging:
    """The staging of the device."""
    found = _stagings.get(device.ordinal)
    # dict.setdefault is one C call: all threads get the same object.
    return found or _stagings.setdefault(device.ordinal, Staging(device))


# Buffers of all devices. No WeakSet: it must not be iterated while another thread adds to it.
_all: Roll[weakref.ref[_Buffers]] = Roll()


def idle_bytes() -> int:
    """The idle pinned memory that is kept for later copies, in bytes."""
    living = [buffers for each in _all.all() if (buffers := each()) is not None]
    return sum(size * len(idle) for buffers in living for size, idle in buffers.idle.copy().items())


def _is_gone(buffers: weakref.ref[_Buffers]) -> bool:
    return buffers() is None


class _Buffers:
    """Buffers that were allocated in one life of the context, for which `token` stands."""

    __slots__ = ("__weakref__", "idle", "lent", "token")

    def __init__(self, token: object) -> None:
        self.token = token
        # `idle` is by size. `lent` is in the order of lending, each with the op that reads it.
        self.idle: dict[int, list[Pinned]] = {}
        self.lent: deque[tuple[Op, Pinned]] = deque()
        _all.strike(_is_gone)
        _all.add(weakref.ref(self))

    def lend_until(self, pinned: Pinned, op: Op | Node) -> None:
        """Take `pinned` back when `op`, which reads it, has finished; never, if `op` is a recorded
        node."""
        if isinstance(op, Node):
            op.keep(pinned)
        else:
            self.lent.append((op, pinned))

    def take(self, size: int) -> Pinned | None:
        """An idle buffer, None if there is none."""
        self._take_back()
        idle = self.idle.get(size)
        try:
            return idle.pop() if idle else None
        except IndexError:  # Another thread was faster.
            return None

    def _take_back(self) -> None:
        """Keep buffers whose ops have finished, up to the first that is still read.

        So a call usually asks one op. `done()` may run callbacks, which may call this again.
        """
        lent = self.lent
        while lent:
            try:
                first = lent[0]
                if not first[0].done():
                    return
                taken = lent.popleft()
            except IndexError:
                return
            if taken is not first and not taken[0].done():
                # Another thread has taken the first, so this is the second.
                lent.appendleft(taken)
                return
            self._keep(taken[1])

    def _keep(self, pinned: Pinned) -> None:
        if idle_bytes() + pinned.nbytes <= KEPT_BYTES:
            self.idle.setdefault(pinned.nbytes, []).append(pinned)
