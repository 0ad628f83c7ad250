"""Launches through the engine, beside the same launches on raw `cuda.bindings`.

Bursts of a few launches, in three shapes; timed is the issuing of a burst, on this thread. What is
enqueued is done between bursts, untimed, and a sample is the median over its bursts. The cases
`.python` are the same with the driver's enqueuing calls left out, on both sides: what the engine's
own Python costs, on whichever device. Counted are the driver's calls.
"""

from __future__ import annotations

import checkout

# isort: split
import statistics
import sys
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING

import bursts
import command
from goals import MICROSECONDS, Goal
from harness import Case, Contender
from launch_rig import Rig, without_driver

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from harness import Session
    from launch_rig import Calls

sys.path.insert(1, str(checkout.ROOT / "tests"))

from helpers.driver_calls import counted_calls

RAW = "raw launch"
RECORDED = "raw launch and event record"
DIRECT = "prepared launch, .on(stream)"
PUSHED = "engine.push(launch.on, device=)"
CALLED = "kernel[grid, block](...)"
KEPT = "kernel[grid, block] kept, (...)"
PREPARED = "prepared launch, .push()"
PACKED_ANEW = (PUSHED, CALLED, KEPT)

# The most that a launch through the engine may take beyond the raw one: a promise where the
# arguments are packed once on both sides, a wish for the others.
MOST_US = 2.0

# Driver calls that only ask; a push may make one now and then, and it enqueues nothing.
ASKING = frozenset({"cuEventQuery", "cuStreamQuery"})
MOST_ASKING = 0.1

COUNTED_BURSTS = 32


def build(session: Session) -> None:
    """Add two cases per shape, and count driver calls."""
    launches = session.parameter("launches", small=4, large=32)
    blocks = session.parameter("blocks", small=1, large=1)
    most_bursts = session.parameter("most_bursts", small=2, large=100)
    engine, kernel = bursts.prepared(session)
    for shape, make in bursts.SHAPES.items():
        rig = Rig(session.closing, engine, kernel, make(launches), blocks * bursts.BLOCK)
        name = f"bench_launch.{shape}"
        # A software GPU's own time is no cost of the engine's, and its event record takes longer
        # than all else here: so there the promise is about Python alone.
        limits = [Goal(PREPARED, RAW, MOST_US, MICROSECONDS)]
        limits += [Goal(each, RAW, MOST_US, MICROSECONDS, "goal") for each in PACKED_ANEW]
        for case, around, goals in (
            (name, nullcontext, [] if kernel.device.is_software else limits),
            (f"{name}.python", without_driver, limits),
        ):
            session.add(
                Case(
                    name=case,
                    contenders=contenders(rig, around),
                    baseline=RAW,
                    operations=launches,
                    unit="launch",
                    most_loops=most_bursts,
                    goals=goals,
                )
            )
        if session.wants(name):
            count(session, name, rig, most_enqueuing=None if shape == "fan" else 2)


def contenders(rig: Rig, around: Callable[[], AbstractContextManager]) -> list[Contender]:
    """Every way to issue the burst; `around` is entered for the timing."""

    def contend(name: str, calls: Calls, checksum: Callable[[], int]) -> Contender:
        def bench(loops: int) -> float:
            taken = []
            with around():
                for _ in range(loops):
                    start = time.perf_counter()
                    for call in calls:
                        call()
                    taken.append(time.perf_counter() - start)
                    rig.drain()
            # A burst in which the engine asks how far the device has come is an odd one out.
            return statistics.median(taken) * loops

        def check() -> int:
            rig.reset()
            for call in calls * 2:
                call()
            rig.drain()
            return checksum()

        return Contender(name, bench, check)

    raw, arrays = rig.raw_checksum, rig.arrays_checksum
    return [
        contend(RAW, rig.raw_launches(), raw),
        contend(RECORDED, rig.raw_launches_and_records(), raw),
        contend(DIRECT, rig.prepared_launches(), raw),
        contend(PREPARED, rig.prepared_pushes(), arrays),
        contend(PUSHED, rig.pushes(), arrays),
        contend(CALLED, rig.kernel_calls(), arrays),
        contend(KEPT, rig.kept_kernel_calls(), arrays),
    ]


def count(session: Session, name: str, rig: Rig, *, most_enqueuing: float | None) -> None:
    """Report the driver calls that a launch through the engine makes, without those of waits."""
    calls = rig.kernel_calls()
    for call in calls:  # what is made at the first need is made now
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
    launches = COUNTED_BURSTS * len(calls)
    found = counts.get("cuLaunchKernel", 0)
    if found != launches:
        # Whoever calls the driver by another name is not seen: neither here nor in `.python`.
        raise ValueError(f"{name}: counted {found} calls of cuLaunchKernel in {launches} launches")
    asking = sum(counts.get(function, 0) for function in ASKING)
    enqueuing = sum(counts.values()) - asking
    told = f"{name}: driver calls"
    session.measure(f"{told} that enqueue", enqueuing / launches, "per launch", most_enqueuing)
    session.measure(f"{told} that ask", asking / launches, "per launch", MOST_ASKING)
    for function in sorted(counts):
        session.measure(f"{told}, {function}", counts[function] / launches, "per launch")


if __name__ == "__main__":
    raise SystemExit(command.main("bench_launch", __doc__, build))
