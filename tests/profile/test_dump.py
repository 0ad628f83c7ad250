"""A dump says which ops run, which ops wait for which, and what each thread waits for."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest
from helpers.repository.checkout import ROOT
from helpers.repository.subprocesses import start

import cudasync as cs
from cudasync.testing import HostLatch, Latch

PATIENCE_S = 60

named_threads = pytest.mark.skipif(
    not getattr(sys, "_is_gil_enabled", lambda: True)(), reason="frames are not safe without a GIL"
)


def lines_with(word):
    return [line for line in cs.dump().split("\n") if word in line]


def test_an_op_that_runs_is_on_its_worker_and_others_wait_for_it():
    value = cs.Var("value")
    latch, begun = HostLatch(), threading.Event()

    def hold():
        begun.set()
        latch.wait()

    with cs.Engine(workers=2) as engine:
        long = engine.push(hold, writes=value, name="long")
        engine.push(lambda: None, reads=value, name="reader")
        # This op is behind both. Its end shows that the earlier ops are planned.
        engine.push(lambda: None, name="aside").wait(PATIENCE_S)
        assert begun.wait(PATIENCE_S)
        (running,) = lines_with("on worker")
        assert "long #" in running
        assert long.push_site in running
        (waits,) = lines_with("waits: reader")
        assert ", for long #" in waits
        latch.release()
        engine.waitall()
        assert not lines_with("reader")


def test_ops_of_a_device_are_on_their_stream():
    with cs.Engine() as engine, cs.use(engine), Latch() as latch:
        x = cs.array(np.ones(10, np.float32), device=0)
        # A driver loads a kernel only once the device is idle.
        assert (x + 1).shape == (10,)
        engine.waitall()
        engine.push(latch.hold, writes=x, device=0, name="held")
        assert (x + 1).shape == (10,)
        # The statistics plan and issue all pushed ops.
        assert engine.statistics().device_ops < engine.statistics().ops
        (held,) = lines_with("held #")
        assert held.startswith("  on device 0 ")
        assert any(line.startswith("  on device 0 ") for line in lines_with("add #"))
        latch.release()
        engine.waitall()
        assert not lines_with("held #")


def test_an_op_of_a_serial_engine_is_on_the_thread_that_pushed_it():
    with cs.Engine("serial") as engine:
        said = engine.push(cs.dump, name="asks").result()
        assert "  on the thread that pushed: asks #" in said
        assert "waits: asks" not in said
        assert not lines_with("asks #")


@named_threads
def test_a_thread_that_waits_is_named_with_its_op_and_line():
    latch, begun = HostLatch(), threading.Event()

    def hold():
        begun.set()
        latch.wait()

    with cs.Engine(workers=1) as engine:
        op = engine.push(hold, name="long")
        assert begun.wait(PATIENCE_S)
        threads = [
            threading.Thread(target=op.wait, name="asks for it"),
            threading.Thread(target=engine.waitall, name="asks for all"),
        ]
        for each in threads:
            each.start()
        found = {}
        while len(found) < 2:
            found = {each.name: said for each in threads for said in lines_with(f"{each.name!r}")}
        latch.release()
        for each in threads:
            each.join(PATIENCE_S)
    assert "waits for long #" in found["asks for it"]
    assert "waits for " in found["asks for all"]
    assert not lines_with("asks for")


def fresh(text, **environment):
    """A new process: the import of the library installs the signal handler."""
    command = [sys.executable, "-c", text]
    return start(command, PATIENCE_S, PYTHONPATH=str(ROOT), **environment)


WAITS = """
import os, signal, threading
import cudasync as cs
from cudasync.testing import HostLatch
latch, begun = HostLatch(), threading.Event()
def hold():
    begun.set()
    latch.wait()
def kill():
    os.kill(os.getpid(), signal.SIGUSR1)
    said.wait()
    latch.release()
def say_so(*all):
    say(*all)
    said.set()
with cs.Engine(workers=1) as engine:
    op = engine.push(hold, name="long")
    begun.wait()
    said, say = threading.Event(), signal.getsignal(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, say_so)
    threading.Thread(target=kill).start()
    op.wait()
print("ended")
"""


def test_a_signal_has_the_dump_on_stderr_and_the_program_goes_on():
    code, printed = fresh(WAITS, CUDASYNC_DUMP_SIGNAL="usr1")
    assert code == 0, printed
    assert "pushes not planned yet" in printed
    assert "on worker compute 0: long #" in printed
    assert printed.endswith("ended\n")


def test_a_signal_that_there_is_not_is_refused():
    code, printed = fresh("import cudasync as cs\ncs.Engine\n", CUDASYNC_DUMP_SIGNAL="USR9")
    assert code != 0
    assert "CUDASYNC_DUMP_SIGNAL=USR9: there is no such signal" in printed


def test_without_the_variable_no_signal_is_taken():
    code, printed = fresh(
        "import signal\nimport cudasync as cs\ncs.Engine\n"
        "print(signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL)",
        CUDASYNC_DUMP_SIGNAL="",
    )
    assert (code, printed) == (0, "True\n")
