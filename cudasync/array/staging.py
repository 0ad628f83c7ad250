"""Floor 4. Pinned memory for copies in: what is handed over may change again at once.

A pinned buffer is reused once the copy that reads it has finished. Sizes are rounded up to
powers of two, so that a program with many sizes shares few buffers; beyond a limit, idle ones
are dropped rather than kept.
"""

from __future__ import annotations

from collections import deque
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.driver import PinnedBuffer

if TYPE_CHECKING:
    from cudasync.driver import Device
    from cudasync.engine import Op

# Idle pinned memory kept for the next copy, in bytes.
KEPT_BYTES = 256 << 20


class Staging:
    """Pinned buffers of one device, lent for the time of one copy."""

    def __init__(self, device: Device) -> None:
        self._device = device
        # The life of the context that the buffers were allocated in: a reset ends them with it.
        self._token: object = None
        self._lock = Lock()
        self._idle: dict[int, list[np.ndarray[Any, Any]]] = {}
        self._idle_bytes = 0
        self._lent: deque[tuple[Op, np.ndarray[Any, Any]]] = deque()

    def fill(self, source: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """A pinned copy of `source`'s bytes in C order. Give it back with `lend_until`."""
        size = source.nbytes
        rounded = 1 << max(8, (size - 1).bit_length())
        pinned = self._take(rounded)
        staged = pinned[:size]
        np.copyto(staged.view(source.dtype).reshape(source.shape), source)
        return staged

    def lend_until(self, op: Op, staged: np.ndarray[Any, Any]) -> None:
        """Take `staged` back when `op`, which reads it, has finished."""
        whole = staged.base
        assert isinstance(whole, np.ndarray)
        with self._lock:
            self._lent.append((op, whole))

    def _take(self, size: int) -> np.ndarray[Any, Any]:
        with self._lock:
            if self._token is not self._device.context.token:
                self._token = self._device.context.token
                self._lent.clear()
                self._idle.clear()
                self._idle_bytes = 0
        # In order of lending, stop at the first that is still read: one question a call. It is
        # asked without the lock: what is found to have finished calls back, and may come here.
        while (first := self._first_lent()) is not None and first[0].done():
            with self._lock:
                if self._lent and self._lent[0] is first:
                    self._lent.popleft()
                    self._keep(first[1])
        with self._lock:
            idle = self._idle.get(size)
            if idle:
                self._idle_bytes -= size
                return idle.pop()
        return PinnedBuffer(size, self._device).view((size,), np.uint8)

    def _first_lent(self) -> tuple[Op, np.ndarray[Any, Any]] | None:
        with self._lock:
            return self._lent[0] if self._lent else None

    def _keep(self, pinned: np.ndarray[Any, Any]) -> None:
        if self._idle_bytes + pinned.nbytes <= KEPT_BYTES:
            self._idle_bytes += pinned.nbytes
            self._idle.setdefault(pinned.nbytes, []).append(pinned)
