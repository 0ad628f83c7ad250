"""Basic blocks, their edges and their post-dominators."""

from __future__ import annotations

from helpers.ptx_generators.kernel_frame import kernel

from cudasync.ptx import parse
from cudasync.ptx.cfg import ControlFlow


def flow(body):
    return ControlFlow(parse(kernel(body)).function("k"))


def edges(found):
    return [block.successors for block in found.blocks]


def test_straight_code_is_one_block_that_leads_to_the_exit():
    found = flow("mov.b32 %r1, 1; ret;")
    assert [(block.start, block.end) for block in found.blocks] == [(0, 2)]
    assert edges(found) == [(found.exit,)]


def test_code_that_ends_without_ret_leads_to_the_exit():
    assert edges(flow("mov.b32 %r1, 1;")) == [(1,)]
    assert edges(flow("")) == []


def test_both_arms_of_a_diamond_meet_again():
    found = flow("@%p1 bra else; mov.b32 %r1, 1; bra end; else: mov.b32 %r1, 2; end: ret;")
    assert edges(found) == [(1, 2), (3,), (3,), (4,)]
    assert found.blocks[3].predecessors == (1, 2)
    assert found.post_dominators == (3, 3, 3, 4)
    assert found.back_edges == frozenset()


def test_a_loop_has_one_back_edge():
    found = flow("mov.b32 %r1, 9; top: add.s32 %r1, %r1, -1; @%p1 bra top; ret;")
    assert found.back_edges == {(1, 1)}
    assert found.post_dominators == (1, 2, 3)


def test_a_guarded_ret_goes_on_and_leaves():
    found = flow("@%p1 ret; mov.b32 %r1, 1; @!%p1 exit; @%p2 trap; ret;")
    assert edges(found) == [(1, 4), (2, 4), (3, 4), (4,)]
    assert found.post_dominators == (4, 4, 4, 4)


def test_an_indexed_branch_goes_to_every_label_of_its_table():
    found = flow("t: .branchtargets a, b, a; brx.idx %r1, t; a: mov.b32 %r1, 1; b: ret;")
    assert edges(found) == [(1, 2), (2,), (3,)]
    assert found.post_dominators == (2, 2, 3)


def test_a_loop_that_nobody_leaves_still_has_post_dominators():
    found = flow("@%p1 bra spin; ret; spin: mov.b32 %r1, 1; bra.uni spin;")
    assert edges(found) == [(1, 2), (3,), (2,)]
    assert found.post_dominators == (3, 3, 3)


def test_code_that_nobody_reaches_keeps_its_place():
    found = flow("bra end; mov.b32 %r1, 1; end: ret;")
    assert edges(found) == [(2,), (2,), (3,)]
    assert found.blocks[1].predecessors == ()


def test_a_branch_to_a_label_at_the_end_leads_to_the_exit():
    found = flow("@%p1 bra done; mov.b32 %r1, 1; done:")
    assert edges(found) == [(1, 2), (2,)]


def test_every_instruction_knows_its_block():
    found = flow("mov.b32 %r1, 1; bra end; end: ret;")
    assert found.block_of == (0, 0, 1)


def test_a_thousand_endless_loops_are_no_trouble():
    found = flow(" ".join(f"@%p1 bra on{i}; l{i}: bra l{i}; on{i}:" for i in range(1000)) + " ret;")
    assert found.post_dominators[1] == found.exit
    assert len(found.back_edges) == 1000
