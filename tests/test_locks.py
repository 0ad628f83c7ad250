"""Floor 0: Ctrl-C leaves a lock free, at any point of its `with`; and so does a fork."""

from __future__ import annotations

import re
import signal
import sys
import threading
from threading import RLock

import pytest
from helpers.concurrency.thread_crew import PATIENCE_S
from helpers.repository.checkout import python_files
from helpers.repository.subprocesses import run_program

from cudasync import locks
from cudasync.locks import Lock

INTERRUPTS = 500
AFTER_S = 1e-4
MOST = 1_000_000


@pytest.fixture(autouse=True)
def alarms_interrupt():
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    yield
    signal.signal(signal.SIGALRM, before)


def take_until_interrupted(lock: Lock | RLock) -> None:
    try:
        signal.setitimer(signal.ITIMER_REAL, AFTER_S)
        # The loop is finite, because an interrupt in a finaliser or a collector's callback is
        # ignored.
        for _ in range(MOST):
            with lock:
                pass
    except KeyboardInterrupt:
        pass


def how_often_held(lock: Lock | RLock) -> int:
    """The number of interrupts after which this thread still held `lock` outside its `with`."""
    held = 0
    for _ in range(INTERRUPTS):
        take_until_interrupted(lock)
        while lock._is_owned():
            held += 1
            lock.release()
    return held


def test_an_interrupt_leaves_the_lock_free():
    assert how_often_held(Lock()) == 0


@pytest.mark.skipif(sys.version_info < (3, 14), reason="`with` takes a lock in one instruction")
def test_the_same_interrupts_find_a_plain_lock_held():
    assert how_often_held(RLock()) > 0


def test_an_interrupt_leaves_a_lock_that_was_held_before_as_it_was():
    lock = Lock()
    with lock:
        for _ in range(INTERRUPTS):
            take_until_interrupted(lock)
        assert lock.is_held_here()
    assert not lock.is_held_here()


def test_others_wait_while_it_is_held():
    lock, order = Lock(), []

    def take() -> None:
        with lock:
            order.append("other")

    thread = threading.Thread(target=take)
    with lock:
        thread.start()
        order.append("holder")
    thread.join(PATIENCE_S)
    assert order == ["holder", "other"]
    assert not lock.is_held_here()


def test_the_package_has_no_other_locks():
    others = [
        f"{path.name}: {line.strip()}"
        for path in python_files("cudasync")
        if path.name != "locks.py"
        for line in path.read_text().splitlines()
        if re.search(r"\bthreading\.R?Lock\b|from (threading|_thread) import.*\bR?Lock\b", line)
    ]
    assert others == []


FORKS = """
from cudasync.locks import Lock
from threading import RLock
mine, other, held, gate = KIND(), KIND(), threading.Event(), threading.Event()
def hold():
    with other:
        held.set()
        gate.wait(PATIENCE_S)
thread = threading.Thread(target=hold)
thread.start()
assert held.wait(PATIENCE_S)
with mine:
    child = os.fork()
    if child == 0:
        os._exit(0 if mine._is_owned() and other.acquire(timeout=0.2) else 3)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
gate.set()
thread.join()
with other:
    os._exit(code)
"""


@pytest.mark.parametrize(("kind", "code"), [("Lock", 0), ("RLock", 3)])
def test_a_forked_child_finds_the_locks_of_other_threads_free_and_its_own_taken(kind, code):
    """A lock of Python's is the planted bug."""
    assert run_program(FORKS.replace("KIND", kind)) == (code, "")


def test_a_lock_that_is_gone_is_not_remembered():
    kept = Lock()
    before = len(locks._LOCKS)
    for _ in range(100):
        Lock()
    assert len(locks._LOCKS) < before + 100
    assert kept in [each() for each in locks._LOCKS.values()]
