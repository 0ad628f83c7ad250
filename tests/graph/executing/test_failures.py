"""A failure inside or before a graph reaches its dependents and nothing else, as in eager work."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from functools import partial

import numpy as np
import pytest
from helpers.engine_programs.host_programs import host_programs
from helpers.engine_programs.strategies import settings
from helpers.fuzzing.search import first_difference
from helpers.graphs.recorded_programs import graph_differences
from hypothesis import given

import cudasync as cs
from cudasync.engine import current, ledger
from cudasync.engine.hazards.damage import Damage
from cudasync.graph.parts import host
from cudasync.graph.parts.host import HostPart


@given(host_programs(), settings())
def test_what_does_not_need_what_failed_runs_and_is_whole(program, setting):
    assert not graph_differences(program, setting, 3, beside=True)


def whole(*_):
    """The planted bug: a failed segment damages all that it writes."""
    return True


def exits(error):
    """The planted bug: an exception that is no `Exception` ends the segment."""
    return not isinstance(error, Exception)


def unharmed(*_):
    """The planted bug: nothing in a segment depends on an earlier failure."""
    return Damage()


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("owner", "name", "bug"),
    [
        (ledger, "_reaches", whole),
        (Damage, "before", unharmed),
        (Damage, "heal", lambda *_: None),
        (Damage, "fail", lambda *_: None),
        (host, "is_of_thread", exits),
    ],
    ids=[
        "all is poisoned",
        "nothing was wrong before",
        "nothing heals",
        "nothing is harmed",
        "exit",
    ],
)
def test_a_planted_bug_is_found(owner, name, bug, monkeypatch):
    monkeypatch.setattr(owner, name, bug)

    def differences(program, setting):
        return graph_differences(program, setting, 3, beside=True)

    assert first_difference(differences, host_programs(), settings())


def test_half_of_what_a_segment_writes_is_poisoned():
    x, y = cs.zeros(8, np.int32, device="cpu"), cs.zeros(8, np.int32, device="cpu")
    with cs.Engine() as engine:
        with cs.graph() as g:
            push = cs.engine().push
            push(lambda: 1 / 0, writes=x[:4], name="divide")
            push(lambda: None, writes=y)
        op = g.instantiate().launch()
        assert y.numpy().tolist() == x[4:].numpy().tolist() * 2
        with pytest.raises(cs.OpError, match="divide"):
            x.numpy()
        assert isinstance(op.exception(), cs.OpError)
        engine.clear_errors()


def test_what_is_wrong_does_not_grow_with_the_launches():
    """Each launch of a poisoned graph damages the same bytes as the first one."""
    x, y = np.zeros(8, np.int32), np.zeros(8, np.int32)

    def fail():
        raise ValueError("planned")

    with cs.graph() as g:
        for start in range(4):
            cs.engine().push(int, reads=[x[start:], y], writes=[x[start:], y[: start + 2]])
    with cs.Engine(workers=1) as engine, cs.use(engine), g.instantiate() as executable:
        engine.push(fail, writes=[x[1:3], y[5:]])
        ops = [executable.launch() for _ in range(7)]
        with suppress(cs.OpError):
            engine.waitall()
        counts = [len(list(op._damage._bytes)) for op in ops]
        assert max(counts[3:]) <= counts[2] <= 4
        engine.clear_errors()


EXCEPTIONS = [
    ValueError,
    SystemExit,
    asyncio.CancelledError,
    GeneratorExit,
    KeyboardInterrupt,
    pytest.fail.Exception,
]


class Three:
    """Functions a, b and c of one host segment, each with a variable of its own; a reads x."""

    def __init__(self, **todo):
        self.x = cs.Var("x")
        self.variables = {name: cs.Var(name) for name in "abc"}
        self.ran = []
        self.todo = todo

    def push(self, push):
        for name, variable in self.variables.items():
            reads = [self.x] if name == "a" else []
            push(partial(self._call, name), reads=reads, writes=[variable], name=name)

    def _call(self, name):
        self.todo.get(name, int)()
        self.ran.append(name)

    def outcome(self):
        """For each function, whether it ran, and whether its data is poisoned."""
        poisoned = {name: is_poisoned(variable) for name, variable in self.variables.items()}
        return {name: (name in self.ran, poisoned[name]) for name in self.variables}


def is_poisoned(variable):
    try:
        variable.wait()
    except cs.OpError:
        return True
    return False


def raising(error):
    def fail():
        raise error("planned")

    return fail


@pytest.mark.parametrize("error", EXCEPTIONS)
@pytest.mark.parametrize(
    ("failing", "is_poisoned_before"),
    [("b", False), ("ab", False), ("ac", False), ("b", True)],
    ids=["alone", "behind a failure", "last", "behind a failure before the launch"],
)
def test_any_exception_in_a_segment_fails_its_own_function(error, failing, is_poisoned_before):
    """As eager work, whichever class the exception has: on a worker no thread is to be ended."""
    todo = {name: raising(ValueError) for name in failing} | {failing[-1]: raising(error)}
    expected = None
    for is_graph in (False, True):
        three = Three(**todo)
        with cs.Engine() as engine, cs.use(engine):
            if is_poisoned_before:
                engine.push(raising(ValueError), writes=[three.x])
            if is_graph:
                with cs.graph() as g:
                    three.push(cs.engine().push)
                g.instantiate().launch()
            else:
                three.push(engine.push)
            found = three.outcome()
            # All workers are alive.
            for _ in range(8):
                engine.push(int).wait()
            engine.clear_errors()
        expected = expected or found
        assert found == expected


@pytest.mark.usefixtures("rounds_stay")
@pytest.mark.parametrize("error", EXCEPTIONS)
def test_any_exception_in_a_block_fails_its_own_step(error):
    three = Three(b=raising(error))
    with cs.Engine() as engine, cs.use(engine):
        with cs.graph() as g, g.repeat(2):
            three.push(cs.engine().push)
        g.instantiate().launch()
        assert three.outcome() == {"a": (True, False), "b": (False, True), "c": (True, False)}
        assert three.ran == ["a", "c"] * 2
        engine.clear_errors()


@pytest.mark.usefixtures("rounds_stay")
@pytest.mark.parametrize("failing", ["", "a"], ids=["in the loop", "behind a failure"])
@pytest.mark.parametrize("is_block", [False, True], ids=["segment", "block"])
def test_ctrl_c_on_a_serial_engine_ends_the_launch_and_leaves_nothing_intact(failing, is_block):
    todo = {"a": raising(ValueError)} if failing else {}
    three = Three(**todo, b=lambda: signal.raise_signal(signal.SIGINT))
    with cs.Engine("serial") as engine, cs.use(engine):
        with cs.graph() as g:
            if is_block:
                with g.repeat(1):
                    three.push(cs.engine().push)
            else:
                three.push(cs.engine().push)
        exe = g.instantiate()
        with pytest.raises(KeyboardInterrupt):
            exe.launch()
        assert all(poisoned for _, poisoned in three.outcome().values())
        engine.clear_errors()


@pytest.mark.parametrize("failing", ["", "a"], ids=["in the loop", "behind a failure"])
def test_ctrl_c_in_a_segment_that_its_waiter_runs_leaves_nothing_intact(failing, monkeypatch):
    is_struck = False

    def strike():
        if is_struck:
            # The second one comes inside of the function.
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    def fail():
        if is_struck and failing:
            raise ValueError("planned")

    three = Three(a=fail, b=strike)
    by_worker = []
    run = HostPart._run
    monkeypatch.setattr(
        HostPart, "_run", lambda part, op: (by_worker.append(current.is_ours()), run(part, op))[1]
    )
    with cs.Engine() as engine, cs.use(engine):
        with cs.graph() as g:
            three.push(cs.engine().push)
        exe = g.instantiate()
        while True:
            is_struck = False
            exe.launch().wait()
            three.ran.clear()
            is_struck = True
            with suppress(KeyboardInterrupt, cs.OpError):
                exe.launch().wait()
            if not by_worker[-1]:
                break
            engine.clear_errors()
        assert "c" not in three.ran
        assert all(poisoned for _, poisoned in three.outcome().values())
        engine.clear_errors()
