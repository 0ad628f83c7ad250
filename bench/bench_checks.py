"""What checks cost: bench_softgpu's fifteen kernels through the driver, checked and not.

A launch and the wait for it, on the same device memory. What a check does once, such as compiling
a kernel anew to be recorded, is done before. The means at the end are over all cases.
"""

from __future__ import annotations

import checkout  # noqa: F401
import one_blas_thread  # noqa: F401

# isort: split
import statistics
import time
from typing import TYPE_CHECKING

import command
import numpy as np
import softgpu_kernels
from goals import Goal
from harness import Case, Contender
from softgpu_work import all_work

import cudasync as cs
from cudasync.driver.extensions import sanitizer

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness import Session
    from softgpu_work import Work

OFF = "no check"
CHECKS = {"mem, sync, leak": ("mem", "sync", "leak"), "init": ("init",)}
AT_MOST = {"mem, sync, leak": 3.0, "init": 12.0}


def build(session: Session) -> None:
    """Add the fifteen cases, and the means over them."""
    cs.Device(0).use()
    module = cs.Module.from_ptx(softgpu_kernels.TEXT.read_text())
    for work in all_work(session):
        name = f"bench_checks.{work.case}"
        if not session.wants(name):
            continue
        launch, checksum = launched(module, work)
        contenders = [contender(OFF, launch, checksum, None)]
        contenders += [contender(k, launch, checksum, kinds) for k, kinds in CHECKS.items()]
        goals = [
            Goal(each, OFF, limit, word="must" if limit < 12 else "goal")
            for each, limit in AT_MOST.items()
        ]
        session.add(
            Case(
                name=name,
                contenders=contenders,
                baseline=OFF,
                unit="launch",
                most_loops=8,
                goals=goals,
            )
        )
    session.at_end.append(means)


def launched(module: cs.Module, work: Work) -> tuple[Callable[[], None], Callable[[], int]]:
    """A launch with its wait, and the checksum of its results."""
    arrays = {id(each): each for each in work.arguments if isinstance(each, np.ndarray)}
    buffers = {key: cs.DeviceBuffer(each.nbytes) for key, each in arrays.items()}
    for key, each in arrays.items():
        cs.memcpy_async(buffers[key], each.reshape(-1))
    arguments = tuple(buffers.get(id(each), each) for each in work.arguments)
    kernel, block = module.kernel(work.kernel), softgpu_kernels.BLOCKS[work.kernel]
    device = cs.Device(0)

    def launch() -> None:
        cs.launch(kernel, grid=work.grid, block=block, args=arguments)
        device.synchronize()

    def fresh() -> None:
        work.clear()
        for key, each in arrays.items():
            cs.memcpy_async(buffers[key], each.reshape(-1))
        launch()
        for key, each in arrays.items():
            if any(each is output for output in work.outputs):
                cs.memcpy_async(each.reshape(-1), buffers[key])
        device.synchronize()

    return launch, work.checksum_of(fresh)


def contender(
    name: str, launch: Callable[[], None], checksum: Callable[[], int], kinds: tuple | None
) -> Contender:
    def bench(loops: int) -> float:
        if kinds is not None:
            sanitizer.begin(kinds)
        try:
            launch()
            began = time.perf_counter()
            for _ in range(loops):
                launch()
            return time.perf_counter() - began
        finally:
            if kinds is not None:
                sanitizer.end()

    return Contender(name, bench, checksum)


def means(session: Session) -> None:
    """The geometric means over the cases of the median ratios."""
    for name in CHECKS:
        ratios = []
        for case in session.cases:
            mine, its = (session.samples[case.name, each].nanoseconds for each in (name, OFF))
            ratios.append(statistics.median(mine[at] / its[at] for at in mine))
        if ratios:
            title = f"bench_checks: geometric mean of {len(ratios)} ratios, {name}"
            session.measure(title, statistics.geometric_mean(ratios), "x", AT_MOST[name])


if __name__ == "__main__":
    raise SystemExit(command.main("bench_checks", __doc__, build))
