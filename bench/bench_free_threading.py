"""The worth of a second thread for work in pure Python: without a GIL, and with one.

`workers`: independent host ops of pure Python, 100 us each, on one worker and on two, without help
from waiting threads. `pushers`: one thread pushes empty ops, and two threads push half as many each
to variables of their own. It is timed until the pushes have returned (`pushed`) and until all ops
are over (`done`). Ops per second are the inverse of these times. The goals hold without a GIL.
"""

from __future__ import annotations

import checkout  # noqa: F401

# isort: split
import sys
import threading
import time
from typing import TYPE_CHECKING

from bench_matmul import BOUND, side_by_side, spin, spins_per_us

import cudasync as cs
from bench.engine import workloads
from bench.harness import command
from bench.harness.goals import Goal
from bench.harness.measurement import Case, Contender

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.engine.workloads import Workload
    from bench.harness.measurement import Session

    Functions = Sequence[Callable[[], object]]

LOOP = "serial loop"
ONE_WORKER, TWO_WORKERS = "one worker", "two workers"
ONE_PUSHER, TWO_PUSHERS = "one thread pushes", "two threads push"

WORKERS_SPEED_UP = 1.7
PUSHERS_SPEED_UP = 1.2


def build(session: Session) -> None:
    """Add the case of the workers and the two of the pushers."""
    ops = session.parameter("spinning_ops", small=20, large=400)
    op_us = session.parameter("op_us", small=5, large=100)
    passes_per_us = session.parameter("passes_per_us", small=45, large=spins_per_us())
    pushes = session.parameter("pushes", small=80, large=20_000)
    variables = session.parameter("variables", small=8, large=64)
    has_limits = not has_gil()
    add_workers(session, workloads.indep(ops), spin(op_us * passes_per_us), has_limits)
    add_pushers(session, workloads.random(pushes // 2, variables // 2), has_limits)


def has_gil() -> bool:
    return getattr(sys, "_is_gil_enabled", lambda: True)()


def add_workers(
    session: Session, workload: Workload, op: Callable[[], object], has_limits: bool
) -> None:
    functions = [op] * len(workload.ops)
    engines = []
    for workers in (1, 2):
        engines.append(cs.Engine(workers=workers))
        session.closing.callback(engines[-1].close)

    def loop(functions: Functions) -> float:
        start = time.perf_counter()
        for function in functions:
            function()
        return time.perf_counter() - start

    def contend(name: str, run: Callable[[Functions], float]) -> Contender:
        def checksum() -> int:
            census = workloads.Census(workload)
            run(census.functions)
            return census.checksum()

        return Contender(name, lambda loops: sum(run(functions) for _ in range(loops)), checksum)

    session.add(
        Case(
            name="bench_free_threading.workers",
            contenders=[
                contend(ONE_WORKER, unhelped(engines[0])),
                contend(TWO_WORKERS, unhelped(engines[1])),
                contend(LOOP, loop),
                Contender(BOUND, side_by_side(functions), None),
            ],
            baseline=ONE_WORKER,
            operations=len(workload.ops),
            most_loops=1,
            goals=[Goal(TWO_WORKERS, ONE_WORKER, 1 / WORKERS_SPEED_UP)] * has_limits,
        )
    )


def unhelped(engine: cs.Engine) -> Callable[[Functions], float]:
    """Push functions, and wait for them outside the engine.

    A thread that waits in the engine runs ops, and would count as one more worker.
    """

    def run(functions: Functions) -> float:
        finished = threading.Event()
        results = [cs.Var() for _ in functions]
        start = time.perf_counter()
        for function, result in zip(functions, results, strict=True):
            engine.push(function, writes=(result,))
        engine.push(finished.set, reads=results)
        finished.wait()
        return time.perf_counter() - start

    return run


def add_pushers(session: Session, half: Workload, has_limits: bool) -> None:
    workload = workloads.twice(half)
    functions = [nothing] * len(workload.ops)
    engine = cs.Engine(workers=2)
    session.closing.callback(engine.close)
    for until in ("pushed", "done"):

        def contend(name: str, threads: int, at: int) -> Contender:
            def bench(loops: int) -> float:
                return sum(
                    pushed_and_done(engine, workload, functions, threads)[at] for _ in range(loops)
                )

            def checksum() -> int:
                tally = workloads.Tally(workload)
                pushed_and_done(engine, workload, tally.functions, threads)
                return tally.checksum()

            return Contender(name, bench, checksum)

        at = ("pushed", "done").index(until)
        session.add(
            Case(
                name=f"bench_free_threading.pushers.{until}",
                contenders=[contend(ONE_PUSHER, 1, at), contend(TWO_PUSHERS, 2, at)],
                baseline=ONE_PUSHER,
                operations=len(workload.ops),
                most_loops=1,
                goals=[Goal(TWO_PUSHERS, ONE_PUSHER, 1 / PUSHERS_SPEED_UP, word="goal")]
                * has_limits,
            )
        )


def pushed_and_done(
    engine: cs.Engine, workload: Workload, functions: Functions, threads: int
) -> tuple[float, float]:
    """Push a workload of two halves, with one thread or with one for each half.

    Returns the seconds until the last push has returned, and until all ops are over.
    """
    variables = [cs.Var() for _ in range(workload.variables)]
    calls = [
        (function, *(tuple(variables[number] for number in names) for names in each))
        for function, each in zip(functions, workload.ops, strict=True)
    ]
    hands = [calls[number::threads] for number in range(threads)]
    together = threading.Barrier(threads)
    push = engine.push

    def deal(hand: list) -> float:
        together.wait()
        start = time.perf_counter()
        for function, reads, writes in hand:
            push(function, reads=reads, writes=writes)
        return start

    others = [threading.Thread(target=deal, args=(hand,)) for hand in hands[1:]]
    for thread in others:
        thread.start()
    start = deal(hands[0])
    for thread in others:
        thread.join()
    pushed = time.perf_counter() - start
    engine.waitall()
    return pushed, time.perf_counter() - start


def nothing() -> None:
    """The op of the pushers is empty, so all the time is the engine's."""


if __name__ == "__main__":
    raise SystemExit(command.main("bench_free_threading", __doc__, build))
