"""The freeze test: one thread is suspended at a chosen bytecode, all others must go on.

A `Scenario` says who is to be suspended, and what the others then must get done. A run always
ends: whoever is suspended is let go before the verdict is raised.
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
    """Somebody did not finish while another thread was suspended."""


def is_engine(path: str) -> bool:
    """Is this file one that must be lock-free?"""
    return path.startswith(str(PACKAGE / "engine")) or path == str(PACKAGE / "atomic.py")


class Scenario:
    """What one thread does that may be suspended, and what the others must get done meanwhile."""

    watched: Callable[[str], bool] = staticmethod(is_engine)
    # True if the one sleeps until the others do something.
    sleeps = False
    # How many bytecodes of one that naps again and again are enough.
    most_points: int | None = None

    def suspended(self, freezer: Freezer) -> None:
        """The part of the one that may be suspended, in a thread of its own.

        As a rule `with freezer:` around the call in question; or only arrange that another
        thread, such as a worker, calls `install`, and something after it `stop`.
        """
        raise NotImplementedError

    def others(self, freezer: Freezer) -> Iterator[str] | None:
        """What must get done while it is suspended, in another thread. Raises if it went wrong.

        A generator that yields what it does next, so that a failure can say what hangs. It may
        set off what the one sleeps for, and then call `freezer.settle()`.
        """
        raise NotImplementedError

    def after(self) -> None:
        """Once everybody was let go: everything must have ended right."""


@dataclass(frozen=True, slots=True)
class Frozen:
    """How a run went: whether its point was reached, where that was, and how many there were."""

    at: int | None
    is_reached: bool
    where: str
    points: int
    most: int | None


def count_points(make: Callable[[], Scenario]) -> int:
    """How many bytecodes there are to be suspended at."""
    # Else what earlier tests left may end on the thread that is counted, this once.
    gc.collect()
    run = freeze_at(make, None)
    return run.points if run.most is None else min(run.points, run.most)


def freeze_at(
    make: Callable[[], Scenario], at: int | None, patience_s: float = PATIENCE_S
) -> Frozen:
    """Run a scenario suspended at its bytecode `at`. Raises Stuck, or what went wrong in it."""
    scenario = make()
    freezer = Freezer(at, scenario.watched, scenario.most_points)
    one = _Part("the one", lambda: scenario.suspended(freezer))
    others = _Others(scenario, freezer)
    one.start()
    try:
        freezer.settle(may_sleep=scenario.sleeps)
        others.start()
        others.join(patience_s)
        stuck_at = others.doing if others.is_alive() else ""
        is_reached = freezer.is_frozen
    finally:
        freezer.release()
    where = freezer.where or "no suspended thread"
    for part in (others, one):
        part.join(patience_s)
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
    """The points to try: all, or `most` of them by chance, spread evenly, in order."""
    if most is None or points <= most:
        return list(range(1, points + 1))
    draw = random.Random(seed)
    edges = [1 + points * i // most for i in range(most + 1)]
    return [draw.randrange(low, high) for low, high in pairwise(edges)]


class _Part(threading.Thread):
    """A thread that keeps the exception it ends with. Never in the way of the process's end."""

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
    """The others' part, which says what it is doing."""

    def __init__(self, scenario: Scenario, freezer: Freezer) -> None:
        super().__init__("the others", self._go)
        self.doing = "the first thing that they did"
        self._scenario = scenario
        self._freezer = freezer

    def _go(self) -> None:
        for doing in self._scenario.others(self._freezer) or ():
            self.doing = doing
