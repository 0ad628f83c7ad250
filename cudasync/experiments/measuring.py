"""Run an experiment, compare its results, and judge whether its expectation was met.

Every way must give the serial engine's results bit for bit, each time, and NumPy's within a
tolerance. Times are medians of the rounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

import cudasync as cs
from cudasync.experiments.intervals import shared
from cudasync.experiments.rounds import run_rounds, values

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cudasync.experiments.experiment import Clock, Experiment
    from cudasync.experiments.rounds import Results

# A share of the largest number of a result: a few sums of some hundred float32 in another order.
TOLERANCE = 1e-4
# The share of the possible gain on the device's clock that must be reached.
_LEAST_GAIN = 0.5


@dataclass(frozen=True, slots=True)
class Times:
    """The time of one way, by both clocks."""

    device_ms: float
    wall_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The findings of an experiment. `slow` and `fast` name the two compared ways."""

    name: str
    title: str
    expectation: str
    size: int
    rounds: int
    clock: Clock
    times: dict[str, Times]
    slow: str
    fast: str
    ratio: float
    # On the device's clock: the expected ratio. On the wall clock: see `intervals.shared`; None if
    # devices have a virtual clock, so that nothing can be said.
    expected_ratio: float | None
    shared: float | None
    least_shared: float | None
    is_met: bool | None
    # Whether results equal the serial engine's, every bit; and their error from NumPy's.
    is_equal: bool
    largest_error: float
    remark: str
    # Ops of both ways, from time 0 on, and the clock that timed them.
    traces: dict[str, list[cs.TraceEntry]]
    trace_clock: Literal["device clock", "wall clock"]

    @property
    def is_right(self) -> bool:
        return self.is_equal and self.largest_error <= TOLERANCE


def measure(
    experiment: Experiment, size: int, rounds: int, progress: Callable[[str], None]
) -> Measurement:
    """Run `experiment` once serially, then each way once unmeasured and `rounds` times measured.

    `progress` is called at the start of each part. Raises `OpError` if an op fails.
    """
    progress(f"{experiment.name}: serial engine")
    slow, fast = list(experiment.ways)[-2:]
    with cs.Engine("serial"):
        inputs = experiment.prepare(size)
        right = values(experiment.ways[fast](*inputs))
        largest_error = _error(right, experiment.reference(*values(inputs)))
    record = run_rounds(experiment, inputs, right, rounds, progress)
    times = {
        name: Times(*(median(column) for column in zip(*rows, strict=True)))
        for name, rows in record.rows.items()
    }
    judged = _by_device if experiment.clock == "device" else _by_wall
    verdict = judged(experiment, times, record.traces[fast] if record.is_on_wall else None)
    return Measurement(
        name=experiment.name,
        title=experiment.title,
        expectation=experiment.expectation,
        size=size,
        rounds=rounds,
        clock=experiment.clock,
        times=times,
        slow=slow,
        fast=fast,
        is_equal=record.is_equal,
        largest_error=largest_error,
        remark=experiment.remark(right),
        traces={name: record.traces[name][-1] for name in (slow, fast) if record.traces[name][-1]},
        trace_clock="wall clock" if record.is_on_wall else "device clock",
        **verdict,
    )


def _by_device(experiment: Experiment, times: dict[str, Times], traces: object) -> dict[str, Any]:
    ms = {name: each.device_ms for name, each in times.items()}
    slow, fast = (ms[name] for name in list(experiment.ways)[-2:])
    assert experiment.expected_ms is not None
    expected_ratio = slow / experiment.expected_ms(ms)
    ratio = slow / fast
    return {
        "ratio": ratio,
        "expected_ratio": expected_ratio,
        "shared": None,
        "least_shared": None,
        "is_met": ratio - 1 >= _LEAST_GAIN * (expected_ratio - 1) and ratio > 1,
    }


def _by_wall(
    experiment: Experiment, times: dict[str, Times], traces: list[list[cs.TraceEntry]] | None
) -> dict[str, Any]:
    slow, fast = (times[name].wall_ms for name in list(experiment.ways)[-2:])
    found = None if traces is None else median(shared(each) for each in traces)
    return {
        "ratio": slow / fast,
        "expected_ratio": None,
        "shared": found,
        "least_shared": experiment.least_shared,
        "is_met": None if found is None else found >= experiment.least_shared,
    }


def _error(results: Results, reference: Sequence[np.ndarray[Any, Any]]) -> float:
    """The largest difference from NumPy's numbers, as a share of the largest number of an array."""
    return max(
        float(np.max(np.abs(result - expected)) / np.max(np.abs(expected)))
        for result, expected in zip(results, reference, strict=True)
    )
