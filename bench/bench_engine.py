"""Empty host ops through engines: what finding and keeping the order costs per op.

Four shapes (indep, chain, random, fan); contenders are a plain loop, cudasync's engine, its
serial engine, a ThreadPoolExecutor with counters, graphlib and asyncio. See bench/README.md for
what is compared unfairly.
"""

from __future__ import annotations

import checkout  # noqa: F401

# isort: split
import time
from typing import TYPE_CHECKING

import command
import workloads
from engines import Asyncio, Cudasync, Graphlib, SerialLoop, ThreadPool
from harness import Case, Contender

import cudasync as cs

if TYPE_CHECKING:
    from collections.abc import Callable

    from engines import Contestant
    from harness import Session
    from workloads import Workload

BASELINE = SerialLoop.name


def nothing() -> None:
    """The op: all of the time is the engine's."""


def build(session: Session) -> None:
    """Add a case per shape."""
    ops = session.parameter("ops", small=60, large=10_000)
    random_ops = session.parameter("random_ops", small=60, large=5_000)
    variables = session.parameter("random_variables", small=8, large=64)
    width = session.parameter("fan_width", small=10, large=1_000)
    rounds = session.parameter("fan_rounds", small=3, large=10)
    workers = session.parameter("workers", small=2, large=2)
    engines = [
        SerialLoop(),
        Cudasync("cudasync engine", cs.Engine(workers=workers)),
        Cudasync("cudasync serial engine", cs.Engine("serial")),
        ThreadPool(workers),
        Graphlib(),
        Asyncio(),
    ]
    for engine in engines:
        session.closing.callback(engine.close)
    for workload in (
        workloads.indep(ops),
        workloads.chain(ops),
        workloads.random(random_ops, variables),
        workloads.fan(width, rounds),
    ):
        session.add(
            Case(
                name=f"bench_engine.{workload.name}",
                contenders=[contend(engine, workload) for engine in engines],
                baseline=BASELINE,
                operations=len(workload.ops),
                most_loops=1024,
            )
        )


def contend(engine: Contestant, workload: Workload) -> Contender:
    """An engine as a contender: each loop is one whole workload, prepared outside the timing."""
    functions: list[Callable[[], None]] = [nothing] * len(workload.ops)

    def bench(loops: int) -> float:
        seconds = 0.0
        for _ in range(loops):
            run = engine.prepare(workload, functions)
            start = time.perf_counter()
            run()
            seconds += time.perf_counter() - start
        return seconds

    def checksum() -> int:
        tally = workloads.Tally(workload)
        engine.prepare(workload, tally.functions)()
        return tally.checksum()

    return Contender(engine.name, bench, checksum)


if __name__ == "__main__":
    raise SystemExit(command.main("bench_engine", __doc__, build))
