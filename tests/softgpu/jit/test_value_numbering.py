"""The values that the writer of a text knows at a line, compared with the text's dominators."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.lowering.jit_launch import compiled, run
from hypothesis import given
from hypothesis import strategies as st

from cudasync.softgpu.jit.vector_ir.function_writer import Writer
from cudasync.softgpu.jit.vector_ir.value_numbering import Known


def dominators(ways, count):
    """The dominators of each block, from its predecessors."""
    all_blocks = set(range(count))
    found = [all_blocks.copy() for _ in range(count)]
    found[0] = {0}
    has_changed = True
    while has_changed:
        has_changed = False
        for block in range(1, count):
            before = [found[each] for each in ways[block]]
            now = set.intersection(*before) | {block} if before else {block}
            has_changed = has_changed or now != found[block]
            found[block] = now
    return found


@st.composite
def flows(draw):
    """Draw for each block its successors, all behind it, and the labels without forward branches
    only."""
    count = draw(st.integers(2, 12))
    after = [
        sorted(draw(st.sets(st.integers(block + 1, count - 1), min_size=1, max_size=2)))
        for block in range(count - 1)
    ]
    fixed = draw(st.sets(st.integers(1, count - 1), max_size=2))
    return [*after, []], fixed


@given(flows())
def test_only_what_dominates_is_known(flow):
    after, fixed = flow
    ways = [[at for at, each in enumerate(after) if block in each] for block in range(len(after))]
    dominating = dominators(ways, len(after))
    known = Known()
    for block in set(range(1, len(after))) - fixed:
        known.expect(f"b.{block}")
    for block, targets in enumerate(after):
        if block:
            known.begin(f"b.{block}")
        for other in range(block):
            if known.find(other) is not None:
                assert other in dominating[block], (block, other)
        known.note(block, block)
        assert known.find(block) == block
        known.branch("br i1 %t, " + ", ".join(f"label %b.{each}" for each in targets))


def diamond(known):
    """Write both sides of a branch and begin the block behind them."""
    for label in ("fast.1", "slow.2", "done.3"):
        known.expect(label)
    known.branch("br i1 %t1, label %fast.1, label %slow.2, !prof !2")
    known.begin("fast.1")
    known.note("side", "fast")
    known.branch("br label %done.3")
    known.begin("slow.2")


def test_a_side_knows_what_was_before_and_nothing_of_the_other_side():
    known = Known()
    known.note("before", "here")
    diamond(known)
    assert known.find("before") == "here"
    assert known.find("side") is None
    known.note("before", "slow")
    known.branch("br label %done.3")
    known.begin("done.3")
    # One side has changed the value.
    assert known.find("before") is None
    assert known.find("side") is None


def test_behind_both_sides_what_was_before_is_known():
    known = Known()
    known.note("before", "here")
    diamond(known)
    known.branch("br label %done.3")
    known.begin("done.3")
    assert known.find("before") == "here"


def test_where_others_may_come_back_to_nothing_is_known():
    known = Known()
    known.note("before", "here")
    known.branch("br label %node.1")
    known.begin("node.1")
    assert known.find("before") is None


def test_a_branch_back_to_a_label_that_was_forward_is_refused():
    known = Known()
    known.expect("go.1")
    known.branch("br label %go.1")
    known.begin("go.1")
    with pytest.raises(AssertionError, match="branch back"):
        known.branch("br label %go.1")


def test_equal_lines_are_written_once_while_they_are_known():
    writer = Writer(32)
    first = writer.name("add i32 %a, 1")
    assert writer.name("add i32 %a, 1") == first
    # Memory may have changed, and calls must not be merged.
    assert writer.name("load i32, ptr %p") != writer.name("load i32, ptr %p")
    assert writer.name("call i32 @f()") != writer.name("call i32 @f()")
    writer.emit("br label %node.1")
    writer.label("node.1")
    assert writer.name("add i32 %a, 1") != first


REUSED = """\
.version 6.4
.target sm_75
.address_size 64
.visible .entry test(.param .u64 target, .param .u32 count)
{
    .reg .u32 %lane, %value, %count, %left;
    .reg .u64 %start, %address;
    .reg .pred %p, %more;
    ld.param.u64 %start, [target];
    ld.param.u32 %count, [count];
    mov.u32 %lane, %tid.x;
    mad.wide.u32 %address, %lane, 4, %start;
    mov.u32 %value, %lane;
    mov.u32 %left, %count;
    setp.eq.u32 %p, %count, 3;
AGAIN:
    // Written in some launches only, between two reads of the same register.
    @%p add.u32 %value, %value, 100;
    add.u32 %value, %value, %left;
    @!%p xor.b32 %value, %value, 1;
    sub.u32 %left, %left, 1;
    setp.ne.u32 %more, %left, 0;
    @%more bra AGAIN;
    st.global.u32 [%address], %value;
    ret;
}
"""


@pytest.mark.parametrize("count", [1, 3, 4])
@pytest.mark.parametrize("varying", [False, True])
def test_a_register_that_is_written_under_a_guard_is_read_anew(count, varying):
    wanted = np.arange(32, dtype=np.uint32)
    for left in range(count, 0, -1):
        wanted += np.uint32(100 * (count == 3) + left)
        if count != 3:
            wanted ^= np.uint32(1)
    found = np.zeros(32, np.uint32)
    run(compiled(REUSED, assume_varying=varying), "test", 1, 32, found, count)
    assert (found == wanted).all()
