"""GrCUDA's six programs: an engine that finds the order, a graph, and streams placed by hand.

VEC, B&S, IMG, ML, HITS and DL are small programs of three to thirty kernels with two to ten
branches (`dags.py`). The time is that of a run, from the first call until all work is done. All
contenders launch the same kernels with the same shapes. The results are compared with NumPy, and
must be the same bits for all contenders.
"""

from __future__ import annotations

import checkout  # noqa: F401

# isort: split
import time
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from cuda.bindings import driver

import cudasync as cs
from bench.driver.baseline import checked
from bench.graphs.dags import BLOCK, Dag, all_dags
from bench.harness import command
from bench.harness.goals import Goal
from bench.harness.measurement import Case, ChecksumError, Contender
from bench.launches.bursts import checksum_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack

    from bench.harness.measurement import Session

    Calls = list[Callable[[], object]]

KERNELS = Path(__file__).parent / "graphs" / "dag_kernels.cu"
HAND = "cuda.bindings, streams by hand"
ONE = "cuda.bindings, one stream"
EAGER = "cudasync engine"
GRAPH = "graph.launch()"


class ByHand:
    """Raw `cuda.bindings`: the program places streams, events and waits, or uses one stream."""

    def __init__(self, closing: ExitStack, dag: Dag, module: cs.Module, *, is_one: bool) -> None:
        self._dag = dag
        self._buffers = {name: cs.DeviceBuffer(each.nbytes) for name, each in dag.arrays.items()}
        self._kept: list[object] = []
        self.calls: Calls = []
        home = [0 if is_one else step.stream for step in dag.steps]
        waits = [[] for _ in home] if is_one else dag.waits()
        self._streams = [cs.Stream() for _ in range(1 + max(home))]
        handles = [driver.CUstream(each.handle) for each in self._streams]
        events = {each: cs.Event() for awaited in waits for each in awaited}
        for owner in (*self._buffers.values(), *self._streams, *events.values()):
            closing.callback(owner.close)
        for number, step in enumerate(dag.steps):
            on, kernel = handles[home[number]], module.kernel(step.kernel)
            for each in waits[number]:
                event = driver.CUevent(events[each].handle)
                self.calls.append(partial(driver.cuStreamWaitEvent, on, event, 0))
            args = kernel.pack([self._buffers.get(each, each) for each in step.args])
            self._kept.append(args)
            shape = (step.blocks, 1, 1, BLOCK, 1, 1, 0)
            function, address = driver.CUfunction(int(kernel.get())), args.block.address
            self.calls.append(partial(driver.cuLaunchKernel, function, *shape, on, address, 0))
            if number in events:
                event = driver.CUevent(events[number].handle)
                self.calls.append(partial(driver.cuEventRecord, event, on))
        self._joined = handles

    def wait(self) -> None:
        for handle in self._joined:
            checked(driver.cuStreamSynchronize(handle))

    def reset(self) -> None:
        for name, values in self._dag.arrays.items():
            address, size = self._buffers[name].ptr, values.nbytes
            checked(driver.cuMemcpyHtoD(address, np.ascontiguousarray(values).ctypes.data, size))

    def values(self) -> dict[str, np.ndarray]:
        found = {name: np.empty_like(each) for name, each in self._dag.arrays.items()}
        for name, each in found.items():
            checked(driver.cuMemcpyDtoH(each.ctypes.data, self._buffers[name].ptr, each.nbytes))
        return found


class Eager:
    """`kernel[grid, block](...)`: the engine finds the dependencies again in each run."""

    def __init__(self, closing: ExitStack, dag: Dag, module: cs.Module) -> None:
        self._dag = dag
        self._arrays = {name: cs.array(each) for name, each in dag.arrays.items()}
        closing.callback(self._arrays.clear)
        self.calls: Calls = [
            partial(
                module.kernel(step.kernel)[step.blocks, BLOCK],
                *(self._arrays.get(each, each) for each in step.args),
            )
            for step in dag.steps
        ]

    def wait(self) -> None:
        cs.waitall()

    def reset(self) -> None:
        for name, values in self._dag.arrays.items():
            cs.copy(self._arrays[name], values)
        cs.waitall()

    def values(self) -> dict[str, np.ndarray]:
        return {name: each.numpy() for name, each in self._arrays.items()}


class Graph(Eager):
    """The same calls, recorded once. A run is one launch."""

    def __init__(self, closing: ExitStack, dag: Dag, module: cs.Module) -> None:
        super().__init__(closing, dag, module)
        with cs.graph() as graph:
            self._record(graph)
        executable = graph.instantiate()
        closing.callback(executable.close)
        self.calls = [executable.launch]

    def _record(self, graph: cs.RecordedGraph) -> None:
        for call in self.calls:
            call()


class Blocks(Graph):
    """The calls of one round, recorded once, in a block that repeats them."""

    def _record(self, graph: cs.RecordedGraph) -> None:
        with graph.repeat(self._dag.rounds):
            for call in self.calls[: len(self.calls) // self._dag.rounds]:
                call()


def build(session: Session) -> None:
    """Add a case for each program."""
    device = cs.Device(0)
    device.use()
    session.device = f"{device.name}, compute capability {device.compute_capability}"
    most = session.parameter("most_runs", small=1, large=50)
    session.closing.enter_context(cs.use(engine := cs.Engine(workers=2)))
    session.closing.callback(engine.close)
    module = cs.Module.from_file(KERNELS)

    def size_of(name: str, small: int, large: int) -> int:
        return session.parameter(name, small=small, large=large)

    for dag in all_dags(size_of):
        name = f"bench_dags.{dag.name}"
        if not session.wants(name):
            continue
        closing = session.closing
        # NumPy takes seconds for large sizes, so it computes once for all contenders.
        expected = cache(partial(dag.expected, dag.arrays))
        ways = {
            HAND: ByHand(closing, dag, module, is_one=False),
            ONE: ByHand(closing, dag, module, is_one=True),
            EAGER: Eager(closing, dag, module),
            GRAPH: Graph(closing, dag, module),
        }
        session.add(
            Case(
                name=name,
                contenders=[
                    Contender(each, timed(way), checksum(dag, way, expected))
                    for each, way in ways.items()
                ],
                baseline=HAND,
                operations=len(dag.steps),
                unit="kernel",
                most_loops=most,
                goals=[Goal(EAGER, HAND, 1.1, word="goal"), Goal(GRAPH, HAND, 1.0, word="goal")],
            )
        )


def run(way: ByHand | Eager) -> None:
    for call in way.calls:
        call()
    way.wait()


def timed(way: ByHand | Eager) -> Callable[[int], float]:
    """Seconds for so many runs."""

    def bench(loops: int) -> float:
        start = time.perf_counter()
        for _ in range(loops):
            run(way)
        return time.perf_counter() - start

    return bench


def checksum(
    dag: Dag, way: ByHand | Eager, expected: Callable[[], dict[str, np.ndarray]]
) -> Callable[[], int]:
    """The bits of all arrays after a run from the first values; ChecksumError if NumPy differs."""

    def found() -> int:
        way.reset()
        run(way)
        values = way.values()
        for name, wanted in expected().items():
            if not np.allclose(values[name].reshape(wanted.shape), wanted, rtol=1e-3, atol=1e-5):
                raise ChecksumError(f"{dag.name}: {name} is not what NumPy makes of it")
        return checksum_of(list(values.values()))

    return found


if __name__ == "__main__":
    raise SystemExit(command.main("bench_dags", __doc__, build))
