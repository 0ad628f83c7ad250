"""Cellar. The executor of an explored program: the search makes every choice.

During an exploration, an executor's class is exchanged for this one, so that other programs pay
nothing for exploration.

Against the host, each command is as late as CUDA allows: commands run only inside a waiting call or
a query. There, unneeded commands run only if the search puts them before others. So the explored
orders are orders of commands among each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cudasync.softgpu.core.exploration.execution_trace import Run
from cudasync.softgpu.core.scheduling.executor import Executor
from cudasync.softgpu.core.streams.commands import EventWait, Step
from cudasync.softgpu.core.streams.memory_operations import WaitValue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudasync.softgpu.core.exploration.kernel_footprints import Watching
    from cudasync.softgpu.core.exploration.partial_order_reduction import Search
    from cudasync.softgpu.core.machine import Machine
    from cudasync.softgpu.core.streams.commands import Command
    from cudasync.softgpu.core.streams.streams import Event, Stream

# A longer host function is no longer waited for, and the rest of the run is not repeatable.
_PATIENCE_S: Final = 1.0


class ExploringExecutor(Executor):
    """An executor in an exploration."""

    search: Search
    watching: Watching
    run: Run
    # The steps of this run that touched memory, for people.
    told: list[str]
    _chosen: Command | None = None

    def begin_run(self, machine: Machine) -> None:
        """Called before each call of the program."""
        self.run = Run(machine)
        self.told = []
        self.search.begin()

    # Calls of the program

    def enqueue(self, command: Command, waits: Iterable[Command] = ()) -> None:
        if command.stream.capture is not None:
            # The command becomes a graph node, and a command again at the launch.
            super().enqueue(command, waits)
            return
        waits = list(waits)
        self.run.enqueues(command, waits)
        try:
            super().enqueue(command, waits)
        except BaseException:
            self.run.forgets(command)
            raise

    # The order of finished commands must be known here, too, so records and waits are steps.

    def record(self, event: Event, stream: Stream) -> None:
        self._record_by_command(event, stream)

    def hold(self, stream: Stream, event: Event) -> None:
        if event.record is not None:
            self.enqueue(EventWait(stream), (event.record,))

    def synchronize(self, targets: Iterable[Command]) -> None:
        targets = list(targets)
        super().synchronize(targets)
        self.run.waited_for(targets)

    def finish_nowait(self, targets: Iterable[Command]) -> None:
        """Do nothing, because commands run as late as possible."""

    def query(self, target: Command | None) -> bool:
        is_done = super().query(target)
        if target is not None:
            if is_done:
                self.run.waited_for([target])
            else:
                self.run.polled()
        return is_done

    # Choosing; the lock is held

    def _pick(self) -> Command | None:
        candidates = self._candidates()
        return self._choose(candidates) if any(c.is_wanted for c in candidates) else None

    def _pick_any(self) -> Command | None:
        candidates = self._candidates()
        return self._choose(candidates) if candidates else None

    def _candidates(self) -> list[Command]:
        """The commands that may go on: wanted ones first, then by age."""
        run = self.run
        for command in list(self._ready):
            if isinstance(command, WaitValue) and not run.is_enabled(command):
                # Treat the wait as tried in vain.
                self._ready.remove(command)
                self._yielded.append(command)
        found = [*self._ready, *(each for each in self._yielded if run.is_enabled(each))]
        return sorted(found, key=lambda each: (not each.is_wanted, each.serial))

    def _choose(self, candidates: list[Command]) -> Command:
        by_key = {self.run.key(command): command for command in candidates}
        self._chosen = by_key[self.search.choose(list(by_key))]
        return self._chosen

    def _execute(self, command: Command) -> Step | None:
        is_choice = self._chosen is command
        self._chosen = None
        self.run.begins(command)
        self.watching.watch(command)
        step = super()._execute(command)
        if step is Step.ELSEWHERE:
            self._changed.wait_for(lambda: command.is_done, _PATIENCE_S)
            if not command.is_done:
                self.run.doubts["a host function takes so long that its end is chance"] = None
        if not is_choice and step is Step.YIELDED:
            return step
        if not is_choice:
            # The host may have ended the wait, which was no choice of the search.
            self.search.choose([self.run.key(command)])
        taken = self.run.step(
            command,
            is_over=command.is_done or step is Step.ELSEWHERE,
            has_moved=step is Step.MOVED,
            failed=step is None,
        )
        self.search.took(taken)
        if taken.footprint.touches_anything:
            stream, place, _ = taken.key
            self.told.append(f"{stream}.{place} {command.describe()}, {self.run.site(command)}")
        return step
