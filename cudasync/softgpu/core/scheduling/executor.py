"""Cellar. The executor: runs commands inside the calls that wait for them.

Nothing runs when it is enqueued. A call that synchronises or queries makes its own thread the
executor for as long as it needs; other threads meanwhile enqueue, or wait for their turn.

True whenever the lock is free:
- at most one command executes, and never with the lock held;
- `_ready` holds exactly the commands that may run, by age;
- `_yielded` holds commands that ran, wait for memory to change, and may be tried again;
- a finished command has released all its dependents.

The garbage collector may run a finaliser anywhere, also in a thread that holds the lock or
executes. Frees of such a finaliser are deferred until the thread leaves the executor (`deferred`).
"""

from __future__ import annotations

from threading import Condition, get_ident
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.core.driver_types.result_codes import (
    ILLEGAL_STATE,
    NOT_PERMITTED,
    UNKNOWN,
    DriverFailure,
)
from cudasync.softgpu.core.launch.kernel_stop import AT_END, GRACE_S, Interrupted
from cudasync.softgpu.core.scheduling.deferred_frees import Deferred
from cudasync.softgpu.core.scheduling.interrupt_recovery import finish_again, rescue
from cudasync.softgpu.core.streams.commands import Step
from cudasync.softgpu.core.streams.deadlock_detection import deadlock_report, others_may_call, want
from cudasync.softgpu.core.streams.dependency_tracking import Chains

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cudasync.softgpu.core.context import Context
    from cudasync.softgpu.core.launch.kernel_launch import KernelLaunch
    from cudasync.softgpu.core.scheduling.scheduler import Scheduler
    from cudasync.softgpu.core.streams.commands import Command

# How long the executor sleeps when all commands wait for memory that only the host can change.
POLL_S: Final = 100e-6
# How long the executor waits for a host function before it goes on with other streams. Most are
# far quicker, and then the order of execution does not depend on the speed of threads.
_GRACE_S: Final = 2e-3


class Executor(Chains):
    """Holds the commands of all contexts and executes them."""

    has_threads = False
    """True if commands are executed without a call that waits or asks."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__()
        # `scheduler` may be exchanged for a while; `own_scheduler` is the original.
        self.scheduler = self.own_scheduler = scheduler
        self._yielded: list[Command] = []
        self._elsewhere: set[Command] = set()
        self._executing_thread = 0
        # The command that this thread executes; kept after its end.
        self._executing: Command | None = None
        self._interrupted = Interrupted()
        self._waiting_threads = 0
        # Threads that run host functions: CUDA forbids driver calls there.
        self.host_function_threads: set[int] = set()
        self.deferred = Deferred(self.is_busy_here)

    def _make_lock(self) -> None:
        super()._make_lock()
        self._changed = Condition(self.lock)

    def after_fork(self) -> None:
        """Called in a forked child, in which threads that held the lock or executed are gone."""
        self._make_lock()
        self._executing_thread = 0
        self._waiting_threads = 0

    def is_busy_here(self) -> bool:
        """True if the calling thread is inside the executor, so that this is a finaliser."""
        return self._executing_thread == get_ident() or self._owns_lock()

    # Waiting

    def synchronize(self, targets: Iterable[Command]) -> None:
        """Return once all of `targets` are done or dropped.

        Runs only the commands that they need, unless a target waits for memory that other work
        may write. DriverFailure ILLEGAL_STATE if nothing can ever run again.
        """
        awaited = list(targets)
        with self.lock:
            left = [target for target in awaited if not target.is_done]
            if left:
                self._refuse_nested()
                want(left)
            while left:
                if left[-1].is_done:
                    left.pop()
                else:
                    self._advance(left)
            self._seen_us = max(self._seen_us, *(target.time_us for target in awaited), 0.0)

    def finish_nowait(self, targets: Iterable[Command]) -> None:
        """Like `synchronize`, but returns as soon as nothing is ready."""
        with self.lock:
            left = [target for target in targets if not target.is_done]
            want(left)
            while not all(target.is_done for target in left) and not self._executing_thread:
                command = self._pick()
                if command is None:
                    return
                self._execute(command)

    def query(self, target: Command | None) -> bool:
        """True if `target` was done at the call; if not, run one command, so that polling ends.

        The answer describes the state before that command. So a program that treats pending work
        as finished is caught every time, not only when the work is slow.
        """
        if target is None:
            return True
        if target.is_done:
            if target.time_us > self._seen_us:
                self.see(target.time_us)
            return True
        with self.lock:
            self._refuse_nested()
            if not target.is_done and not self._executing_thread:
                want([target])
                command = self._pick() or self._pick_any()
                if command is not None:
                    self._execute(command)
                elif self._yielded:
                    self._poll_once()
        return False

    def _refuse_nested(self) -> None:
        """DriverFailure NOT_PERMITTED if the calling thread would wait for itself."""
        thread = get_ident()
        if thread in self.host_function_threads:
            raise DriverFailure(NOT_PERMITTED, "a host function must not call the driver")
        if self._executing_thread == thread:
            raise DriverFailure(NOT_PERMITTED, "a finaliser must not wait for the device")

    # Executing; the lock is held on entry and on return

    def _advance(self, left: list[Command]) -> None:
        """Take one step that may bring the commands in `left` nearer to their end."""
        if self._executing_thread:
            self._wait(self._interrupted.patience_s(self._executing))
            return
        command = self._pick()
        if command is None and any(c.is_wanted for c in self._yielded):
            command = self._pick_any()
        if command is not None:
            self._execute(command)
        elif self._yielded:
            if not self._poll_once():
                self._refuse_hopeless(left)
                self._wait(POLL_S)
        elif self._elsewhere:
            self._wait(None)
        elif not self._rescue(left):
            raise DriverFailure(ILLEGAL_STATE, deadlock_report(left))

    def _refuse_hopeless(self, left: list[Command]) -> None:
        """DriverFailure ILLEGAL_STATE if the yielded commands can never go on."""
        if self._ready or self._elsewhere or not all(c.needs_commands for c in self._yielded):
            return
        if not others_may_call(self.own_threads(), self._waiting_threads):
            raise DriverFailure(ILLEGAL_STATE, deadlock_report(left))

    def own_threads(self) -> set[int]:
        """The threads that the executor has made."""
        return self.host_function_threads

    def _wait(self, timeout_s: float | None) -> None:
        self._waiting_threads += 1
        try:
            self._changed.wait(timeout_s)
        except KeyboardInterrupt:
            self._interrupted.note(self._executing)
            raise
        finally:
            self._waiting_threads -= 1

    def _pick(self) -> Command | None:
        """A ready command, if a wanted one is ready; None otherwise."""
        ready = self._ready
        if not ready:
            return None
        if not self.scheduler.runs_ahead:
            ready = [command for command in ready if command.is_wanted]
        elif not any(command.is_wanted for command in ready):
            return None
        if len(ready) > 1:
            return self.scheduler.choose(ready)
        return ready[0] if ready else None

    def _pick_any(self) -> Command | None:
        return self.scheduler.choose(self._ready) if self._ready else None

    def _poll_once(self) -> bool:
        """Give each yielded command one more turn; True if one is done, failed or moved."""
        before = len(self._yielded)
        has_moved = False
        for command in list(self._yielded):
            if command in self._yielded:
                has_moved = self._execute(command) is Step.MOVED or has_moved
        return has_moved or len(self._yielded) < before or bool(self._ready)

    def _execute(self, command: Command) -> Step | None:
        step: Step | None = None
        failure: DriverFailure | None = None
        # An interrupt may come behind any call. Only exception handlers deal with it, and they
        # cost nothing until something is raised.
        try:
            (self._ready if command in self._ready else self._yielded).remove(command)
            self._executing = command
            self._executing_thread = get_ident()
            self.lock.release()
            step = command.run()
        except DriverFailure as problem:
            failure = problem
        except Exception as problem:
            failure = DriverFailure(UNKNOWN, f"{command.describe()}: {problem!r}")
        except BaseException:
            if self._owns_lock():
                self.lock.release()
            raise
        finally:
            try:
                self.lock.acquire()
            except BaseException:
                if not self._owns_lock():
                    self.lock.acquire()
                raise
            finally:
                self._executing_thread = 0
                try:
                    if command.is_done:
                        # Its context was reset meanwhile, or another thread has finished it.
                        pass
                    elif failure is not None:
                        self.fail(command.stream.context, failure)
                    elif step is Step.DONE:
                        self._finish(command)
                    elif step is Step.ELSEWHERE:
                        self._elsewhere.add(command)
                    elif command not in self._ready:
                        # Yielded, or interrupted by an exception that goes on to the caller.
                        self._yielded.append(command)
                    if self._waiting_threads:
                        self._changed.notify_all()
                except BaseException:
                    if step is Step.DONE:
                        finish_again(command, self._ready, (self._yielded, self._elsewhere))
                        self._changed.notify_all()
                    raise
        if step is Step.ELSEWHERE:
            self._changed.wait_for(lambda: command.is_done, _GRACE_S)
        return step

    def begins_grid(self, grid: KernelLaunch) -> None:
        """Called before a grid runs that a thread of the executing launch has launched."""

    def ends_grid(self, grid: KernelLaunch) -> None:
        """Called when the blocks of such a grid are over; first for the executing launch itself.

        Neither is called for a launch whose threads launch nothing. The lock is not held.
        """

    def _rescue(self, left: Iterable[Command]) -> bool:
        """Repair bookkeeping that interrupts left undone; False if nothing was undone."""
        return rescue(left, self._ready, (self._yielded, self._elsewhere))

    def finish_elsewhere(self, command: Command, account: Callable[[], object]) -> None:
        """Called by the thread that took over a command, when the command is done.

        `account` is called under the lock, before any thread can see that the command is done.
        """
        with self.lock:
            account()
            self._elsewhere.discard(command)
            if not command.is_done:
                self._finish(command)
            self._changed.notify_all()

    def _finish(self, command: Command) -> None:
        stream = command.stream
        time_us = max(stream.time_us, command.after_us) + command.cost_us
        command.time_us = stream.time_us = time_us
        pending = stream.pending
        if pending and pending[0] is command:
            pending.popleft()
        if not pending and stream.is_closed:
            stream.context.streams.pop(stream, None)
        self._release(command)

    def settle(self, context: Context) -> None:
        """Return once no command of a context executes; called after `drop`."""
        with self.lock:
            self._wait_until(lambda: all(c.stream.context is not context for c in self._others()))

    def settle_command(self, command: Command) -> None:
        """Return once no other thread executes `command`, which is no kernel."""
        with self.lock:
            self._wait_until(lambda: command not in self._others())

    def wait_for_others(self) -> None:
        """Return once no other thread executes a command; the lock is held before and after."""
        self._wait_until(lambda: not self._others())

    def stop(self) -> None:
        """Called when the process ends: stop commands whose memory goes when Python ends."""
        self.stop_kernels(AT_END)
        with self.lock:
            self._wait_until(lambda: not self._others(), GRACE_S)

    def _wait_until(self, holds: Callable[[], bool], timeout_s: float | None = None) -> None:
        self._waiting_threads += 1
        try:
            self._changed.wait_for(holds, timeout_s)
        finally:
            self._waiting_threads -= 1

    # Stopping

    def note_interrupt(self) -> None:
        """The program was interrupted: waiters give the executing command one more second."""
        with self.lock:
            if self._executing_thread:
                self._interrupted.note(self._executing)
                self._changed.notify_all()

    def stop_kernels(self, reason: str, context: Context | None = None) -> None:
        """Stop the executing and yielded kernels, of one context or of all."""
        with self.lock:
            for command in [*self._others(), *self._yielded]:
                if context is None or command.stream.context is context:
                    command.stop(reason)

    def _others(self) -> list[Command]:
        """The commands that other threads execute."""
        command = self._executing
        if command is None or self._executing_thread in (0, get_ident()):
            return []
        return [command]

    # Failing

    def fail(self, context: Context, failure: DriverFailure) -> None:
        """Make `failure` sticky on the context and drop its pending work; the lock is held."""
        context.set_error(failure)
        self.drop(context)

    def drop(self, context: Context) -> None:
        """Drop all pending commands of a context; waiting commands of other contexts go on."""
        dropped = [command for stream in list(context.streams) for command in stream.pending]
        gone = set(dropped)
        self._ready = [command for command in self._ready if command not in gone]
        self._yielded = [command for command in self._yielded if command not in gone]
        for command in dropped:
            command.is_done = True
            command.stream.pending.clear()
        for command in dropped:
            command.dropped()
            self._release(command)
        if self._waiting_threads:
            self._changed.notify_all()
