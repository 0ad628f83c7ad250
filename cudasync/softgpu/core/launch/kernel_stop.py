"""Cellar. Stops endless kernels: after an interrupt, at a reset, at the end of the process.

A stopped kernel times out where it is, and its context fails with that code. A kernel that ends
within the grace period is left alone.
"""

from __future__ import annotations

from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.interface.internal_threads import entered

if TYPE_CHECKING:
    from cudasync.softgpu.core.context import Context
    from cudasync.softgpu.core.scheduling.executor import Executor
    from cudasync.softgpu.core.streams.commands import Command

# How long a kernel may still run after an interrupt, a reset or the end of the process.
GRACE_S: Final = 1.0
AFTER_INTERRUPT: Final = "it was still running a second after Ctrl-C"
AT_RESET: Final = "its device was reset"
AT_END: Final = "the process ended"


class Interrupted:
    """The command that executed when an interrupt came, and the deadline of its waiters.

    Used under the executor's lock.
    """

    def __init__(self) -> None:
        self._command: Command | None = None
        self._until_s = 0.0

    def note(self, command: Command | None) -> None:
        """An interrupt came while `command` executed."""
        if command is not self._command:
            self._command, self._until_s = command, monotonic() + GRACE_S

    def patience_s(self, command: Command | None) -> float | None:
        """How long to wait for the executing `command`; None stands for no limit."""
        if command is None or command is not self._command:
            return None
        left_s = self._until_s - monotonic()
        if left_s > 0:
            return left_s
        command.stop(AFTER_INTERRUPT)
        return None


class Deadline:
    """Context manager: a CUDA context's work has a second, then its kernels are stopped."""

    def __init__(self, executor: Executor, context: Context) -> None:
        self._executor = executor
        self._context = context
        self._is_over = Event()

    def __enter__(self) -> None:
        # A context without pending work needs no deadline.
        if any(stream.pending for stream in list(self._context.streams)):
            Thread(target=self._watch, name="cudasync deadline", daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()

    def _watch(self) -> None:
        with entered():
            while not self._is_over.wait(GRACE_S):
                self._executor.stop_kernels(AT_RESET, self._context)
