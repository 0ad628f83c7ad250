"""Cellar, jit. Helper threads that run blocks beside the launching thread.

This is no `ThreadPoolExecutor`: an interrupt of the launching thread inside `submit` or `result`
can leave one of the executor's locks taken for ever. Here each step that must not be interrupted is
one C call. `join` takes back a job that has not begun.
"""

from __future__ import annotations

import os
from _thread import start_new_thread
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from cudasync.softgpu.interface.internal_threads import entered

if TYPE_CHECKING:
    from collections.abc import Callable

# The number of processors, read once: `cpu_count` costs more than a small launch.
PROCESSORS = os.cpu_count() or 1
# A waiter polls this often: its wake-up may have gone to a waiter that was interrupted.
_LOOK_S = 0.1

_JOBS: SimpleQueue[Job] = SimpleQueue()
# One entry for each thread. The threads sleep between jobs, for as long as the process lives.
_threads: list[None] = []


class Job:
    """A call of `work()` that a helper makes, unless `join` takes it back first."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        # The first entry counts: a helper has begun, or the job was taken back.
        self._verdicts: list[str] = []
        self._has_ended = False
        self._wakes: SimpleQueue[None] = SimpleQueue()
        self._error: BaseException | None = None

    def ask(self) -> None:
        """Offer the job to helpers; one runs it if it is free before `join`."""
        _JOBS.put(self)
        if len(_threads) < PROCESSORS - 1:
            _threads.append(None)
            start_new_thread(_serve, ())

    def join(self) -> None:
        """Take the job back if it has not begun, else wait for its end; raises the job's error.

        May be interrupted and called again.
        """
        self._verdicts.append("taken back")
        if self._verdicts[0] == "taken back":
            return
        while not self._has_ended:
            try:
                self._wakes.get(timeout=_LOOK_S)
            except Empty:
                continue
        if self._error is not None:
            raise self._error

    def do(self) -> None:
        """On a helper: run the job, unless it was taken back."""
        self._verdicts.append("begun")
        if self._verdicts[0] != "begun":
            return
        try:
            self._work()
        except BaseException as error:
            self._error = error
        self._has_ended = True
        self._wakes.put(None)


def _serve() -> None:
    with entered():
        while True:
            job = _JOBS.get()
            job.do()
            # Hold no reference while asleep.
            del job


if hasattr(os, "register_at_fork"):
    # A forked child has none of the threads.
    os.register_at_fork(after_in_child=_threads.clear)
