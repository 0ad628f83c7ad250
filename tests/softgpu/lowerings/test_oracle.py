"""The oracle's work besides instructions: faults, budgets, barriers, waits, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.lowering import bare_launch

from cudasync.errors import PtxError
from cudasync.ptx import parse
from cudasync.ptx.types import StateSpace
from cudasync.softgpu.interface.launch import FaultKind, OutcomeKind
from cudasync.softgpu.oracle import compile_module

HEAD = """\
.version 6.4
.target sm_75
.address_size 64
.visible .entry test(.param .u64 target)
{
    .reg .u32 %thread, %block, %value, %old;
    .reg .u64 %rd_target;
    .reg .pred %p;
    .shared .align 8 .b8 words[64];
    ld.param.u64 %rd_target, [target];
    mov.u32 %thread, %tid.x;
    mov.u32 %block, %ctaid.x;
"""
WAIT = """\
wait:
    ld.volatile.global.u32 %value, [%rd_target];
    setp.eq.u32 %p, %value, 0;
    @%p bra wait;
"""
FIRST_LINE = HEAD.count("\n") + 1


def launch(body, *, count=4, grid=(1,), block=(1,), memcheck=True, **options):
    target = bare_launch.aligned(np.zeros(count, np.uint32))
    module = compile_module(parse(HEAD + body + "\n}"), memcheck=memcheck)
    outcome = bare_launch.run(module, "test", grid=grid, block=block, args=[target], **options)
    return outcome, target


def test_a_store_beyond_its_allocation_faults_and_names_everything():
    outcome, target = launch(
        "mad.wide.u32 %rd_target, %thread, 4, %rd_target;\nst.global.u32 [%rd_target], 1;",
        grid=(2,),
        block=(2, 3),
        count=1,
    )
    assert outcome.kind is OutcomeKind.FAULT
    fault = outcome.fault
    assert fault is not None
    assert fault.kind is FaultKind.ILLEGAL_ADDRESS
    assert (fault.kernel, fault.line) == ("test", FIRST_LINE + 1)
    assert (fault.block, fault.threads) == ((0, 0, 0), ((1, 0, 0),))
    assert (fault.address, fault.size_bytes) == (target.ctypes.data + 4, 4)
    assert fault.is_write
    assert fault.space is StateSpace.GLOBAL
    # The stores before the fault have happened.
    assert target.tolist() == [1]


@pytest.mark.parametrize(
    ("body", "kind", "space"),
    [
        ("ld.global.u32 %value, [%rd_target+16];", "ILLEGAL_ADDRESS", "GLOBAL"),
        ("ld.global.u32 %value, [%rd_target+-4];", "ILLEGAL_ADDRESS", "GLOBAL"),
        ("ld.global.u32 %value, [%rd_target+2];", "MISALIGNED", "GLOBAL"),
        ("ld.global.v2.u32 {%value, %old}, [%rd_target+4];", "MISALIGNED", "GLOBAL"),
        ("ld.u32 %value, [0];", "ILLEGAL_ADDRESS", "GENERIC"),
        ("ld.shared.u32 %value, [words+64];", "ILLEGAL_ADDRESS", "SHARED"),
        ("ld.shared.u32 %value, [words+1];", "MISALIGNED", "SHARED"),
        ("atom.global.add.u32 %old, [%rd_target+16], 1;", "ILLEGAL_ADDRESS", "GLOBAL"),
    ],
)
def test_bad_accesses_fault(body, kind, space):
    fault = launch(body)[0].fault
    assert fault is not None
    assert (fault.kind, fault.space) == (FaultKind[kind], StateSpace[space])
    assert fault.is_write == ("atom" in body)


def test_a_guard_keeps_a_bad_access_from_happening():
    outcome, _ = launch("setp.ne.u32 %p, %thread, 0;\n@%p st.global.u32 [%rd_target+999], 1;")
    assert outcome.kind is OutcomeKind.DONE


def test_generic_addresses_reach_shared_memory():
    outcome, target = launch(
        ".reg .u64 %rd_generic;"
        "mov.u64 %rd_generic, words; cvta.shared.u64 %rd_generic, %rd_generic;"
        "st.shared.u32 [words+60], 5; ld.u32 %value, [%rd_generic+60];"
        "st.global.u32 [%rd_target], %value;"
    )
    assert outcome.kind is OutcomeKind.DONE
    assert target[0] == 5


def test_trap_faults_at_its_line():
    fault = launch("setp.eq.u32 %p, %thread, 2;\n@%p trap;", block=(4,))[0].fault
    assert fault is not None
    assert (fault.kind, fault.line, fault.threads) == (
        FaultKind.TRAP,
        FIRST_LINE + 1,
        ((2, 0, 0),),
    )


def test_an_endless_loop_spends_its_budget():
    fault = launch("again:\nadd.u32 %value, %value, 1;\nbra again;", budget=1000)[0].fault
    assert fault is not None
    assert (fault.kind, fault.line) == (FaultKind.TIMEOUT, FIRST_LINE + 2)


def test_a_wait_for_what_never_comes_spends_its_budget_too():
    fault = launch(WAIT, budget=2**14)[0].fault
    assert fault is not None
    assert fault.kind is FaultKind.TIMEOUT


def test_a_barrier_that_half_of_a_block_waits_for_elsewhere_is_a_fault():
    body = "setp.eq.u32 %p, %thread, 0;\n@%p bra other;\nbar.sync 1;\nother:\nbar.sync 2;"
    fault = launch(body, block=(3,))[0].fault
    assert fault is not None
    assert fault.kind is FaultKind.BARRIER
    assert fault.threads == ((0, 0, 0), (1, 0, 0), (2, 0, 0))


def test_a_block_may_wait_for_a_later_block():
    body = """
    setp.ne.u32 %p, %block, 0;
    @%p bra give;
wait:
    ld.volatile.global.u32 %value, [%rd_target];
    setp.eq.u32 %p, %value, 0;
    @%p bra wait;
    st.global.u32 [%rd_target+4], %value;
    ret;
give:
    st.volatile.global.u32 [%rd_target], 17;"""
    outcome, target = launch(body, grid=(2,))
    assert outcome.kind is OutcomeKind.DONE
    assert target[:2].tolist() == [17, 17]


def test_threads_of_a_warp_may_wait_for_each_other():
    body = """
again:
    atom.global.cas.b32 %old, [%rd_target], 0, 1;
    setp.ne.u32 %p, %old, 0;
    @%p bra again;
    ld.volatile.global.u32 %value, [%rd_target+4];
    add.u32 %value, %value, 1;
    st.volatile.global.u32 [%rd_target+4], %value;
    atom.global.exch.b32 %old, [%rd_target], 0;"""
    outcome, target = launch(body, block=(40,))
    assert outcome.kind is OutcomeKind.DONE
    assert target[:2].tolist() == [0, 40]


def test_a_wait_for_the_host_yields_and_goes_on():
    target = bare_launch.aligned(np.zeros(2, np.uint32))
    module = compile_module(parse(HEAD + WAIT + "st.global.u32 [%rd_target+4], %value;\n}"))
    arguments = {"grid": (1,), "block": (1,), "args": [target]}
    execution = bare_launch.start(module, "test", **arguments)
    for _ in range(3):
        assert execution.run().kind is OutcomeKind.YIELDED
    target[0] = 23
    assert execution.run().kind is OutcomeKind.DONE
    assert target.tolist() == [23, 23]


def test_without_memcheck_nothing_is_checked():
    outcome, target = launch("st.global.u32 [%rd_target+4], 9;", memcheck=False)
    assert outcome.kind is OutcomeKind.DONE
    assert target[1] == 9


@pytest.mark.parametrize(
    "statement",
    [
        "wgmma.fence.sync.aligned;",
        "add.rz.f16x2 %value, %value, %value;",
        "min.relu.u32 %value, %value, %value;",
        "cvt.rp.tf32.f32 %value, 0f3F800000;",
        "setp.num.u32 %p, %value, 0;",
    ],
)
def test_what_is_not_implemented_is_refused_at_its_line(statement):
    try:
        refusal = next(iter(compile_module(parse(HEAD + statement + "\n}")).refused.values()))
    except PtxError as error:
        # A statement that no device has is not PTX, and the whole module is refused.
        refusal = error
    assert "not" in refusal.message
    assert refusal.line == FIRST_LINE
    assert refusal.instruction


def test_a_kernel_tells_its_shape():
    text = """
    .version 6.4
    .target sm_75
    .address_size 64
    .extern .shared .align 16 .b8 dynamic[];
    .global .u32 counter;
    .visible .entry shape(.param .u8 a, .param .u64 b, .param .align 8 .b8 c[12])
    .maxntid 8, 4, 2
    {
        .shared .align 4 .b8 words[20];
        .local .align 8 .b8 depot[24];
        ret;
    }"""
    module = compile_module(parse(text))
    kernel = module.kernels["shape"]
    assert [variable.name for variable in module.variables] == ["counter"]
    assert (kernel.name, kernel.max_threads) == ("shape", 64)
    assert (kernel.parameter_offsets, kernel.parameter_sizes) == ((0, 8, 16), (1, 8, 12))
    assert kernel.parameter_size == 28
    assert kernel.static_shared_bytes >= 20
    assert kernel.local_bytes >= 24
