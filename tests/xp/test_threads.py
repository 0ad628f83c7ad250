"""State of array computation that all threads share: plans, layouts, result memory, generators."""

from __future__ import annotations

import os
from functools import partial
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
from helpers.concurrency.thread_crew import PATIENCE_S, hasty, together

import cudasync as cs
from cudasync import xp
from cudasync.array.elementwise import layouts, operation
from cudasync.array.memory import free_lists
from cudasync.array.products import operation as products
from cudasync.array.reductions import operation as reductions
from cudasync.array.scans import operation as scans
from cudasync.array.steps import step_cache

CREW = 4
IS_PLAIN = os.environ.get("HYPOTHESIS_PROFILE", "plain") == "plain"
ROUNDS = 24
# Rounds in which every thread computes with each kind of operation.
LONG_ROUNDS = 8 if IS_PLAIN else 24


def assert_as_numpy(a: Any, host: np.ndarray) -> None:
    """Assert a few operations of each kind on an int32 matrix."""
    rows, columns = host.shape
    places = np.arange(rows)[::-1].copy()
    found = [
        a * 3 + a,
        xp.where(a > 4, a, 0),
        xp.sum(a, axis=0),
        xp.cumulative_sum(a, axis=1),
        a @ a[:columns, :].T,
        xp.sort(a, axis=1),
        xp.take(a, xp.asarray(places, device=a.device), axis=0),
        a[:, ::2].copy(),
    ]
    wanted = [
        host * 4,
        np.where(host > 4, host, 0),
        host.sum(0),
        host.cumsum(1),
        host @ host[:columns, :].T,
        np.sort(host, 1),
        host[places],
        host[:, ::2],
    ]
    for each, right in zip(found, wanted, strict=True):
        assert np.array_equal(each.numpy(), right)


@pytest.fixture(params=["caches as they are", "caches that begin anew all the time"])
def caches(request, monkeypatch):
    if request.param == "caches as they are":
        return
    for where, name in (
        (layouts, "_MOST"),
        (operation, "_MOST_PLANS"),
        (products, "_MOST_PLANS"),
        (reductions, "_MOST_PLANS"),
        (scans, "_MOST_PLANS"),
        (step_cache, "_MOST"),
        (free_lists, "MOST_SIZES"),
    ):
        assert getattr(where, name) > 2
        monkeypatch.setattr(where, name, 2)


@pytest.fixture(scope="module")
def kernels():
    """The kernels are compiled once here, and not by each thread that finds none."""
    host = np.arange(7 * 31, dtype=np.int32).reshape(-1, 7)
    assert_as_numpy(xp.asarray(host), host)


@pytest.mark.usefixtures("kernels", "caches")
def test_threads_that_ask_for_the_same_at_once_each_get_what_numpy_gives():
    def work(number: int) -> None:
        for turn in range(LONG_ROUNDS):
            # The shape is new to all threads, so they make its plans together.
            host = np.arange((31 + turn) * 7, dtype=np.int32).reshape(-1, 7) % (11 + number)
            assert_as_numpy(xp.asarray(host), host)

    with hasty():
        together(*(partial(work, number) for number in range(CREW)), patience_s=60)


def test_threads_that_add_to_one_array_lose_nothing():
    total = xp.zeros(100, dtype=np.int64)

    def work() -> None:
        mine = total[::1]
        for _ in range(ROUNDS):
            mine += 1

    with hasty():
        together(*[work] * CREW)
    assert total.numpy().tolist() == [CREW * ROUNDS] * 100


def test_memory_of_results_that_die_on_another_thread_is_nobody_elses_meanwhile():
    given: SimpleQueue[Any] = SimpleQueue()

    def make(number: int) -> None:
        for turn in range(ROUNDS):
            made = xp.full(64, number, dtype=np.int32) + turn
            given.put((number + turn, made))
            given.put((number + turn + 1, made + 1))
        given.put(None)

    def look() -> None:
        while (got := given.get(timeout=PATIENCE_S)) is not None:
            wanted, array = got
            del got
            assert array.numpy().tolist() == [wanted] * 64

    with hasty():
        together(*(partial(make, 1000 * i) for i in range(CREW)), *[look] * CREW)


def test_threads_that_share_a_generator_get_each_number_once():
    alone, shared = cs.random.Generator(7), cs.random.Generator(7)
    wanted = [alone.integers(1 << 40, shape=5).numpy().tolist() for _ in range(CREW * ROUNDS)]
    drawn: list[Any] = []

    def work() -> None:
        for _ in range(ROUNDS):
            drawn.append(shared.integers(1 << 40, shape=5))

    with hasty():
        together(*[work] * CREW)
    assert sorted(each.numpy().tolist() for each in drawn) == sorted(wanted)
