"""The cut of a program into segments: it keeps the order, adds none, and makes few segments."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import cudasync as cs
from cudasync.graph import segments
from cudasync.graph.segments import cut, needed

SEARCH = settings(
    max_examples=1500, deadline=None, database=None, phases=[Phase.generate],
    report_multiple_bugs=False,
)  # fmt: skip
# The memory of the programs: arrays of two devices, NumPy arrays, and pinned memory last.
FIRST, SECOND, PAGEABLE, PINNED = range(3), range(3, 5), range(5, 8), (8,)
# A step updates the first of two arrays from the second, on the device of both. Between other
# memory it is a copy, which is alone if it is one of pageable memory.
STEPS = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=14)
# Where the last is true, the step is a function of the host.
FUNCTIONS = st.lists(
    st.tuples(st.integers(0, 8), st.integers(0, 8), st.booleans()), min_size=1, max_size=14
)


def recorded(steps):
    """The nodes of a program of these steps. It is never launched."""
    second = cs.Device(1 % cs.device_count())
    memory = [cs.zeros(4, np.int32, device=0) for _ in FIRST]
    memory += [cs.zeros(4, np.int32, device=second) for _ in SECOND]
    memory += [np.zeros(4, np.int32) for _ in PAGEABLE]
    memory += [cs.pinned_empty(4, np.int32) for _ in PINNED]
    with cs.graph() as g:
        for target, source, *is_function in steps:
            to, of = memory[target], memory[source]
            if any(is_function):
                cs.engine().push(lambda: None, reads=of, writes=to)
            elif target != source and not {target, source} <= {*PAGEABLE, *PINNED}:
                if any({target, source} <= set(each) for each in (FIRST, SECOND)):
                    to += of
                else:
                    cs.copy(to, of)
    return g.nodes


def behind(nodes):
    """For each node, all nodes that come before it, directly or not."""
    found: dict = {}
    for node in nodes:
        found[node] = set().union(*({other} | found[other] for other in node.before))
    return found


def of_node(cuts):
    """The number of the segment of each node."""
    return {node: at for at, segment in enumerate(cuts) for node in segment.nodes}


def waits_of(nodes, number):
    """For each segment, the segments that it waits for, directly or not; maybe itself."""
    waits: dict = {}
    for node in nodes:
        needed = {number[other] for other in node.before} - {number[node]}
        waits.setdefault(number[node], set()).update(needed)
    for _ in waits:
        for each in waits.values():
            each.update(*[waits[other] for other in each])
    return waits


def orders_more(nodes, number):
    """True if segments order nodes that the program does not order, or wait for themselves."""
    order, waits = behind(nodes), waits_of(nodes, number)
    return any(each in needed for each, needed in waits.items()) or any(
        number[one] in waits[number[other]] and one not in order[other]
        for one, other in itertools.permutations(nodes, 2)
    )


def adds_nothing(nodes, cuts):
    return not orders_more(nodes, of_node(cuts))


def is_coarsest(nodes, cuts):
    """True if any two segments of a place, as one, would order more."""
    number = of_node(cuts)
    shared = [each for each in enumerate(cuts) if not each[1].is_alone]
    return all(
        orders_more(nodes, {node: at if n == also else n for node, n in number.items()})
        for (at, one), (also, other) in itertools.combinations(shared, 2)
        if segments._place(one) == segments._place(other)
    )


def is_ordered(nodes, cuts):
    """True if each node is in one segment of its place, behind what it needs, and alone if need
    be."""
    number = of_node(cuts)
    assert sorted(node.index for each in cuts for node in each.nodes) == list(range(len(nodes)))
    for each in cuts:
        assert [node.index for node in each.nodes] == sorted(node.index for node in each.nodes)
        assert not each.is_alone or len(each.nodes) == 1
        places = {(*segments._place(node), node.is_alone) for node in each.nodes}
        assert places == {(*segments._place(each), each.is_alone)}
    return all(number[other] <= number[node] for node in nodes for other in node.before)


@given(STEPS)
def test_a_cut_adds_no_order_between_devices_and_copies_of_pageable_memory(steps):
    nodes = recorded(steps)
    cuts = cut(nodes)
    assert is_ordered(nodes, cuts)
    assert adds_nothing(nodes, cuts)
    assert is_coarsest(nodes, cuts)


@given(FUNCTIONS)
def test_a_cut_keeps_the_order_beside_functions_of_the_host(steps):
    nodes = recorded(steps)
    assert is_ordered(nodes, cut(nodes))


def waits_for_what_is_needed(nodes, cuts):
    """True if what needs no function waits for none, and if a function waits for no device, and for
    no node by itself, unless it needs some of that device, or that node."""
    number, order = of_node(cuts), behind(nodes)
    waits = waits_of(nodes, number)

    def is_function(node):
        return node.device is None and not node.is_alone

    def marks(found):
        return {each if each.is_alone else each.device for each in found if not is_function(each)}

    for node in nodes:
        waited = [other for other in nodes if number[other] in waits[number[node]]]
        if is_function(node):
            if not marks(waited) <= marks(order[node]):
                return False
        elif any(map(is_function, waited)) and not any(map(is_function, order[node])):
            return False
    return True


@given(FUNCTIONS)
def test_beside_functions_nothing_waits_for_a_place_that_it_does_not_need(steps):
    nodes = recorded(steps)
    assert waits_for_what_is_needed(nodes, cut(nodes))


@given(FUNCTIONS)
def test_beside_functions_kernels_are_apart_without_a_further_order(steps):
    """What a segment of kernels that need no function waits for is what its nodes need."""
    nodes = recorded(steps)
    number, order = of_node(cut(nodes)), behind(nodes)
    waits = waits_of(nodes, number)
    free = [
        n for n in nodes if n.device is not None and not any(o.device is None for o in order[n])
    ]
    for one, other in itertools.permutations(free, 2):
        assert number[one] not in waits[number[other]] or one in order[other]


@pytest.mark.parametrize("count", [1, 3, 50])
def test_a_cut_for_the_sake_of_functions_keeps_the_bound_on_ops(count):
    """Each kernel of a second row needs a function, and one of the first row."""
    xs, ys = ([cs.zeros(4, np.int32) for _ in range(count)] for _ in range(2))
    with cs.graph() as g:
        for x, y in zip(xs, ys, strict=True):
            cs.engine().push(lambda: None, writes=y)
            x += 1
            y += x
    most = max(segments.MOST_FINER * 2, segments.MOST_OF_SMALL)
    assert len(cut(g.nodes)) == (3 * count if 3 * count <= most else 2)
    assert len(cut(g.nodes, is_round=True)) == 2


@given(FUNCTIONS)
def test_a_segment_needs_the_segments_of_its_nodes_predecessors(steps):
    nodes = recorded(steps)
    cuts = cut(nodes)
    number = of_node(cuts)
    for at, before in enumerate(needed(cuts)):
        mine = [node for node in nodes if number[node] == at]
        assert set(before) == {number[o] for node in mine for o in node.before} - {at}
        assert list(before) == sorted(set(before))


def nothing_around(nodes, kinds):
    """The planted bug: nodes of a place share segments, whatever they need."""
    return dict.fromkeys(nodes, (0, 0))


def only_what_comes_before(nodes, kinds):
    """The planted bug: nobody asks who needs a node."""
    return {node: (before, 0) for node, (before, _) in AROUND(nodes, kinds).items()}


def only_what_comes_behind(nodes, kinds):
    """The planted bug: nobody asks what a node needs."""
    return {node: (0, behind) for node, (_, behind) in AROUND(nodes, kinds).items()}


def only_once(nodes, kinds):
    """The planted bug: a kind that is divided does not divide others."""
    places = {node if node.is_alone else segments._place(node) for node in nodes}
    is_first = len(set(kinds.values())) == len(places)
    return (AROUND if is_first else nothing_around)(nodes, kinds)


def each_by_itself(nodes, kinds):
    """The planted bug: no two nodes have the same around them."""
    return {node: (node.index, 0) for node in nodes}


def anywhere(nodes, kinds):
    """The planted bug: a node joins the segment of its kind, however early that is."""
    found = {}
    for node in nodes:
        new = segments.Segment(*segments._place(node), is_alone=node.is_alone)
        found.setdefault(kinds[node], new).nodes.append(node)
    return list(found.values())


AROUND = segments._around
PLANTED = [
    ("_around", nothing_around, STEPS, adds_nothing),
    ("_around", only_what_comes_before, STEPS, adds_nothing),
    ("_around", only_what_comes_behind, STEPS, adds_nothing),
    ("_around", only_once, STEPS, adds_nothing),
    ("_around", each_by_itself, STEPS, is_coarsest),
    ("_joined", anywhere, FUNCTIONS, is_ordered),
    ("_around", nothing_around, FUNCTIONS, waits_for_what_is_needed),
    ("_behind_functions", lambda nodes: set(), FUNCTIONS, waits_for_what_is_needed),
]


@pytest.mark.parametrize(("name", "wrong", "programs", "holds"), PLANTED)
def test_a_planted_bug_in_the_cut_is_found(name, wrong, programs, holds, monkeypatch):
    monkeypatch.setattr(segments, name, wrong)

    @SEARCH
    @given(programs)
    def search(steps):
        nodes = recorded(steps)
        assert holds(nodes, cut(nodes))

    with pytest.raises(AssertionError):
        search()
