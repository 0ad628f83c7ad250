"""Cellar, jit. Threads that run blocks beside the one that launches.

Not a `ThreadPoolExecutor`: an interrupt of the launching thread, inside of `submit` or `result`,
can leave one of its locks taken for ever. Here each step that must not be cut is one C call, and a
job that is not begun when it is waited for is taken back.
"""

from __future__ import annotations

import os
from _thread import start_new_thread
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from cudasync.softgpu.interface.internal_threads import entered

if TYPE_CHECKING:
    from collections.abc import Callable

# The processors there are: asking costs more than a small launch.
PROCESSORS = os.cpu_count() or 1
# A waiter looks by itself this often: what would wake it may have gone to one that was interrupted.
_LOOK_S = 0.1

_JOBS: SimpleQueue[Job] = SimpleQueue()
# One for each thread there is. They sleep between jobs, for as long as the process lives.
_threads: list[None] = []


class Job:
    """`work()`, done by a helper, or taken back."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        # What is appended first counts: a helper has begun, or the job was taken back.
        self._verdicts: list[str] = []
        self._has_ended = False
        self._wakes: SimpleQueue[None] = SimpleQueue()
        self._error: BaseException | None = None

    def ask(self) -> None:
        """Have a helper do it, if one has time before `join`."""
        _JOBS.put(self)
        if len(_threads) < PROCESSORS - 1:
            _threads.append(None)
            start_new_thread(_serve, ())

    def join(self) -> None:
        """Take it back if it has not begun, else wait for its end; raises what went wrong in it.

        May be interrupted, and called again.
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
        """On a helper: do it, unless it was taken back."""
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
            # Hold nothing while asleep.
            del job


if hasattr(os, "register_at_fork"):
    # A child has none of the threads.
    os.register_at_fork(after_in_child=_threads.clear)
