"""Ctrl-C drops the ops that have not begun, as if a serial run had been stopped."""

from __future__ import annotations

import re
import sys
import threading

import pytest
from helpers.concurrency.thread_crew import held_by
from helpers.repository.subprocesses import run_program

import cudasync as cs
from cudasync.engine.log.combiner import COMBINER

PATIENCE_S = 20.0
# More ops than a worker plans ahead, or runs between two checks.
OPS = 3000


def leave_by(error: BaseException, engine: cs.Engine) -> None:
    with engine:
        raise error


def set_once_dropped(engine: cs.Engine, event: threading.Event) -> None:
    """Have `event` set as soon as the engine drops its ops."""
    nothing = threading.Event()

    def watch() -> None:
        for _ in range(int(PATIENCE_S / 0.01)):
            if engine._is_dropped:
                break
            nothing.wait(0.01)
        event.set()

    threading.Thread(target=watch).start()


@pytest.mark.parametrize(
    "options", [{}, {"trace": True}, {"max_in_flight": OPS}], ids=["plain", "traced", "limited"]
)
def test_what_has_not_begun_never_does_and_says_so(options):
    ran, began, dropped = [], threading.Event(), threading.Event()
    x, other = cs.Var("x"), cs.Var("other")
    engine = cs.Engine(workers=1, **options)

    def first() -> None:
        ran.append("first")
        began.set()
        assert dropped.wait(PATIENCE_S)

    running = engine.push(first, writes=[x])
    assert began.wait(PATIENCE_S)
    ops = [
        engine.push(lambda: ran.append("late"), writes=[(x, other)[index % 2]])
        for index in range(OPS - 1)
    ]
    set_once_dropped(engine, dropped)
    with pytest.raises(KeyboardInterrupt):
        leave_by(KeyboardInterrupt(), engine)
    assert ran == ["first"]
    running.wait(0)
    for op in ops:
        assert op.done()
        with pytest.raises(cs.OpError) as caught:
            op.wait(0)
        assert isinstance(caught.value.__cause__, cs.ClosedError)


def test_a_device_op_behind_a_host_op_is_dropped():
    engine = cs.Engine(workers=1)
    x, began, dropped, issued = cs.Var("x"), threading.Event(), threading.Event(), []
    running = engine.push(held_by(dropped, began), writes=[x])
    # Otherwise this op would be dropped as well.
    assert began.wait(PATIENCE_S)
    late = engine.push(issued.append, reads=[x], device=cs.Device(0))
    set_once_dropped(engine, dropped)
    with pytest.raises(KeyboardInterrupt):
        leave_by(KeyboardInterrupt(), engine)
    running.wait(0)
    with pytest.raises(cs.OpError):
        late.wait(0)
    assert not issued


@pytest.mark.parametrize("case", ["reads", "overwrites", "reads a failed op's data"])
@pytest.mark.parametrize("kind", ["host", "device", "block", "alone"])
def test_a_launch_of_a_graph_is_dropped_as_a_whole(kind, case, monkeypatch):
    """No step of it runs, and no thread of the engine ends by an error."""
    died, ran = [], []
    monkeypatch.setattr(sys, "unraisablehook", died.append)
    monkeypatch.setattr(threading, "excepthook", died.append)
    engine = cs.Engine(workers=1)
    x, y, began, dropped = cs.Var("x"), cs.Var("y"), threading.Event(), threading.Event()
    reads = [] if case == "overwrites" else [x]
    with cs.use(engine), cs.graph() as g:
        push = cs.engine().push
        if kind == "host":
            push(lambda: ran.append(1), reads=reads, writes=[x])
            push(lambda: ran.append(2), writes=[y])
        elif kind == "device":
            push(lambda stream: None, reads=reads, writes=[x], device=0)
            push(lambda stream: None, writes=[y], device=0)
        elif kind == "block":
            with g.repeat(2):
                push(lambda: ran.append(1), reads=reads, writes=[x])
        else:
            push(lambda: ran.append(1), reads=reads, writes=[x], priority=1)
    with cs.use(engine):
        executable = g.instantiate(without=("unroll",))

    def first() -> None:
        began.set()
        assert dropped.wait(PATIENCE_S)
        if "failed" in case:
            raise ValueError("planned")

    engine.push(first, writes=[x])
    assert began.wait(PATIENCE_S)
    with cs.use(engine):
        launches = [executable.launch() for _ in range(3)]
    # Some of the ops are planned and wait, others are still in the log.
    COMBINER.plan(launches[1])
    set_once_dropped(engine, dropped)
    with pytest.raises(KeyboardInterrupt):
        leave_by(KeyboardInterrupt(), engine)
    assert all(isinstance(op.exception(PATIENCE_S), cs.OpError) for op in launches)
    assert (ran, died) == ([], [])


def test_left_by_another_exception_it_waits_for_all():
    ran, engine = [], cs.Engine()
    for _ in range(100):
        engine.push(lambda: ran.append(1))
    with pytest.raises(ValueError, match="mine"):
        leave_by(ValueError("mine"), engine)
    assert len(ran) == 100


@pytest.mark.parametrize("where", ["with cs.Engine() as engine:", "engine = cs.engine()\nif True:"])
def test_a_program_ends_soon_after_ctrl_c(where):
    """All its ops together would take minutes. The program waits for the running op only."""
    code, printed = run_program(
        f"""
x, pushed, never = cs.Var("x"), threading.Event(), threading.Event()
def interrupt():
    pushed.wait()
    signal.raise_signal(signal.SIGINT)
{where}
    engine.push(interrupt, writes=[x])
    for _ in range(1000):
        engine.push(lambda: never.wait(0.5), writes=[x])
    pushed.set()
    engine.waitall()
""",
        deadline_s=30,
    )
    assert code == -2, printed
    assert "\nKeyboardInterrupt\n" in printed
    told = [line for line in printed.splitlines() if line.startswith("cudasync: ")]
    assert [re.sub("[0-9]+", "n", line) for line in told] == [
        "cudasync: left by Ctrl-C: n ops that had not begun were dropped"
    ]
