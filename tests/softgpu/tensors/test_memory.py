"""Matrix instructions, asynchronous copies and mbarriers make the right accesses.

Both checks and recordings show it. ptx/isa says what the instructions compute.
"""

from __future__ import annotations

import numpy as np
import pytest
from helpers.lowering import bare_launch
from helpers.lowering.isa_cases import all_cases
from helpers.lowering.recorded_launch import excesses, record

from cudasync.ptx import parse
from cudasync.ptx.access_analysis.accesses import analyse
from cudasync.ptx.types import Access
from cudasync.softgpu import jit, oracle
from cudasync.softgpu.interface.launch import FaultKind, OutcomeKind

HEAD = """\
.version 8.3
.target sm_90
.address_size 64
.visible .entry k(.param .u64 data)
{
    .reg .u32 %thread, %size, %tile;
    .reg .b32 %r<8>;
    .reg .f32 %f<8>;
    .reg .u64 %rd_start, %rd_data, %rd_state;
    .reg .pred %p;
    .shared .align 16 .b8 tile[512];
    mov.u32 %thread, %tid.x;
    ld.param.u64 %rd_start, [data];
    mad.wide.u32 %rd_data, %thread, 16, %rd_start;
    mov.u32 %tile, tile;
    mad.lo.u32 %tile, %thread, 16, %tile;
"""
LINE = HEAD.count("\n") + 1
# Abbreviations in the statements below.
SHORT = {
    "TILE4": "{%r0, %r1, %r2, %r3}",
    "TILE": "{%r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7}",
    "SUMS": "{%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7}",
    "F16": "m16n16k16.global.f16",
    "F32": "m16n16k16.global.f32",
}
BYTES = 512
ROOMS = {"jit": jit, "oracle": oracle}


@pytest.fixture(params=ROOMS)
def room(request):
    return ROOMS[request.param]


def source(body):
    for name, text in SHORT.items():
        body = body.replace(name, text)
    return parse(f"{HEAD}{body}\n    ret;\n}}\n")


def run(room, body, size=BYTES, **options):
    data = bare_launch.aligned(np.zeros(size, np.uint8))
    module = room.compile_module(source(body))
    # The arrays are neighbours, so the bytes behind one do not belong to other memory.
    return bare_launch.run(module, "k", grid=(1,), block=(32,), args=[data], **options), data


# The bytes of data, the fault with its first thread and offset, and the statement.
FAULTS = """
500 illegal 31 496 16 read global | cp.async.cg.shared.global [%tile], [%rd_data], 16;
506 illegal 31 506 8 read global | cp.async.ca.shared.global [%tile], [%rd_data+8], 8, 3;
512 misaligned 0 2 4 read global | cp.async.ca.shared.global [%tile], [%rd_data+2], 4;
512 misaligned 0 2 4 read global | cp.async.ca.shared.global [%tile], [%rd_data+2], 4, 1;
512 illegal 31 512 8 write shared | cp.async.ca.shared.global [%tile+16], [%rd_data], 8;
512 misaligned 0 4 8 write shared | cp.async.ca.shared.global [%tile+4], [%rd_data], 8;
512 illegal 31 512 16 read shared | ldmatrix.sync.aligned.m8n8.x4.shared.b16 TILE4, [%tile+16];
512 misaligned 0 8 16 read shared | ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [%tile+8];
200 illegal 12 192 16 read generic | ldmatrix.sync.aligned.m8n8.x2.b16 {%r0, %r1}, [%rd_data];
512 illegal 30 512 16 write shared | stmatrix.sync.aligned.m8n8.x4.shared.b16 [%tile+32], TILE4;
510 illegal 15 510 2 read global | wmma.load.a.sync.aligned.row.F16 TILE, [%rd_start];
560 illegal 14 560 2 read global | wmma.load.a.sync.aligned.row.F16 TILE, [%rd_start], 20;
1100 misaligned 0 2 4 read global | wmma.load.c.sync.aligned.col.F32 SUMS, [%rd_start+2];
1020 illegal 15 1020 4 write global | wmma.store.d.sync.aligned.row.F32 [%rd_start], SUMS;
512 illegal 8 512 4 write shared | wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [tile], SUMS;
512 misaligned 0 12 8 write shared | mbarrier.init.shared.b64 [%tile+12], 1;
512 illegal 0 512 8 write shared | mbarrier.arrive.shared.b64 _, [%tile+512];
512 illegal 31 512 8 read shared | mbarrier.test_wait.parity.shared.b64 %p, [%tile+16], 0;
512 illegal 31 512 8 write shared | cp.async.mbarrier.arrive.shared.b64 [%tile+16];
512 misaligned 0 4 8 write shared | cp.async.mbarrier.arrive.noinc.shared.b64 [%tile+4];
""".strip().splitlines()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("fault", FAULTS, ids=[each.split("| ")[1][:45] for each in FAULTS])
def test_what_is_not_allocated_or_not_aligned_is_a_fault(fault, room):
    wanted, _, body = fault.partition(" | ")
    size, kind, thread, offset, width, way, space = wanted.split()
    outcome, data = run(room, body, int(size))
    assert outcome.kind is OutcomeKind.FAULT
    found = outcome.fault
    assert (found.kind.name.split("_")[0].lower(), found.line) == (kind, LINE)
    # The oracle checks a partial copy byte by byte.
    assert found.size_bytes in (int(width), 1)
    assert (found.is_write, found.space.value) == (way == "write", space)
    if room is jit:
        assert found.threads[0] == (int(thread), 0, 0)
        if space != "shared":
            assert found.address - data.ctypes.data == int(offset)


def test_without_memcheck_nothing_is_looked_at(room):
    """The memory behind the allocation here belongs to the same array."""
    text = source("cp.async.cg.shared.global [%tile], [%rd_data], 16;")
    module = room.compile_module(text, memcheck=False)
    data = bare_launch.aligned(np.zeros(BYTES, np.uint8))
    args = [data[: BYTES // 2]]
    outcome = bare_launch.run(module, "k", grid=(1,), block=(32,), args=args)
    assert outcome.kind is OutcomeKind.DONE


@pytest.mark.parametrize("wait", [
    "mbarrier.test_wait.shared.b64 %p, [tile], %rd_state;",
    "mbarrier.try_wait.parity.shared.b64 %p, [tile], 0, 1000;",
])  # fmt: skip
def test_who_waits_for_an_arrival_that_never_comes_runs_out_of_budget(wait, room):
    body = f"""    mbarrier.init.shared.b64 [tile], 33;
    bar.sync 0;
    mbarrier.arrive.shared.b64 %rd_state, [tile];
again: {wait}
    @!%p bra again;"""
    outcome, _ = run(room, body, budget=2**18)
    assert outcome.fault is not None
    assert outcome.fault.kind is FaultKind.TIMEOUT


def recorded(room, body, size=BYTES):
    module = room.compile_module(source(body), record=True)
    data = bare_launch.aligned(np.zeros(size, np.uint8))
    (found,), _ = record(module, "k", [data], grid=(1,), block=(32,))
    return found.read, found.written, {line - LINE for line in found.lines.values()}


def every(count, apart, size, start=0):
    return [(start + apart * n, start + apart * n + size) for n in range(count)]


RECORDED = [
    ("cp.async.cg.shared.global [%tile], [%rd_data], 16;", [(0, 512)], []),
    ("cp.async.ca.shared.global [%tile], [%rd_data+4], 4;", every(32, 16, 4, 4), []),
    ("cp.async.ca.shared.global [%tile], [%rd_data], 8, 3;", every(32, 16, 3), []),
    ("cp.async.ca.shared.global [%tile], [%rd_data], 16, 0;", [], []),
    ("ldmatrix.sync.aligned.m8n8.x2.b16 {%r0, %r1}, [%rd_data];", [(0, 256)], []),
    ("ldmatrix.sync.aligned.m8n8.x4.shared.b16 TILE4, [%tile];", [], []),
    ("stmatrix.sync.aligned.m8n8.x1.b16 [%rd_data], {%r0};", [], [(0, 128)]),
    ("wmma.load.b.sync.aligned.col.F16 TILE, [%rd_start], 20;", every(16, 40, 32), []),
    ("wmma.load.a.sync.aligned.row.m8n8k32.global.s4 {%r0}, [%rd_start], 64;",
     every(8, 32, 16), []),
    ("wmma.store.d.sync.aligned.col.m32n8k16.global.f32 [%rd_start], SUMS, 36;",
     [], every(8, 144, 128)),
]  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("body", "read", "written"), RECORDED, ids=[e[0][:45] for e in RECORDED])
def test_what_is_recorded_is_what_is_touched(body, read, written, room):
    lines = {0} if read or written else set()
    assert recorded(room, body, 2048) == (read, written, lines)


# These programs keep no pointer in memory, so inference is exact unless the entry says why not.
CASES = [
    case
    for case in all_cases()
    if any(
        each in case.name for each in ("mma_", "matrix_", "cp_async", "mbarrier", "redux_sync_f")
    )
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", CASES[::6], ids=lambda case: case.name)
def test_no_program_does_more_than_is_inferred_of_it(case):
    parsed = parse(case.text, case.path.name)
    inferred = dict(zip(case.parameters, analyse(parsed, "test").parameters, strict=True))
    module = jit.compile_module(parsed, record=True)
    memory = {name: bare_launch.aligned(array) for name, array in case.memories().items()}
    args = [memory[name] for name in case.parameters]
    found, _ = record(module, "test", args, grid=case.grid, block=case.block)
    for name, real in zip(case.parameters, found, strict=True):
        assert real is not None
        assert not excesses(inferred[name], real), name
        assert inferred[name] is (Access.READ if name in case.inputs else Access.WRITE), name
