"""The parts of a launch through the engine, counted: driver calls and bytecodes."""

from __future__ import annotations

import statistics
import sys
from typing import TYPE_CHECKING

from bench.checkout import ROOT
from bench.harness.bytecodes import bytecodes
from bench.launches.rig import without_driver

if TYPE_CHECKING:
    from bench.harness.measurement import Session
    from bench.launches.rig import Calls, Rig

sys.path.insert(1, str(ROOT / "tests"))

from helpers.driver.call_counts import counted_calls

# Driver calls that only ask and enqueue nothing. One issue in 32 to a busy stream asks how far the
# stream has come. The thread's mode is changed before and restored after the question, because the
# program may be capturing a stream; these two calls affect only the thread. Together 3/32.
ASKING = frozenset({"cuEventQuery", "cuStreamQuery", "cuThreadExchangeStreamCaptureMode"})
MOST_ASKING = 0.1

# The limit for a prepared launch behind one other on its stream, on the Python that it was counted
# on.
MOST_BYTECODES = 661
COUNTED_ON = (3, 11)

COUNTED_BURSTS = 32


def count_driver_calls(
    session: Session, name: str, rig: Rig, calls: Calls, *, most_enqueuing: float | None
) -> None:
    """Report the driver calls of a launch, where `calls` push the burst; waits are left out."""
    for call in calls:  # make everything that first use makes
        call()
    rig.drain()
    counts: dict[str, int] = {}
    for _ in range(COUNTED_BURSTS):
        with counted_calls() as seen:
            for call in calls:
                call()
        for function, number in seen.items():
            counts[function] = counts.get(function, 0) + number
        rig.drain()
    launches = COUNTED_BURSTS * len(rig.burst)
    found = counts.get("cuLaunchKernel", 0)
    if found != launches:
        # A call of the driver by another name is not seen, neither here nor in `.python`.
        raise ValueError(f"{name}: counted {found} calls of cuLaunchKernel in {launches} launches")
    asking = sum(counts.get(function, 0) for function in ASKING)
    enqueuing = sum(counts.values()) - asking
    told = f"{name}: driver calls"
    session.measure(f"{told} that enqueue", enqueuing / launches, "per launch", most_enqueuing)
    session.measure(f"{told} that ask", asking / launches, "per launch", MOST_ASKING)
    for function in sorted(counts):
        session.measure(f"{told}, {function}", counts[function] / launches, "per launch")


def count_bytecodes(session: Session, name: str, rig: Rig, *, has_limit: bool) -> None:
    """Report the bytecodes of a prepared launch and of a call; the median over some bursts.

    The driver's calls are left out, because those of a software GPU are Python, too.
    """
    limit = MOST_BYTECODES if has_limit and sys.version_info[:2] == COUNTED_ON else None
    for words, calls, most in (
        ("a prepared launch", rig.prepared_pushes(), limit),
        ("kernel[grid, block](...)", rig.kernel_calls(), None),
    ):
        session.measure(f"{name}: bytecodes, {words}", bytecodes_of(rig, calls), "", most)


def bytecodes_of(rig: Rig, calls: Calls) -> float:
    """The median over the calls of some bursts; `calls` push one burst."""
    found = []
    for _ in range(COUNTED_BURSTS):
        with without_driver():
            found += [bytecodes(call) for call in calls]
            rig.drain()
    return statistics.median(found)
