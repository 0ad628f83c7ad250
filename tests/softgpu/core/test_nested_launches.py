"""Kernels that launch kernels: the order of their grids, faults, checks and graphs."""

from __future__ import annotations

import ctypes

import pytest
from cuda.bindings import driver
from helpers.driver.call_results import ok
from helpers.lowering.nested_launches import launches, notes, program

import cudasync as cs
from cudasync.softgpu import jit, oracle
from cudasync.softgpu.core.checks.executor import CheckingExecutor
from cudasync.softgpu.core.driver_types.result_codes import ILLEGAL_ADDRESS, DriverFailure
from cudasync.softgpu.core.launch.kernel_launch import KernelLaunch, launch
from cudasync.softgpu.core.machine import Machine
from cudasync.softgpu.core.scheduling.executor import Executor
from cudasync.softgpu.core.streams.commands import Step
from cudasync.testing import check, explore

WORDS = 512
TAIL, FIRE = 3, 4

# The parent launches, waits for word 1, and then writes word 2, which the child copies to word 3.
LATE = program(
    child="ld.global.u32 %v, [%a+8]; st.global.u32 [%a+12], %v;",
    parent=launches("child")
    + """
again:
    ld.volatile.global.u32 %v, [%a+4];
    setp.eq.u32 %p, %v, 0;
    @%p bra again;
    st.global.u32 [%a+8], %v;""",
    sets="mov.u32 %v, 7; st.volatile.global.u32 [%a+4], %v;",
)
ORDER = program(
    leaf=notes(3),
    tail=notes(9),
    fires=notes(4),
    below=notes(2),
    middle=launches("below") + launches("tail", TAIL) + notes(1),
    parent=launches("tail", TAIL)
    + launches("middle")
    + launches("leaf")
    + launches("fires", FIRE)
    + notes(0),
)
# The child reads what the parent has written before and after the launch.
READS = program(
    child="""
    ld.global.u32 %v, [%a+4]; ld.global.u32 %w, [%a+8];
    add.u32 %v, %v, %w; st.global.u32 [%a+12], %v;""",
    parent="mov.u32 %v, 3; st.global.u32 [%a+4], %v;"
    + launches("child")
    + "mov.u32 %v, 4; st.global.u32 [%a+8], %v;",
)
UNWRITTEN = program(
    child="ld.global.u32 %v, [%a+4]; st.global.u32 [%a+12], %v;", parent=launches("child")
)
STRAY = program(
    stray="mov.u64 %b, 64; ld.global.u32 %v, [%b];",
    parent=launches("stray"),
    after=notes(5),
)
# Every other thread of each block launches, with the address of its own number from word 256 on.
MANY = program(
    notes_own="""
    ld.global.u32 %v, [%a];
    mov.u32 %r, 4; mul.lo.u32 %w, %v, %r; cvt.u64.u32 %b, %w; sub.u64 %a, %a, %b;
    sub.u64 %a, %a, 1024;
    atom.global.add.u32 %r, [%a], 1;
    mad.wide.u32 %b, %r, 4, %a;
    st.global.u32 [%b+32], %v;""",
    parent="""
    mov.u32 %r, %ctaid.x; mov.u32 %v, %ntid.x; mov.u32 %w, %tid.x;
    mad.lo.u32 %v, %r, %v, %w;
    mad.wide.u32 %a, %v, 4, %a; add.u64 %a, %a, 1024;
    st.global.u32 [%a], %v;
    and.b32 %w, %w, 1;
    setp.eq.u32 %p, %w, 0;
    @%p ret;"""
    + launches("notes_own"),
)
RACES = program(
    racing="mov.u32 %v, %tid.x; st.global.u32 [%a+12], %v;", parent=launches("racing", 0, 2)
)
both = pytest.mark.parametrize("room", [jit, oracle], ids=["jit", "oracle"])


class Run:
    """A machine with a module, and words in its memory."""

    def __init__(self, room, text, scheduler="fifo"):
        self.machine = machine = Machine(compile_module=room.compile_module, scheduler=scheduler)
        machine.push(machine.retain_primary(machine.device(0)))
        self.module = machine.modules.load(text)
        self.words = machine.memory.allocate_device(4 * WORDS)
        ctypes.memset(self.words.start, 0, 4 * WORDS)
        self.streams = [machine.streams.create(1) for _ in range(2)]

    def launch(self, name, stream=0, shape=(1, 1)):
        function = self.module.functions[name]
        parameters = self.words.start.to_bytes(8, "little")
        (blocks, threads), stream = shape, self.streams[stream]
        grid, block = (blocks, 1, 1), (threads, 1, 1)
        launch(self.machine, function, stream, grid, block, 0, parameters)

    def finish(self):
        tails = [each.tail for each in self.streams if each.tail is not None]
        self.machine.executor.synchronize(tails)
        self.machine.check(self.machine.context())
        return list((ctypes.c_uint32 * WORDS).from_address(self.words.start))

    def notes(self):
        words = self.finish()
        return words[8 : 8 + words[0]]


def late(room, scheduler="fifo"):
    """What the child of `LATE` has seen."""
    run = Run(room, LATE, scheduler)
    run.launch("parent")
    run.launch("sets", stream=1)
    seen = run.finish()[3]
    run.machine.end()
    return seen


@both
@pytest.mark.parametrize("scheduler", ["fifo", "seed=3", "threaded"])
def test_a_grid_begins_after_the_last_write_of_its_parent(room, scheduler):
    assert late(room, scheduler) == 7


@both
def test_a_grid_that_begins_while_its_parent_waits_is_caught(room, monkeypatch):
    right = KernelLaunch.run_grid

    def hasty(self):
        step = right(self)
        if step is not Step.DONE and self.pool is not None and self.pool.launches():
            below, pool = self.below, self.pool
            for each in pool.launches():
                grid = self.grid_below(below._launchable.kernel(each.function), each)
                assert right(grid) is Step.DONE
        return Step.DONE if step is not Step.DONE and self.pool is not None else step

    monkeypatch.setattr(KernelLaunch, "run_grid", hasty)
    assert late(room) == 0


@both
def test_grids_below_come_before_the_next_launch_and_tail_launches_come_last(room):
    run = Run(room, ORDER)
    run.launch("parent")
    run.launch("leaf")
    assert run.notes() == [0, 1, 2, 9, 3, 4, 9, 3]


@both
def test_launches_of_many_threads_run_by_block_and_thread(room):
    run = Run(room, MANY)
    run.launch("parent", shape=(3, 40))
    assert run.notes() == [*range(1, 120, 2)]


@both
def test_a_fault_of_a_grid_below_names_its_kernel_and_is_the_launch_s(room):
    run = Run(room, STRAY)
    run.launch("parent")
    run.launch("after")
    with pytest.raises(DriverFailure, match="kernel stray, PTX line") as caught:
        run.finish()
    assert caught.value.code == ILLEGAL_ADDRESS


def test_the_limit_of_pending_launches_counts_all_grids_that_wait():
    run = Run(oracle, ORDER)
    run.machine.set_limit(run.machine.context(), 4, 3)
    run.launch("parent")
    # The parent's fourth launch is refused; two wait while `middle` launches, so it has one.
    assert run.notes() == [0, 1, 2, 3, 9]


# Under checks, in explorations and in graphs


def launched(text, *, clear=True):
    """A program that launches the parent, and returns word 3."""
    module = cs.Module.from_ptx(text.decode())

    def run():
        words = cs.DeviceBuffer(4 * WORDS)
        if clear:
            cs.memset_async(words, 0)
        cs.launch(module.kernel("parent"), grid=1, block=1, args=(words,))
        got = (ctypes.c_uint32 * WORDS)()
        cs.memcpy_async(got, words)
        cs.Device(0).synchronize()
        return got[3]

    return run


@pytest.mark.lazy
def test_what_a_parent_writes_is_in_order_with_its_child():
    assert check(launched(READS, clear=False), kinds=("mem", "race", "init", "sync"))[1:] == []


@pytest.mark.lazy
def test_reads_and_faults_of_a_grid_below_are_found():
    (found, *_) = check(launched(UNWRITTEN, clear=False), kinds=("init",))
    assert found.kind == "init"
    assert "kernel child" in str(found)
    (found, *_) = check(launched(STRAY), kinds=("mem",))
    assert "kernel stray" in str(found)


@pytest.mark.lazy
def test_threads_of_a_grid_below_race(monkeypatch):
    (found, *_) = check(launched(RACES), kinds=("race",))
    assert "kernel racing" in str(found)
    # A check that does not watch grids below misses the race.
    monkeypatch.setattr(CheckingExecutor, "begins_grid", Executor.begins_grid)
    monkeypatch.setattr(CheckingExecutor, "ends_grid", Executor.ends_grid)
    assert check(launched(RACES), kinds=("race",)) == []


@pytest.mark.lazy
def test_an_explored_program_launches_from_kernels():
    run = launched(READS)
    explore(lambda: run() == 7 or pytest.fail("the child has not seen both writes"))


def test_a_graph_s_kernel_launches_kernels(context):
    module = ok(driver.cuModuleLoadData(READS))
    kernel = ok(driver.cuModuleGetFunction(module, b"parent"))
    words = ok(driver.cuMemAlloc(4 * WORDS))
    stream = ok(driver.cuStreamCreate(0))
    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
    ok(driver.cuStreamBeginCapture(stream, mode))
    ok(driver.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, ((words,), (None,)), 0))
    graph = ok(driver.cuStreamEndCapture(stream))
    executable = ok(driver.cuGraphInstantiate(graph, 0))
    got = (ctypes.c_uint32 * WORDS)()
    for _ in range(2):
        ok(driver.cuMemsetD8(words, 0, 4 * WORDS))
        ok(driver.cuGraphLaunch(executable, stream))
        ok(driver.cuStreamSynchronize(stream))
        ok(driver.cuMemcpyDtoH(ctypes.addressof(got), words, 4 * WORDS))
        assert got[3] == 7
