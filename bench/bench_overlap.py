"""Overlap by the device's clock: programs without a stream beside streams placed by hand.

`chains`: eight independent chains of small layers, their temporaries dropped or kept. `batches`:
eight batches through a perceptron. `models`: two models side by side. `pipelines`: chunks that are
uploaded, computed with and downloaded. `rounds`: ten rounds of independent updates in place. `d2l`:
the six experiments of `cudasync.experiments`. `dags`: GrCUDA's six programs (bench_dags).

Each runs eagerly and as a graph, `rounds` and HITS also with the loop as a block of the graph:
HITS with five rounds, which are written out, and with fifty (`HITS.long`), which stay a loop of the
device. Beside most are the same commands on streams placed by hand (`overlap/placed.py`); GrCUDA's
have their own kernels there. A time is that of a run by the device's clock, until all is over. The
software GPU has a virtual clock, which does not count the host's work; with a GPU it is the wall
clock. `.four`: engines with four streams.
"""

from __future__ import annotations

import checkout  # noqa: F401

# isort: split
import os
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import bench_dags
import numpy as np

import cudasync as cs
from bench.graphs.dags import all_dags, hits
from bench.harness import command
from bench.harness.goals import Goal
from bench.harness.measurement import Case, Contender
from bench.launches.bursts import checksum_of
from bench.overlap.placed import Placed, commands
from bench.overlap.programs import Program, all_programs
from cudasync.engine.host.pool import COPIERS, COPY_POOL
from cudasync.experiments.clocks import Stopwatch, device_clock_is_wall_clock

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack

    from bench.harness.measurement import Session
    from cudasync.profile.record import Record

# The software GPU has as many devices as this says.
os.environ.setdefault("CUDASYNC_SOFTGPU_DEVICES", "2")
HAND, ONE = "streams by hand", "one stream"
EAGER, GRAPH, BLOCKS = "cudasync engine", "graph.launch()", "graph with blocks"
# A time of at most this is 0.95 of the overlap by hand.
MOST = 1 / 0.95
# A loop as a block, over the same rounds written out.
MOST_OF_WRITTEN_OUT = 1.15
# Of four streams.
OF_FOUR = 1 / 3.8
WARM_UPS, RECORDED = 3, 3
WORKERS = 2


class Held:
    """The workers of an engine, held until the program is pushed, if the device's clock is virtual.

    That clock counts commands and not the host. But a command that is pushed after a thread has
    seen an end starts after this end. So a program whose workers ask about its first commands while
    it is being pushed would get a time that depends on the host.
    """

    def __init__(self, engine: cs.Engine) -> None:
        self._gate = threading.Event()
        if not device_clock_is_wall_clock():
            for _ in range(WORKERS):
                engine.push(self._gate.wait)
            for _ in range(COPIERS):
                engine.push(self._gate.wait, pool=COPY_POOL)

    def release(self) -> None:
        self._gate.set()


class Eager:
    """The program as it is written, on an engine of its own. `streams` is the engine's limit."""

    def __init__(self, closing: ExitStack, program: Program, streams: int | None = None) -> None:
        self._engine = cs.Engine(workers=WORKERS, streams=streams)
        closing.callback(self._engine.close)
        self._program = program
        with cs.use(self._engine):
            self._inputs = program.prepare()
            cs.waitall()
        self._results: list[Any] = []
        closing.callback(self._forget)
        # Streams, memory and compiled kernels exist afterwards.
        for _ in range(WARM_UPS):
            self.run()

    def run(self) -> float:
        """Seconds by the device's clock until all is over."""
        with cs.use(self._engine):
            cs.waitall()
            stopwatch = Stopwatch()
            self._go()
            seconds = stopwatch.stop()[0] / 1e3
        return seconds

    def _go(self) -> None:
        """Run the program, and read its results in order, as a program does."""
        held = Held(self._engine)
        try:
            self._results = self._start()
        finally:
            held.release()
        for each in self._results:
            if hasattr(each, "wait"):
                each.wait()
        cs.waitall()

    def _start(self) -> list[Any]:
        return self._program.run(*self._inputs)

    def _forget(self) -> None:
        self._results, self._inputs = [], ()

    def bench(self, loops: int) -> float:
        return sum(self.run() for _ in range(loops))

    def checksum(self) -> int:
        self.run()
        with cs.use(self._engine):
            return checksum_of([values(each) for each in self._results])

    def records(self) -> list[Record]:
        """The profile's records of one run, each with its least duration in a few runs: if a thread
        sees a later end between the start of a kernel and the kernel, this takes longer."""
        runs: list[list[Record]] = []
        for _ in range(RECORDED):
            with cs.use(self._engine), cs.profile() as profile:
                self._go()
            runs.append(commands(profile.records))
        for records in zip(*runs, strict=True):
            shortest = min(records, key=lambda record: record.duration_us)
            records[-1].start_us, records[-1].end_us = shortest.start_us, shortest.end_us
        return runs[-1]


class Graph(Eager):
    """The program, recorded once. A run is one launch. A block may repeat the body of its loop."""

    def __init__(self, closing: ExitStack, program: Program, *, has_blocks: bool = False) -> None:
        self._executable: cs.GraphExecutable | None = None
        self._outputs: list[Any] = []
        self._has_blocks = has_blocks
        super().__init__(closing, program)

    def _start(self) -> list[Any]:
        if self._executable is None:
            with cs.graph() as graph:
                if self._has_blocks:
                    assert self._program.looped is not None
                    loop = lambda times: [graph.repeat(times)]  # noqa: E731
                    self._outputs = self._program.looped(loop, *self._inputs)
                else:
                    self._outputs = self._program.run(*self._inputs)
            self._executable = graph.instantiate()
        self._executable.launch()
        return self._outputs

    def _forget(self) -> None:
        super()._forget()
        self._outputs = []
        if self._executable is not None:
            self._executable.close()


def values(result: Any) -> Any:
    """The values of an array of the library, or of pinned memory; waits for them."""
    cs.waitall()
    return result.numpy() if hasattr(result, "numpy") else result


def build(session: Session) -> None:
    """Add a case for each program."""
    device = cs.Device(0)
    device.use()
    session.device = f"{device.name}, compute capability {device.compute_capability}"

    def size_of(name: str, small: int, large: int) -> int:
        return session.parameter(name, small=small, large=large)

    for program in all_programs(size_of):
        name = f"bench_overlap.{program.name}"
        if program.devices > cs.device_count():
            session.absent[name] = "it needs two devices: CUDASYNC_SOFTGPU_DEVICES=2"
        elif session.wants(name):
            add(session, name, program)
    dags(session, size_of)


def add(session: Session, name: str, program: Program) -> None:
    """The case of a program, and of chains another with four streams."""
    closing = session.closing
    eager = Eager(closing, program)
    records = eager.records()
    ways: dict[str, Eager] = {EAGER: eager, GRAPH: Graph(closing, program)}
    if program.looped is not None:
        ways[BLOCKS] = Graph(closing, program, has_blocks=True)
    hands = {HAND: Placed(closing, records), ONE: Placed(closing, records, most=1)}
    session.add(case(name, ways, hands, [Goal(way, HAND, MOST) for way in ways]))
    if program.name.startswith("chains"):
        hands = {HAND: Placed(closing, records, most=4), ONE: hands[ONE]}
        few: dict[str, Eager] = {EAGER: Eager(closing, program, streams=4)}
        session.add(case(f"{name}.four", few, hands, [Goal(EAGER, ONE, OF_FOUR)]))


def case(name: str, ways: dict[str, Eager], hands: dict[str, Placed], goals: list[Goal]) -> Case:
    contenders = [Contender(each, way.bench, way.checksum) for each, way in ways.items()]
    for each, placed in hands.items():
        contenders.append(Contender(each, partial(_times, placed.run), None))
    return Case(name, contenders, EAGER, unit="run", most_loops=1, goals=goals)


def _times(run: Callable[[], float], loops: int) -> float:
    return sum(run() for _ in range(loops))


def dags(session: Session, size_of: Callable[[str, int, int], int]) -> None:
    """GrCUDA's programs, with the ways of bench_dags and their times by the device's clock."""
    engine = cs.Engine(workers=2)
    session.closing.callback(engine.close)
    closing = session.closing
    made = {dag.name: dag for dag in all_dags(size_of)}
    nodes = size_of("hits_nodes", 128, 8_192)
    made["HITS.long"] = hits(nodes, np.random.default_rng(1), size_of("hits_rounds", 50, 50))
    for label, dag in made.items():
        name = f"bench_overlap.dags.{label}"
        if not session.wants(name):
            continue
        module = cs.Module.from_file(bench_dags.KERNELS)
        expected = partial(dag.expected, dag.arrays)
        with cs.use(engine):
            ways: dict[str, Any] = {
                HAND: bench_dags.ByHand(closing, dag, module, is_one=False),
                ONE: bench_dags.ByHand(closing, dag, module, is_one=True),
                EAGER: bench_dags.Eager(closing, dag, module),
                GRAPH: bench_dags.Graph(closing, dag, module),
            }
            goals = [Goal(EAGER, HAND, MOST), Goal(GRAPH, HAND, MOST)]
            if dag.rounds > 1:
                ways[BLOCKS] = bench_dags.Blocks(closing, dag, module)
                goals += [Goal(BLOCKS, HAND, MOST), Goal(BLOCKS, GRAPH, MOST_OF_WRITTEN_OUT)]
        session.add(
            Case(
                name,
                [
                    Contender(
                        each,
                        partial(timed, engine, way),
                        partial(checked, engine, bench_dags.checksum(dag, way, expected)),
                    )
                    for each, way in ways.items()
                ],
                EAGER,
                unit="run",
                most_loops=1,
                goals=goals,
            )
        )


def timed(engine: cs.Engine, way: bench_dags.ByHand | bench_dags.Eager, loops: int) -> float:
    total = 0.0
    with cs.use(engine):
        for _ in range(loops):
            cs.waitall()
            stopwatch = Stopwatch()
            bench_dags.run(way)
            total += stopwatch.stop()[0] / 1e3
    return total


def checked(engine: cs.Engine, checksum: Callable[[], int]) -> int:
    with cs.use(engine):
        return checksum()


if __name__ == "__main__":
    raise SystemExit(command.main("bench_overlap", __doc__, build, rounds=3))
