"""Input pipelines: photographs decoded into batches, and the cost of a sample beside its function.

`jpeg`: sample photographs, decoded by Pillow and resized to 224 x 224, in batches of 32, from the
beginning of a pass to its end. The processes of PyTorch's DataLoader exist before the timing; those
of cudasync start within it. `map`: a function that returns its argument. `device`: rows in memory,
gathered into batches that become arrays of the device, beside a loop that copies each. Two more
measures: the wait of a loop whose step takes longer than a batch, and the memory over many samples.
"""

from __future__ import annotations

import checkout  # noqa: F401

# isort: split
import gc
import statistics
import time
import zlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import cudasync as cs
from bench.data.peers import Cudasync, Loop, Unordered, installed
from bench.data.photographs import decode, paths
from bench.harness import command, machine
from bench.harness.goals import MICROSECONDS, Goal
from bench.harness.measurement import Case, Contender
from cudasync import data

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bench.data.peers import Batches
    from bench.harness.measurement import Session

WORKERS = 2
BATCH = 32
THREADS = f"cudasync, {WORKERS} threads"
# The required speed of two threads: over the plain loop, and over two threads without an order at
# that moment.
MUST, GOAL, OF_BOUND = 1 / 1.6, 1 / 1.85, 1 / 0.93
MOST_MAP_US, GOAL_MAP_US = 6.0, 3.0
MOST_WAITING_PERCENT, MOST_GROWTH_MIB, MOST_PROCESSOR = 5.0, 4.0, 1.1


def build(session: Session) -> None:
    """Add both cases, and the measurements at the end."""
    for package in ("pillow", "scikit-learn", "matplotlib"):
        session.versions[package] = machine.installed(package) or "absent"
    add_photographs(session)
    add_map(session)
    add_device(session)
    session.at_end.append(measure_processor)
    session.at_end.append(measure_waiting)
    session.at_end.append(measure_memory)
    session.parameter("processor_photographs", small=4, large=96)
    session.parameter("waiting_batches", small=4, large=40)
    session.parameter("memory_samples", small=20_000, large=1_000_000)


def add_photographs(session: Session) -> None:
    count = session.parameter("photographs", small=4, large=256)
    loop, bound = Loop(), Unordered(WORKERS)
    session.closing.callback(bound.pool.shutdown)
    ways: list[Batches] = [loop, Cudasync(WORKERS), Cudasync(WORKERS, processes=True)]
    peers = installed(session, WORKERS)
    goals = [
        Goal(THREADS, loop.name, MUST, otherwise=Goal(THREADS, bound.name, OF_BOUND)),
        Goal(THREADS, loop.name, GOAL, word="goal"),
        *(Goal(THREADS, each.name, 1.0) for each in peers[:1]),
    ]
    everything = paths(count)
    session.add(
        Case(
            name="bench_data.jpeg",
            contenders=[
                *(decoding(each, everything) for each in (*ways, *peers)),
                Contender(bound.name, timed(partial(bound.batches, everything, BATCH)), None),
            ],
            baseline=loop.name,
            operations=count,
            unit="photograph",
            most_loops=1,
            goals=goals,
        )
    )


def decoding(way: Batches, everything: list[str]) -> Contender:
    """A pass over all photographs. The checksum covers every byte of a few, in order."""

    def checksum() -> int:
        found = 0
        for batch in way.batches(everything[:3], 2):
            found = zlib.crc32(np.ascontiguousarray(batch), found)
        return found

    return Contender(way.name, timed(partial(way.batches, everything, BATCH)), checksum)


def timed(begin: Callable[[], Iterable[object]]) -> Callable[[int], float]:
    """A bench that iterates over a new `begin()` once a loop."""

    def bench(loops: int) -> float:
        start = time.perf_counter()
        for _ in range(loops):
            for _ in begin():
                pass
        return time.perf_counter() - start

    return bench


def add_map(session: Session) -> None:
    count = session.parameter("samples", small=500, large=100_000)
    numbers = range(count)
    ways: dict[str, Callable[[], Iterable[int]]] = {
        "plain loop": lambda: (same(each) for each in numbers),
        "cudasync, 1 thread": data.source(numbers).map(same).__iter__,
        THREADS: data.source(numbers).map(same, workers=WORKERS).__iter__,
        f"cudasync, {WORKERS} threads, batches of 100": batched(numbers),
    }
    goals = [
        Goal(THREADS, "plain loop", MOST_MAP_US, MICROSECONDS),
        Goal(THREADS, "plain loop", GOAL_MAP_US, MICROSECONDS, word="goal"),
    ]
    session.add(
        Case(
            name="bench_data.map",
            contenders=[
                Contender(name, timed(begin), partial(total, begin)) for name, begin in ways.items()
            ],
            baseline="plain loop",
            operations=count,
            unit="sample",
            most_loops=1,
            goals=goals,
        )
    )


def add_device(session: Session) -> None:
    """Batches until each is on the device: a loop with a copy, and copies ahead of the loop."""
    if not session.wants("bench_data.device"):
        return
    count = session.parameter("device_batches", small=2, large=40)
    size = session.parameter("device_row", small=1_000, large=3 * 224 * 224)
    rows = np.random.default_rng(3).random((BATCH, size), dtype=np.float32)
    everything = [rows[at % BATCH] for at in range(count * BATCH)]

    def loop() -> Iterable[cs.Array]:
        for at in range(0, len(everything), BATCH):
            batch = cs.array(np.stack(everything[at : at + BATCH]))
            cs.waitall()
            yield batch

    ahead = data.source(everything).batch(BATCH).prefetch(2, device=0)
    ways: dict[str, Callable[[], Iterable[cs.Array]]] = {
        "loop of stack, copy and wait": loop,
        "cudasync, prefetch(2, device=0)": ahead.__iter__,
    }

    def waited(begin: Callable[[], Iterable[cs.Array]]) -> Callable[[int], float]:
        run = timed(begin)

        def bench(loops: int) -> float:
            start = time.perf_counter()
            run(loops)
            cs.waitall()
            return time.perf_counter() - start

        return bench

    def checksum(begin: Callable[[], Iterable[cs.Array]]) -> int:
        found = 0
        for batch in begin():
            found = zlib.crc32(np.ascontiguousarray(batch.numpy()), found)
        return found

    session.add(
        Case(
            name="bench_data.device",
            contenders=[
                Contender(name, waited(begin), partial(checksum, begin))
                for name, begin in ways.items()
            ],
            baseline="loop of stack, copy and wait",
            operations=count,
            unit="batch",
            most_loops=1,
        )
    )


def batched(numbers: range) -> Callable[[], Iterable[int]]:
    return data.source(numbers).map(same, workers=WORKERS).batch(100).__iter__


def same(sample: int) -> int:
    """The function is empty, so all the time is the pipeline's."""
    return sample


def total(begin: Callable[[], Iterable[int]]) -> int:
    return int(sum(np.sum(each) for each in begin()))


def measure_processor(session: Session) -> None:
    """The processor time of decoding, over the plain loop: the other half of a speed-up.

    On a shared machine, times show how the processors were shared. This number shows the added
    work.
    """
    name = "bench_data.jpeg: processor time of a photograph"
    if not session.wants(name):
        return
    everything = paths(session.parameters["processor_photographs"])
    ways = [Loop(), Cudasync(WORKERS)]
    took: list[list[float]] = [[], []]
    for _ in range(5):
        for way, seconds in zip(ways, took, strict=True):
            began = time.process_time()
            for _ in way.batches(everything, BATCH):
                pass
            seconds.append(time.process_time() - began)
    over = statistics.median(mine / its for its, mine in zip(*took, strict=True))
    session.measure(name, over, "x the plain loop", None if session.small else MOST_PROCESSOR)


def measure_waiting(session: Session) -> None:
    """The waiting time of a loop whose step takes half as long again as the decoding of a batch.

    The step sleeps, as a host does while its device computes, so the processors are free meanwhile.
    Recent batches give the time of a batch, because the machine may change its speed.
    """
    name = "bench_data: a loop on the device waits"
    if not session.wants(name):
        return
    count = session.parameters["waiting_batches"]
    everything = paths(BATCH * (count + 8))
    pipeline = data.source(everything).map(decode, workers=WORKERS).batch(BATCH)
    pipeline = pipeline.prefetch(2, device=0)
    run = iter(pipeline)
    counts = [decoded(pipeline)]
    for _ in range(4):
        next(run)
        counts.append(decoded(pipeline))
    waited, began = 0.0, time.perf_counter()
    for _ in range(count):
        (items, busy_s), (items_before, busy_before) = counts[-1], counts[-5]
        each_s = (busy_s - busy_before) / max(1, items - items_before) / WORKERS
        time.sleep(1.5 * BATCH * each_s)
        asked = time.perf_counter()
        next(run)
        waited += time.perf_counter() - asked
        counts.append(decoded(pipeline))
    share = 100 * waited / (time.perf_counter() - began)
    run.close()
    cs.waitall()
    session.measure(name, share, "% of the time", None if session.small else MOST_WAITING_PERCENT)


def decoded(pipeline: data.Pipeline) -> tuple[int, float]:
    """The number of decoded photographs so far, and the busy seconds of threads."""
    (stage,) = (each for each in pipeline.stats().stages if each.stage == "map")
    return stage.items, stage.busy_s


def measure_memory(session: Session) -> None:
    """The growth of the process between a tenth of the samples and all of them."""
    name = "bench_data: memory grows"
    if not session.wants(name):
        return
    count = session.parameters["memory_samples"]
    pipeline = data.source(range(count)).map(row, workers=WORKERS).batch(100).prefetch(2, device=0)
    before = 0.0
    for at, _ in enumerate(pipeline):
        if at == count // 1000:
            gc.collect()
            before = resident_mib()
    gc.collect()
    grown = resident_mib() - before
    limit = None if session.small else MOST_GROWTH_MIB
    session.measure(f"{name} over {count} samples", grown, "MiB", limit)


def row(number: int) -> np.ndarray:
    return np.full(16, number, np.float32)


def resident_mib() -> float:
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


if __name__ == "__main__":
    raise SystemExit(command.main("bench_data", __doc__, build, rounds=9))
