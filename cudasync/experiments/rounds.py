"""Run all ways of an experiment repeatedly, and record their times and traces.

Each round has every way once, so that disturbances of the machine affect all ways. An engine that
traces keeps all its entries, so a new engine takes over after some rounds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

import cudasync as cs
from cudasync.experiments.clocks import Alignment, Stopwatch, device_clock_is_wall_clock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cudasync.experiments.experiment import Experiment, Program

Results: TypeAlias = "list[np.ndarray[Any, Any]]"

_ROUNDS_OF_AN_ENGINE = 10


@dataclass(slots=True)
class Record:
    """The findings of all rounds, by way."""

    # Whether the devices' clock is the wall clock, so that host and devices share a clock.
    is_on_wall: bool
    # Whether all results were right, each time.
    is_equal: bool = True
    # Milliseconds by the device's clock and by the wall clock.
    rows: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    # For each run the entries of one clock, its first op at 0.
    traces: dict[str, list[list[cs.TraceEntry]]] = field(default_factory=dict)


def run_rounds(
    experiment: Experiment,
    inputs: Sequence[cs.Array],
    right: Results,
    rounds: int,
    progress: Callable[[str], None],
) -> Record:
    """Run every way of `experiment` for `rounds` rounds, and compare the results with `right`.

    `progress` is called at the start of each part. Raises `OpError` if an op fails.
    """
    record = Record(device_clock_is_wall_clock())
    for first in range(0, rounds, _ROUNDS_OF_AN_ENGINE):
        with cs.Engine(trace=True) as engine:
            progress(f"{experiment.name}: warming up")
            runner = _Runner(engine, experiment, inputs, right)
            # First-use costs, such as kernel code and streams, are not measured.
            runner.run_all()
            runner.forget()
            for number in range(first, min(first + _ROUNDS_OF_AN_ENGINE, rounds)):
                progress(f"{experiment.name}: round {number + 1}")
                runner.run_all()
            runner.give_to(record)
    return record


def values(arrays: Sequence[cs.Array]) -> Results:
    """The values of arrays; waits for them."""
    return [array.numpy() for array in arrays]


class _Runner:
    """Runs the ways of an experiment on one engine."""

    def __init__(
        self, engine: cs.Engine, experiment: Experiment, inputs: Sequence[cs.Array], right: Results
    ) -> None:
        self._engine = engine
        self._experiment = experiment
        self._inputs = inputs
        self._right = right
        self._is_equal = True
        self.forget()

    def forget(self) -> None:
        """Drop the times and traces until now."""
        self._rows: dict[str, list[tuple[float, float]]] = {}
        self._traces: dict[str, list[list[cs.TraceEntry]]] = {}

    def run_all(self) -> None:
        """Run one round."""
        experiment = self._experiment
        for name, program in experiment.parts.items():
            self._run(name, program)
        for name, program in experiment.ways.items():
            results = self._run(name, program)
            pairs = zip(results, self._right, strict=True)
            self._is_equal &= all(np.array_equal(one, other) for one, other in pairs)

    def give_to(self, record: Record) -> None:
        """Add the findings to `record`."""
        alignment = Alignment(self._engine, is_on_wall=record.is_on_wall)
        for name, rows in self._rows.items():
            record.rows.setdefault(name, []).extend(rows)
        for name, traces in self._traces.items():
            aligned = [alignment.aligned(trace) for trace in traces]
            record.traces.setdefault(name, []).extend(aligned)
        record.is_equal &= self._is_equal

    def _run(self, name: str, program: Program) -> Results:
        """Run `program` to its end, and return its results."""
        before = len(self._entries())
        stopwatch = Stopwatch()
        results = program(*self._inputs)
        cs.waitall()
        self._rows.setdefault(name, []).append(stopwatch.stop())
        self._traces.setdefault(name, []).append(self._entries()[before:])
        return values(results)

    def _entries(self) -> list[cs.TraceEntry]:
        """The trace until now, without memory ops, which come at any time."""
        return [each for each in self._engine.trace() if each.kind != "memory"]
