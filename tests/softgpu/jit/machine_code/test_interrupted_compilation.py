"""Ctrl-C during a compilation: LLVM's objects are given back once, and the compiler goes on."""

from __future__ import annotations

import _thread
import threading

import pytest
from helpers.repository.subprocesses import assert_runs_clean

from cudasync.softgpu.interface.internal_threads import away_from_signals
from cudasync.softgpu.jit.machine_code import codegen

TEXT = "define i32 @kernel(i8* %x) {{\n ret i32 {}\n}}\n"

PROGRAM = """
import random, time
from cudasync.softgpu.jit.machine_code import codegen
from cudasync.softgpu.jit.launch import worker_threads
from cudasync.softgpu.interface import internal_threads

TEXT = "define i32 @kernel(i8* %x) {\\n ret i32 NUMBER\\n}\\n"
if PLANT:
    codegen.away_from_signals = lambda work: work()

def compile(number):
    return codegen.compile_text(TEXT.replace("NUMBER", str(number)), {}, "")

def interrupt(number, frame):
    raise KeyboardInterrupt

compile(-1)
begin = time.perf_counter()
compile(-2)
taken = time.perf_counter() - begin
signal.signal(signal.SIGALRM, interrupt)
draw, came = random.Random(1), 0
for number in range(TRIES):
    try:
        signal.setitimer(signal.ITIMER_REAL, draw.uniform(1e-5, taken))
        compile(number)
        time.sleep(10)
    except KeyboardInterrupt:
        came += 1
assert came == TRIES
compile(-3)
"""


def test_interrupts_at_random_times_leave_the_compiler_whole(tmp_path):
    body = PROGRAM.replace("PLANT", "False").replace("TRIES", "150")
    assert_runs_clean(body, deadline_s=60, CUDASYNC_SOFTGPU_CACHE=str(tmp_path))


def test_a_compiler_that_the_main_thread_calls_is_found(tmp_path):
    """The planted bug of the test above: LLVM's objects are freed twice."""
    body = PROGRAM.replace("PLANT", "True").replace("TRIES", "5000")
    with pytest.raises(AssertionError, match="ended with"):
        assert_runs_clean(body, deadline_s=60, CUDASYNC_SOFTGPU_CACHE=str(tmp_path))


def test_no_compilation_calls_llvm_on_the_main_thread(monkeypatch):
    seen = []
    optimise = codegen.optimise

    def noted(*args):
        seen.append(threading.get_ident())
        return optimise(*args)

    monkeypatch.setattr(codegen, "optimise", noted)
    monkeypatch.setattr(codegen.disk_cache, "find", lambda key: None)
    codegen.compile_text(TEXT.format(20261129), {}, "")
    assert seen
    assert threading.main_thread().ident not in seen


def test_work_away_from_signals_gives_its_result_and_its_error():
    assert away_from_signals(lambda: threading.get_ident()) != threading.get_ident()
    with pytest.raises(LookupError, match="nothing"):
        away_from_signals(lambda: (_ for _ in ()).throw(LookupError("nothing")))


def test_ctrl_c_comes_behind_the_work():
    done = []

    def work():
        _thread.interrupt_main()
        done.append(1)

    with pytest.raises(KeyboardInterrupt):
        away_from_signals(work)
    assert done
