"""Cellar. The executor of a checked program: notes the order, accesses and faults of commands.

During a check, an executor's class is exchanged for this one, as in an exploration. The order of
finished commands must also be known, so records and waits are commands. Commands run in the same
order as without a check.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.core.checks.findings import Access, Finding
from cudasync.softgpu.core.checks.kernel_meetings import finding_of
from cudasync.softgpu.core.checks.watching import done_by, early_reads, missed, strong_reads
from cudasync.softgpu.core.driver_types.call_sites import call_site
from cudasync.softgpu.core.driver_types.result_codes import (
    ASSERT,
    ILLEGAL_ADDRESS,
    ILLEGAL_STATE,
    LAUNCH_TIMEOUT,
    MISALIGNED_ADDRESS,
    DriverFailure,
)
from cudasync.softgpu.core.launch.kernel_launch import KernelLaunch
from cudasync.softgpu.core.scheduling.executor import Executor
from cudasync.softgpu.core.streams.commands import EventWait, Step
from cudasync.softgpu.core.streams.memory_operations import WaitValue
from cudasync.softgpu.core.streams.streams import NON_BLOCKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cudasync.softgpu.core.checks.findings import Findings
    from cudasync.softgpu.core.checks.memory import CheckedMemory
    from cudasync.softgpu.core.checks.order import Order
    from cudasync.softgpu.core.checks.watching import LaunchWatching
    from cudasync.softgpu.core.context import Context
    from cudasync.softgpu.core.streams.commands import Command
    from cudasync.softgpu.core.streams.streams import Event, Stream

_BARRIER = "a barrier can never complete"
_TRAP = "a kernel executed trap"


class CheckingExecutor(Executor):
    """An executor under check."""

    kinds: frozenset[str]
    findings: Findings
    order: Order
    checked: CheckedMemory
    watching: LaunchWatching | None
    # The commands that have waited for memory to change.
    waited: set[Command]

    # Calls of the program

    def enqueue(self, command: Command, waits: Iterable[Command] = ()) -> None:
        waits = list(waits)
        if command.stream.capture is None:
            # Without the lock, so that `enqueue` still refuses a finaliser that holds it.
            self.order.enqueues(command, waits, call_site())
        super().enqueue(command, waits)

    def note_node(self, command: Command, site: str) -> None:
        stamp = self.order.stamp_of(command)
        if stamp is not None:
            stamp.site, stamp.launch = site, stamp.site

    def record(self, event: Event, stream: Stream) -> None:
        self._record_by_command(event, stream)

    def hold(self, stream: Stream, event: Event) -> None:
        if event.record is not None:
            self.enqueue(EventWait(stream), (event.record,))

    def tail(self, stream: Stream) -> Command | None:
        # The legacy stream's end covers the streams that it joins, also finished ones.
        if stream.is_legacy and stream.capture is None and not stream.context.error:
            others = [
                other.tail.serial
                for other in list(stream.context.streams)
                if other.tail is not None and not other.flags & NON_BLOCKING
            ]
            tail = stream.tail
            if others and (tail is None or tail.serial < max(others)):
                self.enqueue(EventWait(stream))
        return super().tail(stream)

    def synchronize(self, targets: Iterable[Command]) -> None:
        targets = list(targets)
        try:
            super().synchronize(targets)
        except DriverFailure as failure:
            if failure.code == ILLEGAL_STATE and "sync" in self.kinds:
                access = Access("the host", "wait", call_site())
                missing = "missing: the command that ends the wait, enqueued before the host waits"
                self.findings.add(Finding("sync", failure.detail, [access], missing=missing))
            raise
        with self.lock:
            self.order.host_waited(targets)

    def query(self, target: Command | None) -> bool:
        is_done = super().query(target)
        if is_done and target is not None:
            with self.lock:
                self.order.host_waited([target])
        return is_done

    def context_is_idle(self, context: Context) -> None:
        with self.lock:
            self.order.host_waited_for_context(context)

    # Execution; the lock is held

    def _execute(self, command: Command) -> Step | None:
        self.order.begins(command)
        if self.watching is not None:
            self.watching.watch(command)
        step = super()._execute(command)
        if step in (Step.YIELDED, Step.MOVED):
            self.waited.add(command)
        elif step is Step.DONE:
            self._did(command)
        return step

    def finish_elsewhere(self, command: Command, account: Callable[[], object]) -> None:
        def and_note() -> None:
            account()
            self.order.done(command)
            # A host function may inform the host in ways that are not seen.
            stamp = self.order.stamp_of(command)
            if stamp is not None:
                self.order.host_knows(stamp)

        super().finish_elsewhere(command, and_note)

    def _did(self, command: Command) -> None:
        has_waited = command in self.waited
        self.waited.discard(command)
        # The accesses of a launch with grids below it were noted when its blocks were over.
        is_noted = isinstance(command, KernelLaunch) and command.launched_grids
        if not is_noted:
            self._joins(command, has_waited=has_waited)
        self.order.done(command)
        if not is_noted:
            self._note_accesses(command)

    def _joins(self, command: Command, *, has_waited: bool) -> None:
        if has_waited or isinstance(command, WaitValue):
            self.order.joins(command, self.checked.writers(strong_reads(command)))

    def _note_accesses(self, command: Command) -> None:
        if not isinstance(command, WaitValue):
            self.checked.command(command, command.stamp, done_by(command))
        if isinstance(command, KernelLaunch):
            self.checked.windows(command, early_reads(command))
            self._tell_of(command)

    # A grid that a thread launched has the stamp of the host's launch, so it comes after whatever
    # that launch and earlier grids below it have done.

    def begins_grid(self, grid: KernelLaunch) -> None:
        command = self._executing
        assert command is not None, "only an executing launch has grids below it"
        grid.stamp = command.stamp
        if self.watching is not None:
            with self.lock:
                self.watching.watch(grid)

    def ends_grid(self, grid: KernelLaunch) -> None:
        with self.lock:
            self._joins(grid, has_waited=self._executing in self.waited)
            self._note_accesses(grid)

    def _tell_of(self, command: KernelLaunch) -> None:
        """Report threads of the launch that missed each other."""
        for told in missed(command):
            self.findings.add(finding_of(command, told))

    def fail(self, context: Context, failure: DriverFailure) -> None:
        """A fault of a checked kind becomes a finding, and the program goes on."""
        kind = ""
        if failure.code in (ILLEGAL_ADDRESS, MISALIGNED_ADDRESS, ASSERT):
            kind = "mem"
        elif failure.detail.startswith(_BARRIER) or failure.code == LAUNCH_TIMEOUT:
            kind = "sync"
        command, missing = self._executing, ""
        if isinstance(command, KernelLaunch) and failure.detail.startswith(_TRAP):
            kind, missing = _of_trap(command)
        if kind not in self.kinds or command is None or command.stream.context is not context:
            super().fail(context, failure)
            return
        stamp = command.stamp
        access = Access(
            command.describe(), "fault", stamp.site, command.stream.name, launch=stamp.launch
        )
        self.findings.add(Finding(kind, failure.detail, [access], missing=missing))
        self.waited.discard(command)
        self.order.done(command)
        self._finish(command)


def _of_trap(command: KernelLaunch) -> tuple[str, str]:
    """Kind and remedy of a trap: cooperative groups' headers trap if a grid has no barrier."""
    functions = command.function.module.source.functions
    asks = any("%envreg2" in each.text for function in functions for each in function.body)
    if command.workspace is not None or not asks:
        return "", ""
    return "sync", "missing: a cooperative launch, which a grid-wide barrier needs"
