"""Loops of launches: pushed as ever, replayed, as a graph by hand, and raw.

The eager loop is the same code for both engines; only `replay=` differs. `chain`, `independent` and
`fan` issue bursts, on this thread, without the wait. The programs of bench_dags are issued and
waited for. Each launch of `numbers` has another number. `temporaries` are ten operations on arrays,
whose results the next round binds again. `random` launches in an order that never
comes again. The driver's enqueuing calls and its answers to questions return at once on all sides,
so what is measured is Python. Bytecodes of a matched launch are counted.
"""

from __future__ import annotations

import checkout  # noqa: F401

# isort: split
import random
import statistics
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from bench_dags import KERNELS, Eager, Graph
from bench_launch import RAW

import cudasync as cs
from bench.graphs.dags import all_dags
from bench.harness import command
from bench.harness.bytecodes import bytecodes
from bench.harness.goals import Goal
from bench.harness.measurement import Case, Contender
from bench.launches import bursts
from bench.launches.counts import COUNTED_ON
from bench.launches.rig import Rig, without_driver
from cudasync.engine.replay.tape import LOCAL, Tape

if TYPE_CHECKING:
    from bench.harness.measurement import Session
    from bench.launches.rig import Calls

EAGER, REPLAYED, BY_HAND = "eager loop", "eager loop, replayed", "graph.launch()"
# Limits of the replayed loop over the loop.
OF_EAGER = {"chain": 0.25, "independent": 0.18, "fan": 0.12, "HITS": 0.1}
UNMATCHED = 1.02
MOST_BYTECODES = 125
# Runs after which a loop is replayed, and in which all is warm.
WARM = 24
ANSWERED = ("cuEventQuery", "cuStreamQuery")
COUNT = """
.version 7.0
.target sm_70
.address_size 64
.visible .entry plus(.param .u64 to, .param .u32 by)
{
    .reg .b32 %r<4>; .reg .b64 %d<2>;
    ld.param.u64 %d0, [to];
    ld.param.u32 %r0, [by];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %d1, %r1, 4;
    add.u64 %d0, %d0, %d1;
    ld.global.u32 %r2, [%d0];
    add.u32 %r3, %r2, %r0;
    st.global.u32 [%d0], %r3;
    ret;
}
"""


def build(session: Session) -> None:
    """Add a case for each shape, each program, and random launches."""
    launches = session.parameter("launches", small=4, large=32)
    most = session.parameter("most_bursts", small=2, large=100)
    replaying = cs.Engine(workers=bursts.WORKERS, replay=True)
    session.closing.callback(replaying.close)
    engine, kernel = bursts.prepared(session)
    for shape, burst in bursts.SHAPES.items():
        make = partial(_rig, session, kernel, burst(launches))
        name = f"bench_replay.{shape}"
        if not session.wants(name):
            continue
        rig, other = make(engine), make(replaying)
        with cs.use(engine), cs.graph() as recorded:
            for call in rig.kernel_calls():
                call()
        executable = recorded.instantiate()
        session.closing.callback(executable.close)
        loop = rig.kernel_calls()
        session.add(
            Case(
                name=name,
                contenders=[
                    _issuing(EAGER, engine, rig, loop),
                    _issuing(REPLAYED, replaying, other, other.kernel_calls()),
                    _issuing(BY_HAND, engine, rig, [executable.launch]),
                    _issuing(RAW, engine, rig, rig.raw_launches(), is_raw=True),
                ],
                baseline=EAGER,
                operations=launches,
                unit="launch",
                most_loops=most,
                goals=[Goal(REPLAYED, EAGER, OF_EAGER[shape])],
            )
        )
        if shape == "chain":
            _count(session, name, replaying, other)
    _add_numbers(session, engine, replaying, launches, most)
    _add_temporaries(session, engine, replaying, most)
    _add_random(session, engine, replaying, kernel, launches, most)
    _add_programs(session, engine, replaying, most)


def _add_numbers(
    session: Session, engine: cs.Engine, replaying: cs.Engine, launches: int, most: int
) -> None:
    """A chain whose launches count. The numbers of a replayed graph are changed before it."""
    name = "bench_replay.numbers"
    if not session.wants(name):
        return
    kernel = cs.Module.from_ptx(COUNT).kernel("plus")
    ways = [
        _Counting(session, words, each, kernel, launches)
        for words, each in ((EAGER, engine), (REPLAYED, replaying))
    ]
    session.add(
        Case(
            name=name,
            contenders=[Contender(way.name, way.bench, way.check) for way in ways],
            baseline=EAGER,
            operations=launches,
            unit="launch",
            most_loops=most,
        )
    )


class _Counting:
    """A burst of launches that add 1, 2, 3 and so on to one array."""

    def __init__(
        self, session: Session, name: str, engine: cs.Engine, kernel: cs.Kernel, launches: int
    ) -> None:
        self.name = name
        self._engine = engine
        self._bound = kernel[1, bursts.BLOCK]
        self._launches = launches
        with cs.use(engine):
            self._array = cs.zeros(bursts.BLOCK, "uint32")
        session.closing.callback(self._close)

    def _close(self) -> None:
        del self._array

    def _run(self, start: int) -> int:
        """A burst; returns the number behind its last."""
        bound, array, end = self._bound, self._array, start + self._launches
        for number in range(start, end):
            bound(array, number)
        return end

    def bench(self, loops: int) -> float:
        taken, number = [], 0
        changing = "cuGraphExecKernelNodeSetParams"
        with cs.use(self._engine), without_driver(*ANSWERED, changing):
            for warm in range(WARM + loops):
                start = time.perf_counter()
                number = self._run(number)
                if warm >= WARM:
                    taken.append(time.perf_counter() - start)
                self._engine.waitall()
        return statistics.median(taken) * loops

    def check(self) -> int:
        number = 0
        with cs.use(self._engine):
            cs.copy(self._array, np.zeros(bursts.BLOCK, np.uint32))
            for _ in range(WARM):
                number = self._run(number)
            return bursts.checksum_of([self._array.numpy()])


def _add_temporaries(session: Session, engine: cs.Engine, replaying: cs.Engine, most: int) -> None:
    """Rounds of operators."""
    name = "bench_replay.temporaries"
    if not session.wants(name):
        return
    ways = [_Operators(words, each) for words, each in ((EAGER, engine), (REPLAYED, replaying))]
    session.add(
        Case(
            name=name,
            contenders=[Contender(way.name, way.bench, way.check) for way in ways],
            baseline=EAGER,
            operations=10 * _Operators.ROUNDS,
            unit="operation",
            most_loops=most,
        )
    )


class _Operators:
    """Rounds of ten operations on arrays. Each round's names are bound again by the next."""

    # Of a burst; and after so many the loop is replayed.
    ROUNDS = 4
    LEARNT = 200

    def __init__(self, name: str, engine: cs.Engine) -> None:
        self.name = name
        self._engine = engine

    def _run(self, rounds: int) -> None:
        one, two = self._one, self._two
        for _ in range(rounds):
            a = one * 0.5
            b = two + a
            c = b - one
            d = c * two
            e = d + b
            f = e * 0.125
            g = f - c
            h = g + a
            self._sum = self._sum * 0.5
            self._sum = self._sum + h

    def _begin(self) -> None:
        self._one, self._two, self._sum = (
            cs.array(np.full(64, value, np.float32)) for value in (1, 2, 0)
        )

    def _end(self) -> None:
        del self._one, self._two, self._sum

    def bench(self, loops: int) -> float:
        taken = []
        with cs.use(self._engine):
            self._begin()
            self._run(self.LEARNT)
            # Memory is freed in earnest below, behind nothing that is still under way.
            self._engine.waitall()
            with without_driver(*ANSWERED):
                for _ in range(loops):
                    start = time.perf_counter()
                    self._run(self.ROUNDS)
                    taken.append(time.perf_counter() - start)
                    self._engine.waitall()
            self._end()
        return statistics.median(taken) * loops

    def check(self) -> int:
        with cs.use(self._engine):
            self._begin()
            self._run(2 * self.LEARNT)
            found = bursts.checksum_of([self._sum.numpy()])
            self._end()
            return found


def _rig(session: Session, kernel: cs.Kernel, burst: bursts.Burst, engine: cs.Engine) -> Rig:
    with cs.use(engine):
        return Rig(session.closing, engine, kernel, burst, bursts.BLOCK)


def _issuing(
    name: str, engine: cs.Engine, rig: Rig, calls: Calls, *, is_raw: bool = False
) -> Contender:
    """A burst, issued. A sample is the median over its bursts."""

    def bench(loops: int) -> float:
        taken = []
        with cs.use(engine), without_driver(*ANSWERED):
            if name is REPLAYED:
                for _ in range(WARM):
                    _run(calls)
                    rig.drain()
            for _ in range(loops):
                start = time.perf_counter()
                _run(calls)
                taken.append(time.perf_counter() - start)
                rig.drain()
        return statistics.median(taken) * loops

    def check() -> int:
        with cs.use(engine):
            rig.reset()
            for _ in range(WARM):
                _run(calls)
            rig.drain()
            return rig.raw_checksum() if is_raw else rig.arrays_checksum()

    return Contender(name, bench, check)


def _run(calls: Calls) -> None:
    for call in calls:
        call()


def _count(session: Session, name: str, engine: cs.Engine, rig: Rig) -> None:
    """Report the bytecodes of a launch that joins a run."""
    calls = rig.kernel_calls()
    with cs.use(engine), without_driver(*ANSWERED):
        for _ in range(WARM):
            _run(calls)
            rig.drain()
        found = statistics.median(map(bytecodes, calls))
        rig.drain()
    is_counted_there = sys.version_info[:2] == COUNTED_ON and len(calls) > 4
    limit = MOST_BYTECODES if is_counted_there else None
    session.measure(f"{name}: bytecodes, a launch that joins a run", found, "", limit)


def _add_random(
    session: Session,
    engine: cs.Engine,
    replaying: cs.Engine,
    kernel: cs.Kernel,
    launches: int,
    most: int,
) -> None:
    """Launches in an order that never comes again: what it costs to look for one."""
    name = "bench_replay.random"
    if not session.wants(name):
        return
    burst = bursts.independent(launches)
    contenders = []
    for words, each in ((EAGER, engine), (REPLAYED, replaying)):
        rig = _rig(session, kernel, burst, each)
        contenders.append(_shuffled(words, each, rig))
    session.add(
        Case(
            name=name,
            contenders=contenders,
            baseline=EAGER,
            operations=launches,
            unit="launch",
            most_loops=most,
            goals=[Goal(REPLAYED, EAGER, UNMATCHED)],
        )
    )


def _shuffled(name: str, engine: cs.Engine, rig: Rig) -> Contender:
    calls = rig.kernel_calls()
    draw = random.Random(1)
    # A program of its own: this thread knows the loops of other cases.
    alone = Tape()

    def bench(loops: int) -> float:
        taken = []
        before, LOCAL.tape = LOCAL.tape, alone
        with cs.use(engine), without_driver(*ANSWERED):
            for _ in range(loops):
                draw.shuffle(calls)
                start = time.perf_counter()
                _run(calls)
                taken.append(time.perf_counter() - start)
                rig.drain()
        LOCAL.tape = before
        # Not the median: the launches that are learnt are to count.
        return statistics.mean(taken) * loops

    def check() -> int:
        with cs.use(engine):
            rig.reset()
            _run(calls)
            rig.drain()
            return rig.arrays_checksum()

    return Contender(name, bench, check)


def _add_programs(session: Session, engine: cs.Engine, replaying: cs.Engine, most: int) -> None:
    """GrCUDA's programs, issued and waited for."""
    module = cs.Module.from_file(KERNELS)
    for dag in all_dags(
        lambda name, small, large: session.parameter(name, small=small, large=small)
    ):
        name = f"bench_replay.{dag.name}"
        if not session.wants(name):
            continue
        with cs.use(engine):
            loop, graph = (make(session.closing, dag, module) for make in (Eager, Graph))
        with cs.use(replaying):
            other = Eager(session.closing, dag, module)
        limit = OF_EAGER.get(dag.name)
        session.add(
            Case(
                name=name,
                contenders=[
                    _waited(EAGER, engine, loop),
                    _waited(REPLAYED, replaying, other),
                    _waited(BY_HAND, engine, graph),
                ],
                baseline=EAGER,
                operations=len(dag.steps),
                unit="kernel",
                most_loops=most,
                goals=[] if limit is None else [Goal(REPLAYED, EAGER, limit)],
            )
        )


def _waited(name: str, engine: cs.Engine, way: Eager) -> Contender:
    """A run, issued and waited for. A sample is the median over its runs."""

    def bench(loops: int) -> float:
        taken = []
        with cs.use(engine), without_driver(*ANSWERED):
            if name is REPLAYED:
                for _ in range(WARM):
                    _run(way.calls)
                    engine.waitall()
            for _ in range(loops):
                start = time.perf_counter()
                _run(way.calls)
                engine.waitall()
                taken.append(time.perf_counter() - start)
        return statistics.median(taken) * loops

    def check() -> int:
        with cs.use(engine):
            way.reset()
            for _ in range(WARM):
                _run(way.calls)
            engine.waitall()
            return bursts.checksum_of([each.ravel() for each in way.values().values()])

    return Contender(name, bench, check)


if __name__ == "__main__":
    raise SystemExit(command.main("bench_replay", __doc__, build))
