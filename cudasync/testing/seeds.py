"""The tower. `run_seeds` runs a program under seeds, each another order of its streams."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from cudasync.driver.extensions.scheduler import scheduled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def run_seeds(
    program: Callable[[], object],
    seeds: Iterable[int] = range(1, 11),
    *,
    keep_going: bool = False,
) -> int:
    """Run `program` once for each seed, which chooses the order; returns the number of runs.

    For programs that have more orders than `explore` can run. A seed is one order only while one
    thread makes the calls. A failure is raised with the seed as a note. With `keep_going` the other
    seeds still run, and an ExceptionGroup has all exceptions. All work is completed before and
    after each run. If the order cannot be chosen (a real GPU, or the software GPU on threads), the
    program runs once. ValueError without a seed.
    """
    failures: list[Exception] = []
    runs = 0
    for seed in seeds:
        gc.collect()  # So that no frees of earlier objects fall into the run.
        with scheduled(f"seed={seed}") as is_chosen:
            runs += 1
            try:
                program()
            except BaseException as error:  # pytest's own failures are no Exception.
                error.add_note(f"  replay: cudasync.testing.run_seeds(program, [{seed}])")
                if not (keep_going and isinstance(error, Exception)):
                    raise
                failures.append(error)
        if not is_chosen:
            break
    if not runs:
        raise ValueError("no seed was given: give at least one")
    if failures:
        raise ExceptionGroup(f"{len(failures)} of {runs} runs failed", failures)
    return runs
