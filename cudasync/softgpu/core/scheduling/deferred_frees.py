"""Cellar. Deferred frees: frees that a finaliser requested inside the executor.

The garbage collector may run a finaliser at any allocation, also in a thread that holds the
executor's lock or executes a command. To free memory at that point, the thread would wait for
itself.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from cudasync.softgpu.core.driver_types.result_codes import DriverFailure

if TYPE_CHECKING:
    from collections.abc import Callable


class Deferred:
    """The deferred actions: they run once the thread has left the executor."""

    def __init__(self, is_busy_here: Callable[[], bool]) -> None:
        self._is_busy_here = is_busy_here
        # Read-only for others. No lock: append and pop are one C call each, so each action runs
        # once.
        self.actions: deque[Callable[[], object]] = deque()

    def put_off(self, action: Callable[[], object]) -> bool:
        """Defer `action` and return True if the caller is inside the executor."""
        if not self._is_busy_here():
            return False
        self.actions.append(action)
        return True

    def run(self) -> None:
        """Run the deferred actions, unless the thread is still inside the executor."""
        while self.actions and not self._is_busy_here():
            try:
                action = self.actions.popleft()
            except IndexError:  # Another thread was faster.
                return
            # A finaliser cannot report an error to anybody.
            with suppress(DriverFailure):
                action()
