"""Real host work on two cores: a graph of matrix products, and chains that hold the GIL.

`matmul`: 400 products of 256 x 256 matrices over 16 of them. Each product reads two matrices and
writes a third, without the GIL and with BLAS on one thread. `gil_N_us`: ops of pure Python that
take N microseconds and write one variable, so a second worker can only slow them down.
"""

from __future__ import annotations

import checkout  # noqa: F401

from bench.harness import one_blas_thread  # noqa: F401

# isort: split
import math
import threading
import time
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

import cudasync as cs
from bench.engine import workloads
from bench.engine.engines import Cudasync, SerialLoop, ThreadPool, contend
from bench.harness import command
from bench.harness.goals import Goal
from bench.harness.measurement import Case, Contender

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.engine.workloads import Workload
    from bench.harness.measurement import Session

BASELINE = SerialLoop.name
OURS = "cudasync engine, 2 workers"
ONE = "cudasync engine, 1 worker"
SERIAL = "cudasync serial engine"
BOUND = "two threads, order ignored"

# The limit over the serial loop, or over the bound if the second core is worth less.
SPEED_UP = 1.65
OF_THE_BOUND = 0.93
PING_PONG = 1.3


def build(session: Session) -> None:
    """Add the graph and the three chains."""
    ops = session.parameter("matmul_ops", small=24, large=400)
    size = session.parameter("matmul_size", small=16, large=256)
    matrices = session.parameter("matmul_matrices", small=16, large=16)
    total_us = session.parameter("gil_total_us", small=400, large=20_000)
    passes_per_us = session.parameter("passes_per_us", small=45, large=spins_per_us())
    engine = Cudasync(OURS, cs.Engine(workers=2))
    others = [Cudasync(ONE, cs.Engine(workers=1)), Cudasync(SERIAL, cs.Engine("serial"))]
    pool, loop = ThreadPool(2), SerialLoop()
    for each in (engine, *others, pool):
        session.closing.callback(each.close)
    graph = workloads.random(ops, matrices)
    products = Products(graph, size)
    session.add(
        Case(
            name="bench_matmul.matmul",
            contenders=[
                *(
                    contend(
                        each, graph, products.functions, checksum=products.checksum_of(each.prepare)
                    )
                    for each in (loop, pool, engine)
                ),
                Contender(BOUND, side_by_side(products.functions), None),
            ],
            baseline=BASELINE,
            operations=ops,
            most_loops=1,
            goals=[
                Goal(OURS, BASELINE, 1 / SPEED_UP, otherwise=Goal(OURS, BOUND, 1 / OF_THE_BOUND)),
                Goal(OURS, ThreadPool.name, 1.0, word="goal"),
            ],
        )
    )
    for microseconds in (1, 10, 100):
        chain = workloads.chain(total_us // microseconds)
        functions = [spin(microseconds * passes_per_us)] * len(chain.ops)
        goals = [Goal(OURS, ONE, PING_PONG), Goal(OURS, SERIAL, PING_PONG)]
        if microseconds > 1:
            # The plain loop is within reach if the ops take longer than the engine's overhead.
            goals.append(Goal(OURS, BASELINE, PING_PONG))
        session.add(
            Case(
                name=f"bench_matmul.gil_{microseconds}_us",
                contenders=[
                    contend(each, chain, functions) for each in (loop, pool, engine, *others)
                ],
                baseline=BASELINE,
                operations=len(chain.ops),
                most_loops=1,
                goals=goals,
            )
        )


class Products:
    """The matrices, and an op for each product.

    The matrices are orthogonal, and so is every product: no element grows, vanishes or turns
    denormal, however often the graph runs.
    """

    def __init__(self, workload: Workload, size: int) -> None:
        draw = np.random.default_rng(workloads.SEED)
        self._first = [
            np.ascontiguousarray(np.linalg.qr(draw.standard_normal((size, size)))[0], np.float32)
            for _ in range(workload.variables)
        ]
        self._matrices = [matrix.copy() for matrix in self._first]
        self._workload = workload
        self.functions: list[Callable[[], None]] = [
            product(*(self._matrices[number] for number in (*reads, *writes)))
            for reads, writes in workload.ops
        ]

    def checksum_of(self, prepare: Callable) -> Callable[[], int]:
        """The checksum of the matrices after an engine has run the graph once from the start."""

        def checksum() -> int:
            for matrix, first in zip(self._matrices, self._first, strict=True):
                matrix[:] = first
            prepare(self._workload, self.functions)()
            total = 0
            for matrix in self._matrices:
                total = crc32(matrix.tobytes(), total)
            return total

        return checksum


def product(left: np.ndarray, right: np.ndarray, out: np.ndarray) -> Callable[[], None]:
    multiply = np.matmul

    def op() -> None:
        multiply(left, right, out)

    return op


def spin(passes: int) -> Callable[[], None]:
    """An op that only holds the GIL."""
    steps = range(passes)

    def op() -> None:
        for _ in steps:
            pass

    return op


def spins_per_us() -> int:
    """The number of passes of `spin`'s loop in a microsecond on this machine, undisturbed."""
    passes = 10_000
    op = spin(passes)
    best = math.inf
    for _ in range(20):
        start = time.perf_counter()
        op()
        best = min(best, time.perf_counter() - start)
    return max(1, round(passes / best / 1e6))


def side_by_side(functions: list[Callable[[], None]]) -> Callable[[int], float]:
    """Half of the ops on each of two threads, in no order: the value of the second core."""

    def half(start: int) -> None:
        for function in functions[start::2]:
            function()

    def bench(loops: int) -> float:
        seconds = 0.0
        for _ in range(loops):
            other = threading.Thread(target=half, args=(1,))
            start = time.perf_counter()
            other.start()
            half(0)
            other.join()
            seconds += time.perf_counter() - start
        return seconds

    return bench


if __name__ == "__main__":
    raise SystemExit(command.main("bench_matmul", __doc__, build))
