"""The freeze test can fail: it finds locks, and other ways to make threads wait."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator

import pytest
from helpers.concurrency import freeze_test
from helpers.concurrency import freeze_unheard_scenarios as unheard
from helpers.concurrency.bytecode_freezer import PATIENCE_S, Freezer
from helpers.concurrency.freeze_test import Scenario, Stuck, count_points, freeze_at, sample
from helpers.concurrency.thread_crew import without_watchdog

pytestmark = [pytest.mark.sampled(2), pytest.mark.usefixtures("tracing_ends", "replaced_soon")]

IMPATIENCE_S = 0.1


class Locked:
    """A queue that has a lock."""

    def __init__(self) -> None:
        self.items: list[int] = []
        self.lock = threading.Lock()

    def put(self, item: int) -> None:
        with self.lock:
            self.items.append(item)

    def close(self) -> None:
        pass


class LockFree:
    """A queue without a lock."""

    def __init__(self) -> None:
        self.items: deque[int] = deque()

    def put(self, item: int) -> None:
        self.items.append(item)

    def close(self) -> None:
        pass


class Announced:
    """A queue without a lock whose users still wait for each other."""

    def __init__(self) -> None:
        self.items: deque[int] = deque()
        self.is_busy = False

    def put(self, item: int) -> None:
        while self.is_busy:
            pass
        self.is_busy = True
        self.items.append(item)
        self.is_busy = False

    def close(self) -> None:
        self.is_busy = False


class Worked(LockFree):
    """A queue with a worker that processes the items, and takes a lock only after each item."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()
        self.done = 0
        self.todo: deque[threading.Event | Freezer] = deque()
        self.worker = threading.Thread(target=self.work, daemon=True)

    def work(self) -> None:
        while self.todo:
            self.do(self.todo.popleft())
            with self.lock:
                self.done += 1

    def do(self, what: threading.Event | Freezer) -> None:
        if isinstance(what, Freezer):
            what.install()
        else:
            what.wait(PATIENCE_S)

    def put(self, item: int) -> None:
        with self.lock:
            self.items.append(item)


def is_this_file(path: str) -> bool:
    return path == __file__


class Putting(Scenario):
    """One thread puts an item and may be suspended; another thread puts an item too."""

    watched = staticmethod(is_this_file)
    make: type[Locked | LockFree | Announced] = LockFree

    def __init__(self) -> None:
        self.queue = self.make()

    def suspended(self, freezer: Freezer) -> None:
        with freezer:
            self.queue.put(1)

    def others(self, freezer: Freezer) -> Iterator[str]:
        yield "put"
        self.queue.put(2)

    def after(self) -> None:
        assert sorted(self.queue.items) == [1, 2]


class PuttingLocked(Putting):
    make = Locked


class PuttingAnnounced(Putting):
    make = Announced


class Working(Scenario):
    """The worker is suspended after its first item, and another thread puts an item."""

    watched = staticmethod(is_this_file)

    def __init__(self) -> None:
        self.queue = Worked()

    def suspended(self, freezer: Freezer) -> None:
        self.queue.todo.append(freezer)
        self.queue.worker.start()
        self.queue.worker.join()
        freezer.stop()

    def others(self, freezer: Freezer) -> Iterator[str]:
        yield "put beside the worker"
        self.queue.put(2)

    def after(self) -> None:
        assert self.queue.done == 1


class Waiting(Scenario):
    """One thread sleeps until the others wake it, and may be suspended before or after that."""

    sleeps = True
    watched = staticmethod(is_this_file)

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.woken = 0

    def suspended(self, freezer: Freezer) -> None:
        with freezer:
            self.gate.wait(PATIENCE_S)
            self.woken += 1

    def others(self, freezer: Freezer) -> Iterator[str]:
        yield "wake it"
        self.gate.set()
        freezer.settle()

    def after(self) -> None:
        assert self.woken == 1


def test_a_queue_without_a_lock_goes_on_at_every_point():
    points = count_points(Putting)
    assert points > 5
    runs = [freeze_at(Putting, at) for at in range(1, points + 1)]
    assert all(run.is_reached for run in runs)
    assert len({run.where for run in runs}) == points, "each point is another bytecode"


@pytest.mark.parametrize("make", [PuttingLocked, PuttingAnnounced])
def test_a_queue_whose_users_wait_for_each_other_is_found(make):
    points = count_points(make)
    stuck = []
    for at in range(1, points + 1):
        try:
            freeze_at(make, at, IMPATIENCE_S)
        except Stuck as error:
            stuck.append(str(error))
    assert 0 < len(stuck) < points
    assert all("test_freeze_catches.py" in each and ".put" in each for each in stuck)


def test_a_worker_can_be_suspended_after_what_it_did():
    points = count_points(Working)
    stuck = []
    for at in range(1, points + 1):
        try:
            freeze_at(Working, at, IMPATIENCE_S)
        except Stuck as error:
            stuck.append(str(error))
    assert stuck, "the worker holds a lock while it counts"
    assert any("Worked.work" in each and "put beside the worker" in each for each in stuck)


def test_one_who_sleeps_is_suspended_after_it_was_woken_too():
    last = "Waiting.suspended, bytecode"
    runs = [freeze_at(Waiting, at) for at in range(1, count_points(Waiting) + 1)]
    line = Waiting.suspended.__code__.co_firstlineno + 3
    assert any(f":{line} in {last}" in run.where for run in runs)


def test_without_a_watchdog_what_nobody_waits_for_is_found_not_to_run():
    """The scenarios without waits exist to find this bug."""

    class Impatient(unheard.FallsAsleep):
        patience_s = IMPATIENCE_S

    stuck = []
    with without_watchdog():
        points = count_points(Impatient)
        for at in range(1, points + 1, 25):
            try:
                freeze_at(Impatient, at, 3 * IMPATIENCE_S)
            except (Stuck, AssertionError) as error:
                stuck.append(str(error) + "".join(getattr(error, "__notes__", ())))
    assert any("worker.py" in each or "state_transitions.py" in each for each in stuck)


def test_an_error_of_either_side_says_where_the_thread_was_suspended():
    class Broken(Putting):
        def others(self, freezer: Freezer) -> Iterator[str]:
            yield "fail"
            raise ValueError("planned")

    with pytest.raises(ValueError, match="planned") as caught:
        freeze_at(Broken, 3)
    assert any("test_freeze_catches.py" in note for note in caught.value.__notes__)


def test_a_point_that_there_is_not_suspends_nobody():
    run = freeze_at(Putting, 10_000)
    assert not run.is_reached
    assert run.where == ""


def test_a_sample_is_spread_over_all_points():
    assert sample(5, None, 0) == sample(5, 9, 0) == [1, 2, 3, 4, 5]
    drawn = sample(1000, 10, seed=7)
    assert drawn == sample(1000, 10, seed=7) != sample(1000, 10, seed=8)
    assert [point // 100 for point in drawn] == pytest.approx(range(10), abs=1)
    assert all(1 <= point <= 1000 for point in drawn)


def test_a_process_ends_while_a_thread_is_suspended():
    program = f"""
import sys, threading
sys.path.insert(0, {str(freeze_test.PACKAGE.parent / "tests")!r})
from helpers.concurrency.bytecode_freezer import PATIENCE_S, Freezer
freezer = Freezer(1, lambda path: path == "<string>")
def one():
    def step():
        return 1
    with freezer:
        step()
threading.Thread(target=one, daemon=True).start()
freezer.settle()
print(freezer.is_frozen)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
