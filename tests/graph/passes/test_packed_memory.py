"""The pass that lets temporaries share memory: same results and order, hardly more than needed."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import combinations

import numpy as np
import pytest
from helpers.graphs.antichains import heaviest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

import cudasync as cs
from cudasync.array.memory.free_lists import idle_bytes
from cudasync.graph.passes import memory, packing

# Sizes that no alignment divides, so that memory ends with its last byte.
UNIT = 50
WITHOUT = ("dead", "fusion", "reductions")
# `first + second` of so many units. The program keeps the result if the last number is 0.
steps = st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(1, 6), st.integers(0, 7))
programs = st.lists(steps, min_size=2, max_size=14)


def do(program, arrays):
    arrays, kept = list(arrays), []
    for left, right, units, is_kept in program:
        # Numbers count from the latest array, so that programs are deep and not only wide.
        one, other = arrays[-1 - left % len(arrays)], arrays[-1 - right % len(arrays)]
        size = units * UNIT
        if size > min(len(one), len(other)):
            # The result is longer than both: it is made of one element and of an outside array.
            one, other = one[:1], arrays[0]
        arrays.append(one[:size] + other[:size])
        if not is_kept:
            kept.append(arrays[-1])
    return [*kept, arrays[-1]]


def values():
    return [np.arange(6 * UNIT, dtype=np.int32) + i for i in range(2)]


def recorded(program, *, in_block=False):
    arrays = [cs.array(each) for each in values()]
    with cs.graph() as g, g.repeat(3) if in_block else nullcontext():
        kept = do(program, arrays)
    return g, kept


def differences(program, *, in_block=False):
    """Wrong results, and a wrong order of nodes: the pass must not change the order."""
    g, kept = recorded(program, in_block=in_block)
    without = (*WITHOUT, "unroll")
    with (
        g.instantiate(without=without) as exe,
        g.instantiate(without=(*without, "memory")) as plain,
    ):
        edges, same = (
            [[b.index for b in n.before] for n in each] for each in map(inner, (exe, plain))
        )
        for _ in range(2):
            exe.launch()
        cs.waitall()
        found = [each.numpy().tolist() for each in kept]
    wanted = [each.tolist() for each in do(program, values())]
    return [
        pair for pair in zip([*found, edges], [*wanted, same], strict=True) if pair[0] != pair[1]
    ]


def inner(exe):
    """The nodes of the program, or of the body of its only block."""
    control = exe.nodes[0].control
    return exe.nodes if control is None else control.bodies[0]


DEEP = [(0, 0, 6, 1), (0, 0, 6, 1), (0, 0, 6, 1), (0, 0, 6, 0)]
WIDE = [(1, 1, 6, 1), (1, 1, 6, 1), (1, 1, 6, 1), (0, 1, 6, 1), (0, 3, 6, 0)]


@example(DEEP)
@example(WIDE)
@given(programs)
def test_results_and_order_are_the_same_with_the_pass_on_and_off(program):
    assert not differences(program)


@example(DEEP)
@example(WIDE)
@given(programs)
def test_results_and_order_in_a_block_are_the_same_with_the_pass_on_and_off(program):
    assert not differences(program, in_block=True)


def never(self, other):
    return False


def meets_serially(self, other):
    """The planted bug: the order of the recording alone decides lifetimes."""
    return self.made < other.users.bit_length() and other.made < self.users.bit_length()


@pytest.mark.parametrize("in_block", [False, True], ids=["outside", "in a block"])
@pytest.mark.parametrize("wrong", [never, meets_serially])
def test_a_planted_bug_is_found(wrong, in_block, monkeypatch):
    monkeypatch.setattr(packing.Temporary, "meets", wrong)
    found = []

    @settings(max_examples=60, derandomize=True, phases=[Phase.explicit, Phase.generate])
    @example(DEEP)
    @example(WIDE)
    @given(programs)
    def search(program):
        if not found:
            found.extend(differences(program, in_block=in_block))

    search()
    assert found


def taken(program):
    """Bytes for the temporaries of a program: packed, the least possible, and in total."""
    g, kept = recorded(program)
    plain = g.instantiate(without=(*WITHOUT, "memory"))
    found = memory.temporaries(plain.nodes)
    sizes = [each.size for each in found]
    least = heaviest(sizes, lambda one, other: found[one].is_over_before(found[other]))
    del kept
    return sum(block.size for block in packing.packed(found)), least, sum(sizes)


@given(programs)
@settings(max_examples=20)
def test_the_least_is_that_of_lives_that_all_meet(program):
    g, kept = recorded(program)
    found = memory.temporaries(g.instantiate(without=(*WITHOUT, "memory")).nodes)[:10]
    sets = [s for n in range(len(found) + 1) for s in combinations(found, n)]
    meeting = [s for s in sets if all(a.meets(b) for a, b in combinations(s, 2))]
    most = max(sum(each.size for each in s) for s in meeting)
    sizes = [each.size for each in found]
    assert most == heaviest(sizes, lambda one, other: found[one].is_over_before(found[other]))
    del kept


@pytest.mark.parametrize("seed", range(3))
def test_chains_take_hardly_more_than_the_least(seed):
    random = np.random.default_rng(seed)
    now, least, before = taken([(0, 0, int(random.integers(1, 7)), 1) for _ in range(60)])
    assert least <= now <= 1.1 * least
    assert now < before / 8


@pytest.mark.parametrize("seed", range(3))
def test_random_graphs_take_at_most_half_more_than_the_least(seed):
    random = np.random.default_rng(seed)
    program = [
        (*map(int, random.integers(0, 6, 2)), int(random.integers(1, 7)), 1) for _ in range(60)
    ]
    now, least, _ = taken(program)
    assert least <= now <= 1.5 * least


def test_what_is_not_needed_goes_back_with_the_recording():
    g, kept = recorded(DEEP)
    exe = g.instantiate(without=WITHOUT)
    assert "memory: 3 temporaries take 2400 bytes, 3600 before" in exe.report()
    assert "memory: left out" in g.instantiate(without=("memory",)).report()
    before = idle_bytes()
    del g
    assert idle_bytes() - before == 1200
    exe.launch()
    assert kept[0].numpy().tolist() == [16 * (i + 1) for i in range(6 * UNIT)]


def test_a_graph_in_a_graph_is_packed_once():
    """Temporaries that already share memory stay together."""
    g, kept = recorded([*DEEP[:3], *WIDE])
    inner = g.instantiate(without=WITHOUT)
    inner.launch()
    expected = kept[-1].numpy().tolist()
    with cs.graph() as outer:
        inner.launch()
        doubled = kept[-1] + kept[-1]
    for without in (WITHOUT, ()):
        kept[-1][...] = 0
        outer.instantiate(without=without).launch()
        assert kept[-1].numpy().tolist() == expected
        assert doubled.numpy().tolist() == [2 * each for each in expected]
