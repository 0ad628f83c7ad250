"""The tower. `explore` runs a program once for each order of its commands that may matter."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudasync.array.memory.free_lists import put_in_order
from cudasync.driver import Device, device_count
from cudasync.driver.extensions import exploration
from cudasync.errors import CudaError

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Exploration:
    """The result of an exploration: the number of orders, and whether these were all orders.

    `why` is the reason for an incomplete exploration: more orders than `most`, or a part of the
    program that makes runs differ by chance. It is empty for a complete exploration.
    """

    orders: int
    is_complete: bool
    why: str = ""


def explore(
    program: Callable[[], object],
    *,
    most: int = 1000,
    order: str | None = None,
    keep_going: bool = False,
) -> Exploration:
    """Run `program` once for each order in which its copies, kernels and so on may run.

    Any call that waits lets streams go on in some order. Each order that could give another result
    is tried, up to `most` orders. Two commands that share no byte are not swapped. Relative to the
    host, a command always runs as late as possible.

    An engine that is not serial calls the driver from threads of its own, whose order is random.
    `is_complete` is then False, and `why` says so. With `Engine("serial")` one thread makes all
    calls; orders are then relative to the commands on the program's own streams.

    The program must make its own streams and data, so that each run begins alike. It fails by
    raising. The exception has the order as a note, each step with the line that enqueued it (the
    call of the driver layer, the push of the engine). `order=` repeats this order. With
    `keep_going` the other orders still run, unless the device is lost, and an ExceptionGroup has
    all exceptions. After each run, commands without a wait are completed. On a real GPU, and if the
    software GPU works on threads, the order cannot be chosen, and the program runs once.
    """
    if most < 1:
        raise ValueError(f"most={most}: give 1 or more orders")
    _sweep()
    if not exploration.begin(order or ""):
        program()
        return Exploration(
            1, is_complete=False, why="nothing here chooses the order of the commands"
        )
    try:
        failures = _run_orders(program, most, keep_going)
        report = exploration.report()
    finally:
        exploration.end()
    if failures:
        raise ExceptionGroup(f"{len(failures)} of {report.orders} orders failed", failures)
    doubts = ["there are more"] * report.has_more + report.doubts
    if order is not None:
        doubts = ["only one order was requested", *doubts]
    return Exploration(report.orders, not doubts, "; ".join(doubts))


def _run_orders(program: Callable[[], object], most: int, keep_going: bool) -> list[Exception]:
    """The exceptions of the orders; without `keep_going` the first one is raised."""
    failures: list[Exception] = []
    runs = 0
    # Redundant runs are bounded, too.
    while _next(runs) and exploration.report().orders < most and runs < 10 * most:
        runs += 1
        try:
            program()
            _sweep()
        except BaseException as error:  # pytest's own failures are no Exception.
            _tell(error)
            if not (keep_going and isinstance(error, Exception)):
                raise
            failures.append(error)
            if isinstance(error, CudaError) and error.sticky:
                break
    return failures


def _sweep() -> None:
    """Free garbage now, so that no frees of earlier objects fall into a run, and let each run find
    the memory of dead results alike."""
    gc.collect()
    put_in_order()
    for ordinal in range(device_count()):
        Device(ordinal).synchronize()


def _next(runs: int) -> bool:
    try:
        return exploration.next_run()
    except Exception as error:
        if runs:
            _tell(error)
        raise


def _tell(error: BaseException) -> None:
    report = exploration.report()
    number = report.orders + 1
    steps = "\n".join(f"    {step}" for step in report.steps)
    error.add_note(
        f"in explored order {number}:\n{steps}\n"
        f'  replay: cudasync.testing.explore(program, order="{report.order}")'
    )


def order_of(error: BaseException) -> str:
    """The order in which an exploration failed with `error`; "" if it did not."""
    for note in getattr(error, "__notes__", ()):
        _, found, rest = note.partition('  replay: cudasync.testing.explore(program, order="')
        if found:
            return str(rest).removesuffix('")')
    return ""
