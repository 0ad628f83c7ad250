"""Cellar. The executor of an explored program: every choice is the search's.

An executor becomes one of these for as long as an exploration lasts, and is what it was before
afterwards, so that being able to explore costs nobody else anything.

Against the host, each command is as late as CUDA allows: nothing runs but inside a call that waits
or asks, and there nothing that is not needed, unless the search wants to see it before something
else. So what is explored are the orders of commands among each other.
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

# A host function that takes longer is no longer waited for, and what follows is not repeatable.
_PATIENCE_S: Final = 1.0


class ExploringExecutor(Executor):
    """An executor in an exploration."""

    search: Search
    watching: Watching
    run: Run
    # The steps of this run that touched anything, for people.
    told: list[str]
    _chosen: Command | None = None

    def begin_run(self, machine: Machine) -> None:
        """Before the program is called."""
        self.run = Run(machine)
        self.told = []
        self.search.begin()

    # What the program does

    def enqueue(self, command: Command, waits: Iterable[Command] = ()) -> None:
        if command.stream.capture is not None:
            # It becomes a node of a graph, and a command when that is launched.
            super().enqueue(command, waits)
            return
        waits = list(waits)
        self.run.enqueues(command, waits)
        try:
            super().enqueue(command, waits)
        except BaseException:
            self.run.forgets(command)
            raise

    # What comes before what has to be known here of what is done, too: so these are steps.

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
        """Nothing has to be done now, so nothing is."""

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
        """What may go on, by age."""
        run = self.run
        for command in list(self._ready):
            if isinstance(command, WaitValue) and not run.is_enabled(command):
                # As if it had been tried in vain.
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
                self.run.doubts["a host function takes long, so that its end is chance"] = None
        if not is_choice and step is Step.YIELDED:
            return step
        if not is_choice:
            # The host may have ended its wait; that was nobody's choice.
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
