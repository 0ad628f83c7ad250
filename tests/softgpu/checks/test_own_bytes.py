"""Threads that keep to bytes of their own in shared memory are not compared, and no others."""

from __future__ import annotations

import pytest
from helpers.lowering import bare_launch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cudasync.ptx import parse
from cudasync.softgpu.core.checks.thread_races import ThreadRaces
from cudasync.softgpu.interface.access_recording import Recording
from cudasync.softgpu.interface.launch import AllocationSnapshot, Launch, OutcomeKind
from cudasync.softgpu.jit import compile_module
from cudasync.softgpu.jit.analysis import own_bytes

TYPES = {1: "u8", 2: "u16", 4: "u32", 8: "u64"}
THREADS = 64
HEAD = """\
.version 7.0
.target sm_75
.address_size 64
.visible .entry steps(.param .u32 extra) {
    .shared .align 8 .b8 bytes[2048];
    .reg .b16 %v1, %v2;
    .reg .b32 %tid, %base, %at, %v4, %extra, %trip;
    .reg .b64 %v8;
    .reg .pred %goes_on;
    ld.param.u32 %extra, [extra];
    mov.u32 %tid, %tid.x;
    mov.u32 %base, bytes;
"""


def text_of(apart, steps):
    """Each step, an access of all threads at `apart` times the thread and an offset."""
    lines = [f"    mad.lo.u32 %at, %tid, {apart}, %base;"]
    for writes, size, offset in steps:
        place = f"[%at+{offset}]"
        lines.append("    mad.lo.u32 %v4, %tid, 3, 1; cvt.u16.u32 %v2, %v4; cvt.u64.u32 %v8, %v4;")
        lines.append("    mov.b16 %v1, %v2;")
        access = f"st.shared.{TYPES[size]} {place}, %v{size};"
        lines.append("    " + (access if writes else f"ld.shared.{TYPES[size]} %v{size}, {place};"))
    return HEAD + "\n".join([*lines, "    ret;", "}", ""])


def races(apart, steps):
    """Whether two threads reach one byte, and one of them writes it."""
    users: dict[int, dict[int, bool]] = {}
    for writes, size, offset in steps:
        for thread in range(THREADS):
            for byte in range(thread * apart + offset, thread * apart + offset + size):
                known = users.setdefault(byte, {})
                known[thread] = known.get(thread, False) or writes
    return any(len(of) > 1 and any(of.values()) for of in users.values())


def checked(text, block=(THREADS, 1, 1)):
    """Whether threads are compared, and the races that are found."""
    kernel = compile_module(parse(text), record=True, races=True).kernels["steps"]
    found = []
    recording = Recording([])
    threads = block[0] * block[1]
    recording.races = watch = ThreadRaces([], kernel.sites, threads, found.append)
    launch = Launch(
        (1, 1, 1), block, 0, bare_launch.pack(kernel, [0]), [], AllocationSnapshot([]),
        recording=recording,
    )  # fmt: skip
    assert kernel.start(launch).run().kind is OutcomeKind.DONE
    assert watch.raised is None
    return kernel.shares(block), found


@st.composite
def programs(draw):
    apart = draw(st.sampled_from([4, 8, 8, 16]))
    sizes = st.sampled_from([size for size in TYPES if size <= apart])
    steps = []
    for _ in range(draw(st.integers(1, 3))):
        size = draw(sizes)
        offset = size * draw(st.integers(0, 2 * apart // size))
        steps.append((draw(st.booleans()), size, draw(st.sampled_from([0, offset]))))
    return apart, steps


# Each example compiles a kernel.
@settings(max_examples=max(2, settings.default.max_examples // 2))
@given(programs())
@example((4, [(True, 4, 0), (False, 4, 0)]))
@example((4, [(True, 4, 0), (False, 4, 4)]))
def test_races_are_found_whether_or_not_threads_are_compared(program):
    assert bool(checked(text_of(*program))[1]) == races(*program)


OWN = text_of(4, [(True, 4, 0), (False, 4, 0)])
IN_A_LOOP = OWN.replace(
    "    st.shared", "    mov.u32 %trip, 0;\nagain:\n    st.shared"
).replace(
    "    ret;",
    "    add.u32 %at, %at, 256; add.u32 %trip, %trip, 1; setp.lt.u32 %goes_on, %trip, 2;\n"
    "    @%goes_on bra again;\n    ret;",
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "block", "are_compared"),
    [
        (OWN, (THREADS, 1, 1), False),
        # Threads of two rows have the same tid.x.
        (OWN, (THREADS // 2, 2, 1), True),
        (OWN.replace("%tid, 4, %base", "%tid, 4, %extra"), (THREADS, 1, 1), False),
        (OWN.replace("%tid, 4, %base", "%tid, %extra, %base"), (THREADS, 1, 1), True),
        (OWN.replace("%tid.x;", "%tid.x; and.b32 %tid, %tid, 63;"), (THREADS, 1, 1), True),
        # Threads may be in different trips.
        (IN_A_LOOP, (THREADS, 1, 1), True),
        (text_of(4, [(True, 4, 0), (False, 4, 4)]), (THREADS, 1, 1), True),
        (text_of(4, [(True, 8, 0)]).replace("%tid, 4,", "%tid, 8,"), (THREADS, 1, 1), False),
    ],
)
def test_threads_are_compared_unless_the_text_gives_each_its_own_bytes(text, block, are_compared):
    kernel = compile_module(parse(text), record=True, races=True).kernels["steps"]
    assert kernel.shares(block) is are_compared


def test_bytes_that_are_wrongly_taken_for_a_threads_own_are_found_out(monkeypatch):
    program = 4, [(True, 4, 0), (False, 4, 4)]
    assert races(*program)
    assert checked(text_of(*program))[1]
    monkeypatch.setattr("cudasync.softgpu.jit.analysis.race_free_regions.are_own", lambda *_: True)
    assert not checked(text_of(*program))[1]


def test_addresses_of_threads_that_share_bytes_are_told_apart(monkeypatch):
    """Planted: the factor of the thread's index need not be as large as the access."""
    text = text_of(2, [(True, 4, 0)])
    kernel = compile_module(parse(text), record=True, races=True).kernels["steps"]
    assert kernel.shares((THREADS, 1, 1))
    monkeypatch.setattr(own_bytes, "_is_own", lambda *_: True)
    kernel = compile_module(parse(text), record=True, races=True).kernels["steps"]
    assert not kernel.shares((THREADS, 1, 1))
