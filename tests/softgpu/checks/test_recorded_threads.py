"""A launch that is recorded on several threads leaves the record of one thread.

Blocks mark memory at once, without atomic operations. So different blocks may touch one unit only
by accesses that set the same bits of its mark: this is compared block by block. First accesses are
those of the earliest block, whichever thread ran it, and whenever.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from helpers.lowering import bare_launch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import cudasync as cs
from cudasync.driver.extensions import sanitizer
from cudasync.ptx import parse
from cudasync.softgpu.core.checks.race_suspicion import Suspicion
from cudasync.softgpu.interface.access_recording import Recording, Table, Touch
from cudasync.softgpu.interface.launch import AllocationSnapshot, Launch, OutcomeKind
from cudasync.softgpu.jit import compile_module
from cudasync.softgpu.jit.kernel_abi.job_record import Status
from cudasync.softgpu.jit.launch import work_distribution
from cudasync.softgpu.jit.launch.work_distribution import JitExecution

BLOCKS, THREADS, ROOM = 12, 64, 8 * 64 * 12 * 8
HEAD = """.version 7.8
.target sm_80
.address_size 64
.visible .entry steps(.param .u64 a, .param .u64 b)
{
    .reg .u32 %tid, %block, %v4, %rest;
    .reg .u64 %a, %b, %far, %v8;
    .reg .pred %p;
    ld.param.u64 %a, [a];
    ld.param.u64 %b, [b];
    mov.u32 %tid, %tid.x;
    mov.u32 %block, %ctaid.x;
"""
OPCODES = {
    "read": "ld.global.u{bits} %v{size}, {place};",
    "write": "st.global.u{bits} {place}, %v{size};",
    "atomic": "red.global.add.u{bits} {place}, 1;",
    "volatile read": "ld.volatile.global.u{bits} %v{size}, {place};",
    "volatile write": "st.volatile.global.u{bits} {place}, %v{size};",
}


@dataclass(frozen=True)
class Step:
    """An access to `array` at `start + by_thread * tid + by_block * ctaid`, in every `turn`-th
    block from `turn - 1` on, with a line of its own."""

    what: str
    array: str
    size: int
    by_thread: int
    by_block: int
    start: int = 0
    turn: int = 1

    def lines(self):
        place = f"[%far+{self.start}]"
        access = OPCODES[self.what].format(bits=8 * self.size, size=self.size, place=place)
        return [
            f"    mad.wide.u32 %far, %tid, {self.by_thread}, %{self.array};",
            f"    mul.wide.u32 %v8, %block, {self.by_block};",
            "    add.u64 %far, %far, %v8;",
            f"    rem.u32 %rest, %block, {self.turn};",
            f"    setp.eq.u32 %p, %rest, {self.turn - 1};",
            f"    @%p {access}",
        ]


def text_of(steps):
    return "\n".join([HEAD, *(line for step in steps for line in step.lines()), "    ret;", "}"])


class Kernel:
    """A kernel of steps, with memory for both arrays."""

    def __init__(self, steps):
        self.module = compile_module(parse(text_of(steps)), record=True, races=True, units=True)
        self.kernel = self.module.kernels["steps"]
        self.arrays = [bare_launch.aligned(np.zeros(ROOM, np.uint8)) for _ in "ab"]
        self.ranges = [(each.ctypes.data, each.ctypes.data + ROOM) for each in self.arrays]
        self.parameters = bare_launch.pack(self.kernel, self.arrays)

    @property
    def is_order_free(self):
        """As a check decides."""
        found = Suspicion(self.kernel)
        shape = (BLOCKS, 1, 1), (THREADS, 1, 1)
        return not found.of(*shape, self.parameters, self.ranges) and found.marks_alike

    def launch(self, *, is_order_free=False):
        recording = Recording(self.ranges, unit=self.kernel.unit)
        recording.is_order_free = is_order_free
        shape = (BLOCKS, 1, 1), (THREADS, 1, 1)
        memory = AllocationSnapshot(self.ranges)
        return Launch(*shape, 0, self.parameters, [], memory, recording=recording)

    def slot(self, launch):
        return self.kernel.prepare(launch.block).take(launch)

    def recorded(self, *, is_order_free=False):
        launch = self.launch(is_order_free=is_order_free)
        assert self.kernel.start(launch).run().kind is OutcomeKind.DONE
        return record_of(launch.recording)

    def recorded_by(self, turns):
        """By slots of their own, in any order; `turns` are slots, and the ends of their blocks."""
        launch = self.launch(is_order_free=True)
        slots = {}
        for number, first, end in turns:
            if number not in slots:
                slots[number] = self.slot(launch)
                slots[number].record_in(launch.recording.table())
            slots[number].aim(first, end)
            assert slots[number].run() is Status.DONE
        return record_of(launch.recording)

    def bits_of_blocks(self):
        """For each array and each block: the marks of its bytes."""
        found = []
        for block in range(BLOCKS):
            launch = self.launch()
            slot = self.slot(launch)
            slot.aim(block, block + 1)
            assert slot.run() is Status.DONE
            found.append([marks_of(launch.recording, index) for index in (0, 1)])
        return found


def marks_of(recording, index):
    start, end = recording.ranges[index]
    marks = np.zeros(end - start, np.uint8)
    for low, high, mark in recording.runs(index):
        marks[low - start : high - start] = mark
    return marks


def record_of(recording):
    # Which atomic comes before all writes is a question of order.
    kinds = Touch.READ, Touch.WRITTEN
    firsts = [recording.first(index, kind) for index in (0, 1) for kind in kinds]
    return firsts, [marks_of(recording, index).tobytes() for index in (0, 1)]


def may_be_lost(kernel):
    """Whether two blocks set different bits of one mark."""
    blocks = kernel.bits_of_blocks()
    return any(
        bool(((one[index] != 0) & (other[index] != 0) & (one[index] != other[index])).any())
        for index in (0, 1)
        for n, one in enumerate(blocks)
        for other in blocks[:n]
    )


@st.composite
def steps(draw):
    what = draw(st.sampled_from(["read", "read", "write", "write", *OPCODES]))
    size = draw(st.sampled_from([4, 4, 8]))
    by_thread = draw(st.sampled_from([0, size, size, size, 8]))
    by_block = draw(st.sampled_from([0, 64 * size, 64 * size, 64 * 8, 8]))
    start = draw(st.sampled_from([0, 0, 0, 8, 64 * 8]))
    array = draw(st.sampled_from("ab"))
    return Step(what, array, size, by_thread, by_block, start, draw(st.sampled_from([1, 1, 2, 3])))


def own(what, array, start=0, turn=1):
    return Step(what, array, 4, 4, 256, start, turn)


STENCIL = [own("read", "a"), own("read", "a", 4), own("read", "a", 8), own("write", "b", 4)]
IN_PLACE = [own("read", "a"), own("write", "a", 0, 2), own("atomic", "b")]
COUNTED = [Step("atomic", "b", 4, 0, 0), own("read", "a", 0, 3), own("read", "a", 4, 2)]
TURNS = [own("read", "a", 0, n) for n in (3, 2, 1)] + [own("write", "b", 0, n) for n in (2, 1)]
MIXED = [own("read", "a"), own("volatile read", "a", 256)]
RACING = [own("read", "a"), own("write", "a", 256)]


# Each example compiles a kernel.
@settings(max_examples=max(3, settings.default.max_examples // 4))
@given(st.lists(steps(), min_size=1, max_size=4))
@example(STENCIL)
@example(IN_PLACE)
@example(COUNTED)
@example(MIXED)
@example(RACING)
def test_blocks_that_may_run_at_once_set_the_same_bits_of_a_mark(drawn):
    kernel = Kernel(drawn)
    if kernel.is_order_free:
        assert not may_be_lost(kernel)
        assert kernel.recorded(is_order_free=True) == kernel.recorded()


@pytest.mark.parametrize(
    ("drawn", "is_free"),
    [(STENCIL, True), (IN_PLACE, True), (COUNTED, True), (TURNS, True), (MIXED, False),
     (RACING, False)],
)  # fmt: skip
def test_which_launches_are_free_of_order(drawn, is_free):
    kernel = Kernel(drawn)
    assert kernel.is_order_free is is_free
    # If all launches were free of order, marks would be lost.
    assert may_be_lost(kernel) is not is_free


@st.composite
def turns_of_slots(draw):
    """Chunks of blocks, given to two slots; those of a slot ascend, otherwise in any order."""
    ends = sorted({*draw(st.sets(st.integers(1, BLOCKS - 1), max_size=5)), BLOCKS})
    chunks = list(zip([0, *ends], ends, strict=False))
    owners = [draw(st.integers(0, 1)) for _ in chunks]
    pairs = list(zip(chunks, owners, strict=True))
    waiting = {n: [each for each, owner in pairs if owner == n] for n in (0, 1)}
    found = []
    while any(waiting.values()):
        number = draw(st.sampled_from([n for n, left in waiting.items() if left]))
        found.append((number, *waiting[number].pop(0)))
    return found


@pytest.fixture(scope="module")
def taking_turns():
    kernel = Kernel(TURNS)
    return kernel, kernel.recorded()


# The last blocks run first, so that later lines come before earlier ones.
LAST_FIRST = [(1, 3, 7), (1, 8, BLOCKS), (0, 0, 3), (0, 7, 8)]


@given(turns_of_slots())
@example(LAST_FIRST)
def test_first_accesses_are_those_of_the_earliest_block(taking_turns, turns):
    kernel, expected = taking_turns
    assert kernel.recorded_by(turns) == expected


def test_first_accesses_without_their_blocks_are_found_out(taking_turns, monkeypatch):
    kernel, expected = taking_turns
    right = Table.first
    # The tables are asked in the order in which the slots began.
    monkeypatch.setattr(Table, "first", lambda *given: (0, *right(*given)[1:]))
    assert kernel.recorded_by(LAST_FIRST) != expected


@pytest.mark.parametrize("drawn", [STENCIL, IN_PLACE, COUNTED, TURNS])
def test_threads_at_once_leave_the_record_of_one(drawn, monkeypatch):
    monkeypatch.setattr(work_distribution, "_FEW_THREADS", 1)
    monkeypatch.setattr(work_distribution, "_FIRST_CHUNK", 1)
    monkeypatch.setattr(work_distribution, "_SHORT_S", 0.0)
    kernel = Kernel(drawn)
    expected = kernel.recorded()
    for _ in range(50):
        assert kernel.recorded(is_order_free=True) == expected


@pytest.mark.parametrize(
    ("drawn", "kinds", "keeps_order"),
    [
        (STENCIL, ("race",), False),
        (COUNTED, ("race",), False),
        (MIXED, ("race",), True),
        (RACING, ("race",), True),
        # Which line reads before another has written is a question of order.
        (STENCIL, ("init",), True),
        (STENCIL, ("race", "init"), True),
    ],
)
def test_a_check_keeps_the_order_where_it_must(drawn, kinds, keeps_order, monkeypatch):
    orders = []
    right = JitExecution.run

    def run(execution):
        recording = execution._launch.recording
        orders.append(recording is not None and recording.keeps_order)
        return right(execution)

    monkeypatch.setattr(JitExecution, "run", run)
    device = cs.Device(0)
    device.use()
    kernel = cs.Module.from_ptx(text_of(drawn)).kernel("steps")
    sanitizer.begin(kinds)
    try:
        a, b = cs.DeviceBuffer(ROOM), cs.DeviceBuffer(ROOM)
        cs.memset_async(a, 0)
        cs.launch(kernel, grid=(BLOCKS,), block=(THREADS,), args=(a, b))
        device.synchronize()
    finally:
        sanitizer.end()
    assert orders == [keeps_order]
