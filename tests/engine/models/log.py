"""The log and its segments under every interleaving, and the bugs of similar code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from helpers.concurrency.model_checking import Model

from cudasync.atomic import DONE, SEAL, Log, Segment

Workers = Sequence[Callable[[], object]]


class _Sealing(Model):
    """Two threads append to a segment, and one seals it."""

    block = "Segment"
    make: type = Segment

    def __init__(self) -> None:
        self.segment = self.make(1)
        self.late: list[list[str]] = [[], []]
        self.ends: list[list[int]] = [[], [], []]

    def workers(self) -> Workers:
        return [lambda: self.append(0, "a"), lambda: self.append(1, "b"), self.seal]

    def append(self, index: int, entry: str) -> None:
        segment = self.segment
        segment.append(entry)
        if segment.is_sealed:
            end = segment.seal()
            self.ends[index].append(end)
            if entry in segment.entries[end:]:
                self.late[index].append(entry)

    def seal(self) -> None:
        end = self.segment.seal()
        self.ends[2].append(end)

    def holds(self) -> bool:
        end = self.segment.entries.index(SEAL)
        in_time = self.segment.entries[:end]
        assert {each for ends in self.ends for each in ends} == {end}, "the end stays where it is"
        return sorted([*in_time, *self.late[0], *self.late[1]]) == ["a", "b"]


class WhoAppendsKnowsWhetherItWasInTime(_Sealing):
    pass


class SegmentFlaggedAfterTheSeal(_Sealing):
    planted = "the SEAL before the flag: who appends in between thinks that it was in time"

    class make(Segment):
        def seal(self) -> int:
            if SEAL not in self.entries:
                self.entries.append(SEAL)
            self.is_sealed = True
            return self.entries.index(SEAL)


class SegmentWhoseSealersAllThinkTheyAreFirst(_Sealing):
    planted = "each looks for the SEAL from its own on: two of them have two ends"

    class make(Segment):
        def seal(self) -> int:
            self.is_sealed = True
            start = len(self.entries)
            self.entries.append(SEAL)
            return self.entries.index(SEAL, start)


class _Logging(Model):
    """One or two threads append two entries each, and another begins a new segment."""

    block = "Log"
    make: type = Log
    appending = "a"

    def __init__(self) -> None:
        self.log = self.make()
        self.first = self.log.tail

    def workers(self) -> Workers:
        appenders: Workers = [lambda: self.append("a"), lambda: self.append("b")]
        return [*appenders[: len(self.appending)], self.cut]

    def append(self, who: str) -> None:
        self.log.append(who + "1")
        self.log.append(who + "2")

    def cut(self) -> None:
        self.first.seal()
        self.first.next()

    def holds(self) -> bool:
        entries: list[Any] = []
        segment = self.first
        while True:
            assert segment.base == len(entries) + 1, "numbers go on"
            entries += segment.entries
            if SEAL not in segment.entries:
                break
            del entries[segment.base - 1 + segment.entries.index(SEAL) :]
            segment = segment.following[0]
        mine = [[each for each in entries if each[0] == who] for who in self.appending]
        return mine == [[who + "1", who + "2"] for who in self.appending]


class EachEntryHasOnePlaceInTheLog(_Logging):
    pass


class EachEntryOfTwoHasOnePlaceInTheLog(_Logging):
    appending = "ab"


class LogThatAppendsOnce(_Logging):
    planted = "an entry that came after the SEAL is not appended again"

    class make(Log):
        def append_again(self, segment: Segment, entry: object) -> None:
            self.tail = segment.next()


class _Reading(_Logging):
    """One thread appends, one begins a new segment, and one reads and leaves DONE behind."""

    def __init__(self) -> None:
        super().__init__()
        self.segment, self.index = self.first, 0
        self.read: list[tuple[int, object]] = []

    def workers(self) -> Workers:
        return [*super().workers(), self.go_on]

    def go_on(self) -> None:
        """Read to the present end of the log."""
        while True:
            segment = self.segment
            entry = self.peek(segment.entries)
            if entry is None:
                return
            if entry is SEAL:
                self.segment, self.index = segment.next(), 0
                continue
            self.read.append((segment.base + self.index, entry))
            self.leave(segment.entries)
            self.index += 1

    def peek(self, entries: list[object]) -> object:
        return entries[self.index] if self.index < len(entries) else None

    def leave(self, entries: list[object]) -> None:
        entries[self.index] = DONE

    def holds(self) -> bool:
        self.go_on()
        return self.read == [(1, "a1"), (2, "a2")]


class WhatIsDoneKeepsItsPlace(_Reading):
    pass


class LogThatRemovesWhatIsDone(_Reading):
    planted = "what is done is removed: the SEAL moves up, and numbers are given out twice"

    def peek(self, entries: list[object]) -> object:
        return entries[0] if entries else None

    def leave(self, entries: list[object]) -> None:
        del entries[0]
