"""Cellar. The executor with threads: commands start when they are enqueued, several at once.

Time is real, `query` reports the current state, and nothing is repeatable. A worker is made when
there is work and all others are busy, and ends after a second without work. No thread of the
program executes commands, so no interrupt reaches a command.

True whenever the lock is free:
- `_ready` holds runnable commands, `_running` the commands that workers execute now;
- `_yielded` holds commands that wait for memory to change, `_due_s` when each is retried;
- at most one command of a stream executes;
- a thread that adds to `_ready` or `_yielded` has woken a worker, or is one.
"""

from __future__ import annotations

from _thread import start_new_thread
from os import cpu_count
from threading import Condition, get_ident
from time import monotonic, perf_counter_ns, sleep
from typing import TYPE_CHECKING, Final

from cudasync.locks import Lock
from cudasync.softgpu.core.driver_types.result_codes import (
    ILLEGAL_STATE,
    NOT_PERMITTED,
    UNKNOWN,
    DriverFailure,
)
from cudasync.softgpu.core.launch.kernel_launch import KernelLaunch
from cudasync.softgpu.core.scheduling.executor import POLL_S, Executor
from cudasync.softgpu.core.scheduling.fifo import Fifo
from cudasync.softgpu.core.streams.commands import Step
from cudasync.softgpu.core.streams.deadlock_detection import deadlock_report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cudasync.softgpu.core.context import Context
    from cudasync.softgpu.core.streams.commands import Command
    from cudasync.softgpu.core.streams.streams import Stream

# Copies and kernels run without the GIL; a few more workers than processors keep these busy.
_MOST_WORKERS: Final = 4 + 2 * (cpu_count() or 1)
_IDLE_S: Final = 1.0
# The longest pause between two looks at a word that only the host can still write.
_LONGEST_PAUSE_S: Final = 2e-3
# How long the end of the process waits for executing commands.
_END_S: Final = 1.0


class ThreadedExecutor(Executor):
    """Executes commands on threads of its own."""

    has_threads = True

    def __init__(self) -> None:
        self._running: set[Command] = set()
        self._due_s: dict[Command, float] = {}
        self._pauses_s: dict[Command, float] = {}
        self._workers: set[int] = set()
        self._idle = 0
        self._is_polling = False
        self._is_over = False
        self._begun_ns = perf_counter_ns()
        super().__init__(Fifo())

    def _make_lock(self) -> None:
        super()._make_lock()
        # Wakes workers; `_changed` wakes waiting threads.
        self._work = Condition(self.lock)
        # One thread at a time makes machine code, and one thread at a time prints.
        self._one_starts = Lock()
        self._one_prints = Lock()
        self._threads: list[None] = []

    def after_fork(self) -> None:
        super().after_fork()
        self._workers.clear()
        self._running.clear()
        self._idle = 0

    def is_busy_here(self) -> bool:
        # The only code of the program that workers run is its finalisers.
        return get_ident() in self._workers or self._owns_lock()

    def stop(self) -> None:
        """Called when the process ends: begin nothing more, and wait a while for running work."""
        with self.lock:
            self._is_over = True
            self._work.notify_all()
            self._wait_until(lambda: not self._running, _END_S)
        super().stop()

    def _others(self) -> list[Command]:
        return list(self._running)

    def own_threads(self) -> set[int]:
        return self.host_function_threads | self._workers

    # Enqueueing and waiting

    def enqueue(self, command: Command, waits: Iterable[Command] = ()) -> None:
        super().enqueue(command, waits)
        if not command.missing:
            with self.lock:
                self._call_workers()

    def stream_us(self, stream: Stream) -> float:
        return self._now_us()

    def synchronize(self, targets: Iterable[Command]) -> None:
        awaited = list(targets)
        with self.lock:
            left = [target for target in awaited if not target.is_done]
            if left:
                self._refuse_nested()
            # An interrupt may have prevented this call when the command was enqueued.
            self._call_workers()
            while left:
                if left[-1].is_done:
                    left.pop()
                elif self._ready or self._running or self._elsewhere:
                    self._wait(None)
                elif self._yielded:
                    # All yielded commands were tried in vain, and nothing has finished since.
                    self._refuse_hopeless(left)
                    self._wait(None)
                elif self._rescue(left):
                    self._call_workers()
                else:
                    raise DriverFailure(ILLEGAL_STATE, deadlock_report(left))

    def finish_nowait(self, targets: Iterable[Command]) -> None:
        """Nothing to do: workers execute the targets anyway."""

    def query(self, target: Command | None) -> bool:
        if target is None or target.is_done:
            return True
        self._refuse_nested()
        with self.lock:
            self._call_workers()
        # A polling loop would keep the GIL from the workers.
        sleep(0)
        return target.is_done

    def _refuse_nested(self) -> None:
        super()._refuse_nested()
        if get_ident() in self._workers:
            raise DriverFailure(NOT_PERMITTED, "a finaliser must not wait for the device")

    def finish_elsewhere(self, command: Command, account: Callable[[], object]) -> None:
        super().finish_elsewhere(command, account)
        with self.lock:
            self._call_workers()

    # Executing; the lock is held on entry and on return

    def _call_workers(self) -> None:
        """Wake or make workers for the ready commands; a calling worker takes one itself."""
        count = len(self._ready) - (get_ident() in self._workers)
        if count > 0 and self._idle:
            self._work.notify(count)
        for _ in range(min(count - self._idle, _MOST_WORKERS - len(self._threads))):
            self._threads.append(None)
            start_new_thread(self._serve, ())

    def _serve(self) -> None:
        threads = self._threads
        with self.lock:
            self._workers.add(get_ident())
            try:
                while (command := self._next()) is not None:
                    self._execute(command)
                    del command
            finally:
                self._workers.discard(get_ident())
                threads.pop()

    def _next(self) -> Command | None:
        """The next command to execute; None if there has been none for a while."""
        while not self._is_over:
            if self._ready:
                if self._yielded:
                    self._work.notify()
                return self._ready.pop(0)
            if self._yielded and not self._is_polling:
                command = min(self._yielded, key=self._due_s.__getitem__)
                wait_s = self._due_s[command] - monotonic()
                if wait_s <= 0:
                    self._yielded.remove(command)
                    del self._due_s[command]
                    if self._yielded:
                        self._work.notify()
                    return command
                self._is_polling = True
                try:
                    self._rest(wait_s)
                finally:
                    self._is_polling = False
            elif not self._rest(_IDLE_S) and not (self._ready or self._yielded):
                return None
        return None

    def _rest(self, timeout_s: float) -> bool:
        self._idle += 1
        try:
            return self._work.wait(timeout_s)
        finally:
            self._idle -= 1

    def _execute(self, command: Command) -> Step | None:
        self._running.add(command)
        step: Step | None = None
        failure: DriverFailure | None = None
        self.lock.release()
        try:
            step = self._attempt(command)
        except DriverFailure as problem:
            failure = problem
        except BaseException as problem:
            failure = DriverFailure(UNKNOWN, f"{command.describe()}: {problem!r}")
        finally:
            self.lock.acquire()
            self._running.discard(command)
        if command.is_done:
            # Its context failed or was reset meanwhile, or another thread has finished it.
            pass
        elif failure is not None:
            self.fail(command.stream.context, failure)
        elif step is Step.DONE:
            self._finish(command)
            if self._yielded:
                # The command may have written a word that yielded commands wait for.
                self._due_s = dict.fromkeys(self._yielded, 0.0)
                self._work.notify()
        elif step is Step.ELSEWHERE:
            self._elsewhere.add(command)
        else:
            self._yielded.append(command)
            self._due_s[command] = monotonic() + self._pause_s(command, step)
        self._call_workers()
        if self._waiting_threads:
            self._changed.notify_all()
        return step

    def _pause_s(self, command: Command, step: Step | None) -> float:
        """The pause before a yielded command is retried; it grows, except for spinning kernels."""
        if step is Step.MOVED:
            return 0.0
        if isinstance(command, KernelLaunch):
            # A kernel's budget assumes this pause.
            return POLL_S
        pause_s = self._pauses_s.get(command, POLL_S)
        self._pauses_s[command] = min(2 * pause_s, _LONGEST_PAUSE_S)
        return pause_s

    def _attempt(self, command: Command) -> Step:
        if not isinstance(command, KernelLaunch):
            return command.run()
        if command.execution is None and not command.launched_grids:
            with self._one_starts:
                command.start()
        if command.function.module.output is None:
            return command.run()
        with self._one_prints:
            return command.run()

    def begins_grid(self, grid: KernelLaunch) -> None:
        with self._one_starts:
            grid.start()

    def _finish(self, command: Command) -> None:
        # The command ends now, whatever its cost by the virtual clock.
        now_us = self._now_us()
        command.stream.time_us, command.after_us = now_us - command.cost_us, 0.0
        self._pauses_s.pop(command, None)
        super()._finish(command)

    def _now_us(self) -> float:
        return (perf_counter_ns() - self._begun_ns) / 1000.0

    def drop(self, context: Context) -> None:
        super().drop(context)
        for waiting in (self._due_s, self._pauses_s):
            for command in [each for each in waiting if each.is_done]:
                del waiting[command]
        if self._waiting_threads:
            self._changed.notify_all()
