"""Host functions in graphs: empty functions, small additions, and matrix products.

`replay.NAME`: empty functions, recorded once and launched repeatedly, beside a plain loop over
them, beside this loop on another thread, and beside pushing them. The thread that waits for a
launch runs the functions itself, unless a worker is first; the loop on another thread shows the
cost of two thread switches at that moment. `once`: one launch after a pause, with cold caches.
`adds`: small additions on the CPU. `matmul`: matrix products, whose order a graph knows beforehand.
"""

from __future__ import annotations

from bench.harness import one_blas_thread  # noqa: F401

# isort: split
import gc
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from bench_matmul import BOUND, Products, side_by_side

import cudasync as cs
from bench.engine import workloads
from bench.engine.engines import Cudasync, SerialLoop, TwoThreads, contend, steps
from bench.graphs import tensorflow_graphs
from bench.harness.goals import Goal
from bench.harness.measurement import Case, Contender, repeat

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.engine.engines import Functions
    from bench.engine.workloads import Workload
    from bench.harness.measurement import Session

EAGER = "cudasync engine"
REPLAY = "graph.launch()"
ELSEWHERE = "serial loop on another thread"
NUMPY = "numpy"

REPLAY_MOST = 1.2
OF_THE_BOUND = 1 / 0.95


class Replay(Cudasync):
    """The workload as a graph, recorded and instantiated beforehand; launched, and waited for.

    If it `is_warm`, it was launched before, so the functions' times are known.
    """

    def __init__(self, engine: cs.Engine, *, is_warm: bool = False) -> None:
        super().__init__(REPLAY, engine)
        self._is_warm = is_warm

    def prepare(self, workload: Workload, functions: Functions) -> Callable[[], None]:
        launch = recorded(self._engine, workload, functions).launch

        def run() -> None:
            launch().wait()

        # The third launch is like all later ones: see `parts/host_parallelism`.
        for _ in range(3 if self._is_warm else 0):
            run()
        return run


def recorded(engine: cs.Engine, workload: Workload, functions: Functions) -> cs.Executable:
    """The workload as a graph, instantiated."""
    with cs.use(engine), cs.graph() as graph:
        push = cs.engine().push
        for function, reads, writes in steps(workload, functions):
            push(function, reads=reads, writes=writes)
    return graph.instantiate()


def add_replays(session: Session, engine: cs.Engine) -> None:
    """Empty functions in four shapes."""
    ops = session.parameter("ops", small=60, large=10_000)
    variables = session.parameter("random_variables", small=8, large=64)
    width = session.parameter("fan_width", small=10, large=1_000)
    rounds = session.parameter("fan_rounds", small=3, large=10)
    most = session.parameter("most_launches_in_a_row", small=2, large=32)
    loop, eager, tensorflow = SerialLoop(), Cudasync(EAGER, engine), tensorflow_graphs.peer(session)
    executor = ThreadPoolExecutor(1)
    for workload in (
        workloads.indep(ops),
        workloads.chain(ops),
        workloads.random(ops, variables),
        workloads.fan(width, rounds),
    ):
        functions = [nothing] * len(workload.ops)
        name = f"bench_graph.replay.{workload.name}"
        if not session.wants(name):
            continue
        plain = loop.prepare(workload, functions)
        launch = Replay(engine, is_warm=True).prepare(workload, functions)
        contenders = [
            Contender(loop.name, repeat(plain), contend(loop, workload, functions).checksum),
            Contender(ELSEWHERE, repeat(lambda run=plain: executor.submit(run).result()), None),
            contend(eager, workload, functions),
            Contender(
                REPLAY, repeat(launch), contend(Replay(engine), workload, functions).checksum
            ),
        ]
        if tensorflow is not None:
            run = tensorflow.no_ops(workload)
            contenders.append(Contender(tensorflow_graphs.NO_OPS, repeat(run), None))
        session.add(
            Case(
                name=name,
                contenders=contenders,
                baseline=loop.name,
                operations=len(workload.ops),
                most_loops=most,
                goals=[Goal(REPLAY, loop.name, REPLAY_MOST)],
            )
        )


def add_once(session: Session, engine: cs.Engine) -> None:
    """One launch after a pause, in which the collector goes through all objects."""
    ops = session.parameter("ops_once", small=60, large=10_000)
    workload, loop = workloads.indep(ops), SerialLoop()
    functions = [nothing] * ops

    def once(run: Callable[[], None], loops: int) -> float:
        seconds = 0.0
        for _ in range(loops):
            gc.collect()
            start = time.perf_counter()
            run()
            seconds += time.perf_counter() - start
        return seconds

    ways = {loop.name: (loop, loop), REPLAY: (Replay(engine, is_warm=True), Replay(engine))}
    session.add(
        Case(
            name="bench_graph.once",
            contenders=[
                Contender(
                    name,
                    partial(once, way.prepare(workload, functions)),
                    contend(cold, workload, functions).checksum,
                )
                for name, (way, cold) in ways.items()
            ],
            baseline=loop.name,
            operations=ops,
            most_loops=1,
        )
    )


def add_additions(session: Session, engine: cs.Engine) -> None:
    """A chain of additions of small arrays on the CPU, until its values are there."""
    count = session.parameter("additions", small=5, large=200)
    size = session.parameter("addition_size", small=8, large=1_024)
    name = "bench_graph.adds"
    if not session.wants(name):
        return
    values = np.arange(size, dtype=np.float32)
    ones = np.ones_like(values)

    def by_numpy() -> np.ndarray:
        found = values
        for _ in range(count):
            found = found + ones
        return found

    with cs.use(engine):
        x, y = (cs.array(each, device="cpu") for each in (values, ones))

        def eager() -> np.ndarray:
            found = x
            for _ in range(count):
                found = found + y
            return found.numpy()

        def executable(without: tuple[str, ...]) -> Callable[[], np.ndarray]:
            with cs.graph() as graph:
                found = x
                for _ in range(count):
                    found = found + y
            launch = graph.instantiate(without=without).launch

            def run() -> np.ndarray:
                launch()
                return found.numpy()

            return run

        ways = {
            NUMPY: by_numpy,
            EAGER: eager,
            REPLAY: executable(()),
            "without fusion": executable(("fusion",)),
        }
    tensorflow = tensorflow_graphs.peer(session)
    if tensorflow is not None:
        ways[tensorflow_graphs.FUNCTION] = tensorflow.adds(values, count)
    session.add(
        Case(
            name=name,
            contenders=[
                Contender(way, repeat(run), lambda run=run: int(run().sum()))
                for way, run in ways.items()
            ],
            baseline=NUMPY,
            operations=count,
        )
    )


def add_matmul(session: Session, engine: cs.Engine) -> None:
    """Matrix products, on two workers."""
    ops = session.parameter("matmul_ops", small=24, large=400)
    size = session.parameter("matmul_size", small=16, large=256)
    workload = workloads.random(ops, 16)
    products = Products(workload, size)
    eager, warm, cold = Cudasync(EAGER, engine), Replay(engine, is_warm=True), Replay(engine)
    loop, by_hand = SerialLoop(), TwoThreads()
    session.add(
        Case(
            name="bench_graph.matmul",
            contenders=[
                contend(each, workload, products.functions, checksum=products.checksum_of(prepare))
                for each, prepare in (
                    (loop, loop.prepare),
                    (by_hand, by_hand.prepare),
                    (eager, eager.prepare),
                    (warm, cold.prepare),
                )
            ]
            + [Contender(BOUND, side_by_side(products.functions), None)],
            baseline=SerialLoop.name,
            operations=ops,
            most_loops=1,
            goals=[
                Goal(REPLAY, EAGER, 1.0),
                Goal(
                    REPLAY,
                    BOUND,
                    OF_THE_BOUND,
                    otherwise=Goal(REPLAY, TwoThreads.name, OF_THE_BOUND),
                ),
            ],
        )
    )


def nothing() -> None:
    """The host function is empty, so all the time is the graph's."""
