"""A pool of one worker is one thread, also on a busy machine where the thread comes late."""

from __future__ import annotations

import threading
from functools import partial

import pytest
from helpers.concurrency.thread_crew import PATIENCE_S, comes_true, engine_of, without_watchdog

from cudasync.atomic import Bell
from cudasync.engine.host import pool as pools


@pytest.fixture(autouse=True)
def _suspended_watchdog():
    with without_watchdog():
        yield


def threads_beside_a_late_worker(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The threads of the ops of a pool of one. Its worker was rung for and does not come, and
    waiters find no progress again and again."""
    gate, is_late = threading.Event(), threading.Event()
    threads: list[int] = []
    rest = Bell.sleep

    with engine_of(workers=2, pools={"io": 1}) as engine:
        pool = engine._pools["io"]

        def come_late(bell: Bell, timeout: float | None = None) -> bool:
            is_rung = rest(bell, timeout)
            if bell is pool.bell and is_rung and threading.get_ident() in threads:
                is_late.set()
                assert gate.wait(PATIENCE_S)
            return is_rung

        def note() -> None:
            threads.append(threading.get_ident())

        with monkeypatch.context() as patches:
            patches.setattr(Bell, "sleep", come_late)
            engine.push(note, pool="io")
            assert comes_true(lambda: len(threads) == 1)
            try:
                # A worker that is falling asleep may find an op without its ring: then once more.
                while not is_late.is_set():
                    count = len(threads)
                    engine.push(note, pool="io")
                    assert comes_true(partial(_has_come, threads, count, is_late))
                count = len(threads)
                engine.push(note, pool="io")
                for _ in range(4):
                    pool.rescue()
                # Only a replacement runs the op now: it is given the time of a few rounds.
                never = threading.Event()
                for _ in range(100):
                    if len(threads) > count:
                        break
                    never.wait(0.001)
            finally:
                gate.set()
            assert comes_true(lambda: len(threads) > count)
    return threads


def _has_come(threads: list[int], count: int, is_late: threading.Event) -> bool:
    return is_late.is_set() or len(threads) > count


def test_a_late_worker_of_a_pool_of_one_is_not_replaced(monkeypatch):
    assert len(set(threads_beside_a_late_worker(monkeypatch))) == 1


def test_a_second_thread_for_a_pool_of_one_is_found(monkeypatch):
    """The planted bug of the test above: the worker is replaced at once."""
    monkeypatch.setattr(pools, "ONLY_THREAD_S", 0.0)
    assert len(set(threads_beside_a_late_worker(monkeypatch))) == 2
