"""Compiled code of kernels that fault, and of kernels that wait."""

from __future__ import annotations

import weakref

import numpy as np
import pytest
from helpers.lowering.jit_launch import compiled, corpus, fault_of, run, start

from cudasync.errors import PtxError
from cudasync.ptx.types import StateSpace
from cudasync.softgpu.interface.launch import FaultKind, OutcomeKind

HEAD = """\
.version 6.4
.target sm_75
.address_size 64
.visible .entry test(.param .u64 target)
{
    .reg .u32 %thread, %lane, %value, %old;
    .reg .u64 %rd_target;
    .reg .pred %p, %q;
    .shared .align 8 .b8 words[64];
    .local .align 8 .b8 own[16];
    ld.param.u64 %rd_target, [target];
    mov.u32 %thread, %tid.x;
    mov.u32 %lane, %laneid;
"""
FIRST_LINE = HEAD.count("\n") + 1


@pytest.fixture(scope="module")
def kernels():
    return corpus("kernels_sm75")


def snippet(body, **settings):
    return compiled(HEAD + body + "\n}\n", **settings)


def words(count=64):
    return np.zeros(count, np.uint32)


# Faults.


def test_a_store_beyond_its_allocation_names_everything(kernels):
    x, y = np.ones(100, np.float32), np.zeros(100, np.float32)
    fault = fault_of(kernels, "axpy", 2, 64, np.float32(2), x, y[:90], 100)
    assert fault.kind is FaultKind.ILLEGAL_ADDRESS
    assert fault.kernel == "axpy"
    assert fault.block == (1, 0, 0)
    # The threads of the first warp with a fault.
    assert fault.threads == tuple((t, 0, 0) for t in range(90 - 64, 32))
    assert fault.address == y.ctypes.data + 4 * 90
    assert (fault.size_bytes, fault.space) == (4, StateSpace.GLOBAL)
    # The kernel reads y before it writes it.
    assert not fault.is_write


def test_the_threads_of_a_fault_have_coordinates():
    body = "mad.wide.u32 %rd_target, %lane, 4, %rd_target;\nst.global.u32 [%rd_target], 1;"
    fault = fault_of(snippet(body), "test", 1, (4, 2, 2), words(14))
    assert fault.threads == ((2, 1, 1), (3, 1, 1))
    assert fault.is_write
    assert fault.line == FIRST_LINE + 1


@pytest.mark.parametrize("varying", [False, True])
@pytest.mark.parametrize(
    ("body", "kind", "space"),
    [
        ("ld.global.u32 %value, [%rd_target+256];", "ILLEGAL_ADDRESS", "GLOBAL"),
        ("ld.global.u32 %value, [%rd_target+-4];", "ILLEGAL_ADDRESS", "GLOBAL"),
        ("ld.global.u32 %value, [%rd_target+2];", "MISALIGNED", "GLOBAL"),
        ("ld.global.v2.u32 {%value, %old}, [%rd_target+4];", "MISALIGNED", "GLOBAL"),
        ("ld.u32 %value, [0];", "ILLEGAL_ADDRESS", "GENERIC"),
        ("ld.u32 %value, [-4];", "ILLEGAL_ADDRESS", "GENERIC"),
        ("ld.shared.u32 %value, [words+64];", "ILLEGAL_ADDRESS", "SHARED"),
        ("ld.shared.u32 %value, [words+1];", "MISALIGNED", "SHARED"),
        ("mul.lo.u32 %old, %lane, -4; ld.shared.u32 %value, [%old];", "ILLEGAL_ADDRESS", "SHARED"),
        ("mul.lo.u32 %old, %lane, 4; ld.local.u32 %value, [%old];", "ILLEGAL_ADDRESS", "LOCAL"),
        ("atom.global.add.u32 %old, [%rd_target+256], 1;", "ILLEGAL_ADDRESS", "GLOBAL"),
        ("red.global.add.u32 [%rd_target+1], 1;", "MISALIGNED", "GLOBAL"),
        ("prefetch.global.L1 [%rd_target]; trap;", "TRAP", None),
    ],
)
def test_bad_accesses_fault(body, kind, space, varying):
    module = snippet(body, assume_varying=varying)
    fault = fault_of(module, "test", 1, 32, words())
    assert fault.kind is FaultKind[kind]
    assert fault.space is (space and StateSpace[space])
    assert fault.is_write == body.startswith(("atom", "red"))


def test_shared_arrays_end_where_they_end(kernels):
    out = np.zeros(64, np.int32)
    run(kernels, "shared_out", 1, 60, out, 4)
    fault = fault_of(kernels, "shared_out", 1, 64, out, 5)
    assert fault.space is StateSpace.SHARED
    assert fault.threads == tuple((t, 0, 0) for t in range(59, 64))


@pytest.mark.parametrize(
    ("wrong", "kind", "size"),
    [
        ("st.shared.u32 [%old+64], %lane;", "ILLEGAL_ADDRESS", 4),
        ("ld.shared.v2.u32 {%value, %lane}, [%old+60];", "MISALIGNED", 8),
        ("ld.shared.u8 %value, [%old+-1];", "ILLEGAL_ADDRESS", 1),
    ],
)
def test_of_accesses_checked_together_the_wrong_one_is_named(wrong, kind, size):
    before = "mov.u32 %old, words;\nld.shared.u32 %value, [%old];\nst.shared.u32 [%old+4], %lane;\n"
    fault = fault_of(
        snippet(f"{before}{wrong}\nld.shared.u32 %value, [%old+8];"), "test", 1, 32, words()
    )
    assert (fault.kind, fault.line, fault.size_bytes) == (FaultKind[kind], FIRST_LINE + 3, size)


def test_only_lanes_that_trap_are_at_fault(kernels):
    x = np.ones(64, np.int32)
    run(kernels, "trap_some", 1, 64, x)
    x[[40, 43]] = -1
    fault = fault_of(kernels, "trap_some", 1, 64, x)
    assert (fault.kind, fault.threads) == (FaultKind.TRAP, ((40, 0, 0), (43, 0, 0)))


def test_a_guard_keeps_a_bad_access_from_happening():
    body = "setp.gt.u32 %p, %lane, 99;\n@%p st.global.u32 [%rd_target+999], 1;"
    run(snippet(body), "test", 1, 32, words())


def test_without_memcheck_nothing_is_checked():
    memory = words(8)
    body = "st.global.u32 [%rd_target+16], 9;"
    run(snippet(body, memcheck=False), "test", 1, 32, memory[:4])
    assert memory[4] == 9


def test_generic_addresses_reach_shared_and_local_memory():
    body = """
    .reg .u64 %rd_shared, %rd_local;
    mov.u64 %rd_shared, words; cvta.shared.u64 %rd_shared, %rd_shared;
    mov.u64 %rd_local, own; cvta.local.u64 %rd_local, %rd_local;
    st.shared.u32 [words+60], 5; ld.u32 %value, [%rd_shared+60];
    st.u32 [%rd_local+8], %value; ld.local.u32 %value, [own+8];
    st.global.u32 [%rd_target], %value;"""
    memory = words()
    run(snippet(body), "test", 1, 32, memory)
    assert memory[0] == 5


# Budgets.


def test_an_endless_loop_spends_its_budget(kernels):
    x = words()
    fault = fault_of(kernels, "forever", 1, 32, x, budget=1000)
    assert fault.kind is FaultKind.TIMEOUT


def test_a_wait_for_what_never_comes_spends_its_budget_too(kernels):
    execution = start(kernels, "spin_all", 1, 32, words(), words(), budget=2**16)
    outcomes = [execution.run() for _ in range(6)]
    assert outcomes[0].kind is OutcomeKind.YIELDED
    assert outcomes[-1].fault.kind is FaultKind.TIMEOUT


# Waiting.


def test_memory_lives_as_long_as_an_execution_that_waits(kernels):
    """Otherwise the kernel would read and write freed memory while it waits."""
    flag = words(1)
    is_there = weakref.ref(flag)
    execution = start(kernels, "spin_all", 1, 32, flag, words())
    del flag
    assert is_there() is not None
    assert execution.run().kind is OutcomeKind.YIELDED
    is_there()[0] = 3
    assert execution.run().kind is OutcomeKind.DONE


def test_a_latch_holds_every_block_until_the_host_releases_it(kernels):
    flag, out, arrived = words(1), words(3 * 64), words(1)
    execution = start(kernels, "latch", 3, 64, flag, out, arrived)
    for _ in range(3):
        assert execution.run().kind is OutcomeKind.YIELDED
    assert arrived[0] == 3
    assert not out.any()
    flag[0] = 7
    assert execution.run().kind is OutcomeKind.DONE
    np.testing.assert_array_equal(out, np.tile(7 + np.arange(64), 3))


def test_a_loop_that_all_lanes_spin_in_goes_on_where_it_stopped(kernels):
    flag, out = words(1), words(2 * 40)
    execution = start(kernels, "spin_all", 2, 40, flag, out)
    assert execution.run().kind is OutcomeKind.YIELDED
    flag[0] = 3
    assert execution.run().kind is OutcomeKind.DONE
    assert (out == 3).all()


@pytest.mark.parametrize("kernel", ["lanes_lock", "lock_outside"])
def test_lanes_of_a_warp_may_wait_for_each_other(kernels, kernel):
    lock, count = words(1), words(1)
    execution = start(kernels, kernel, 2, 80, lock, count)
    while (outcome := execution.run()).kind is OutcomeKind.YIELDED:
        pass
    assert outcome.kind is OutcomeKind.DONE
    assert (count[0], lock[0]) == (160, 0)


def test_a_block_may_wait_for_a_later_block():
    body = """
    mov.u32 %value, %ctaid.x;
    setp.ne.u32 %p, %value, 0;
    @%p bra give;
wait:
    ld.volatile.global.u32 %value, [%rd_target];
    setp.eq.u32 %p, %value, 0;
    @%p bra wait;
    st.global.u32 [%rd_target+4], %value;
    ret;
give:
    st.volatile.global.u32 [%rd_target], 17;"""
    memory = words()
    run(snippet(body), "test", 2, 1, memory)
    assert list(memory[:2]) == [17, 17]


# Barriers.


def test_barriers_with_different_numbers_never_meet():
    body = "setp.eq.u32 %p, %thread, 0;\n@%p bra other;\nbar.sync 1;\nother:\nbar.sync 2;"
    fault = fault_of(snippet(body), "test", 1, 40, words())
    assert fault.kind is FaultKind.BARRIER


def test_a_barrier_may_count_fewer_threads_than_the_block_has():
    body = """
    mad.wide.u32 %rd_target, %thread, 4, %rd_target;
    setp.ge.u32 %p, %thread, 64;
    @%p bra behind;
    st.shared.u32 [words], 6;
    bar.sync 1, 64;
    ld.shared.u32 %value, [words];
    st.global.u32 [%rd_target], %value;
behind:
    bar.sync 0;"""
    memory = words(128)
    run(snippet(body), "test", 1, 128, memory)
    assert list(memory) == [6] * 64 + [0] * 64
    assert fault_of(snippet(body), "test", 1, 32, memory).kind is FaultKind.BARRIER


def test_lanes_that_arrive_at_a_barrier_by_different_ways_meet_there():
    body = """
    mad.wide.u32 %rd_target, %thread, 4, %rd_target;
    mov.u32 %value, 1;
    setp.lt.u32 %p, %lane, 10;
    @%p bra few;
    add.u32 %value, %value, %thread;
    bar.sync 0;
    add.u32 %value, %value, 100;
    bra join;
few:
    bar.sync 0;
    add.u32 %value, %value, 1000;
join:
    st.global.u32 [%rd_target], %value;"""
    memory = words(64)
    run(snippet(body), "test", 1, 64, memory)
    thread = np.arange(64)
    expected = np.where(thread % 32 < 10, 1001, 101 + thread)
    np.testing.assert_array_equal(memory, expected)


def test_threads_may_arrive_at_a_barrier_without_waiting():
    body = """
    mad.wide.u32 %rd_target, %thread, 4, %rd_target;
    setp.ge.u32 %p, %thread, 32;
    @%p bra consume;
    st.shared.u32 [words], 6;
    bar.arrive 1, 64;
    bra behind;
consume:
    bar.sync 1, 64;
    ld.shared.u32 %value, [words];
    st.global.u32 [%rd_target], %value;
behind:
    bar.sync 0;"""
    memory = words(64)
    run(snippet(body), "test", 1, 64, memory)
    assert list(memory) == [0] * 32 + [6] * 32


def test_a_barrier_that_reduces_gives_all_threads_the_answer():
    body = """
    mad.wide.u32 %rd_target, %thread, 4, %rd_target;
    setp.lt.u32 %p, %thread, 37;
    bar.red.popc.u32 %value, 0, %p;
    bar.red.and.pred %q, 0, %p;
    @%q add.u32 %value, %value, 1000;
    bar.red.or.pred %q, 0, !%p;
    @%q add.u32 %value, %value, 500;
    st.global.u32 [%rd_target], %value;"""
    memory = words(64)
    run(snippet(body), "test", 1, 64, memory)
    assert set(memory) == {537}
    run(snippet(body), "test", 1, 37, memory)
    assert set(memory[:37]) == {1037}


# Refusals.


@pytest.mark.parametrize("statement", ["barrier.sync %lane;", "barrier.sync 1, %lane;"])
def test_what_is_not_implemented_is_refused_at_its_line(statement):
    with pytest.raises(PtxError, match="at different barriers") as caught:
        snippet(f"mov.u32 %lane, %laneid;\n{statement}")
    assert caught.value.line == FIRST_LINE + 1
    assert caught.value.instruction == statement
