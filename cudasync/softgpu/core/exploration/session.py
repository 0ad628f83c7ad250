"""Cellar. An exploration from its beginning to its end: runs of one program, one after another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cudasync.softgpu.core.driver_types.result_codes import (
    INVALID_VALUE,
    NOT_PERMITTED,
    NOT_SUPPORTED,
    DriverFailure,
)
from cudasync.softgpu.core.exploration.execution_trace import Run
from cudasync.softgpu.core.exploration.exploring_executor import ExploringExecutor
from cudasync.softgpu.core.exploration.kernel_footprints import Watching
from cudasync.softgpu.core.exploration.partial_order_reduction import Search
from cudasync.softgpu.core.scheduling.executor import Executor

if TYPE_CHECKING:
    from cudasync.softgpu.core.exploration.partial_order_reduction import Key
    from cudasync.softgpu.core.machine import Machine

_DIVERGED: Final = "the program makes other choices from run to run"


class Session:
    """One exploration; meanwhile the machine's executor is an `ExploringExecutor`."""

    def __init__(self, machine: Machine, replay: str = "") -> None:
        executor = machine.executor
        if isinstance(executor, ExploringExecutor):
            raise DriverFailure(NOT_PERMITTED, "another exploration is running: end that one first")
        if type(executor) is not Executor:
            raise DriverFailure(
                NOT_SUPPORTED, "an exploration needs the scheduler fifo or seed=N, not threads"
            )
        order = _keys(replay)
        self._machine = machine
        self._is_in_run = False
        self._has_more = True
        self._doubts: dict[str, None] = {}
        # Earlier work is not explored.
        self._drain()
        executor.__class__ = ExploringExecutor
        assert isinstance(executor, ExploringExecutor)
        self._executor = executor
        executor.search = Search(order)
        executor.watching = Watching(machine)
        executor.run = Run(machine)

    def next(self) -> bool:
        """Finish the current run, if there is one, and begin another; False if all are done.

        DriverFailure if pending work of the run fails.
        """
        self._finish_run()
        if self._has_more:
            self._is_in_run = True
            self._executor.begin_run(self._machine)
        return self._has_more

    def _finish_run(self) -> None:
        if not self._is_in_run:
            return
        self._drain()
        self._is_in_run = False
        self._has_more = self._executor.search.end()
        self._doubts |= self._executor.run.doubts
        if self._executor.search.has_diverged:
            self._doubts[_DIVERGED] = None

    def begins_op(self, site: str) -> None:
        """See `Run.begins_op`."""
        self._executor.run.begins_op(site)

    def end(self) -> None:
        """Restore the executor."""
        self._executor.__class__ = Executor  # type: ignore[assignment]
        # A failed program may have left commands that can never run.
        for context in self._machine.contexts:
            tails = [s.tail for s in list(context.streams) if s.tail is not None]
            self._machine.executor.finish_nowait(tails)

    def _drain(self) -> None:
        streams = self._machine.streams
        for context in self._machine.contexts:
            if not context.error:
                streams.synchronize_context(context)

    def report(self) -> dict[str, object]:
        """The number of orders run, whether there are more, and the latest order."""
        search = self._executor.search
        doubts = list({**self._doubts, **self._executor.run.doubts})
        return {
            "orders": search.orders,
            "has_more": self._has_more,
            "doubts": doubts,
            "order": _text(search.order),
            "steps": list(self._executor.told),
        }


def _text(order: list[Key]) -> str:
    return " ".join(f"{stream}.{place}" for stream, place, _turn in order)


def _keys(text: str) -> list[Key]:
    turns: dict[tuple[int, int], int] = {}
    found: list[Key] = []
    for word in text.split():
        stream, dot, place = word.partition(".")
        if not (dot and stream.isdecimal() and place.isdecimal()):
            raise DriverFailure(
                INVALID_VALUE,
                f"{word!r} is not a step of an order: give the order as it was printed",
            )
        name = int(stream), int(place)
        found.append((*name, turns.get(name, 0)))
        turns[name] = turns.get(name, 0) + 1
    return found
