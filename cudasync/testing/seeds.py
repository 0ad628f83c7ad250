"""The tower. `run_seeds`: a program is run under seeds, each another order of its streams."""

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
    """Run `program` once for each seed, which chooses what goes on first; how often that was.

    For programs that have more orders than `explore` can run. One seed is one order, as long as
    one thread makes the calls. What fails is raised, with the seed as a note; with `keep_going`
    the other seeds are run all the same, and an ExceptionGroup has what each has raised. All work
    is done before and after each run. Where the order is nobody's to choose (a real GPU, or the
    software GPU on threads) the program is run once. ValueError without a seed.
    """
    failures: list[Exception] = []
    runs = 0
    for seed in seeds:
        gc.collect()  # No free of what came before comes between.
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
        raise ValueError("no seed was given: at least one run is made")
    if failures:
        raise ExceptionGroup(f"{len(failures)} of {runs} runs failed", failures)
    return runs
