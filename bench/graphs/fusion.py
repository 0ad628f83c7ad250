"""The value of fusion: five elementwise operations on a large array, in one kernel or five."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import cudasync as cs
from bench.harness.goals import Goal
from bench.harness.measurement import Case, Contender, repeat

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.harness.measurement import Session

FUSED, UNFUSED = "with the pass", "without fusion"
MOST = 1 / 2.5


def add_fusion(session: Session) -> None:
    """Time one launch on the device until its result is there."""
    size = session.parameter("fused_size", small=1_000, large=16_000_000)
    name = "bench_graph.fusion"
    if not session.wants(name):
        return
    x = cs.array(np.linspace(-1, 1, size, dtype=np.float32))

    def executable(without: tuple[str, ...]) -> tuple[Callable[[], None], Callable[[], int]]:
        with cs.graph() as graph:
            y = ((x * 2 + 1) * x - 3) + x
        launch = graph.instantiate(without=without).launch

        def run() -> None:
            launch().wait()

        def checksum() -> int:
            run()
            return int(y.numpy().view(np.uint32).sum(dtype=np.uint64))

        return run, checksum

    made = {UNFUSED: executable(("fusion",)), FUSED: executable(())}
    session.add(
        Case(
            name=name,
            contenders=[Contender(way, repeat(run), check) for way, (run, check) in made.items()],
            baseline=UNFUSED,
            operations=5,
            most_loops=1,
            goals=[Goal(FUSED, UNFUSED, MOST)],
        )
    )
