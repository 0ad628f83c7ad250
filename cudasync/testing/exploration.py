"""The tower. `explore`: a program is run once for each order of its commands that may matter."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudasync.driver import Device, device_count
from cudasync.driver.extensions import exploration
from cudasync.errors import CudaError

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Exploration:
    """What was explored: in how many orders the program was run, and whether those were all.

    `why` says what speaks against it: that there were more orders than asked for, or something in
    the program that makes runs differ by chance. It is empty where the orders were all.
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
    """Run `program` once for each order in which its copies, kernels and so on may be done.

    Any call that waits lets streams go on in some order; each order that could give another result
    is tried, up to `most` of them. Commands that touch no memory in common are not tried in both
    orders, which is known to the byte. Against the host a command is always as late as it may be.

    An engine that is not serial calls the driver from threads of its own, whose order is chance:
    `is_complete` is False then, and `why` says so. With `Engine("serial")` one thread does it all,
    and the orders are those against whatever the program does on streams of its own.

    The program makes its own streams and data, so that each run begins alike. It fails by raising:
    the exception has the order as a note, each step with the line that asked for it (the call of
    the driver layer, the push of the engine), and `order=` runs the program once more in that one.
    With `keep_going` the other orders are run all the same, unless the device is lost, and an
    ExceptionGroup has what each that failed has raised. What is not waited for is done after each
    run. On a real GPU, and where the software GPU works on threads, the order is nobody's to
    choose, and the program is run once.
    """
    if most < 1:
        raise ValueError(f"most={most}: at least one order is run")
    _sweep()
    if not exploration.begin(order or ""):
        program()
        return Exploration(1, is_complete=False, why="the order is not ours to choose here")
    try:
        failures = _run_orders(program, most, keep_going)
        report = exploration.report()
    finally:
        exploration.end()
    if failures:
        raise ExceptionGroup(f"{len(failures)} of {report.orders} orders failed", failures)
    doubts = ["there are more"] * report.has_more + report.doubts
    if order is not None:
        doubts = ["one order was asked for", *doubts]
    return Exploration(report.orders, not doubts, "; ".join(doubts))


def _run_orders(program: Callable[[], object], most: int, keep_going: bool) -> list[Exception]:
    """What the orders have raised; the first of that is raised unless one is to keep going."""
    failures: list[Exception] = []
    runs = 0
    # Runs that turn out to show nothing new are bounded, too.
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
    """Free what is garbage now, so that no run is interrupted by frees of what came before it."""
    gc.collect()
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
        f"in order {number} that was explored:\n{steps}\n"
        f'  replay: cudasync.testing.explore(program, order="{report.order}")'
    )


def order_of(error: BaseException) -> str:
    """The order in which an exploration failed with `error`; "" if it did not."""
    for note in getattr(error, "__notes__", ()):
        _, found, rest = note.partition('  replay: cudasync.testing.explore(program, order="')
        if found:
            return str(rest).removesuffix('")')
    return ""
