"""Cellar. Frees that finalisers asked for at a moment when they could not be done.

The garbage collector may run a finaliser at any allocation, also in a thread that holds the
executor's lock or executes a command: to free memory there and then would be to wait for oneself.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from cudasync.softgpu.core.driver_types.result_codes import DriverFailure

if TYPE_CHECKING:
    from collections.abc import Callable


class Deferred:
    """A list of things to do when the thread that asked is out of the executor."""

    def __init__(self, is_busy_here: Callable[[], bool]) -> None:
        self._is_busy_here = is_busy_here
        # To be looked at only. No lock: to append and to pop is one C call, so each is done once.
        self.actions: deque[Callable[[], object]] = deque()

    def put_off(self, action: Callable[[], object]) -> bool:
        """True if the caller is inside the executor: `action` is then done later."""
        if not self._is_busy_here():
            return False
        self.actions.append(action)
        return True

    def run(self) -> None:
        """Do what was put off, unless still inside."""
        while self.actions and not self._is_busy_here():
            try:
                action = self.actions.popleft()
            except IndexError:  # Another thread was faster.
                return
            # A finaliser has nobody to tell.
            with suppress(DriverFailure):
                action()
