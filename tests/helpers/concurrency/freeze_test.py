"""The freeze test: one thread is suspended at a chosen bytecode, and all others must go on.

A `Scenario` names the thread to suspend and the work that the others must then get done. A run
always ends: the suspended thread is released before the verdict is raised.
"""

from __future__ import annotations

import gc
import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from helpers.concurrency.bytecode_freezer import PATIENCE_S, Freezer

PACKAGE = Path(__file__).resolve().parents[3] / "cudasync"


class Stuck(AssertionError):
    """A thread did not finish while another thread was suspended."""


def is_engine(path: str) -> bool:
    """Whether this file must be lock-free."""
    return path.startswith(str(PACKAGE / "engine")) or path == str(PACKAGE / "atomic.py")


class Scenario:
    """The work of the thread that may be suspended, and the work that the others must get done."""

    watched: Callable[[str], bool] = staticmethod(is_engine)
    # True if the suspended thread sleeps until the others act.
    sleeps = False
    # The most bytecodes to try, for a thread that naps again and again.
    most_points: int | None = None

    def suspended(self, freezer: Freezer) -> None:
        """The work of the thread that may be suspended, in its own thread.

        As a rule this is `with freezer:` around the call in question. Or it only arranges that
        another thread, such as a worker, calls `install`, and that a later call calls `stop`.
        """
        raise NotImplementedError

    def others(self, freezer: Freezer) -> Iterator[str] | None:
        """The work that must get done during the suspension, in another thread. Raises on an error.

        This is a generator that yields its next step, so that a failure can name the hanging step.
        It may end the wait of a sleeping thread, and then call `freezer.settle()`.
        """
        raise NotImplementedError

    def after(self) -> None:
        """Called once all threads were released: everything must have ended right."""


@dataclass(frozen=True, slots=True)
class Frozen:
    """The outcome of a run: whether and where its point was reached, and the number of points."""

    at: int | None
    is_reached: bool
    where: str
    points: int
    most: int | None


def count_points(make: Callable[[], Scenario]) -> int:
    """The number of bytecodes at which the thread can be suspended."""
    # Otherwise garbage of earlier tests might be freed on the counted thread, in this run alone.
    gc.collect()
    run = freeze_at(make, None)
    return run.points if run.most is None else min(run.points, run.most)


def freeze_at(
    make: Callable[[], Scenario], at: int | None, patience_s: float = PATIENCE_S
) -> Frozen:
    """Run a scenario suspended at its bytecode `at`. Raises Stuck, or the scenario's own error."""
    scenario = make()
    freezer = Freezer(at, scenario.watched, scenario.most_points)
    one = _Part("the one", lambda: scenario.suspended(freezer))
    others = _Others(scenario, freezer)
    one.start()
    try:
        freezer.settle(may_sleep=scenario.sleeps)
        others.start()
        others.join(patience_s)
        is_reached = freezer.is_frozen
        # If no thread is suspended, nobody holds them up: they are slow, or hang for ever.
        stuck_at = others.doing if is_reached and others.is_alive() else ""
    finally:
        freezer.release()
    where = freezer.where or "no suspended thread"
    for part in (others, one):
        part.join(max(patience_s, PATIENCE_S))
        if part.is_alive():
            raise Stuck(f"{part.name} hung for ever, after {where} (point {at}): {others.doing}")
    if stuck_at:
        raise Stuck(f"held up by {where} (point {at}): {stuck_at}")
    for part in (others, one):
        if part.error is not None:
            part.error.add_note(f"with a thread suspended at {where} (point {at})")
            raise part.error
    scenario.after()
    return Frozen(at, is_reached, freezer.where, freezer.points, freezer.most)


def sample(points: int, most: int | None, seed: int) -> list[int]:
    """The points to try: all, or `most` random points, spread evenly, in order."""
    if most is None or points <= most:
        return list(range(1, points + 1))
    draw = random.Random(seed)
    edges = [1 + points * i // most for i in range(most + 1)]
    return [draw.randrange(low, high) for low, high in pairwise(edges)]


def call_in_thread(*functions: Callable[[], object]) -> None:
    """Call them one after the other, in a thread that never delays the end of the process."""

    def call() -> None:
        for function in functions:
            function()

    threading.Thread(target=call, daemon=True).start()


class _Part(threading.Thread):
    """A thread that keeps the exception it ends with. It never delays the end of the process."""

    def __init__(self, name: str, body: Callable[[], None]) -> None:
        super().__init__(name=name, daemon=True)
        self.error: BaseException | None = None
        self._body = body

    def run(self) -> None:
        try:
            self._body()
        except BaseException as error:
            self.error = error


class _Others(_Part):
    """The other threads' part, which says what it is doing."""

    def __init__(self, scenario: Scenario, freezer: Freezer) -> None:
        super().__init__("the others", self._go)
        self.doing = "the first thing that they did"
        self._scenario = scenario
        self._freezer = freezer

    def _go(self) -> None:
        for doing in self._scenario.others(self._freezer) or ():
            self.doing = doing
