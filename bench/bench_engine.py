"""Empty host ops through engines: the cost per op of finding and keeping the order.

Four shapes (indep, chain, random, fan). The contenders are a plain loop, cudasync's engine, its
serial engine, a ThreadPoolExecutor with counters, graphlib, asyncio and, if installed, dask.
bench/README.md says which comparisons are unfair.
"""

from __future__ import annotations

import checkout  # noqa: F401

# isort: split
from typing import TYPE_CHECKING

import cudasync as cs
from bench.engine import workloads
from bench.engine.engines import Asyncio, Cudasync, Dask, Graphlib, SerialLoop, ThreadPool, contend
from bench.harness import command, machine
from bench.harness.goals import MICROSECONDS, Goal
from bench.harness.measurement import Case

if TYPE_CHECKING:
    from bench.engine.engines import Contestant
    from bench.harness.measurement import Session

OURS = "cudasync engine"

# By shape: the limits relative to a ThreadPoolExecutor and to graphlib, and the aim in microseconds
# per op.
LIMITS = {
    "indep": (1 / 9, 1 / 1.4, 0.6),
    "chain": (1 / 5, 1 / 1.6, 0.7),
    "random": (1 / 4.5, 1 / 2, 0.9),
    "fan": (1 / 5.5, 1 / 1.6, 0.8),
}

# dask takes a hundred times as long as the others, so it skips most rounds.
DASK_EVERY = 7


def nothing() -> None:
    """The op is empty, so all the time is the engine's."""


def build(session: Session) -> None:
    """Add a case per shape."""
    ops = session.parameter("ops", small=60, large=10_000)
    random_ops = session.parameter("random_ops", small=60, large=5_000)
    variables = session.parameter("random_variables", small=8, large=64)
    width = session.parameter("fan_width", small=10, large=1_000)
    rounds = session.parameter("fan_rounds", small=3, large=10)
    workers = session.parameter("workers", small=2, large=2)
    engines: list[Contestant] = [
        SerialLoop(),
        Cudasync(OURS, cs.Engine(workers=workers)),
        Cudasync("cudasync serial engine", cs.Engine("serial")),
        ThreadPool(workers),
        Graphlib(),
        Asyncio(),
        *optional(session, workers),
    ]
    for engine in engines:
        session.closing.callback(engine.close)
    for workload in (
        workloads.indep(ops),
        workloads.chain(ops),
        workloads.random(random_ops, variables),
        workloads.fan(width, rounds),
    ):
        functions = [nothing] * len(workload.ops)
        session.add(
            Case(
                name=f"bench_engine.{workload.name}",
                contenders=[
                    contend(
                        engine,
                        workload,
                        functions,
                        every=DASK_EVERY if isinstance(engine, Dask) else 1,
                    )
                    for engine in engines
                ],
                baseline=SerialLoop.name,
                operations=len(workload.ops),
                most_loops=1,
                goals=goals(workload.name),
            )
        )


def optional(session: Session, workers: int) -> list[Contestant]:
    """The installed peers. The report names the others with the reason."""
    session.absent["MXNet"] = "its last release is for Python 3.8 and older"
    try:
        engine = Dask(workers)
    except ImportError as error:
        session.absent["dask"] = str(error)
        return []
    session.versions["dask"] = machine.installed("dask") or "unknown"
    return [engine]


def goals(shape: str) -> list[Goal]:
    pool, graphlib, microseconds = LIMITS[shape]
    return [
        Goal(OURS, ThreadPool.name, pool),
        Goal(OURS, Graphlib.name, graphlib),
        Goal(OURS, None, microseconds, MICROSECONDS, "goal"),
    ]


if __name__ == "__main__":
    raise SystemExit(command.main("bench_engine", __doc__, build, rounds=21))
