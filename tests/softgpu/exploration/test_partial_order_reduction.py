"""The search over orders runs each order that can matter exactly once; the reference tries all."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudasync.softgpu.core.exploration import partial_order_reduction as search_module
from cudasync.softgpu.core.exploration.footprints import EVERYTHING, NOTHING, Footprint
from cudasync.softgpu.core.exploration.partial_order_reduction import Search, Step

CELLS = 3


def footprint(reads, writes):
    return Footprint(
        {0: [(cell, cell + 1) for cell in reads]}, {0: [(cell, cell + 1) for cell in writes]}
    )


cells = st.sets(st.integers(0, CELLS - 1), max_size=2).map(sorted)
footprints = st.one_of(st.builds(footprint, cells, cells), st.sampled_from([NOTHING, EVERYTHING]))
# Each step: its stream, an earlier step that it waits for, and its footprint.
step_lists = st.lists(
    st.tuples(st.integers(0, 2), st.none() | st.integers(0, 5), footprints), min_size=1, max_size=6
)


def needs_of(steps):
    """The direct dependencies of each step: its predecessor in the stream, and the awaited step."""
    found = []
    for index, (stream, awaited, _) in enumerate(steps):
        own = [i for i in range(index) if steps[i][0] == stream][-1:]
        found.append({*own, *([awaited] if awaited is not None and awaited < index else [])})
    return found


def meaning(steps, order):
    """The order of conflicting steps: equal for two orders if and only if they are
    indistinguishable."""
    place = {index: at for at, index in enumerate(order)}
    return frozenset(
        (a, b) if place[a] < place[b] else (b, a)
        for a, b in combinations(range(len(steps)), 2)
        if steps[a][2].conflicts(steps[b][2])
    )


def all_meanings(steps, needs):
    found = set()

    def extend(order):
        if len(order) == len(steps):
            found.add(meaning(steps, order))
        for index in range(len(steps)):
            if index not in order and needs[index] <= set(order):
                extend([*order, index])

    extend([])
    return found


def explored(steps, needs):
    """The orders that the search ran, without those that it found redundant."""
    keys = [
        (stream, sum(steps[i][0] == stream for i in range(index)), 0)
        for index, (stream, _, _) in enumerate(steps)
    ]
    search = Search()
    orders = []
    has_more = True
    while has_more:
        search.begin()
        order = []
        while len(order) < len(steps):
            ready = [i for i in range(len(steps)) if i not in order and needs[i] <= set(order)]
            index = keys.index(search.choose([keys[i] for i in ready]))
            before = sum(1 << order.index(need) for need in needs[index])
            search.took(Step(keys[index], steps[index][2], before, can_wait=False))
            order.append(index)
        if not search.is_redundant:
            orders.append(tuple(order))
        has_more = search.end()
        assert len(orders) < 1000
    assert not search.has_diverged
    assert search.orders == len(orders)
    return orders


@given(step_lists)
def test_each_order_that_can_matter_is_run_and_only_once(steps):
    needs = needs_of(steps)
    found = [meaning(steps, order) for order in explored(steps, needs)]
    assert len(found) == len(set(found))
    assert set(found) == all_meanings(steps, needs)


def test_steps_that_have_nothing_in_common_are_run_in_one_order():
    steps = [(index, None, footprint([], [0])) for index in range(1)]
    steps += [(index, None, footprint([1], [])) for index in range(1, 6)]
    assert len(explored(steps, needs_of(steps))) == 1


def test_writers_of_one_place_are_run_in_all_orders():
    steps = [(index, None, footprint([], [0])) for index in range(5)]
    assert len(explored(steps, needs_of(steps))) == 120


@pytest.mark.parametrize("forgotten", ["reads", "writes"])
def test_a_search_that_forgets_conflicts_is_found_out(forgotten, monkeypatch):
    """A planted bug: the property above can fail."""
    steps = [
        (0, None, footprint([], [0])),
        (1, None, footprint([0], [])),
        (2, None, footprint([], [0])),
    ]
    meant = all_meanings(steps, needs_of(steps))
    conflicts = Footprint.conflicts

    def without(self, other):
        return conflicts(self._replace(**{forgotten: {}}), other._replace(**{forgotten: {}}))

    monkeypatch.setattr(Footprint, "conflicts", without)
    orders = explored(steps, needs_of(steps))
    monkeypatch.undo()
    assert {meaning(steps, order) for order in orders} < meant


def test_a_search_that_never_sleeps_runs_the_same_order_again(monkeypatch):
    """A second planted bug: without sleep sets, the search runs redundant orders."""
    steps = [
        (0, None, footprint([], [0])),
        (1, None, footprint([], [0, 1])),
        (2, None, footprint([], [1])),
    ]
    once = explored(steps, needs_of(steps))
    monkeypatch.setattr(search_module.Search, "_sleep_at", lambda self, place: {})
    again = explored(steps, needs_of(steps))
    assert {meaning(steps, order) for order in again} == {meaning(steps, order) for order in once}
    assert len(again) >= len(once)


def test_a_replayed_order_is_one_run():
    search = Search([(2, 1, 0), (1, 1, 0)])
    search.begin()
    for key in ((2, 1, 0), (1, 1, 0)):
        assert search.choose([(1, 1, 0), (2, 1, 0)]) == key
        search.took(Step(key, footprint([], [0]), 0, can_wait=False))
    assert not search.end()
    assert not search.has_diverged


def test_a_run_that_does_not_offer_what_was_offered_has_diverged():
    search = Search()
    search.begin()
    for key in ((1, 1, 0), (2, 1, 0)):
        assert search.choose([key, (9, 9, 0)]) == key
        search.took(Step(key, footprint([], [0]), 0, can_wait=False))
    assert search.end()
    search.begin()
    assert search.choose([(7, 7, 0)]) == (7, 7, 0)
    assert search.has_diverged
