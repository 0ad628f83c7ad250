"""Ctrl-C while a kernel runs reaches the program, and the kernel goes on where it was."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from helpers.lowering import bare_launch
from helpers.repository.subprocesses import run_text

from cudasync.ptx import parse
from cudasync.softgpu.interface.launch import OutcomeKind
from cudasync.softgpu.jit import compile_module
from cudasync.softgpu.jit.launch import work_distribution
from cudasync.softgpu.jit.launch.block_slots import Slot

COUNT = """.version 6.4
.target sm_75
.address_size 64
.visible .entry count(.param .u64 words)
{
    .reg .u32 %value, %trip;
    .reg .u64 %rd_words;
    .reg .pred %p;
    ld.param.u64 %rd_words, [words];
    mov.u32 %trip, 0;
again:
    add.u32 %trip, %trip, 1;
    red.global.add.u32 [%rd_words], 1;
    setp.lt.u32 %p, %trip, 100;
    @%p bra again;
    ret;
}
"""
WAITING = COUNT.replace("again:", "ld.volatile.global.u32 %value, [%rd_words+4];\nagain:").replace(
    "ret;",
    "wait:\nld.volatile.global.u32 %value, [%rd_words+4];\nsetp.lt.u32 %p, %value, 200;\n"
    "red.global.add.u32 [%rd_words+4], 1;\n@%p bra wait;\nret;",
)

# Enough blocks that a helper thread joins before the last one.
BLOCKS = 3000


@pytest.mark.parametrize("text", [COUNT, WAITING], ids=["ends by itself", "waits"])
@pytest.mark.parametrize("is_before", [True, False])
@pytest.mark.parametrize("period", [1, 2, 3])
@pytest.mark.parametrize("processors", [1, 2])
def test_a_launch_that_is_interrupted_at_each_turn_does_nothing_twice(
    monkeypatch, text, is_before, period, processors
):
    """Interrupts come between Python and compiled code: before a job runs, and when it is done.

    With two processors a helper thread takes part from the first chunk on, if it is fast enough.
    """
    calls = 0
    run = Slot.run

    def interrupted(slot):
        nonlocal calls
        if threading.current_thread() is not threading.main_thread():
            # This is a helper thread, which joins when the first blocks take long. No interrupt
            # reaches it.
            return run(slot)
        calls += 1
        if calls % (period + 1) == 0 and is_before:
            raise KeyboardInterrupt
        status = run(slot)
        if calls % (period + 1) == 0:
            raise KeyboardInterrupt
        return status

    monkeypatch.setattr(Slot, "run", interrupted)
    monkeypatch.setattr(work_distribution, "_FIRST_CHUNK", 4)
    monkeypatch.setattr(work_distribution, "_CHUNKS_PER_THREAD", 200)
    monkeypatch.setattr(work_distribution, "_LONG_S", 0.0)
    monkeypatch.setattr(work_distribution, "PROCESSORS", processors)
    words = bare_launch.aligned(np.zeros(2, np.uint32))
    started = bare_launch.start(
        compile_module(parse(text)),
        "count",
        grid=(BLOCKS,),
        block=(32,),
        args=[words],
        budget=2**31,
    )
    interrupts = 0
    while True:
        try:
            outcome = started.run()
        except KeyboardInterrupt:
            interrupts += 1
            continue
        if outcome.kind is not OutcomeKind.YIELDED:
            break
    assert outcome.kind is OutcomeKind.DONE
    # The helper may be so fast that this thread gets only one turn.
    assert interrupts or processors > 1
    assert words[0] == BLOCKS * 32 * 100


PROGRAM = """
import ctypes, signal, threading
from cudasync.softgpu import install
install()
from cuda.bindings import driver as d
d.cuInit(0); d.cuCtxSetCurrent(d.cuDevicePrimaryCtxRetain(0)[1])
words = d.cuMemHostAlloc(8, 0)[1]
count = ctypes.c_uint32.from_address(int(words))
ctypes.memset(int(words), 0, 8)
text = {ptx!r}
function = d.cuModuleGetFunction(d.cuModuleLoadData(text.encode())[1], b"count")[1]
arguments = (int(words),), (ctypes.c_void_p,)
assert not int(d.cuLaunchKernel(function, 30_000, 1, 1, 32, 1, 1, 0, 0, arguments, 0)[0])
main = threading.main_thread().ident
def interrupt():
    while not count.value:
        pass
    signal.pthread_kill(main, signal.SIGINT)
interrupts = 0
try:
    threading.Thread(target=interrupt).start()
    d.cuCtxSynchronize()
    while True:
        pass
except KeyboardInterrupt:
    interrupts += 1
assert not int(d.cuCtxSynchronize()[0])
print(interrupts, count.value == 30_000 * 3200)
"""


def test_an_interrupt_comes_up_and_no_block_is_lost_or_done_twice():
    ended, printed = run_text(PROGRAM.format(ptx=COUNT), 40)
    assert (ended, printed) == (0, "1 True\n")
