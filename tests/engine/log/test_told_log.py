"""A listener of a log receives each entry once, before any thread can see it."""

from __future__ import annotations

import threading

from cudasync.atomic import Log, Segment

PATIENCE_S = 60


def entries_of(log: Log, segment: Segment) -> list[object]:
    """All valid entries from `segment` on."""
    found: list[object] = []
    while True:
        found += segment.entries[: segment.end] if segment.is_sealed else segment.entries
        if not segment.is_sealed:
            return found
        segment = segment.next()


def told_to(heard):
    """A listener of `Log.tell` that calls `heard(entry)` before the append."""

    def wrap(append):
        def tell(entry):
            heard(entry)
            append(entry)

        return tell

    return wrap


def test_an_entry_is_told_before_it_is_there():
    log = Log()
    first, seen = log.tail, []

    def heard(entry):
        seen.append((entry, entry in entries_of(log, first)))

    log.append("before")
    listener = told_to(heard)
    log.tell(listener)
    log.append("one")
    log.append("two")
    log.tell_no_more(listener)
    log.append("behind")
    assert seen == [("one", False), ("two", False)]
    assert entries_of(log, first) == ["before", "one", "two", "behind"]
    assert log.tail.append == log.tail.entries.append


def test_several_are_told_and_each_ends_by_itself():
    log = Log()
    told, order = {"a": [], "b": []}, []
    a = told_to(lambda entry: (told["a"].append(entry), order.append("a")))
    b = told_to(lambda entry: (told["b"].append(entry), order.append("b")))
    log.tell(a)
    log.append(1)
    log.tell(b)
    log.append(2)
    log.tell_no_more(a)
    log.append(3)
    log.tell_no_more(b)
    log.append(4)
    assert told == {"a": [1, 2], "b": [2, 3]}
    # Of two listeners the first gets an entry first.
    assert order == ["a", "a", "b", "b"]


def test_what_came_too_late_for_a_segment_is_told_once():
    log = Log()
    first, seen = log.tail, []
    listener = told_to(seen.append)
    log.tell(listener)
    late = log.tail
    # Another thread seals the segment between the read of the tail and the append.
    late.seal()
    late.append("late")
    log.append_again(late, "late")
    assert seen == ["late"]
    assert entries_of(log, first) == ["late"]
    log.tell_no_more(listener)


def test_entries_of_many_threads_are_all_there_and_told_at_most_once():
    log, told, both = Log(), [], threading.Barrier(4)
    first = log.tail

    def push(number):
        both.wait(PATIENCE_S)
        for each in range(2_000):
            log.append((number, each))

    threads = [threading.Thread(target=push, args=(number,)) for number in range(3)]
    for each in threads:
        each.start()
    both.wait(PATIENCE_S)
    listener = told_to(told.append)
    for _ in range(50):
        log.tell(listener)
        log.tell_no_more(listener)
    for each in threads:
        each.join(PATIENCE_S)
    there = entries_of(log, first)
    assert sorted(there) == [(number, each) for number in range(3) for each in range(2_000)]
    assert len(set(told)) == len(told)
