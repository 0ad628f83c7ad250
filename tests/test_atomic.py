"""Floor 0: the atomic operations keep their promises under eight threads."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from itertools import chain

import pytest

from cudasync.atomic import Inbox, Once, Roll, Tickets

THREADS = 8
ROUNDS = 3000


@pytest.fixture(autouse=True)
def fast_switching():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


def run_in_threads(body: Callable[[int], None]) -> None:
    start = threading.Barrier(THREADS)

    def main(index: int) -> None:
        start.wait()
        body(index)

    threads = [threading.Thread(target=main, args=(i,)) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_each_ticket_is_handed_out_once():
    tickets = Tickets()
    taken: list[list[int]] = [[] for _ in range(THREADS)]
    run_in_threads(lambda i: taken[i].extend(tickets.next() for _ in range(ROUNDS)))
    assert sorted(chain(*taken)) == list(range(1, THREADS * ROUNDS + 1))
    assert all(mine == sorted(mine) for mine in taken)


def test_reading_how_many_tickets_were_taken_takes_none():
    tickets = Tickets()
    for expected in range(12):
        assert [tickets.taken, tickets.taken] == [expected, expected]
        assert tickets.next() == expected + 1


def test_an_inbox_gives_each_item_to_one_taker():
    inbox: Inbox[tuple[int, int]] = Inbox()
    taken: list[list[tuple[int, int]]] = [[] for _ in range(THREADS)]

    def put_and_take(index: int) -> None:
        for n in range(ROUNDS):
            inbox.put((index, n))
            item = inbox.take()
            if item is not None:
                taken[index].append(item)

    run_in_threads(put_and_take)
    while (rest := inbox.take()) is not None:
        taken[0].append(rest)
    everything = list(chain(*taken))
    assert len(everything) == len(set(everything)) == THREADS * ROUNDS


def test_an_inbox_keeps_order_for_one_taker():
    inbox: Inbox[int] = Inbox()
    for n in range(100):
        inbox.put(n)
    assert bool(inbox)
    assert [inbox.take() for _ in range(101)] == [*range(100), None]
    assert not inbox


def test_the_first_offer_wins_and_everyone_learns_it():
    for _ in range(200):
        once: Once[int] = Once()
        assert once.get() is None
        seen: list[int] = [-1] * THREADS

        def offer(index: int, once: Once[int] = once, seen: list[int] = seen) -> None:
            seen[index] = once.offer(index)

        run_in_threads(offer)
        assert len(set(seen)) == 1
        assert once.get() == seen[0]


def test_a_roll_loses_no_entry_to_those_who_strike_out_others():
    roll: Roll[list[int]] = Roll()

    def add_and_end(index: int) -> None:
        for n in range(ROUNDS // 10):
            entry = [index, n]
            roll.add(entry)
            assert any(each is entry for each in roll.all())
            entry.clear()
            roll.strike(lambda each: not each)
            assert not any(each is entry for each in roll.all())

    run_in_threads(add_and_end)
    assert len(roll) == 0
    roll.add([1])
    roll.add([2])
    assert roll.all() == [[1], [2]]
