"""The contenders of bench_engine and bench_matmul: one small class for each way to run a workload.

`prepare(workload, functions)` does outside the timing what a program would do once. It returns the
timed part: a function that runs every op in an order that keeps the hazards, and returns when all
are done. `close()` ends the threads.

The peers get every help that their interface allows. Graphs, counters and tuples are made
beforehand. Nothing is locked or recorded that the order does not need.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from graphlib import TopologicalSorter
from queue import SimpleQueue
from typing import TYPE_CHECKING, Protocol

import cudasync as cs
from bench.engine.workloads import Tally
from bench.harness.measurement import Contender

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.engine.workloads import Workload

    Functions = Sequence[Callable[[], object]]


class Contestant(Protocol):
    """The interface of each contender for bench_engine."""

    name: str

    def prepare(self, workload: Workload, functions: Functions) -> Callable[[], None]:
        """Do the untimed part; return the timed one."""

    def close(self) -> None:
        """End the contender's threads."""


class SerialLoop:
    """The lower bound of all: call each function in push order."""

    name = "serial loop"

    def prepare(self, workload: Workload, functions: Functions) -> Callable[[], None]:
        def run() -> None:
            for function in functions:
                function()

        return run

    def close(self) -> None:
        """Nothing to end."""


class Cudasync:
    """Push every op with its variables, then wait for all. The engine finds the dependencies."""

    def __init__(self, name: str, engine: cs.Engine) -> None:
        self.name = name
        self._engine = engine

    def prepare(self, workload: Workload, functions: Functions) -> Callable[[], None]:
        calls = steps(workload, functions)
        push, waitall = self._engine.push, self._engine.waitall

        def run() -> None:
            for function, reads, writes in calls:
                push(function, reads=reads, writes=writes)
            waitall()

        return run

    def close(self) -> None:
        self._engine.close()


def steps(workload: Workload, functions: Functions) -> list[tuple]:
    """Each function with its read and written variables, ready for a call.

    Each run has new variables, as a program would have new arrays.
    """
    variables = [cs.Var(f"v{number}") for number in range(workload.variables)]
    return [
        (
            function,
            tuple(variables[number] for number in reads),
            tuple(variables[number] for number in writes),
        )
        for function, (reads, writes) in zip(functions, workload.ops, strict=True)
    ]


class ThreadPool:
    """`ThreadPoolExecutor` with a counter for each op under one lock, and a ready-made graph."""

    name = "ThreadPoolExecutor"
    pools = 1

    def __init__(self, workers: int) -> None:
        self._pools = [ThreadPoolExecutor(workers) for _ in range(self.pools)]
        self._lock = threading.Lock()

    def prepare(self, workload: Workload, functions: Functions) -> Callable[[], None]:
        counts = [len(before) for before in workload.predecessors]
        roots = [number for number, count in enumerate(counts) if not count]
        successors = workload.successors
        left = len(functions)
        finished = threading.Event()
        submits = [self._pools[number % self.pools].submit for number in range(left)]

        def step(number: int) -> None:
            nonlocal left
            functions[number]()
            ready = []
            with self._lock:
                left -= 1
                last = left == 0
                for later in successors[number]:
                    counts[later] -= 1
                    if not counts[later]:
                        ready.append(later)
            for later in ready:
                submits[later](step, later)
            if last:
                finished.set()

        def run() -> None:
            for number in roots:
                submits[number](step, number)
            finished.wait()

        return run

    def close(self) -> None:
        for pool in self._pools:
            pool.shutdown()


class TwoThreadPools(ThreadPool):
    """The same with ops given in turn to two executors: the cost of a change of threads."""

    name = "two ThreadPoolExecutors in turn"
    pools = 2


class TwoThreads:
    """Two bare threads take ready ops from a queue, in the order of a ready-made graph.

    This is the least that a program must do for the serial answer.
    """

    name = "two threads, edges by hand"

    def prepare(self, workload: Workload, functions: Functions) -> Callable[[], None]:
        counts = [len(before) for before in workload.predecessors]
        roots = [number for number, count in enumerate(counts) if not count]
        successors = workload.successors
        lock = threading.Lock()

        def run() -> None:
            left, unfinished = counts.copy(), len(counts)
            ready: SimpleQueue[int | None] = SimpleQueue()

            def serve() -> None:
                nonlocal unfinished
                while (number := ready.get()) is not None:
                    functions[number]()
                    with lock:
                        unfinished -= 1
                        for later in successors[number]:
                            left[later] -= 1
                            if not left[later]:
                                ready.put(later)
                        if not unfinished:
                            ready.put(None)
                            ready.put(None)

            for number in roots:
                ready.put(number)
            other = threading.Thread(target=serve)
            other.start()
            serve()
            other.join()

        return run

    def close(self) -> None:
        """Nothing to end."""


class HandOver:
    """Two threads that run the ops in turn, in push order, each waking the other.

    This is the cost of a bare hand-over between threads at each op, without any planning.
    """

    name = "two threads in turn, a SimpleQueue each"

    def __init__(self) -> None:
        # The number of the thread's next op; None ends the thread.
        self._queues: list[SimpleQueue[int | None]] = [SimpleQueue(), SimpleQueue()]
        self._functions: Functions = ()
        self._finished = threading.Event()
        self._threads = [threading.Thread(target=self._serve, args=(own,)) for own in (0, 1)]
        for thread in self._threads:
            thread.start()

    def _serve(self, own: int) -> None:
        get, put = self._queues[own].get, self._queues[1 - own].put
        while (number := get()) is not None:
            functions = self._functions
            functions[number]()
            if number + 1 < len(functions):
                put(number + 1)
            else:
                self._finished.set()

    def prepare(self, workload: Workload, functions: Functions) -> Callable[[], None]:
        self._functions = functions
        self._finished.clear()

        def run() -> None:
            self._queues[0].put(0)
            self._finished.wait()

        return run

    def close(self) -> None:
        for queue in self._queues:
            queue.put(None)
        for thread in self._threads:
            thread.join()


class Graphlib:
    """`graphlib.TopologicalSorter` on one thread. Edges are known beforehand, sorting is timed."""

    name = "graphlib"

    def prepare(self, workload: Workload, functions: Functions) -> Callable[[], None]:
        graph = dict(enumerate(workload.predecessors))

        def run() -> None:
            sorter = TopologicalSorter(graph)
            sorter.prepare()
            while sorter.is_active():
                for number in sorter.get_ready():
                    functions[number]()
                    sorter.done(number)

        return run

    def close(self) -> None:
        """Nothing to end."""


class Asyncio:
    """One asyncio task for each op, which awaits its predecessors' tasks, with given edges."""

    name = "asyncio"

    def prepare(self, workload: Workload, functions: Functions) -> Callable[[], None]:
        predecessors = workload.predecessors

        async def everything() -> None:
            tasks: list[asyncio.Task[None]] = []

            async def step(number: int) -> None:
                for earlier in predecessors[number]:
                    if not tasks[earlier].done():
                        await tasks[earlier]
                functions[number]()

            create = asyncio.get_running_loop().create_task
            for number in range(len(functions)):
                tasks.append(create(step(number)))
            await asyncio.gather(*tasks)

        return lambda: asyncio.run(everything())

    def close(self) -> None:
        """Nothing to end."""


class Dask:
    """`dask.threaded.get` on a graph whose task objects are made beforehand.

    Raises ImportError if dask is not installed.
    """

    name = "dask threaded"

    def __init__(self, workers: int) -> None:
        from dask._task_spec import Task, TaskRef
        from dask.threaded import get

        self._task, self._reference, self._get = Task, TaskRef, get
        self._pool = ThreadPoolExecutor(workers)

    def prepare(self, workload: Workload, functions: Functions) -> Callable[[], None]:
        graph = {
            number: self._task(number, step(functions[number]), *map(self._reference, before))
            for number, before in enumerate(workload.predecessors)
        }
        last = [number for number, after in enumerate(workload.successors) if not after]
        get, pool = self._get, self._pool

        def run() -> None:
            get(graph, last, pool=pool)

        return run

    def close(self) -> None:
        self._pool.shutdown()


def step(function: Callable[[], object]) -> Callable[..., None]:
    """`function` as a task that ignores its predecessors' results."""

    def task(*results: object) -> None:
        function()

    return task


def contend(
    engine: Contestant,
    workload: Workload,
    functions: Functions,
    *,
    checksum: Callable[[], int] | None = None,
    every: int = 1,
) -> Contender:
    """An engine as a contender. Each loop is one whole workload, prepared outside the timing."""

    def bench(loops: int) -> float:
        seconds = 0.0
        for _ in range(loops):
            run = engine.prepare(workload, functions)
            gc.collect()
            start = time.perf_counter()
            run()
            seconds += time.perf_counter() - start
            del run
        return seconds

    def tallied() -> int:
        tally = Tally(workload)
        engine.prepare(workload, tally.functions)()
        return tally.checksum()

    return Contender(engine.name, bench, checksum or tallied, every=every)
