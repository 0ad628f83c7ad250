"""Recorded programs, launched: the cost of a graph beside the same work without one.

`replay.NAME`, `once`, `adds`, `matmul`: functions of the host (`graphs/replay.py`).
`launch.N`: kernels of a device in one graph, launched until issued, beside a raw launch of the same
graph of the driver. `instantiate`: a graph of empty host functions, instantiated. `loop`: rounds of
one kernel, by conditional nodes of the driver, beside the engine's way.
`updates.N`: ten updates of N floats in a block, beside ten written out (`graphs/blocks.py`).
`memory.NAME`: bytes of temporaries, counted (`graphs/memory.py`). `fusion`: five operations on a
large array, in one kernel and in five (`graphs/fusion.py`).
"""

from __future__ import annotations

import checkout  # noqa: F401

from bench.harness import one_blas_thread  # noqa: F401

# isort: split
import statistics
import time
from typing import TYPE_CHECKING

import numpy as np
from cuda.bindings import driver

import cudasync as cs
from bench.engine import workloads
from bench.engine.engines import steps
from bench.graphs.blocks import add_blocks
from bench.graphs.fusion import add_fusion
from bench.graphs.memory import add_memory
from bench.graphs.replay import REPLAY, add_additions, add_matmul, add_once, add_replays, nothing
from bench.harness import command
from bench.harness.goals import MICROSECONDS, Goal
from bench.harness.measurement import Case, Contender
from bench.launches.rig import without_driver

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.harness.measurement import Session
    from cudasync.graph.node import Node

RAW = "driver.cuGraphLaunch"
BARE = "GraphExec.launch(stream)"
RECORD = "with cs.graph()"
INSTANTIATE = "graph.instantiate()"
BY_DEVICE = "conditional nodes"
BY_ENGINE = "without conditionals"

LAUNCH_MOST_US = 4.5
# Launches in a row, four of which look after finished ones. It takes less than a slice of the
# operating system's scheduler.
BURST = 128
# 100 000 nodes in 5 s.
INSTANTIATE_MOST_US = 50.0


def build(session: Session) -> None:
    """Add the cases of host functions, of a matrix product and of a device's kernels."""
    session.closing.enter_context(cs.use(engine := cs.Engine(workers=2)))
    session.closing.callback(engine.close)
    add_replays(session, engine)
    add_once(session, engine)
    add_additions(session, engine)
    add_matmul(session, engine)
    add_launches(session)
    add_instantiation(session, engine)
    add_memory(session)
    add_loops(session, engine)
    add_fusion(session)
    add_blocks(session)


def add_launches(session: Session) -> None:
    """Graphs of kernels over sixteen arrays: the issue of a launch, without the driver's part."""
    # Many bursts. The driver enqueues nothing, so nothing piles up.
    most = session.parameter("most_launches", small=2, large=4096)
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
        part = executable.parts[0]
        raw = driver.CUgraphExec(part._executable.handle)
        handle = driver.CUstream(stream.handle)
        ways = {
            RAW: lambda raw=raw, on=handle: driver.cuGraphLaunch(raw, on),
            BARE: lambda bare=part.launch, on=stream: bare(on),
            REPLAY: executable.launch,
        }
        session.add(
            Case(
                name=name,
                contenders=[
                    Contender(way, issuing(call, stream), checksum_of(call, arrays, stream))
                    for way, call in ways.items()
                ],
                baseline=RAW,
                unit="launch",
                most_loops=most,
                goals=[Goal(REPLAY, RAW, LAUNCH_MOST_US, MICROSECONDS)],
            )
        )


def issuing(call: Callable[[], object], stream: cs.Stream) -> Callable[[int], float]:
    """Seconds for the calls, while the driver enqueues nothing: the median burst, for all.

    Our calls take 40 times as long as the baseline's. So with all calls in one go another program
    interrupts most samples of ours, and few of the baseline.
    """

    def bench(loops: int) -> float:
        size = min(loops, BURST)
        bursts = []
        with without_driver():
            for _ in range(loops // size):
                start = time.perf_counter()
                for _ in range(size):
                    call()
                bursts.append(time.perf_counter() - start)
            cs.waitall()
        stream.synchronize()
        return statistics.median(bursts) / size * loops

    return bench


def checksum_of(
    call: Callable[[], object], arrays: list[cs.Array], stream: cs.Stream
) -> Callable[[], int]:
    """The checksum of arrays of zeros after two launches."""

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
    """The recording, and the step from recorded nodes to an executable."""
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

    ways = {BY_DEVICE: ("unroll",), BY_ENGINE: ("conditionals", "unroll")}
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
    """The number of functions that the nodes call. Joined nodes have several."""
    return sum(len(node.steps) or 1 for node in nodes)


def repeated(make: Callable[[], object]) -> Callable[[int], float]:
    """Seconds for so many calls."""

    def bench(loops: int) -> float:
        start = time.perf_counter()
        for _ in range(loops):
            make()
        return time.perf_counter() - start

    return bench


if __name__ == "__main__":
    raise SystemExit(command.main("bench_graph", __doc__, build))
