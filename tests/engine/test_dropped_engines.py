"""An engine that goes out of scope without being closed: its work is done, and no thread stays."""

from __future__ import annotations

import gc
import threading
import time
import weakref

from helpers.crew import PATIENCE_S, held_by

import cudasync as cs


def ends(threads: set[threading.Thread]) -> bool:
    """True if all of them end within the patience of the test."""
    deadline = time.monotonic() + PATIENCE_S
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)


def test_an_engine_that_is_dropped_finishes_its_work_and_leaves_no_thread():
    before = set(threading.enumerate())
    gate, x, ran = threading.Event(), cs.Var("x"), []
    engine = cs.Engine(workers=2, pools={"io": 1})
    engine.push(held_by(gate), writes=[x])
    engine.push(lambda: ran.append("compute"), reads=[x])
    engine.push(lambda: ran.append("io"), reads=[x], pool="io")
    last = engine.push(lambda stream: ran.append("device"), reads=[x], device=cs.Device(0))
    gone = weakref.ref(engine)
    del engine
    gc.collect()
    gate.set()
    last.wait(PATIENCE_S)
    x.wait(PATIENCE_S)
    # A variable may remember the ops that used it last, and they know their engine.
    del last, x
    for _ in range(3):
        gc.collect()
    assert ends(set(threading.enumerate()) - before)
    gc.collect()
    assert sorted(ran) == ["compute", "device", "io"]
    assert gone() is None


def test_engines_that_are_dropped_idle_leave_no_thread():
    before = set(threading.enumerate())
    for _ in range(20):
        engine = cs.Engine(workers=1)
        engine.push(int).wait(PATIENCE_S)
        del engine
    gc.collect()
    assert ends(set(threading.enumerate()) - before)
