"""The atomic operations under every interleaving, and the bugs of similar code."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from helpers.concurrency.model_checking import Model

from cudasync import atomic
from cudasync.atomic import Bell, Gate, Inbox, Once, Roll, Tickets, meet

Workers = Sequence[Callable[[], object]]


class _Taking(Model):
    """Two threads take two numbers each."""

    block = "Tickets"
    make: type = Tickets

    def __init__(self) -> None:
        self.source = self.make()
        self.taken: list[list[int]] = [[], []]

    def workers(self) -> Workers:
        return [lambda: self.take(0), lambda: self.take(1)]

    def take(self, index: int) -> None:
        for _ in range(2):
            number = self.source.next()
            self.taken[index].append(number)

    def holds(self) -> bool:
        in_order = all(each == sorted(each) for each in self.taken)
        return in_order and sorted(self.taken[0] + self.taken[1]) == [1, 2, 3, 4]


class EachTicketGoesToOne(_Taking):
    pass


class TicketsByReadAndAdd(_Taking):
    planted = "read, add, store: two threads read the same"

    class make:
        def __init__(self) -> None:
            self.last = 0

        def next(self) -> int:
            self.last = self.last + 1
            return self.last


class _Putting(Model):
    """Each of two threads puts one item and takes one."""

    block = "Inbox"
    make: type = Inbox

    def __init__(self) -> None:
        self.box = self.make()
        self.taken: list[list[int | None]] = [[], []]

    def workers(self) -> Workers:
        return [lambda: self.put_and_take(0), lambda: self.put_and_take(1)]

    def put_and_take(self, index: int) -> None:
        self.box.put(index)
        item = self.box.take()
        self.taken[index].append(item)

    def holds(self) -> bool:
        taken: list[int | None] = self.taken[0] + self.taken[1]
        while (item := self.box.take()) is not None:
            taken.append(item)
        return sorted(each for each in taken if each is not None) == [0, 1]


class EachItemGoesToOneTaker(_Putting):
    pass


class InboxByPeekAndDelete(_Putting):
    planted = "look, then delete: two threads look at the same"

    class make:
        def __init__(self) -> None:
            self.items: list[int] = []

        def put(self, item: int) -> None:
            self.items.append(item)

        def take(self) -> int | None:
            if not self.items:
                return None
            item = self.items[0]
            del self.items[0]
            return item


class _Meeting(Model):
    """Two threads store, and each looks at the other's store."""

    block = "meet"

    def __init__(self) -> None:
        self.place: list[int] = []
        self.stored = [0, 0]
        self.seen = [0, 0]

    def workers(self) -> Workers:
        return [lambda: self.come(0), lambda: self.come(1)]

    def come(self, index: int) -> None:
        self.stored[index] = 1
        meet(self.place)
        self.seen[index] = self.stored[1 - index]

    def holds(self) -> bool:
        return any(self.seen) and not self.place


class OneOfTwoThatMeetSeesTheOther(_Meeting):
    pass


class MeetingThatLooksFirst(_Meeting):
    planted = "look, then store: both look before either stores"

    def come(self, index: int) -> None:
        self.seen[index] = self.stored[1 - index]
        meet(self.place)
        self.stored[index] = 1


class _Offering(Model):
    """Three threads offer a value each."""

    block = "Once"
    make: type = Once

    def __init__(self) -> None:
        self.cell = self.make()
        self.seen = [-1, -1, -1]

    def workers(self) -> Workers:
        return [lambda: self.offer(0), lambda: self.offer(1), lambda: self.offer(2)]

    def offer(self, index: int) -> None:
        won = self.cell.offer(index)
        self.seen[index] = won

    def holds(self) -> bool:
        return len(set(self.seen)) == 1 and self.cell.get() == self.seen[0]


class TheFirstOfferWins(_Offering):
    pass


class OnceByCheckThenSet(_Offering):
    planted = "look, then set: the second set wins over the first"

    class make:
        def __init__(self) -> None:
            self.value: int | None = None

        def offer(self, value: int) -> int:
            if self.value is None:
                self.value = value
            return self.value

        def get(self) -> int | None:
            return self.value


class TheFirstAppendWins(_Offering):
    block = "offer"

    class make:
        def __init__(self) -> None:
            self.cell: list[int] = []

        def offer(self, value: int) -> int:
            return atomic.offer(self.cell, value)

        def get(self) -> int:
            return self.cell[0]


class OfferByInsert(TheFirstAppendWins):
    planted = "look, then insert at the front: the last of several wins"

    class make(TheFirstAppendWins.make):
        def offer(self, value: int) -> int:
            if not self.cell:
                self.cell.insert(0, value)
            return self.cell[0]


class _Arriving(Model):
    """Three threads arrive, two of them for the same name."""

    block = "Gate"
    make: type = Gate
    arriving = ("x", "x", "y")

    def __init__(self) -> None:
        self.gate = self.make(("x", "y"))
        self.arrived: dict[str, None] = {}
        self.passed: list[list[int]] = [[], [], []]

    def workers(self) -> Workers:
        return [lambda: self.arrive(0), lambda: self.arrive(1), lambda: self.arrive(2)]

    def arrive(self, index: int) -> None:
        what = self.arriving[index]
        self.arrived[what] = None
        if self.gate.arrive(what):
            self.passed[index].append(len(self.arrived))

    def holds(self) -> bool:
        return {here for each in self.passed for here in each} == {2}


class TheGateOpensWithTheLast(_Arriving):
    pass


class GateBySetOfTheRest(_Arriving):
    planted = "work out the rest, then store it: two threads start from the same"

    class make:
        def __init__(self, awaited: Sequence[str]) -> None:
            self.awaited = frozenset(awaited)

        def arrive(self, what: str) -> bool:
            rest = self.awaited - {what}
            self.awaited = rest
            return not rest


class _Ringing(Model):
    """Two threads sleep, one rings once, and the woken thread rings again: rings do not add up."""

    block = "Bell"
    make: type = Bell

    def __init__(self) -> None:
        self.bell = self.make()
        self.woken = [False, False]

    def workers(self) -> Workers:
        return [lambda: self.rest(0), lambda: self.rest(1), self.bell.ring]

    def rest(self, index: int) -> None:
        lie_down = self.bell.sleep
        lie_down()
        self.woken[index] = True
        self.bell.ring()

    def holds(self) -> bool:
        return all(self.woken)


class EachRingWakesOne(_Ringing):
    pass


class BellThatForgets(_Ringing):
    planted = "a ring that came before anybody slept is forgotten"

    class make:
        def __init__(self) -> None:
            self.event = threading.Event()

        def ring(self) -> None:
            self.event.set()

        def sleep(self) -> None:
            self.event.clear()
            self.event.wait()


class _Rolling(Model):
    """Two threads strike out finished items, and one of them then adds a new item."""

    block = "Roll"
    make: type = Roll

    def __init__(self) -> None:
        self.over = {"old"}
        self.roll = self.make()
        self.roll.add("old")

    def workers(self) -> Workers:
        return [self.strike, self.add]

    def strike(self) -> None:
        self.roll.strike(self.over.__contains__)

    def add(self) -> None:
        self.roll.strike(self.over.__contains__)
        self.roll.add("new")

    def holds(self) -> bool:
        return self.roll.all() == ["new"]


class WhatIsAddedIsNotStruckOutForAnother(_Rolling):
    pass


class RollByPlace(_Rolling):
    planted = "struck out by its place, where another thread has put a new one meanwhile"

    class make:
        def __init__(self) -> None:
            self.entries: list[str] = []

        def add(self, entry: str) -> None:
            self.entries.append(entry)

        def strike(self, is_over: Callable[[str], bool]) -> None:
            for place, entry in enumerate(list(self.entries)):
                if is_over(entry):
                    del self.entries[place : place + 1]

        def all(self) -> list[str]:
            return self.entries
