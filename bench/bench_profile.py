"""The cost of a profile: the same ops inside `with cs.profile()` and outside.

`host.NAME`: empty host functions, until all are over. `launch.SHAPE`: the issuing of bursts of
launches without the driver's enqueuing calls, so the time is that of Python alone. A profiled
launch has one more event and its record. `launch.SHAPE.driver` includes these calls. Entering and
leaving a profile is not timed. Times are processor time of all threads: profiling changes when
threads take turns, and on a busy machine that effect on wall time outweighs the cost. Bytecodes and
driver calls are counted.
"""

from __future__ import annotations

import checkout  # noqa: F401

# isort: split
import gc
import statistics
import sys
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING

import cudasync as cs
from bench.engine import workloads
from bench.engine.engines import Cudasync, Tally
from bench.harness import command
from bench.harness.goals import MICROSECONDS, Goal
from bench.harness.measurement import Case, Contender
from bench.launches import bursts
from bench.launches.counts import COUNTED_ON, bytecodes_of, count_driver_calls
from bench.launches.rig import Rig, without_driver

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from bench.engine.workloads import Workload
    from bench.harness.measurement import Session
    from bench.launches.rig import Calls

PUSHED = "engine.push(function, reads=, writes=)"
CALLED, PREPARED = "kernel[grid, block](...)", "prepared launch, .push()"
PROFILED = ", profiled"
# The limit of a profiled op beyond an unprofiled one.
MOST_US = 2.0
# The same for a prepared launch in bytecodes.
MOST_BYTECODES = 105


def build(session: Session) -> None:
    """Add the cases of host functions and of launches."""
    ops = session.parameter("ops", small=100, large=5_000)
    variables = session.parameter("random_variables", small=8, large=64)
    launches = session.parameter("launches", small=4, large=32)
    most_bursts = session.parameter("most_bursts", small=2, large=100)
    host = cs.Engine(workers=1)
    session.closing.callback(host.close)
    for workload in (
        workloads.indep(ops),
        workloads.chain(ops),
        workloads.random(ops, variables),
    ):
        add_host(session, host, workload)
    engine, kernel = bursts.prepared(session)
    for shape in ("chain", "independent"):
        burst = bursts.SHAPES[shape](launches)
        rig = Rig(session.closing, engine, kernel, burst, bursts.BLOCK)
        add_launches(session, f"bench_profile.launch.{shape}", rig, most_bursts)


def add_host(session: Session, engine: cs.Engine, workload: Workload) -> None:
    plain = pushing(engine, workload)
    session.add(
        Case(
            name=f"bench_profile.host.{workload.name}",
            contenders=[plain, profiled(plain)],
            baseline=PUSHED,
            operations=len(workload.ops),
            most_loops=4,
            goals=[Goal(PUSHED + PROFILED, PUSHED, MOST_US, MICROSECONDS)],
        )
    )


def pushing(engine: cs.Engine, workload: Workload) -> Contender:
    """All ops of a workload, until they are over."""
    contestant = Cudasync(PUSHED, engine)
    functions = [nothing] * len(workload.ops)

    def bench(loops: int) -> float:
        taken = []
        for _ in range(loops):
            run = contestant.prepare(workload, functions)
            gc.collect()
            start = time.process_time()
            run()
            taken.append(time.process_time() - start)
            del run
        return statistics.median(taken) * loops

    def checksum() -> int:
        tally = Tally(workload)
        contestant.prepare(workload, tally.functions)()
        return tally.checksum()

    return Contender(PUSHED, bench, checksum)


def add_launches(session: Session, name: str, rig: Rig, most_bursts: int) -> None:
    """The promise is about Python. A software GPU's own time is no cost of a profile."""
    ways = {PREPARED: rig.prepared_pushes(), CALLED: rig.kernel_calls()}
    is_software = cs.Device(0).is_software
    for case, around, word in (
        (name, without_driver, "must"),
        (f"{name}.driver", nullcontext, "goal"),
    ):
        plain = [issuing(rig, way, calls, around) for way, calls in ways.items()]
        goals = [Goal(each + PROFILED, each, MOST_US, MICROSECONDS, word) for each in ways]
        session.add(
            Case(
                name=case,
                contenders=[*plain, *map(profiled, plain)],
                baseline=PREPARED,
                operations=len(rig.burst),
                unit="launch",
                most_loops=most_bursts,
                goals=[] if is_software and around is nullcontext else goals,
            )
        )
    if session.wants(name):
        calls = ways[PREPARED]
        plain_count = bytecodes_of(rig, calls)
        session.measure(f"{name}: bytecodes", plain_count, "")
        limit = MOST_BYTECODES if sys.version_info[:2] == COUNTED_ON else None
        with cs.profile():
            more = bytecodes_of(rig, calls) - plain_count
            session.measure(f"{name}: bytecodes more, profiled", more, "", limit)
            # A profiled launch records one more event.
            count_driver_calls(session, f"{name}, profiled", rig, calls, most_enqueuing=3)


def issuing(
    rig: Rig, name: str, calls: Calls, around: Callable[[], AbstractContextManager]
) -> Contender:
    """The issue of a burst without the enqueued work. A sample is the median over its bursts."""

    def bench(loops: int) -> float:
        taken = []
        # The first burst makes the events that later bursts reuse.
        for _ in range(loops + 1):
            with around():
                start = time.process_time()
                for call in calls:
                    call()
                taken.append(time.process_time() - start)
                rig.drain()
        return statistics.median(taken[1:]) * loops

    def checksum() -> int:
        rig.reset()
        for call in calls * 2:
            call()
        rig.drain()
        return rig.arrays_checksum()

    return Contender(name, bench, checksum)


def profiled(contender: Contender) -> Contender:
    """The same inside a profile, which begins and ends outside the timing."""
    assert contender.checksum is not None
    plain, check = contender.bench, contender.checksum

    def bench(loops: int) -> float:
        with cs.profile():
            return plain(loops)

    def checksum() -> int:
        with cs.profile():
            return check()

    return Contender(contender.name + PROFILED, bench, checksum)


def nothing() -> None:
    pass


if __name__ == "__main__":
    raise SystemExit(command.main("bench_profile", __doc__, build))
