"""The same work with a neighbour and without one: no neighbour may double the cost.

`pools`: host ops given in turn to two pools of an engine, beside one pool. `engines`: two engines
in turn, or a thread for each, beside one engine. `mixed`: launches and host ops pushed in turn,
beside all of one kind and then all of the other. `launch`: the push of one launch after a host op,
finished or not, and during one, beside the same after a function on a thread of the program. The
driver's enqueuing calls of launches are left out, so the time is that of Python alone.
"""

from __future__ import annotations

import checkout  # noqa: F401

# isort: split
import threading
from typing import TYPE_CHECKING

import cudasync as cs
from bench.engine import workloads
from bench.engine.engines import HandOver, TwoThreadPools, contend
from bench.harness import command
from bench.harness.goals import Goal
from bench.harness.measurement import Case
from bench.launches import bursts
from bench.launches.cliff_launches import AFTERWARDS, ALONE, Neighbours, count_bytecodes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.engine.engines import Contestant, Functions
    from bench.engine.workloads import Workload
    from bench.harness.measurement import Session

    # An engine, and the name of one of its pools.
    Home = tuple[cs.Engine, str]

MOST = 2.0


def build(session: Session) -> None:
    """Add the cases of pools, of engines and of launches."""
    ops = session.parameter("ops", small=60, large=4_000)
    variables = session.parameter("random_variables", small=8, large=64)
    workers = session.parameter("workers", small=2, large=2)
    add_pools(session, ops, variables, workers)
    add_engines(session, ops, variables, workers)
    add_launches(session)


def add_pools(session: Session, ops: int, variables: int, workers: int) -> None:
    """All ops in one pool; in one pool beside an idle pool; in two pools in turn."""
    alone = opened(session, workers=workers)
    both = opened(session, workers=workers, pools={"io": workers})
    yardsticks = [TwoThreadPools(workers), HandOver()]
    for each in yardsticks:
        session.closing.callback(each.close)
    contestants = [
        Dealt("one pool", [(alone, "compute")]),
        Dealt("one pool beside a second that rests", [(both, "compute")]),
        Dealt("two pools in turn", [(both, "compute"), (both, "io")]),
    ]
    shapes = workloads.indep(ops), workloads.chain(ops), workloads.random(ops, variables)
    for workload in shapes:
        add(session, f"bench_cliffs.pools.{workload.name}", contestants, workload, yardsticks)


def add_engines(session: Session, ops: int, variables: int, workers: int) -> None:
    """Two independent workloads, their ops in turn: through one engine, and through two."""
    first, second = opened(session, workers=workers), opened(session, workers=workers)
    one, two = [(first, "compute")] * 2, [(first, "compute"), (second, "compute")]
    for shape in (workloads.chain(ops // 2), workloads.random(ops // 2, variables)):
        workload = workloads.twice(shape)
        for name, threads in (("in_turn", 1), ("threads", 2)):
            pushing = "one thread" if threads == 1 else "a thread for each half"
            contestants = [
                Dealt(f"one engine, {pushing}", one, threads),
                Dealt(f"two engines, {pushing}", two, threads),
            ]
            add(session, f"bench_cliffs.engines.{name}.{shape.name}", contestants, workload)


def add_launches(session: Session) -> None:
    """Launches and host ops in turn; and one launch, with a host op before or beside it."""
    launches = session.parameter("launches", small=4, large=200)
    single = session.parameter("single_launches", small=2, large=16)
    engine, kernel = bursts.prepared(session)
    several = Neighbours(session.closing, engine, kernel, launches)
    few = Neighbours(session.closing, engine, kernel, single)
    for name, contenders, baseline, operations in (
        ("bench_cliffs.mixed", several.together(), AFTERWARDS, launches),
        ("bench_cliffs.launch", few.one_by_one(), ALONE, single),
    ):
        session.add(
            Case(
                name=name,
                contenders=contenders,
                baseline=baseline,
                operations=operations,
                unit="launch",
                most_loops=2,
                goals=[
                    Goal(each.name, baseline, MOST) for each in contenders if each.name != baseline
                ],
            )
        )
    if session.wants("bench_cliffs.launch"):
        count_bytecodes(session, few, most=MOST)


def opened(session: Session, **options: object) -> cs.Engine:
    """An engine that lives as long as the session."""
    engine = cs.Engine(**options)
    session.closing.callback(engine.close)
    return engine


def add(
    session: Session,
    name: str,
    contestants: Sequence[Dealt],
    workload: Workload,
    yardsticks: Sequence[Contestant] = (),
) -> None:
    """The case of a workload of empty host ops.

    The other contestants are compared with the first. The yardsticks have no limit.
    """
    baseline, *others = (each.name for each in contestants)
    functions = [nothing] * len(workload.ops)
    session.add(
        Case(
            name=name,
            contenders=[contend(each, workload, functions) for each in (*contestants, *yardsticks)],
            baseline=baseline,
            operations=len(workload.ops),
            most_loops=1,
            goals=[Goal(other, baseline, MOST) for other in others],
        )
    )


def nothing() -> None:
    """The op is empty, so all the time is the engine's."""


class Dealt:
    """Ops given in turn to `homes` and pushed by `threads` threads; one thread waits for all."""

    def __init__(self, name: str, homes: Sequence[Home], threads: int = 1) -> None:
        self.name = name
        self._homes = homes
        self._threads = threads

    def prepare(self, workload: Workload, functions: Functions) -> Callable[[], None]:
        variables = [cs.Var(f"v{number}") for number in range(workload.variables)]
        calls = []
        for number, (function, (reads, writes)) in enumerate(
            zip(functions, workload.ops, strict=True)
        ):
            engine, pool = self._homes[number % len(self._homes)]
            used = [tuple(variables[each] for each in names) for names in (reads, writes)]
            calls.append((engine.push, function, *used, pool))
        hands = [calls[number :: self._threads] for number in range(self._threads)]
        engines = list(dict.fromkeys(engine for engine, _ in self._homes))

        def deal(hand: list) -> None:
            for push, function, reads, writes, pool in hand:
                push(function, reads=reads, writes=writes, pool=pool)

        def run() -> None:
            others = [threading.Thread(target=deal, args=(hand,)) for hand in hands[1:]]
            for thread in others:
                thread.start()
            deal(hands[0])
            for thread in others:
                thread.join()
            for engine in engines:
                engine.waitall()

        return run

    def close(self) -> None:
        """Nothing to do: the session closes the engines."""


if __name__ == "__main__":
    raise SystemExit(command.main("bench_cliffs", __doc__, build))
