"""The pass that fuses reductions with their operands: the same bits, fewer nodes and bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

import cudasync as cs
from cudasync import xp
from cudasync.array.reductions import recorded
from cudasync.graph.passes import fusion

ROWS, COLUMNS = 3, 2050
# Each name and axis is one or two kernels, and more if the operand is not contiguous.
REDUCED = [("sum", None), ("mean", 1), ("max", 0)]
steps = st.tuples(
    st.sampled_from(REDUCED), st.booleans(), st.booleans(), st.booleans(), st.integers(0, 1)
)
programs = st.lists(steps, min_size=1, max_size=3)


def values():
    random = np.random.default_rng(7)
    return [random.standard_normal((ROWS, COLUMNS)).astype(np.float32) for _ in range(2)]


def do(program, arrays):
    """The results of a program: reductions of `x * x + 1`.

    Some operands are kept, read again, or overwritten meanwhile.
    """
    kept = []
    for (name, axis), is_turned, is_kept, is_late, which in program:
        x = arrays[which]
        x = x[:, ::-1] if is_turned else x
        made = x * x + 1
        if is_late:
            x += 1
        kept.append(getattr(xp, name)(made, axis=axis))
        if is_kept:
            kept.append(made)
    return kept


def bits(program, without):
    arrays = [cs.array(each) for each in values()]
    with cs.graph() as g:
        kept = do(program, arrays)
    with g.instantiate(without=without) as exe:
        for _ in range(2):
            exe.launch()
        cs.waitall()
    return [each.numpy().tobytes() for each in (*arrays, *kept)]


@example([(each, True, False, False, 0) for each in REDUCED])
@example([(each, False, False, False, 0) for each in REDUCED])
@given(programs)
@settings(max_examples=15)
def test_bits_are_the_same_with_the_pass_on_and_off(program):
    assert bits(program, ()) == bits(program, ("reductions",))


def takes_what_others_need(self, inner, node):
    made = self.expressions[inner]
    return made is not None and inner.device is node.device and not made.is_reduction


def forgets_guides(shape, strides, reduced, *, in_order, guides):
    """The planted bug: elements are in the order of the inputs, not of the reduction's operand."""
    return AXES_OF(shape, strides, reduced, in_order=in_order)


AXES_OF = recorded.axes_of


@pytest.mark.parametrize(
    ("where", "name", "wrong"),
    [
        (fusion._Program, "_is_nodes_own", takes_what_others_need),
        (recorded, "axes_of", forgets_guides),
    ],
    ids=["what others need", "another order"],
)
def test_a_planted_bug_is_found(where, name, wrong, monkeypatch):
    monkeypatch.setattr(where, name, wrong)
    found = []

    @settings(max_examples=60, derandomize=True, phases=[Phase.explicit, Phase.generate])
    @example([(REDUCED[0], True, False, False, 0)])
    @example([(REDUCED[0], False, False, True, 0)])
    @given(programs)
    def search(program):
        if not found and bits(program, ()) != bits(program, ("reductions",)):
            found.append(program)

    search()
    assert found


def test_an_expression_and_its_sum_are_one_kernel():
    x = cs.array(np.arange(8, dtype=np.float32))
    with cs.graph() as g:
        total = xp.sum((x - 1) * x)
    exe = g.instantiate()
    assert len(g) == 3
    assert len(exe.nodes) == 1
    assert "reductions: 1 of 2 nodes fused, 32 bytes fewer written" in exe.report()
    exe.launch()
    assert float(total) == sum((i - 1) * i for i in range(8))
    plain = g.instantiate(without=("reductions",))
    assert "reductions: left out" in plain.report()
    assert len(plain.nodes) == 2


def test_arguments_of_a_fused_reduction_can_be_updated():
    x, y = (cs.array(np.full(8, i, np.float32)) for i in (1, 2))
    with cs.graph() as g:
        total = xp.sum(g.argument("x", x) * g.argument("by", np.float32(2)))
    exe = g.instantiate()
    assert len(exe.nodes) == 1
    found = []
    for changes in ({}, {"x": y}, {"by": np.float32(3)}):
        exe.update(**changes)
        exe.launch()
        found.append(float(total))
    assert found == [16, 32, 48]


def test_a_reduction_that_nobody_asks_for_is_left_out():
    x = cs.array(np.arange(8, dtype=np.float32))
    with cs.graph() as g:
        xp.sum(x)
        most = xp.max(x)
    exe = g.instantiate()
    assert [node.name for node in exe.nodes] == ["max"]
    exe.launch()
    assert float(most) == 7
