"""Cellar, core. A thread that runs ready work, because another process may wait for it.

Work runs only if something waits for it, and a waiter in another process is invisible here. So a
process that shares memory or events has a thread that runs ready commands. The thread starts when
the process first shares something. From then on, orders are not repeatable in this process.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.core.driver_types.result_codes import DriverFailure
from cudasync.softgpu.interface.internal_threads import entered

if TYPE_CHECKING:
    from cudasync.softgpu.core.context import Context
    from cudasync.softgpu.core.machine import Machine

# The pause between two looks for work, because enqueueing does not wake the thread.
_PAUSE_S: Final = 0.005


class Progress:
    """The progress thread of one machine, once it has started."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._ended = threading.Event()
        self._begun: list[int] = []

    def begin(self) -> None:
        """Run ready commands from now on, with or without a waiter in this process."""
        if self._begun or self._machine.executor.has_threads:
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
                        # The program sees the failure at its next call.
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
            # Retries commands that wait for memory.
            if not tail.is_done and not self._ended.is_set():
                executor.query(tail)
