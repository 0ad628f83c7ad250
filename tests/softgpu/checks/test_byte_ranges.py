"""Ranges of bytes as arrays agree with sets of bytes, and shadow memory with a history a byte."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from cudasync.softgpu.core.checks import shadow as shadows
from cudasync.softgpu.core.checks.findings import Access
from cudasync.softgpu.core.checks.shadow import Shadow, Touch
from cudasync.softgpu.interface.byte_ranges import (
    ByteRanges,
    difference,
    intersection,
    union,
)

SIZE = 40
PAIRS = st.lists(
    st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)).map(sorted).map(tuple), max_size=5
)


def bytes_of(pairs):
    return {byte for low, high in pairs for byte in range(low, high)}


def checked(ranges):
    """The bytes of `ranges`, which are sorted, disjoint and not empty."""
    pairs = list(ranges)
    assert all(low < high for low, high in pairs)
    assert all(one[1] <= other[0] for one, other in pairwise(pairs))
    return bytes_of(pairs)


@given(PAIRS, PAIRS, st.integers(0, SIZE), st.integers(0, SIZE))
def test_ranges_are_sets_of_bytes(first, second, low, high):
    one, other = ByteRanges.of(first), ByteRanges.of(second)
    in_one, in_other = bytes_of(first), bytes_of(second)
    assert checked(one) == in_one
    assert checked(union(one, other)) == in_one | in_other
    assert checked(difference(one, other)) == in_one - in_other
    assert checked(intersection(one, other)) == in_one & in_other
    assert checked(one.within(low, high)) == in_one & set(range(low, high))
    assert checked(one.joined()) == in_one
    assert bool(one) is bool(in_one)


class Stamp:
    """The stamp of a command; it comes after those whose numbers it is given."""

    def __init__(self, number, after):
        self.number = number
        self.after = after

    def is_before(self, other):
        return self.number in other.after


def touches(drawn):
    """Accesses in an order that agrees with happens-before, with their bytes."""
    found = []
    for number, (pairs, is_write, is_strong, seen) in enumerate(drawn):
        # Whoever comes after an access comes after all that it came after.
        after = set()
        for earlier in {each % number for each in seen} if number else ():
            after |= {earlier} | found[earlier][0].stamp.after
        access = Access(f"access {number}", "write" if is_write else "read", "here")
        found.append((Touch(Stamp(number, after), access, is_write, is_strong), pairs))
    return found


DRAWN = st.lists(
    st.tuples(PAIRS, st.booleans(), st.booleans(), st.sets(st.integers(0, 7), max_size=3)),
    max_size=8,
)


def raise_unless_alike(drawn):
    """Shadow memory and a history for each byte report the same races, and the same writers."""
    shadow = Shadow(0, SIZE)
    histories = [((), ()) for _ in range(SIZE)]
    for touch, pairs in touches(drawn):
        racing = {}
        for byte in bytes_of(pairs):
            writes, reads = histories[byte]
            for other in (*writes, *reads) if touch.is_write else writes:
                if touch.races(other):
                    racing.setdefault(other, set()).add(byte)
            histories[byte] = shadows._after(touch, writes, reads)
        found = list(shadow.take(touch, ByteRanges.of(pairs)))
        assert {other for other, _, _ in found} == set(racing)
        # A report names the lowest bytes.
        assert [low for _, low, _ in found] == sorted(low for _, low, _ in found)
        for other, racing_bytes in racing.items():
            assert min(low for each, low, _ in found if each is other) == min(racing_bytes)
        for other, low, high in found:
            assert low < high
            assert set(range(low, high)) <= racing[other]
        for low in range(0, SIZE, 7):
            wanted = {w.stamp for byte in histories[low : low + 3] for w in byte[0]}
            asked = ByteRanges.of([(low, min(low + 3, SIZE))])
            assert set(shadow.writers(asked)) == wanted


@given(DRAWN)
def test_shadow_memory_has_the_history_of_each_byte(drawn):
    raise_unless_alike(drawn)


@given(DRAWN)
def test_it_forgets_histories_that_no_byte_has(drawn):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(shadows, "_LEAST_STATES", 0)
        raise_unless_alike(drawn)


def _ranges_are_not_cut(planted):
    bounds_of = shadows.bounds_of
    planted.setattr(
        shadows, "bounds_of", lambda starts, *rest: bounds_of(starts, *(r[:1] for r in rest))
    )


def _reads_are_forgotten(planted):
    taken = Shadow._taken

    def forgets(self, touch, number):
        racing, after = taken(self, touch, number)
        return racing, after if touch.is_write else number

    planted.setattr(Shadow, "_taken", forgets)


@pytest.mark.parametrize("plant", [_ranges_are_not_cut, _reads_are_forgotten])
def test_a_planted_bug_is_found(plant, monkeypatch):
    plant(monkeypatch)

    def goes_wrong(drawn):
        try:
            raise_unless_alike(drawn)
        except AssertionError:
            return True
        return False

    search = settings(
        max_examples=1000, derandomize=True, database=None, phases=[Phase.generate], deadline=None
    )
    find(DRAWN, goes_wrong, settings=search)


def test_a_million_ranges_take_no_object_each():
    ranges = ByteRanges.of((8 * at, 8 * at + 4) for at in range(1 << 18))
    shadow = Shadow(0, 8 << 18)
    first, second = (
        Touch(Stamp(number, set()), Access(f"{number}", "write", "here"), is_write=True)
        for number in (0, 1)
    )
    assert list(shadow.take(first, ranges)) == []
    # One report for all ranges of one history, with the bytes of the first.
    assert list(shadow.take(second, ranges)) == [(first, 0, 4)]
    assert len(shadow._starts) == 1 << 19
    # Ranges that are alike again are joined.
    assert len(list(shadow.take(first, ByteRanges.of([(0, 8 << 18)])))) == 1
    assert len(shadow._starts) == 1
