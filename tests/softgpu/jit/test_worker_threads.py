"""Jobs beside the launching thread: run once or taken back, and any thread may wait for them."""

from __future__ import annotations

import threading

import pytest

from cudasync.softgpu.jit.launch import worker_threads
from cudasync.softgpu.jit.launch.worker_threads import Job

PATIENCE_S = 20.0


def test_a_job_that_has_begun_is_waited_for():
    begun, gate, done = threading.Event(), threading.Event(), []

    def work() -> None:
        begun.set()
        gate.wait(PATIENCE_S)
        done.append(True)

    job = Job(work)
    helper = threading.Thread(target=job.do)
    helper.start()
    assert begun.wait(PATIENCE_S)
    gate.set()
    job.join()
    assert done
    job.join()
    helper.join(PATIENCE_S)


def test_a_job_that_has_not_begun_is_taken_back():
    done = []
    job = Job(lambda: done.append(True))
    job.join()
    job.do()
    job.join()
    assert not done


def test_what_goes_wrong_in_a_job_is_raised_by_each_who_waits():
    job = Job(lambda: [][0])
    job.do()
    for _ in range(2):
        with pytest.raises(IndexError):
            job.join()


def test_an_interrupt_of_a_wait_costs_nothing(monkeypatch):
    """The interrupt stands for one between any two steps of the wait. The caller just waits
    again."""
    gate = threading.Event()
    job = Job(lambda: gate.wait(PATIENCE_S))
    threading.Thread(target=job.do).start()

    class Interrupted:
        def get(self, timeout: float) -> None:
            raise KeyboardInterrupt

    while job._verdicts[:1] != ["begun"]:
        pass
    woken = job._wakes
    job._wakes = Interrupted()
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            job.join()
    job._wakes = woken
    gate.set()
    job.join()


def test_helpers_are_as_many_as_there_are_other_processors():
    ran = []
    for _ in range(50):
        job = Job(lambda: ran.append(threading.get_ident()))
        job.ask()
        job.join()
    assert len(worker_threads._threads) <= max(1, worker_threads.PROCESSORS - 1)
    assert threading.get_ident() not in ran
