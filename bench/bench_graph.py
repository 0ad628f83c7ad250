"""Recorded programs, launched: what a graph costs beside doing the same without one.

`replay.NAME`: empty host functions, recorded once, beside a plain loop over them and beside pushing
them eagerly. `matmul`: products of matrices on the host, whose order a graph knows beforehand.
`launch.N`: kernels of a device in one graph, launched until issued; timed beside a bare launch of
the same graph of the driver. `instantiate`: a graph of empty host functions, made ready. `loop`:
rounds of one kernel, by conditional nodes of the driver, beside the engine's way.
`memory.NAME`: bytes of temporaries, counted (`graph_memory.py`).
"""

from __future__ import annotations

import checkout  # noqa: F401
import one_blas_thread  # noqa: F401

# isort: split
import gc
import time
from typing import TYPE_CHECKING

import command
import numpy as np
import workloads
from bench_matmul import BOUND, Products, side_by_side
from engines import Cudasync, SerialLoop, contend, steps
from goals import MICROSECONDS, Goal
from graph_memory import add_memory
from harness import Case, Contender
from launch_rig import without_driver

import cudasync as cs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from engines import Functions
    from harness import Session
    from workloads import Workload

    from cudasync.graph.node import Node

EAGER = "cudasync engine"
REPLAY = "graph.launch()"
BARE = "GraphExec.launch(stream)"
RECORD = "with cs.graph()"
INSTANTIATE = "graph.instantiate()"
BY_DEVICE = "conditional nodes"
BY_ENGINE = "without conditionals"

REPLAY_MOST = 1.2
OF_THE_BOUND = 1 / 0.95
LAUNCH_MOST_US = 4.5
# 100 000 nodes in 5 s.
INSTANTIATE_MOST_US = 50.0


class Replay(Cudasync):
    """The workload as a graph, recorded and instantiated beforehand: launched, and waited for.

    Where it `is_warm` it was launched before, so it is known how long the functions take.
    """

    def __init__(self, engine: cs.Engine, *, is_warm: bool = False) -> None:
        super().__init__(REPLAY, engine)
        self._is_warm = is_warm

    def prepare(self, workload: Workload, functions: Functions) -> Callable[[], None]:
        launch = recorded(self._engine, workload, functions).launch

        def run() -> None:
            launch().wait()

        if self._is_warm:
            run()
        return run


def recorded(engine: cs.Engine, workload: Workload, functions: Functions) -> cs.Executable:
    """The workload as a graph, instantiated."""
    with cs.use(engine), cs.graph() as graph:
        push = cs.engine().push
        for function, reads, writes in steps(workload, functions):
            push(function, reads=reads, writes=writes)
    return graph.instantiate()


def build(session: Session) -> None:
    """Add the cases of host functions, of a matrix product and of a device's kernels."""
    ops = session.parameter("ops", small=60, large=10_000)
    variables = session.parameter("random_variables", small=8, large=64)
    width = session.parameter("fan_width", small=10, large=1_000)
    rounds = session.parameter("fan_rounds", small=3, large=10)
    session.closing.enter_context(cs.use(engine := cs.Engine(workers=2)))
    session.closing.callback(engine.close)
    loop, eager = SerialLoop(), Cudasync(EAGER, engine)
    for workload in (
        workloads.indep(ops),
        workloads.chain(ops),
        workloads.random(ops, variables),
        workloads.fan(width, rounds),
    ):
        functions = [nothing] * len(workload.ops)
        session.add(
            Case(
                name=f"bench_graph.replay.{workload.name}",
                contenders=[
                    *(contend(each, workload, functions) for each in (loop, eager)),
                    replayed(engine, workload, functions),
                ],
                baseline=SerialLoop.name,
                operations=len(workload.ops),
                most_loops=1,
                goals=[Goal(REPLAY, SerialLoop.name, REPLAY_MOST)],
            )
        )
    add_matmul(session, engine)
    add_launches(session)
    add_instantiation(session, engine)
    add_memory(session)
    add_loops(session, engine)


def replayed(engine: cs.Engine, workload: Workload, functions: Functions) -> Contender:
    """One graph, launched again and again; the checksum is of a graph of its own."""
    run = Replay(engine, is_warm=True).prepare(workload, functions)

    def bench(loops: int) -> float:
        gc.collect()
        start = time.perf_counter()
        for _ in range(loops):
            run()
        return time.perf_counter() - start

    return Contender(REPLAY, bench, contend(Replay(engine), workload, functions).checksum)


def add_matmul(session: Session, engine: cs.Engine) -> None:
    """Products of matrices, by two workers."""
    ops = session.parameter("matmul_ops", small=24, large=400)
    size = session.parameter("matmul_size", small=16, large=256)
    workload = workloads.random(ops, 16)
    products = Products(workload, size)
    eager, warm, cold = Cudasync(EAGER, engine), Replay(engine, is_warm=True), Replay(engine)
    loop = SerialLoop()
    session.add(
        Case(
            name="bench_graph.matmul",
            contenders=[
                contend(each, workload, products.functions, checksum=products.checksum_of(prepare))
                for each, prepare in (
                    (loop, loop.prepare),
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
                Goal(REPLAY, BOUND, OF_THE_BOUND, word="goal"),
            ],
        )
    )


def add_launches(session: Session) -> None:
    """Graphs of kernels over sixteen arrays: issuing a launch, the driver's part left out."""
    most = session.parameter("most_launches", small=2, large=200)
    for count in (16, 160):
        nodes = session.parameter(f"nodes_{count}", small=16, large=count)
        name = f"bench_graph.launch.{count}"
        if not session.wants(name):
            continue
        arrays = [cs.zeros(16, np.int32) for _ in range(16)]
        with cs.graph() as graph:
            for number in range(nodes):
                array = arrays[number % 16]
                array += 1
        executable = graph.instantiate()
        session.closing.callback(executable.close)
        stream = cs.Stream()
        bare = executable.parts[0].launch
        ways = {BARE: lambda bare=bare, on=stream: bare(on), REPLAY: executable.launch}
        session.add(
            Case(
                name=name,
                contenders=[
                    Contender(way, issuing(call, stream), checksum_of(call, arrays, stream))
                    for way, call in ways.items()
                ],
                baseline=BARE,
                unit="launch",
                most_loops=most,
                goals=[Goal(REPLAY, BARE, LAUNCH_MOST_US, MICROSECONDS)],
            )
        )


def issuing(call: Callable[[], object], stream: cs.Stream) -> Callable[[int], float]:
    """Seconds for so many calls, in which the driver enqueues nothing."""

    def bench(loops: int) -> float:
        with without_driver():
            start = time.perf_counter()
            for _ in range(loops):
                call()
            seconds = time.perf_counter() - start
            cs.waitall()
        stream.synchronize()
        return seconds

    return bench


def checksum_of(
    call: Callable[[], object], arrays: list[cs.Array], stream: cs.Stream
) -> Callable[[], int]:
    """What two launches make of arrays of zeros."""

    def checksum() -> int:
        for array in arrays:
            array[...] = 0
        cs.waitall()
        for _ in range(2):
            call()
        stream.synchronize()
        cs.waitall()
        return sum(int(array.numpy().sum()) for array in arrays)

    return checksum


def add_instantiation(session: Session, engine: cs.Engine) -> None:
    """Recording, and from recorded nodes to an executable."""
    ops = session.parameter("instantiated", small=60, large=20_000)
    calls = steps(workloads.random(ops, 64), [nothing] * ops)

    def record() -> cs.RecordedGraph:
        with cs.use(engine), cs.graph() as graph:
            push = cs.engine().push
            for function, reads, writes in calls:
                push(function, reads=reads, writes=writes)
        return graph

    recorded_once = record()
    ways = {RECORD: record, INSTANTIATE: recorded_once.instantiate}
    session.add(
        Case(
            name="bench_graph.instantiate",
            contenders=[
                Contender(name, repeated(make), lambda make=make: steps_of(make().nodes))
                for name, make in ways.items()
            ],
            baseline=RECORD,
            operations=ops,
            unit="node",
            most_loops=1,
            goals=[Goal(INSTANTIATE, None, INSTANTIATE_MOST_US, MICROSECONDS)],
        )
    )


def add_loops(session: Session, engine: cs.Engine) -> None:
    """Rounds on a device: by conditional nodes of the driver, and by the engine, one by one."""
    rounds = session.parameter("loop_rounds", small=3, large=100)

    def looping(without: tuple[str, ...]) -> tuple[Callable[[], object], Callable[[], int]]:
        x = cs.zeros(64, np.int32)
        with cs.use(engine), cs.graph() as graph, graph.repeat(rounds):
            x += 1
        executable = graph.instantiate(without=without)

        def run() -> None:
            with cs.use(engine):
                executable.launch().wait()

        def checksum() -> int:
            before = int(x.numpy()[0])
            run()
            return int(x.numpy()[0]) - before

        return run, checksum

    ways = {BY_DEVICE: (), BY_ENGINE: ("conditionals",)}
    made = [(name, *looping(without)) for name, without in ways.items()]
    session.add(
        Case(
            name="bench_graph.loop",
            contenders=[Contender(name, repeated(run), checksum) for name, run, checksum in made],
            baseline=BY_ENGINE,
            operations=rounds,
            unit="round",
        )
    )


def steps_of(nodes: Sequence[Node]) -> int:
    """How many functions they call: nodes that were joined have several."""
    return sum(len(node.steps) or 1 for node in nodes)


def repeated(make: Callable[[], object]) -> Callable[[int], float]:
    """Seconds for so many calls."""

    def bench(loops: int) -> float:
        start = time.perf_counter()
        for _ in range(loops):
            make()
        return time.perf_counter() - start

    return bench


def nothing() -> None:
    """The host function: all of the time is the graph's."""


if __name__ == "__main__":
    raise SystemExit(command.main("bench_graph", __doc__, build))
