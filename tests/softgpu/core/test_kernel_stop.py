"""Endless kernels are ended: from another thread, by a signal, or by a reset."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from helpers.driver.machines import new_machine
from helpers.lowering import bare_launch
from helpers.repository.subprocesses import run_text

from cudasync.ptx import parse
from cudasync.softgpu import jit, oracle
from cudasync.softgpu.core.driver_types.result_codes import DriverFailure
from cudasync.softgpu.core.launch.kernel_launch import KernelLaunch, Plan
from cudasync.softgpu.interface.launch import FaultKind, OutcomeKind

HEAD = """.version 7.0
.target sm_75
.address_size 64
"""
KERNEL = """.visible .entry endless(.param .u64 words)
{{
    .shared .b32 turn;
    .reg .b32 %value;
    .reg .b64 %rd_words;
    .reg .pred %p;
    ld.param.u64 %rd_words, [words];
    mov.u32 %value, %tid.x;
    st.global.u32 [%rd_words+4], 1;
again:
    {body}
    bra again;
}}
"""
BODIES = {
    "arithmetic": "mad.lo.u32 %value, %value, 5, 3;",
    "lanes apart": "and.b32 %value, %value, 1;\nsetp.eq.u32 %p, %value, 0;\n@%p bra again;",
    "a volatile word": "ld.volatile.global.u32 %value, [%rd_words];",
    "a sleep": "nanosleep.u32 100;",
    "a barrier": "st.shared.u32 [turn], %value;\nbar.sync 0;\nadd.u32 %value, %value, 1;",
    "atomics": "red.global.add.u32 [%rd_words+8], 1;",
}
CALLS = """.func (.reg .b32 %result) twice(.reg .b32 %depth)
{
    .reg .pred %p;
    .reg .b32 %less, %one, %other;
    mov.u32 %result, 1;
    setp.eq.u32 %p, %depth, 0;
    @%p ret;
    sub.u32 %less, %depth, 1;
    call (%one), twice, (%less);
    call (%other), twice, (%less);
    add.u32 %result, %one, %other;
    ret;
}
"""
TEXTS = {name: HEAD + KERNEL.format(body=body) for name, body in BODIES.items()}
TEXTS["calls"] = HEAD + CALLS + KERNEL.format(body="call (%value), twice, (60);")


def run_until_over(started):
    while (outcome := started.run()).kind is OutcomeKind.YIELDED:
        pass
    return outcome


@pytest.mark.parametrize("memcheck", [True, False])
@pytest.mark.parametrize("grid", [1, 3])
@pytest.mark.parametrize("what", TEXTS)
def test_a_kernel_is_stopped_from_another_thread(what, grid, memcheck):
    """The stop works for every kind of endless kernel, and for any number of threads that run
    blocks."""
    words = bare_launch.aligned(np.zeros(4, np.uint32))
    started = bare_launch.start(
        jit.compile_module(parse(TEXTS[what]), memcheck=memcheck),
        "endless",
        grid=(grid,),
        block=(64,),
        args=[words],
        budget=2**61,
    )
    outcomes = []
    runner = threading.Thread(target=lambda: outcomes.append(run_until_over(started)))
    runner.start()
    while not words[1]:
        assert runner.is_alive()
    started.execution.stop()
    runner.join()
    (outcome,) = outcomes
    assert outcome.kind is OutcomeKind.FAULT
    assert outcome.fault.kind is FaultKind.STOPPED
    assert outcome.fault.kernel == "endless"
    lines = TEXTS[what].split("\n")
    # A sleeping kernel may be stopped when it wakes.
    begins = 1 if what in ("calls", "a sleep") else 1 + lines.index("again:")
    assert begins <= outcome.fault.line <= len(lines)


@pytest.mark.parametrize("compiler", [jit, oracle])
def test_a_kernel_that_was_stopped_before_it_ran_ends_at_once(compiler):
    words = bare_launch.aligned(np.zeros(4, np.uint32))
    started = bare_launch.start(
        compiler.compile_module(parse(TEXTS["arithmetic"])),
        "endless",
        grid=(1,),
        block=(32,),
        args=[words],
        budget=2**61,
    )
    started.execution.stop()
    assert run_until_over(started).fault.kind is FaultKind.STOPPED


@pytest.mark.parametrize("is_prepared", [True, False])
def test_a_launch_that_is_stopped_while_it_is_compiled_ends_at_once(monkeypatch, is_prepared):
    """The stop comes from another thread, before there is code to run."""
    machine = new_machine(total_bytes=1 << 20, budget=2**24)
    function = machine.modules.load(TEXTS["arithmetic"].encode()).functions["endless"]
    kernel = function.kernel
    words = machine.memory.allocate_device(64).start
    plan = Plan(machine, function, (1, 1, 1), (32, 1, 1), 0)
    command = KernelLaunch(machine.context().legacy, plan, words.to_bytes(8, "little"))
    compiled = kernel.start

    def start(launch):
        made = compiled(launch)
        command.stop("somebody stopped it")
        return made

    monkeypatch.setattr(kernel, "start", start)
    if is_prepared:
        command.start()
    with pytest.raises(DriverFailure, match="somebody stopped it"):
        command.run()


def test_a_launch_after_one_that_was_stopped_has_its_whole_budget():
    """Slots are reused: a stop of one launch must not stop the next."""
    text = TEXTS["arithmetic"].replace("bra again;", "setp.ne.u32 %p, %value, 93;\n@%p bra again;")
    compiled = jit.compile_module(parse(text))
    for stops in (True, False, True, False):
        words = bare_launch.aligned(np.zeros(4, np.uint32))
        shape = {"grid": (1,), "block": (1,), "args": [words], "budget": 2**40}
        started = bare_launch.start(compiled, "endless", **shape)
        if stops:
            started.execution.stop()
        wanted = OutcomeKind.FAULT if stops else OutcomeKind.DONE
        assert run_until_over(started).kind is wanted


# A fast processor uses the usual budget up in a second, which is how long Ctrl-C waits. A kernel
# that Ctrl-C leaves running ends by its budget.
USUAL, NEVER = str(2**33), str(2**45)
RAW = """
import ctypes, signal, sys, threading
from cudasync.softgpu import install
install()
from cuda.bindings import driver as d
d.cuInit(0); d.cuCtxSetCurrent(d.cuDevicePrimaryCtxRetain(0)[1])
words = d.cuMemHostAlloc(16, 0)[1]
begun = ctypes.c_uint32.from_address(int(words) + 4)
ctypes.memset(int(words), 0, 16)
function = d.cuModuleGetFunction(d.cuModuleLoadData({text!r}.encode())[1], b"endless")[1]
arguments = (int(words),), (ctypes.c_void_p,)
assert not int(d.cuLaunchKernel(function, {grid}, 1, 1, 64, 1, 1, 0, 0, arguments, 0)[0])
def interrupt():
    while not begun.value:
        pass
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
interrupter = threading.Thread(target=interrupt)
"""
# A kernel that started with its launch may be interrupted before the wait begins.
HEALS = """
try:
    interrupter.start()
    d.cuCtxSynchronize()
    while True: pass
except KeyboardInterrupt:
    print("interrupted")
if {has_failed}:
    code = d.cuCtxSynchronize()[0]
    text = d.cuGetErrorString(code)[1].decode()
    print(int(code), "kernel endless, PTX line" in text, text.endswith("Ctrl-C"))
print(int(d.cuDevicePrimaryCtxReset(0)[0]))
d.cuCtxSetCurrent(d.cuDevicePrimaryCtxRetain(0)[1])
print(int(d.cuCtxSynchronize()[0]))
"""


@pytest.mark.sampled(9)
@pytest.mark.parametrize("scheduler", ["fifo", "seed=3", "threaded"])
@pytest.mark.parametrize(("what", "grid"), [("arithmetic", 1), ("arithmetic", 3), ("a sleep", 1)])
def test_ctrl_c_ends_a_wait_of_the_driver_and_a_reset_heals(what, grid, scheduler):
    """Ctrl-C ends a kernel on the waiting thread. A waiting kernel, or one elsewhere, goes on."""
    is_here = scheduler != "threaded" and what == "arithmetic"
    program = RAW.format(text=TEXTS[what], grid=grid) + HEALS.format(has_failed=is_here)
    ended, printed = run_text(
        program,
        60,
        CUDASYNC_SOFTGPU_SCHEDULER=scheduler,
        CUDASYNC_SOFTGPU_BUDGET=NEVER if is_here else USUAL,
    )
    said = "interrupted\n" + "702 True True\n" * is_here + "0\n0\n"
    assert (ended, printed) == (0, said)


LISTENS = """
calls = []
def handle(*_):
    calls.append(threading.current_thread() is threading.main_thread())
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
signal.signal(signal.SIGINT, handle)
"""
HEARD = """
try:
    interrupter.start()
    d.cuCtxSynchronize()
    while True: pass
except KeyboardInterrupt:
    print("heard", calls)
"""


@pytest.mark.parametrize("scheduler", ["fifo", "threaded"])
def test_signal_handlers_run_while_a_kernel_does_and_one_that_raises_nothing_ends_nothing(
    scheduler,
):
    program = "import signal, threading\n" + LISTENS
    program += RAW.format(text=TEXTS["arithmetic"], grid=1) + HEARD
    ended, printed = run_text(program, 60, CUDASYNC_SOFTGPU_SCHEDULER=scheduler)
    assert (ended, printed) == (0, "heard [True]\n")
