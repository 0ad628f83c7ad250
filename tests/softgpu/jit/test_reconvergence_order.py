"""The order of basic blocks lets diverged lanes reconverge, in every graph."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cudasync.softgpu.jit.analysis.reconvergence_order import _arrange


@st.composite
def graphs(draw):
    """Draw a graph of blocks: each falls through or ends, and may branch anywhere; the exit is
    n."""
    count = draw(st.integers(1, 9))
    targets = st.integers(0, count)
    return [
        tuple(dict.fromkeys([index + 1, *draw(st.lists(targets, max_size=2))]))
        if draw(st.booleans()) or index == 0
        else (draw(targets),)
        for index in range(count)
    ]


def reachable(successors):
    seen, waiting = set(), [0]
    while waiting:
        node = waiting.pop()
        if node < len(successors) and node not in seen:
            seen.add(node)
            waiting += successors[node]
    return seen


@given(graphs())
def test_every_reachable_block_has_one_place(successors):
    order, _, _ = _arrange(successors)
    assert sorted(order) == sorted(reachable(successors))
    assert order[0] == 0


@given(graphs())
def test_edges_go_forward_or_back_to_the_header_of_a_loop_around_them(successors):
    order, spans, is_reducible = _arrange(successors)
    place = {node: index for index, node in enumerate(order)}
    loops = [(place[header], place[header] + length) for header, length in spans]
    for node in order:
        for target in successors[node]:
            if target == len(successors) or place[target] > place[node]:
                continue
            assert any(
                start == place[target] and start <= place[node] < end for start, end in loops
            )
    if not is_reducible:
        return
    for start, end in loops:
        for node in order:
            enters = [t for t in successors[node] if t in place and start < place[t] < end]
            if not start <= place[node] < end:
                assert not enters, "a loop is entered at its header alone"


@given(graphs())
def test_loops_nest(successors):
    order, spans, _ = _arrange(successors)
    place = {node: index for index, node in enumerate(order)}
    loops = [range(place[header], place[header] + length) for header, length in spans]
    for one in loops:
        for other in loops:
            shared = set(one) & set(other)
            assert shared in (set(), set(one), set(other))


def test_a_loop_with_two_entries_is_known_for_what_it_is():
    assert _arrange([(1, 2), (2, 3), (1, 3)])[2] is False
    assert _arrange([(1,), (2, 4), (3,), (1,)])[2] is True
