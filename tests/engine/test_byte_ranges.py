"""A `Cover`, a set of bytes stored as ranges, behaves as a set of bytes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudasync.engine.hazards.byte_ranges import Cover

regions = st.tuples(st.integers(0, 30), st.integers(0, 30)).map(sorted).map(tuple)
changes = st.lists(st.tuples(st.sampled_from(["add", "remove"]), regions), max_size=12)


def bytes_of(ranges):
    return {each for start, end in ranges for each in range(start, end)}


def differences(done, region):
    cover, model = Cover(), set()
    for verb, each in done:
        getattr(cover, verb)(each)
        model = model | bytes_of([each]) if verb == "add" else model - bytes_of([each])
    asked = bytes_of([region])
    found = [
        bytes_of(cover) == model,
        all(start < end for start, end in cover),
        all(one.end <= other.start for one, other in pairwise(cover)),
        bytes_of(cover.within(region)) == model & asked,
        bytes_of(cover.without(region)) == asked - model,
        not asked or cover.touches(region) == bool(model & asked),
    ]
    return [at for at, is_right in enumerate(found) if not is_right]


@given(changes, regions)
def test_a_cover_is_a_set_of_bytes(done, region):
    assert not differences(done, region)


def test_a_planted_bug_is_found(monkeypatch):
    monkeypatch.setattr(Cover, "remove", lambda self, region: None)

    @given(changes, regions)
    def search(done, region):
        assert not differences(done, region)

    with pytest.raises(AssertionError):
        search()
