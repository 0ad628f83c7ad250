"""Cellar, core. Work that goes on by itself, where another process may be waiting for it.

Nothing runs here unless somebody waits for it; who waits may be another process, which nobody here
can see. So a process that shares memory or events has a thread that runs what is ready, from the
moment on at which it first shares anything, and orders are no longer repeatable there.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.core.driver_types.result_codes import DriverFailure
from cudasync.softgpu.core.scheduling.threaded_executor import ThreadedExecutor
from cudasync.softgpu.interface.internal_threads import entered

if TYPE_CHECKING:
    from cudasync.softgpu.core.context import Context
    from cudasync.softgpu.core.machine import Machine

# Between two looks for work: enqueueing tells nobody.
_PAUSE_S: Final = 0.005


class Progress:
    """The thread of one machine, once there is one."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._ended = threading.Event()
        self._begun: list[int] = []

    def begin(self) -> None:
        """Run what is ready from now on, whoever waits for it."""
        if self._begun or isinstance(self._machine.executor, ThreadedExecutor):
            return
        self._begun.append(0)
        if len(self._begun) == 1:
            threading.Thread(target=self._go_on, name="cudasync shared work", daemon=True).start()

    def end(self) -> None:
        """Begin nothing more."""
        self._ended.set()

    def _go_on(self) -> None:
        machine = self._machine
        with entered():
            while not self._ended.wait(_PAUSE_S):
                for context in machine.contexts:
                    if not (context.is_destroyed or context.error):
                        # What fails, the program is told when it asks.
                        with suppress(DriverFailure):
                            self._run(context)

    def _run(self, context: Context) -> None:
        executor = self._machine.executor
        tails = [
            stream.tail
            for stream in list(context.streams)
            if stream.pending and stream.tail is not None and stream.capture is None
        ]
        executor.finish_nowait(tails)
        for tail in tails:
            # What waits for memory is tried again.
            if not tail.is_done and not self._ended.is_set():
                executor.query(tail)
