"""The price of a block: ten updates in a `repeat`, a `while_loop` and a `cond`, and written out.

An update has nine elementwise operations, which become one kernel. Each contender launches the same
updates of an array of its own. `(engine)` is the way without conditional nodes of the driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import cudasync as cs
from bench.harness.goals import Goal
from bench.harness.measurement import Case, Contender, repeat
from cudasync import xp

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.harness.measurement import Session

WRITTEN_OUT = "written out"
TIMES = 10
MOST = 1.15


def add_blocks(session: Session) -> None:
    """Time one launch until the device is done, for a small and a large array."""
    for size in (256, 65_536):
        length = session.parameter(f"updated_{size}", small=64, large=size)
        name = f"bench_graph.updates.{size}"
        if not session.wants(name):
            continue
        made: dict[str, tuple[Callable[[], None], Callable[[], int]]] = {}
        for block in (WRITTEN_OUT, "repeat", "while_loop", "cond"):
            made[block] = launching(block, length, ())
        made["repeat (engine)"] = launching("repeat", length, ("conditionals",))
        session.add(
            Case(
                name=name,
                contenders=[
                    Contender(way, repeat(run), check) for way, (run, check) in made.items()
                ],
                baseline=WRITTEN_OUT,
                operations=TIMES,
                unit="update",
                goals=[
                    Goal("repeat", WRITTEN_OUT, MOST),
                    Goal("repeat (engine)", WRITTEN_OUT, MOST),
                ],
            )
        )


def launching(
    block: str, size: int, without: tuple[str, ...]
) -> tuple[Callable[[], None], Callable[[], int]]:
    """A function that launches ten updates and waits, and their checksum."""
    x = cs.zeros(size, np.float32)
    left = cs.array(np.array([0], np.int32))
    with cs.graph() as graph:
        left[...] = TIMES
        if block == WRITTEN_OUT:
            for _ in range(TIMES):
                update(x)
        elif block == "repeat":
            with graph.repeat(TIMES):
                update(x)
        elif block == "cond":
            with graph.cond(left):
                for _ in range(TIMES):
                    update(x)
        else:
            with graph.while_loop(left):
                update(x)
                left[...] = left - 1
    executable = graph.instantiate(without=without)

    def run() -> None:
        executable.launch().wait()

    def checksum() -> int:
        x[...] = 0.5
        run()
        return int(x.numpy().view(np.uint32).sum(dtype=np.uint64))

    return run, checksum


def update(u: cs.Array) -> None:
    u[...] = xp.tanh(u * 2 + 1) * u + xp.exp(-u) * 0.5
