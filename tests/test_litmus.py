"""Floor 0: the assumptions of `cudasync.atomic`, tried on real threads in any build of Python.

Each test is a litmus test in the sense of memory models. Some threads run a few steps on shared
data, in many rounds, and no round may end in the forbidden outcome. The GIL excludes most of these
outcomes. A free-threaded build excludes them by the locks of objects: there the same rounds also
run with known wrong steps, and the forbidden outcome is found.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.concurrency.thread_crew import together

from cudasync.atomic import Gate, meet, offer
from cudasync.engine.op import claim

ROUNDS = 20_000
# A wrong step shows in one of some thousand rounds, or more often, where the threads run at once.
# On a busy machine they seldom do. A search ends with the first.
ATTEMPTS = 2000


@pytest.fixture(autouse=True)
def fast_switching():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.fixture
def without_a_gil():
    if getattr(sys, "_is_gil_enabled", lambda: True)():
        pytest.skip("this interpreter has a GIL")


class Pair:
    """The stores of two threads, and what each thread saw of the other's store."""

    __slots__ = ("left", "left_saw", "place", "right", "right_saw")

    def __init__(self) -> None:
        self.left = self.right = False
        self.left_saw = self.right_saw = False
        self.place: list[Any] = []


Step = Callable[[Pair], None]


def store_buffering(left: Step, right: Step) -> int:
    """The number of rounds in which neither thread saw the other's store."""
    pairs = [Pair() for _ in range(ROUNDS)]

    def all_left() -> None:
        for pair in pairs:
            left(pair)

    def all_right() -> None:
        for pair in pairs:
            right(pair)

    together(all_left, all_right)
    return sum(not pair.left_saw and not pair.right_saw for pair in pairs)


def left_to_one_object(pair: Pair) -> None:
    pair.left = True
    pair.left_saw = pair.right


def right_to_one_object(pair: Pair) -> None:
    pair.right = True
    pair.right_saw = pair.left


def test_of_two_stores_to_slots_of_one_object_one_is_seen():
    """Store buffering: each thread stores to a slot, then reads the other's slot."""
    assert store_buffering(left_to_one_object, right_to_one_object) == 0


def test_of_two_threads_that_meet_at_a_list_one_sees_the_other():
    """The same with two objects. Both threads do a step on one list in between."""
    elsewhere = [SimpleNamespace(left=False, right=False) for _ in range(ROUNDS)]
    pairs = [Pair() for _ in range(ROUNDS)]

    def all_left() -> None:
        for pair, other in zip(pairs, elsewhere, strict=True):
            pair.left = True
            meet(pair.place)
            pair.left_saw = other.right

    def all_right() -> None:
        for pair, other in zip(pairs, elsewhere, strict=True):
            other.right = True
            meet(pair.place)
            pair.right_saw = pair.left

    together(all_left, all_right)
    assert all(pair.left_saw or pair.right_saw for pair in pairs)


def test_an_append_meets_a_copy():
    """A listener appends itself, then checks if it is too late. The ending thread takes a copy."""
    pairs = [Pair() for _ in range(ROUNDS)]

    def listen() -> None:
        for pair in pairs:
            pair.place.append(pair)
            pair.left_saw = pair.right

    def end() -> None:
        for pair in pairs:
            pair.right = True
            pair.right_saw = bool(pair.place.copy())

    together(listen, end)
    assert all(pair.left_saw or pair.right_saw for pair in pairs)


def test_a_look_before_the_store_is_found(without_a_gil):
    def look_first(pair: Pair) -> None:
        pair.left_saw = pair.right
        pair.left = True

    def right_look_first(pair: Pair) -> None:
        pair.right_saw = pair.left
        pair.right = True

    assert any(store_buffering(look_first, right_look_first) for _ in range(ATTEMPTS))


def test_what_was_stored_before_a_flag_is_seen_behind_it():
    """Message passing, over two objects and over a list."""
    letters = [Pair() for _ in range(ROUNDS)]
    flags = [Pair() for _ in range(ROUNDS)]
    missing: list[int] = []

    def write() -> None:
        for letter, flag in zip(letters, flags, strict=True):
            letter.left = True
            flag.left = True
            letter.right = True
            flag.place.append(letter)

    def read() -> None:
        for number, (letter, flag) in enumerate(zip(letters, flags, strict=True)):
            if flag.left and not letter.left:
                missing.append(number)
            if flag.place and not letter.right:
                missing.append(number)

    together(write, read, read)
    assert not missing


def winners(claims: Callable[[Any, object], bool]) -> list[int]:
    """The number of threads, of three, that got each object."""
    things = [SimpleNamespace(_fn=int, _claims=[]) for _ in range(ROUNDS)]
    won: list[list[bool]] = [[], [], []]

    def all_of(mine: list[bool]) -> None:
        token = object()
        mine += [claims(thing, token) for thing in things]

    together(*[lambda mine=mine: all_of(mine) for mine in won])
    return [sum(each) for each in zip(*won, strict=True)]


def test_an_op_is_claimed_by_one_thread():
    assert set(winners(lambda op, token: claim(op, token) is not None)) == {1}


def test_the_first_offer_is_the_one_that_all_learn_of():
    def is_mine(thing: Any, token: object) -> bool:
        return offer(thing._claims, token) is token

    assert set(winners(is_mine)) == {1}


def test_a_claim_by_look_and_store_is_found(without_a_gil):
    def look_and_store(thing: Any, token: object) -> bool:
        if thing._fn is None:
            return False
        thing._fn = None
        return True

    assert any(set(winners(look_and_store)) != {1} for _ in range(ATTEMPTS))


def test_a_gate_opens_to_the_last_who_arrives():
    gates = [Gate(("left", "right")) for _ in range(ROUNDS)]
    opened: dict[str, list[bool]] = {"left": [], "right": []}

    def arrive(who: str) -> None:
        opened[who] += [gate.arrive(who) for gate in gates]

    together(lambda: arrive("left"), lambda: arrive("right"))
    assert all(a or b for a, b in zip(opened["left"], opened["right"], strict=True))
