"""Launches and host functions pushed in batches, each batch one op: `engine.push_many(steps)`.

`launches.N`: a burst of prepared launches, in batches of N and one by one. The time is that of
issuing the burst without the driver's enqueuing calls, so it is the time of Python alone. In a
chain, all launches of a batch touch one array; in `independent`, each has an array of its own.
`host.N`: empty host functions in batches of N, until all are over. Driver calls and bytecodes are
counted.
"""

from __future__ import annotations

import checkout  # noqa: F401

# isort: split
from typing import TYPE_CHECKING

from bench_launch import PREPARED, RAW, issuing

import cudasync as cs
from bench.engine import workloads
from bench.engine.engines import Cudasync, SerialLoop, contend, steps
from bench.harness import command
from bench.harness.goals import MICROSECONDS, Goal
from bench.harness.measurement import Case
from bench.launches import bursts
from bench.launches.counts import bytecodes_of, count_driver_calls
from bench.launches.rig import Rig, groups, without_driver

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.engine.engines import Functions
    from bench.engine.workloads import Workload
    from bench.harness.measurement import Session

BATCH = "engine.push_many(prepared launches)"
DEVICE_FUNCTIONS = "engine.push_many((launch.on, reads, writes, device), ...)"
ONE_BY_ONE = "engine.push, one by one"
HOST_BATCH = "engine.push_many((function, reads, writes), ...)"

# By batch size: the microseconds of Python beyond the raw launch, and of a host function.
MOST_US = {4: 1.2, 8: None, 32: 0.15}
MOST_HOST_US = {8: 0.25, 32: None}


def build(session: Session) -> None:
    """Add the cases of launches and of host functions."""
    # The number is a multiple of every size, so each batch is full.
    launches = session.parameter("launches", small=32, large=96)
    most_bursts = session.parameter("most_bursts", small=1, large=50)
    ops = session.parameter("ops", small=64, large=9_600)
    variables = session.parameter("random_variables", small=8, large=64)
    workers = session.parameter("workers", small=2, large=2)
    engine, kernel = bursts.prepared(session)
    for shape in ("chain", "independent"):
        rig = Rig(session.closing, engine, kernel, bursts.SHAPES[shape](launches), bursts.BLOCK)
        for size, most in MOST_US.items():
            add_launches(session, f"bench_batch.{shape}.{size}", rig, size, most, most_bursts)
    host = cs.Engine(workers=workers)
    session.closing.callback(host.close)
    for workload in (workloads.chain(ops), workloads.random(ops, variables)):
        for size, most in MOST_HOST_US.items():
            add_host(
                session, f"bench_batch.host.{workload.name}.{size}", host, workload, size, most
            )


def add_launches(
    session: Session, name: str, rig: Rig, size: int, most_us: float | None, most_bursts: int
) -> None:
    """A burst in batches of `size`. The limit is a promise for the chain, which has one array."""
    word = "must" if ".chain." in name else "goal"
    arrays = rig.arrays_checksum
    ways = {
        RAW: (rig.raw_launches(), rig.raw_checksum),
        PREPARED: (rig.prepared_pushes(), arrays),
        BATCH: (rig.batches(size), arrays),
        DEVICE_FUNCTIONS: (rig.batches_of_functions(size), arrays),
    }
    session.add(
        Case(
            name=name,
            contenders=[
                issuing(rig, way, calls, checksum, without_driver)
                for way, (calls, checksum) in ways.items()
            ],
            baseline=RAW,
            operations=len(rig.burst),
            unit="launch",
            most_loops=most_bursts,
            goals=[Goal(BATCH, RAW, most_us, MICROSECONDS, word)] if most_us else [],
        )
    )
    if session.wants(name):
        calls, _ = ways[BATCH]
        # One launch each, and one event record for the batch.
        count_driver_calls(session, name, rig, calls, most_enqueuing=1 + 1 / size)
        session.measure(f"{name}: bytecodes", bytecodes_of(rig, calls) / size, "per launch")


def add_host(
    session: Session,
    name: str,
    engine: cs.Engine,
    workload: Workload,
    size: int,
    most_us: float | None,
) -> None:
    """Empty functions in batches of `size`. The limit is a promise for the chain, as above."""
    word = "must" if ".chain." in name else "goal"
    functions = [nothing] * len(workload.ops)
    contestants = [
        SerialLoop(),
        Cudasync(ONE_BY_ONE, engine),
        Batched(HOST_BATCH, engine, size),
    ]
    session.add(
        Case(
            name=name,
            contenders=[contend(each, workload, functions) for each in contestants],
            baseline=SerialLoop.name,
            operations=len(workload.ops),
            most_loops=1,
            goals=[Goal(HOST_BATCH, None, most_us, MICROSECONDS, word)] if most_us else [],
        )
    )


class Batched(Cudasync):
    """The ops of a workload in push order, `size` ops to a batch; then wait for all."""

    def __init__(self, name: str, engine: cs.Engine, size: int) -> None:
        super().__init__(name, engine)
        self._size = size

    def prepare(self, workload: Workload, functions: Functions) -> Callable[[], None]:
        batches = groups(steps(workload, functions), self._size)
        push_many, waitall = self._engine.push_many, self._engine.waitall

        def run() -> None:
            for batch in batches:
                push_many(batch)
            waitall()

        return run


def nothing() -> None:
    """The host function is empty, so all the time is the engine's."""


if __name__ == "__main__":
    raise SystemExit(command.main("bench_batch", __doc__, build))
