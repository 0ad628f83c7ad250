"""Threads that keep to bytes of their own in shared memory are not compared, and no others."""

from __future__ import annotations

from operator import mul

import pytest
from helpers.lowering import bare_launch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cudasync.ptx import parse
from cudasync.ptx.thread_values import ThreadValues
from cudasync.softgpu.core.checks.thread_races import ThreadRaces
from cudasync.softgpu.interface.access_recording import Recording
from cudasync.softgpu.interface.launch import AllocationSnapshot, Launch, OutcomeKind
from cudasync.softgpu.jit import compile_module
from cudasync.softgpu.jit.analysis import race_free_accesses as race_free
from cudasync.softgpu.jit.analysis.race_free_accesses import race_free_accesses
from cudasync.softgpu.jit.transforms.program import prepare

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


SHAPES = ((THREADS, 1, 1), (16, 4, 1), (8, 4, 2))


@st.composite
def tiles(draw):
    """Accesses at sums over the three indices, by the threads below a number."""
    steps = []
    for _ in range(draw(st.integers(1, 4))):
        size = draw(st.sampled_from([4, 4, 8]))
        factors = tuple(draw(st.sampled_from([0, 4, 8, 64, 68, 256])) for _ in range(3))
        below = draw(st.sampled_from([1, 8, 32, THREADS]))
        offset = draw(st.sampled_from([0, 4, 128, 256]))
        steps.append((draw(st.booleans()), size, factors, offset, below, draw(st.booleans())))
    return draw(st.sampled_from(SHAPES)), steps


def tile_text(steps):
    lines = [
        "    .reg .b32 %y, %z, %line, %layer, %thread;",
        "    .reg .pred %takes_part;",
    ]
    lines += ["    mov.u32 %y, %tid.y; mov.u32 %z, %tid.z;"]
    lines += ["    mov.u32 %line, %ntid.x; mad.lo.u32 %thread, %y, %line, %tid;"]
    lines += ["    mov.u32 %layer, %ntid.y; mul.lo.u32 %layer, %layer, %line;"]
    lines += ["    mad.lo.u32 %thread, %z, %layer, %thread; mov.u32 %v4, 0; mov.b64 %v8, 0;"]
    for n, (writes, size, (x, y, z), offset, below, by_branch) in enumerate(steps):
        lines.append(f"    mad.lo.u32 %at, %tid, {x}, %base; mad.lo.u32 %at, %y, {y}, %at;")
        lines.append(f"    mad.lo.u32 %at, %z, {z}, %at;")
        lines.append(f"    setp.lt.u32 %takes_part, %thread, {below};")
        place, type_ = f"[%at+{offset}]", TYPES[size]
        value = f"%v{size}"
        access = f"st.shared.{type_} {place}, {value};"
        access = access if writes else f"ld.shared.{type_} {value}, {place};"
        if by_branch:
            lines += [f"    @!%takes_part bra behind{n};", f"    {access}", f"behind{n}:"]
        else:
            lines.append(f"    @%takes_part {access}")
    return HEAD.replace("bytes[2048]", "bytes[16384]") + "\n".join([*lines, "    ret;", "}", ""])


def racing_steps(block, steps):
    """The numbers of steps that race with a step, by brute force."""
    users = {}
    for n, (writes, size, factors, offset, below, _) in enumerate(steps):
        for thread in range(below):
            index = thread % block[0], thread // block[0] % block[1], thread // block[0] // block[1]
            start = offset + sum(map(mul, factors, index))
            for byte in range(start, start + size):
                users.setdefault(byte, set()).add((n, thread, writes))
    return {
        n
        for reached in users.values()
        for n, thread, writes in reached
        if any(other != thread and (writes or writes_too) for _, other, writes_too in reached)
    }


def left_out(text, block):
    """Of each access to shared memory in the order of the text, whether it is left out."""
    program = prepare(module := parse(text), module.functions[0])
    kernel = program.kernel
    near = [n for n, each in enumerate(kernel.body) if "shared" in each.modifiers]
    quiet = race_free_accesses(kernel, block, program.kernel_storage.shared)
    return [position in quiet for position in near]


@given(tiles())
@example(((16, 4, 1), [(True, 4, (4, 68, 0), 0, THREADS, False)]))
@example((SHAPES[0], [(True, 4, (4, 0, 0), 0, 32, True), (False, 4, (4, 0, 0), 128, 32, False)]))
def test_an_access_is_left_out_if_and_only_if_brute_force_finds_no_rival(tile):
    block, steps = tile
    racing = racing_steps(block, steps)
    assert left_out(tile_text(steps), block) == [n not in racing for n in range(len(steps))]


OWN = text_of(4, [(True, 4, 0), (False, 4, 0)])
IN_A_LOOP = OWN.replace(
    "    st.shared", "    mov.u32 %trip, 0;\nagain:\n    st.shared"
).replace(
    "    ret;",
    "    add.u32 %at, %at, 256; add.u32 %trip, %trip, 1; setp.lt.u32 %goes_on, %trip, 2;\n"
    "    @%goes_on bra again;\n    ret;",
)  # fmt: skip
# A tree of sums, a step of which is behind each barrier.
_SUM = """\
    setp.ge.u32 %goes_on, %tid, {0};
    @%goes_on bra over{0};
    ld.shared.u32 %v4, [%at+{1}];
    st.shared.u32 [%at], %v4;
over{0}: bar.sync 0;
"""
SUMS = "".join(
    [
        HEAD,
        "    mad.lo.u32 %at, %tid, 4, %base;\n    st.shared.u32 [%at], 1;\n    bar.sync 0;\n",
        *(_SUM.format(half, 4 * half) for half in (32, 16, 8)),
        "    ret;\n}\n",
    ]
)


@pytest.mark.parametrize(
    ("text", "block", "are_compared"),
    [
        (OWN, (THREADS, 1, 1), False),
        # Threads of two rows have the same tid.x.
        (OWN, (THREADS // 2, 2, 1), True),
        (OWN.replace("%tid, 4, %base", "%tid, 4, %extra"), (THREADS, 1, 1), False),
        (OWN.replace("%tid, 4, %base", "%tid, %extra, %base"), (THREADS, 1, 1), True),
        (OWN.replace("%tid.x;", "%tid.x; and.b32 %tid, %tid, 63;"), (THREADS, 1, 1), False),
        (OWN.replace("%tid.x;", "%tid.x; and.b32 %tid, %tid, 63;"), (2 * THREADS, 1, 1), True),
        # Threads may be in different trips.
        (IN_A_LOOP, (THREADS, 1, 1), True),
        (text_of(4, [(True, 4, 0), (False, 4, 4)]), (THREADS, 1, 1), True),
        (text_of(4, [(True, 8, 0)]).replace("%tid, 4,", "%tid, 8,"), (THREADS, 1, 1), False),
        (SUMS, (THREADS, 1, 1), False),
        (SUMS, (2 * THREADS, 1, 1), False),
        (SUMS.replace("%tid, 16", "%tid, 17"), (THREADS, 1, 1), True),
        (SUMS.replace("over16: bar.sync 0;", "over16:"), (THREADS, 1, 1), True),
    ],
)
def test_threads_are_compared_unless_the_text_gives_each_its_own_bytes(text, block, are_compared):
    kernel = compile_module(parse(text), record=True, races=True).kernels["steps"]
    assert kernel.shares(block) is are_compared


def test_blocks_of_another_shape_are_checked_by_code_of_their_own():
    kernel = compile_module(parse(OWN), record=True, races=True).kernels["steps"]
    assert [kernel.shares(block) for block in ((THREADS, 1, 1), (32, 2, 1))] == [False, True]
    assert [kernel.shares(block) for block in ((32, 2, 1), (THREADS, 1, 1))] == [True, False]


def test_bytes_that_are_wrongly_taken_for_a_threads_own_are_found_out(monkeypatch):
    """Planted: no two threads reach one byte."""
    program = 4, [(True, 4, 0), (False, 4, 4)]
    assert races(*program)
    assert checked(text_of(*program))[1]
    monkeypatch.setattr(race_free, "_sharing", lambda *_: set())
    assert not checked(text_of(*program))[1]


def test_threads_that_come_to_an_access_are_counted(monkeypatch):
    """Planted: every thread fails every guard."""
    block, steps = (THREADS, 1, 1), [(True, 4, (0, 0, 0), 0, 8, True)]
    assert left_out(tile_text(steps), block) == [False]
    monkeypatch.setattr(
        ThreadValues,
        "onward",
        lambda _self, _last, successors, following: (
            (after, int(after != following)) for after in successors
        ),
    )
    assert left_out(tile_text(steps), block) == [True]
