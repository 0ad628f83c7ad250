"""One, two and four threads push at once: the engine beside a lock-based twin.

The four shapes of bench_engine with empty host ops. The ops are dealt in turn to the threads, over
variables that all threads share. `--set switch_interval_us=10` makes the interpreter switch threads
five hundred times as often as usual, at any place.
"""

from __future__ import annotations

import checkout  # noqa: F401

# isort: split
import gc
import sys
import threading
import time
from typing import TYPE_CHECKING

import cudasync as cs
from bench.engine import workloads
from bench.engine.locked_engine import LockedEngine, LockedVar
from bench.harness import command
from bench.harness.goals import Goal
from bench.harness.measurement import Case, Contender

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.engine.workloads import Workload
    from bench.harness.measurement import Session

    AnyEngine = cs.Engine | LockedEngine

OURS = "cudasync engine"
TWIN = "lock-based twin"

PUSHERS = (1, 2, 4)


def nothing() -> None:
    """The op is empty, so all the time is the engine's."""


def build(session: Session) -> None:
    """Add a case for each shape and each number of pushing threads."""
    ops = session.parameter("ops", small=60, large=5_000)
    variables = session.parameter("random_variables", small=8, large=64)
    width = session.parameter("fan_width", small=10, large=1_000)
    rounds = session.parameter("fan_rounds", small=3, large=5)
    workers = session.parameter("workers", small=2, large=2)
    usual = round(sys.getswitchinterval() * 1e6)
    interval = session.parameter("switch_interval_us", small=usual, large=usual)
    session.closing.callback(sys.setswitchinterval, usual / 1e6)
    sys.setswitchinterval(interval / 1e6)
    engines: list[tuple[str, AnyEngine, Callable[[], object]]] = [
        (TWIN, LockedEngine(workers), LockedVar),
        (OURS, cs.Engine(workers=workers), cs.Var),
    ]
    for _, engine, _ in engines:
        session.closing.callback(engine.close)
    for workload in (
        workloads.indep(ops),
        workloads.chain(ops),
        workloads.random(ops, variables),
        workloads.fan(width, rounds),
    ):
        for pushers in PUSHERS:
            session.add(
                Case(
                    name=f"bench_pushers.{workload.name}.{pushers}",
                    contenders=[
                        contend(name, engine, make, workload, pushers)
                        for name, engine, make in engines
                    ],
                    baseline=TWIN,
                    operations=len(workload.ops),
                    most_loops=1,
                    goals=[Goal(OURS, TWIN, 1.0)],
                )
            )


def contend(
    name: str,
    engine: AnyEngine,
    make_variable: Callable[[], object],
    workload: Workload,
    pushers: int,
) -> Contender:
    """An engine as a contender: a loop is one workload, pushed by all threads, then waited for."""

    def once(functions: Sequence[Callable[[], object]]) -> float:
        variables = [make_variable() for _ in range(workload.variables)]
        calls = [
            (
                function,
                tuple(variables[number] for number in reads),
                tuple(variables[number] for number in writes),
            )
            for function, (reads, writes) in zip(functions, workload.ops, strict=True)
        ]
        hands = [calls[number::pushers] for number in range(pushers)]
        together = threading.Barrier(pushers)
        push, waitall = engine.push, engine.waitall

        def deal(hand: list) -> float:
            together.wait()
            start = time.perf_counter()
            for function, reads, writes in hand:
                push(function, reads=reads, writes=writes)
            return start

        others = [threading.Thread(target=deal, args=(hand,)) for hand in hands[1:]]
        for thread in others:
            thread.start()
        gc.collect()
        start = deal(hands[0])
        for thread in others:
            thread.join()
        waitall()
        return time.perf_counter() - start

    def bench(loops: int) -> float:
        functions = [nothing] * len(workload.ops)
        return sum(once(functions) for _ in range(loops))

    def checksum() -> int:
        census = workloads.Census(workload)
        once(census.functions)
        return census.checksum()

    return Contender(name, bench, checksum)


if __name__ == "__main__":
    raise SystemExit(command.main("bench_pushers", __doc__, build))
