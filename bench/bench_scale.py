"""A long run: does an op cost more, or memory grow, with the number of ops pushed before it?

`cost`: ops of the `random` shape over 64 variables, 10 000 and a million of them, on one engine.
The million runs once with one wait at the end, and once with a wait after every 10 000 ops.
`memory`: the process's memory after 100 000 and a million pushes, above that after the first 10 000
(`--set most_pushes=10000000` for more); and the peak of an engine with `max_in_flight=10000` that
nobody waits for.
"""

from __future__ import annotations

import checkout  # noqa: F401

# isort: split
import gc
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import cudasync as cs
from bench.engine import workloads
from bench.harness import command
from bench.harness.goals import Goal
from bench.harness.measurement import Case, Contender

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.harness.measurement import Session

# The allowed growth of an op's cost among a million. The limit is for growth; a million ops also
# fit in fewer caches than ten thousand.
MOST_GROWTH = 1.25
# The memory that an allocator keeps for reuse: less than a byte for each of ten million pushes.
MOST_MEGABYTES = 8
# Ten thousand ops in flight, at one to three kilobytes each.
MOST_PEAK_MEGABYTES = 32
MOST_OBJECTS = 1000


def nothing() -> None:
    """The op."""


def build(session: Session) -> None:
    """Measure memory first, while the process is young; then add the case of the cost."""
    variables = session.parameter("variables", small=8, large=64)
    few = session.parameter("few_pushes", small=100, large=10_000)
    many = session.parameter("many_pushes", small=1_000, large=1_000_000)
    most = session.parameter("most_pushes", small=2_000, large=1_000_000)
    workers = session.parameter("workers", small=2, large=2)
    engine = cs.Engine(workers=workers)
    bounded = cs.Engine(workers=workers, max_in_flight=few)
    for each in (engine, bounded):
        session.closing.callback(each.close)
    run = Run(engine, few, variables)
    if session.wants("bench_scale.memory"):
        measure_what_stays(session, run, few, most)
        measure_the_peak(session, Run(bounded, few, variables), few, most)
    names = {
        f"{few} ops": (few, few),
        f"{many} ops, one wait": (many, many),
        f"{many} ops, a wait every {few}": (many, few),
    }
    baseline, *longer = names
    session.add(
        Case(
            name="bench_scale.cost",
            contenders=[
                Contender(name, run.bench(pushes, between), run.checksum, operations=pushes)
                for name, (pushes, between) in names.items()
            ],
            baseline=baseline,
            operations=few,
            most_loops=max(1, many // few // 20),
            goals=[Goal(name, baseline, MOST_GROWTH) for name in longer],
        )
    )


class Run:
    """Any number of pushes of one shape, onto one engine's variables."""

    def __init__(self, engine: cs.Engine, ops: int, variables: int) -> None:
        self._engine = engine
        self._workload = workloads.random(ops, variables)
        self._variables = [cs.Var(f"v{number}") for number in range(variables)]
        self._calls = [
            (
                tuple(self._variables[number] for number in reads),
                tuple(self._variables[number] for number in writes),
            )
            for reads, writes in self._workload.ops
        ]

    def push(self, pushes: int, between: int = 0) -> None:
        """Push so many ops, with a wait after every `between` of them; 0 means no wait."""
        push, waitall = self._engine.push, self._engine.waitall
        left = between
        for reads, writes in self._cycle(pushes):
            push(nothing, reads=reads, writes=writes)
            left -= 1
            if not left:
                waitall()
                left = between

    def wait(self) -> None:
        self._engine.waitall()

    def bench(self, pushes: int, between: int) -> Callable[[int], float]:
        def bench(loops: int) -> float:
            start = time.perf_counter()
            for _ in range(loops):
                self.push(pushes, between)
                self.wait()
            return time.perf_counter() - start

        return bench

    def checksum(self) -> int:
        tally = workloads.Tally(self._workload)
        for function, (reads, writes) in zip(tally.functions, self._calls, strict=True):
            self._engine.push(function, reads=reads, writes=writes)
        self._engine.waitall()
        return tally.checksum()

    def _cycle(self, pushes: int) -> Iterator[tuple]:
        while pushes > len(self._calls):
            yield from self._calls
            pushes -= len(self._calls)
        yield from self._calls[:pushes]


def measure_what_stays(session: Session, run: Run, few: int, most: int) -> None:
    """Report growth after ten times as many pushes, and so on, with a wait every `few` pushes."""
    run.push(few, few)
    resident, objects = resident_bytes(), live_objects()
    done, mark = few, few * 10
    while mark <= most:
        while done < mark:
            session.pause(f"memory: {done} of {most} pushes")
            run.push(few, few)
            done += few
        told = f"bench_scale.memory, after {mark} pushes"
        growth = max(0.0, (resident_bytes() - resident) / 1e6)
        session.measure(f"{told}: resident", growth, "MB more", MOST_MEGABYTES)
        session.measure(f"{told}: objects", live_objects() - objects, "more", MOST_OBJECTS)
        mark *= 10


def measure_the_peak(session: Session, run: Run, few: int, most: int) -> None:
    """Report the peak of resident memory under back-pressure, without waits.

    Waiting ops need memory, too. After the first 20 000 pushes their number stays the same.
    """
    run.push(2 * few)
    resident = peak = resident_bytes()
    for done in range(2 * few, most, few):
        session.pause(f"memory, held back: {done} of {most} pushes")
        run.push(few)
        peak = max(peak, resident_bytes())
    run.wait()
    told = f"bench_scale.memory, {most} pushes, at most {few} in flight: peak"
    session.measure(told, (peak - resident) / 1e6, "MB more", MOST_PEAK_MEGABYTES)


def resident_bytes() -> int:
    """The resident memory of the process, from the kernel."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def live_objects() -> int:
    """The number of objects that the garbage collector tracks after a collection."""
    gc.collect()
    return len(gc.get_objects())


if __name__ == "__main__":
    raise SystemExit(command.main("bench_scale", __doc__, build, rounds=7))
