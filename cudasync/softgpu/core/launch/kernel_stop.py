"""Cellar. Ending kernels that do not end by themselves: after an interrupt, a reset, at the end.

A kernel that is stopped times out where it is, and its context fails with that. One that ends
within the grace is left alone: it only looked endless.
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

# How long a kernel may go on that somebody wants to be over.
GRACE_S: Final = 1.0
AFTER_INTERRUPT: Final = "it had not ended a second after Ctrl-C"
AT_RESET: Final = "its device was reset"
AT_END: Final = "the process ended"


class Interrupted:
    """The command that executed when an interrupt came, and how long others still wait for it.

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
        """For how long to wait for `command`, which executes; None for as long as it takes."""
        if command is None or command is not self._command:
            return None
        left_s = self._until_s - monotonic()
        if left_s > 0:
            return left_s
        command.stop(AFTER_INTERRUPT)
        return None


class Deadline:
    """Within, what a context executes has a second; then its kernels are stopped."""

    def __init__(self, executor: Executor, context: Context) -> None:
        self._executor = executor
        self._context = context
        self._is_over = Event()

    def __enter__(self) -> None:
        # Nothing runs late where there is nothing to run.
        if any(stream.pending for stream in list(self._context.streams)):
            Thread(target=self._watch, name="cudasync deadline", daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()

    def _watch(self) -> None:
        with entered():
            while not self._is_over.wait(GRACE_S):
                self._executor.stop_kernels(AT_RESET, self._context)
