"""The cost of checks: bench_softgpu's fifteen kernels through the driver, checked and not.

A sample is a launch and the wait for it, on the same device memory. One-time work of a check, such
as compiling a kernel with recording, is done before. The means at the end are over all cases.
"""

from __future__ import annotations

import checkout  # noqa: F401

from bench.harness import one_blas_thread  # noqa: F401

# isort: split
import statistics
import time
from typing import TYPE_CHECKING

import numpy as np

import cudasync as cs
from bench.harness import command
from bench.harness.goals import Goal
from bench.harness.measurement import Case, Contender
from bench.softgpu import kernels
from bench.softgpu.work import all_work
from cudasync.driver.extensions import sanitizer

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.harness.measurement import Session
    from bench.softgpu.work import Work

OFF = "no check"
# Arrays that the kernel only writes are unwritten before each launch.
FRESH = "init, new outputs"
CHECKS = {
    "mem, sync, leak": ("mem", "sync", "leak"),
    "init": ("init",),
    FRESH: ("init",),
    "race": ("race",),
}
AT_MOST = {"mem, sync, leak": 3.0, "init": 12.0, FRESH: 12.0, "race": 12.0}
MUSTS = ("mem, sync, leak", "race")
# Kernels that add to what their outputs hold.
ADDING = ("saxpy", "histogram")


def build(session: Session) -> None:
    """Add the fifteen cases, and the means over them."""
    cs.Device(0).use()
    module = cs.Module.from_ptx(kernels.TEXT.read_text())
    for work in all_work(session):
        name = f"bench_checks.{work.case}"
        if not session.wants(name):
            continue
        launch, renew, checksum = launched(module, work)
        contenders = [Contender(OFF, bench_of(launch, renew, OFF), checksum)]
        contenders += [Contender(each, bench_of(launch, renew, each), checksum) for each in CHECKS]
        goals = [
            Goal(each, OFF, limit, word="must" if each in MUSTS else "goal")
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


def launched(
    module: cs.Module, work: Work
) -> tuple[Callable[[], None], Callable[[], None], Callable[[], int]]:
    """A launch with its wait; new memory for outputs; the checksum of its results."""
    arrays = {id(each): each for each in work.arguments if isinstance(each, np.ndarray)}
    buffers = {key: cs.DeviceBuffer(each.nbytes) for key, each in arrays.items()}
    for key, each in arrays.items():
        cs.memcpy_async(buffers[key], each.reshape(-1))
    kernel, block = module.kernel(work.kernel), kernels.BLOCKS[work.kernel]
    device = cs.Device(0)

    def launch() -> None:
        arguments = tuple(buffers.get(id(each), each) for each in work.arguments)
        cs.launch(kernel, grid=work.grid, block=block, args=arguments)
        device.synchronize()

    def renew() -> None:
        if work.kernel not in ADDING:
            for each in work.outputs:
                buffers[id(each)] = cs.DeviceBuffer(each.nbytes)
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

    return launch, renew, work.checksum_of(fresh)


def bench_of(
    launch: Callable[[], None], renew: Callable[[], None], name: str
) -> Callable[[int], float]:
    """Launches under the check of that name, the first of which is not timed."""

    def bench(loops: int) -> float:
        if name in CHECKS:
            sanitizer.begin(CHECKS[name])
        taken = 0.0
        try:
            for loop in range(loops + 1):
                if name == FRESH:
                    renew()
                began = time.perf_counter()
                launch()
                taken += time.perf_counter() - began if loop else 0
            return taken
        finally:
            if name in CHECKS:
                sanitizer.end()

    return bench


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
