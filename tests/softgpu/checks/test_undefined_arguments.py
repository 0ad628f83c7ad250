"""What a lane has read of a missing lane is followed into functions and back, byte by byte."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.lowering import bare_launch

from cudasync.ptx import parse
from cudasync.softgpu.core.checks.convergence import Convergence
from cudasync.softgpu.interface.access_recording import Recording
from cudasync.softgpu.interface.launch import AllocationSnapshot, Launch, OutcomeKind
from cudasync.softgpu.jit import compile_module
from cudasync.softgpu.jit.convergence.undefined_arguments import UndefinedArguments

# Half a warp: each lane reads of one that is not there.
THREADS = 16
# The function takes two words, of which the second is undefined, and returns some bytes of them.
TEXT = """\
.version 7.8
.target sm_80
.address_size 64
.func (.param .b32 out) some(.param .align 4 .b8 pair[8]) {
    .reg .b32 %a;
    BODY
    st.param.b32 [out], %a;
    ret;
}
.visible .entry k(.param .u64 to) {
    .reg .b32 %tid, %bad, %got, %trip;
    .reg .b64 %to;
    .reg .pred %more;
    ld.param.u64 %to, [to];
    mov.u32 %tid, %tid.x;
    shfl.sync.down.b32 %bad, %tid, 16, 31, -1;
    mov.u32 %trip, 0;
again:
    {
        .param .align 4 .b8 both[8];
        .param .b32 back;
        st.param.b32 [both+0], %tid;
        st.param.b32 [both+4], %bad;
        call.uni (back), some, (both);
        ld.param.b32 %got, [back];
    }
    mov.u32 %bad, 0;
    add.u32 %trip, %trip, 1;
    setp.lt.u32 %more, %trip, TRIPS;
    @%more bra again;
    USE
    ret;
}
"""
STORE = "st.global.u32 [%to], %got;"


def told_of(body, use=STORE, trips=1):
    """The lines that the uses of undefined values are told with: the use's, the shuffle's."""
    text = TEXT.replace("BODY", body).replace("USE", use).replace("TRIPS", str(trips))
    kernel = compile_module(parse(text), record=True, convergence=True).kernels["k"]
    out = np.zeros(1, np.uint32)
    ranges = [(out.ctypes.data, out.ctypes.data + out.nbytes)]
    recording = Recording([])
    recording.convergence = convergence = Convergence()
    launch = Launch(
        (1, 1, 1), (THREADS, 1, 1), 0, bare_launch.pack(kernel, [out]), [],
        AllocationSnapshot(ranges), recording=recording,
    )  # fmt: skip
    assert kernel.start(launch).run().kind is OutcomeKind.DONE
    assert convergence.raised is None
    lines = text.splitlines()
    return [
        (lines[each.line - 1].split()[0], lines[each.shuffled - 1].split()[0])
        for each in convergence.told()
    ]


FOUND = [("st.global.u32", "shfl.sync.down.b32")]
SECOND = "ld.param.b32 %a, [pair+4];"


@pytest.mark.parametrize(
    ("body", "use", "trips", "told"),
    [
        (SECOND, STORE, 1, FOUND),
        (SECOND, "", 1, []),
        # The next call replaces what the function was given.
        (SECOND, STORE, 2, []),
        ("ld.param.b32 %a, [pair];", STORE, 1, []),
        ("ld.param.u8 %a, [pair+3];", STORE, 1, []),
        ("ld.param.u8 %a, [pair+7];", STORE, 1, FOUND),
        (f"{SECOND} and.b32 %a, %a, 1;", STORE, 1, FOUND),
        (f"{SECOND} mov.b32 %a, 7;", STORE, 1, []),
        # A value of the function's own lanes.
        ("mov.u32 %a, %tid.x;\nshfl.sync.down.b32 %a, %a, 16, 31, -1;", STORE, 1, FOUND),
        ("mov.u32 %a, %tid.x; shfl.sync.idx.b32 %a, %a, 0, 31, 0xffff;", STORE, 1, []),
    ],
)
def test_an_undefined_value_is_told_of_where_it_matters(body, use, trips, told):
    assert [(use, shuffle) for use, shuffle in told_of(body, use, trips)] == told


def test_a_use_within_a_function_is_told_of_with_the_shuffle_of_its_caller():
    body = f".reg .pred %p; {SECOND} setp.eq.u32 %p, %a, 0; @%p mov.u32 %a, 1; @%p bra on; on:"
    ((_, shuffle),) = told_of(body, "")
    assert shuffle == "shfl.sync.down.b32"


def test_values_that_are_lost_at_a_call_are_found_out(monkeypatch):
    """Planted: loads and stores of arguments are taken for accesses of memory."""
    assert told_of(SECOND, "") == []
    monkeypatch.setattr(UndefinedArguments, "is_moved", lambda *_: False)
    assert told_of(SECOND, "") != []
