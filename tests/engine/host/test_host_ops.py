"""Host ops: hazards, order, pools, priorities, results. No test here touches a device."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.concurrency.thread_crew import PATIENCE_S, held_by

import cudasync as cs
from cudasync.engine.failure import Failure
from cudasync.engine.op_classes import PlainOp


@pytest.fixture(params=["async", "serial"])
def any_engine(request):
    with cs.Engine(request.param) as engine:
        yield engine


@pytest.fixture
def engine():
    with cs.Engine(workers=2, pools={"io": 2}) as engine:
        yield engine


def test_an_op_returns_its_result(any_engine):
    op = any_engine.push(lambda: 42, name="answer")
    assert op.result() == 42
    assert op.done()
    assert op.exception() is None


class FortyTwo:
    """A callable that is no function, and has no name of its own."""

    def __call__(self) -> int:
        return 42

    def method(self) -> int:
        return 42

    def missing(self) -> int:
        return self.nothing  # type: ignore[attr-defined]


CALLABLES = {
    "lambda": (lambda: 42, "<lambda>"),
    "builtin": ([42].copy, "copy"),
    "partial": (functools.partial(max, 41, 42), "partial"),
    "method": (FortyTwo().method, "method"),
    "object": (FortyTwo(), "FortyTwo"),
    "class": (int, "int"),
}


@pytest.mark.parametrize("kind", CALLABLES)
@pytest.mark.parametrize("given", [tuple, list, set])
def test_whatever_can_be_called_is_pushed_as_fast_as_a_function(engine, kind, given):
    fn, name = CALLABLES[kind]
    x, y = cs.Var("x"), cs.Var("y")
    op = engine.push(fn, reads=given([x]), writes=given([y]))
    assert type(op) is PlainOp
    assert (op.name, op.result(PATIENCE_S)) == (name, fn())
    assert engine.push(fn, name="mine").name == "mine"


@pytest.mark.parametrize("fn", [functools.partial(divmod, 1, 0), [].pop, FortyTwo().missing])
def test_what_it_raises_is_told_with_its_name(engine, fn):
    with pytest.raises(cs.OpError, match=f"op '{getattr(fn, '__name__', 'partial')}'") as caught:
        engine.push(fn, writes=[cs.Var("x")]).wait(PATIENCE_S)
    assert isinstance(caught.value.cause, (ZeroDivisionError, IndexError, AttributeError))
    engine.clear_errors()


def test_a_read_waits_for_the_write_before_it(engine):
    gate, x, order = threading.Event(), cs.Var("x"), []
    engine.push(held_by(gate), writes=[x])
    reader = engine.push(lambda: order.append("read"), reads=[x])
    bystander = engine.push(lambda: order.append("bystander"))
    bystander.wait(PATIENCE_S)
    assert not reader.done()
    gate.set()
    reader.wait(PATIENCE_S)
    assert order == ["bystander", "read"]


def test_a_write_waits_for_every_earlier_read(engine):
    gate, x = threading.Event(), cs.Var("x")
    first = engine.push(held_by(gate), reads=[x])
    second = engine.push(lambda: None, reads=[x])
    write = engine.push(lambda: None, writes=[x])
    second.wait(PATIENCE_S)
    assert not write.done()
    assert not first.done()
    gate.set()
    write.wait(PATIENCE_S)
    assert first.done()


def test_a_write_waits_for_the_write_before_it(engine):
    gate, x, order = threading.Event(), cs.Var("x"), []
    engine.push(held_by(gate), writes=[x])
    engine.push(lambda: order.append(1), writes=[x])
    last = engine.push(lambda: order.append(2), writes=[x])
    assert order == []
    gate.set()
    last.wait(PATIENCE_S)
    assert order == [1, 2]


def test_reads_of_one_variable_run_together(engine):
    x, together = cs.Var("x"), threading.Barrier(2)
    ops = [engine.push(lambda: together.wait(PATIENCE_S), reads=[x]) for _ in range(2)]
    for op in ops:
        op.wait(PATIENCE_S)


def test_overlapping_slices_of_numpy_memory_are_ordered_and_others_are_not(engine):
    gate, data = threading.Event(), np.zeros(100)
    engine.push(held_by(gate), writes=[data[:50]])
    overlapping = engine.push(lambda: None, reads=[data[49:60]])
    apart = engine.push(lambda: None, writes=[data[50:]])
    shape_shifted = engine.push(lambda: None, reads=[data.reshape(10, 10)[4]])
    assert not overlapping.done()
    assert not apart.done(), "it overlaps the read of 50 to 60"
    disjoint = engine.push(lambda: None, reads=[data[70:]])
    assert not disjoint.done(), "it comes after the write of 50 to 100"
    gate.set()
    shape_shifted.wait(PATIENCE_S)
    engine.waitall(PATIENCE_S)


def test_a_strided_view_counts_by_its_span(engine):
    gate, data = threading.Event(), np.zeros(100)
    engine.push(held_by(gate), writes=[data[10:30:5]])
    before = engine.push(lambda: None, writes=[data[:10]])
    inside = engine.push(lambda: None, writes=[data[12:14]])
    after = engine.push(lambda: None, writes=[data[26:]])
    before.wait(PATIENCE_S)
    after.wait(PATIENCE_S)
    assert not inside.done()
    gate.set()
    inside.wait(PATIENCE_S)


def test_an_array_at_the_address_of_a_dead_one_has_no_history(engine):
    def fail() -> None:
        raise ValueError("planned")

    for _ in range(20):
        data = np.zeros(1000)
        engine.push(fail, writes=[data]).exception(PATIENCE_S)
        del data
        fresh = np.zeros(1000)
        engine.push(lambda: None, reads=[fresh]).wait(PATIENCE_S)
    engine.clear_errors()


def test_larger_priority_goes_first_among_ready_ops():
    order: list[int] = []
    gate, begun = threading.Event(), threading.Event()
    with cs.Engine(workers=1) as engine:
        # The only worker is occupied before there is a choice of ops.
        engine.push(held_by(gate, begun))
        assert begun.wait(PATIENCE_S)
        for priority in (0, 5, -3, 5, 1):
            engine.push(lambda p=priority: order.append(p), priority=priority)
        gate.set()
    assert order == [5, 5, 1, 0, -3]


def test_a_pool_full_of_sleepers_does_not_hold_up_another(engine):
    gate = threading.Event()
    sleepers = [engine.push(held_by(gate), pool="io") for _ in range(5)]
    engine.push(lambda: None).wait(PATIENCE_S)
    assert not any(op.done() for op in sleepers)
    gate.set()


def test_as_many_ops_run_at_once_as_there_are_workers(engine):
    together = threading.Barrier(2)
    for _ in range(20):
        pair = [engine.push(lambda: together.wait(PATIENCE_S)) for _ in range(2)]
        for op in pair:
            op.wait(PATIENCE_S)


def test_waiting_inside_an_op_does_not_starve_its_pool():
    with cs.Engine(workers=1) as engine:

        def outer(depth: int) -> int:
            if depth == 0:
                return 0
            return 1 + engine.push(lambda: outer(depth - 1)).result(PATIENCE_S)

        assert engine.push(lambda: outer(10)).result(PATIENCE_S) == 10


def test_the_engine_is_current_inside_its_ops(any_engine):
    assert any_engine.push(cs.engine).result() is any_engine


def test_an_op_may_push(any_engine):
    x, order = cs.Var("x"), []

    def outer() -> None:
        any_engine.push(lambda: order.append("inner"), writes=[x])
        order.append("outer")

    any_engine.push(outer, writes=[x])
    any_engine.push(lambda: None, writes=[x])
    any_engine.waitall()
    assert order == ["outer", "inner"]


def test_back_pressure_holds_the_pusher_back():
    gate = threading.Event()
    with cs.Engine(workers=1, max_in_flight=2) as engine:
        engine.push(held_by(gate))
        engine.push(lambda: None)
        pushed = threading.Event()
        third = threading.Thread(target=lambda: (engine.push(lambda: None), pushed.set()))
        third.start()
        assert not pushed.wait(0.05)
        gate.set()
        third.join(PATIENCE_S)
        assert pushed.is_set()


def test_variables_count_their_writes(any_engine):
    x = cs.Var("x")
    any_engine.push(lambda: None, reads=[x])
    assert x.version == 0
    any_engine.push(lambda: None, writes=[x])
    any_engine.push(lambda: None, writes=x, reads=x)
    assert x.version == 2
    x.wait()
    assert "x" in repr(x)


WAYS: dict[str, Callable[[Any], Any]] = {
    "alone": lambda thing: thing,
    "list": lambda thing: [thing],
    "tuple": lambda thing: (thing,),
    "two": lambda thing: (cs.Var("other"), thing),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["variable", "array", "array of one zero"])
def test_one_thing_counts_however_it_is_named(engine, kind, way):
    thing: Any = cs.Var() if kind == "variable" else np.zeros(8 if kind == "array" else 1)
    named = WAYS[way](thing)
    gate = threading.Event()
    engine.push(lambda: gate.wait(PATIENCE_S), writes=named)
    reader = engine.push(lambda: None, reads=named)
    writer = engine.push(lambda: None, None, named)
    with pytest.raises(TimeoutError):
        reader.wait(0.05)
    assert not writer.done()
    gate.set()
    writer.wait(PATIENCE_S)
    assert reader.done()


def test_variables_may_be_named_in_a_set(any_engine):
    x, y = cs.Var(), cs.Var()
    any_engine.push(lambda: None, reads=frozenset((x, y)), writes={x, y}).wait(PATIENCE_S)
    assert (x.version, y.version) == (1, 1)


def test_an_op_that_nothing_is_said_of_has_no_number_and_no_failure():
    op = PlainOp()
    assert (op.number, op.failure) == (0, None)
    op.number = 3
    op.failure = failure = Failure(3, "op", "file:1", ValueError())
    assert (op.number, op.failure) == (3, failure)


def test_many_threads_push_onto_crossed_variables(engine):
    x, y = cs.Var("x"), cs.Var("y")
    counts = {"x": 0, "y": 0}

    def bump(name: str, other: str) -> None:
        counts[name] += 1
        counts[other] += 1

    def pusher(flip: bool) -> None:
        names = ("y", "x") if flip else ("x", "y")
        variables = [y, x] if flip else [x, y]
        for _ in range(200):
            engine.push(lambda: bump(*names), writes=variables)

    threads = [threading.Thread(target=pusher, args=(i % 2 == 1,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    engine.waitall(PATIENCE_S)
    assert counts == {"x": 800, "y": 800}


def test_a_stand_in_that_leaves_passes_its_work_on():
    """Surplus stand-ins for blocked workers end, and no op is lost with them."""
    with cs.Engine(workers=2) as engine:
        for _ in range(50):
            gate = threading.Event()

            def outer(gate: threading.Event = gate) -> None:
                inner = [engine.push(lambda: None) for _ in range(3)]
                for op in inner:
                    op.wait(PATIENCE_S)
                gate.set()

            engine.push(outer)
            held_back = engine.push(held_by(gate))
            held_back.wait(PATIENCE_S)
            first, second = threading.Event(), threading.Event()
            ops = [
                engine.push(lambda a=first, b=second: (a.set(), b.wait(PATIENCE_S))),
                engine.push(lambda a=first, b=second: (b.set(), a.wait(PATIENCE_S))),
            ]
            for op in ops:
                op.wait(PATIENCE_S)


def test_what_ends_with_an_op_ends_without_the_engines_lock(any_engine):
    """A user's finaliser may wait for a thread that pushes."""
    ended: list[bool] = []

    class Noisy:
        def __del__(self) -> None:
            thread = threading.Thread(target=lambda: cs.Engine("serial").push(int))
            thread.start()
            thread.join(1.0)
            ended.append(not thread.is_alive())

    def device_op(stream: cs.Stream, noisy: Noisy | None = None) -> None:
        pass

    x = cs.Var("x")
    any_engine.push(functools.partial(id, Noisy())).wait(PATIENCE_S)
    any_engine.push(functools.partial(device_op, noisy=Noisy()), device=cs.Device(0)).wait(
        PATIENCE_S
    )
    any_engine.push(Noisy, writes=[x]).wait(PATIENCE_S)
    any_engine.push(lambda: None, writes=[x]).wait(PATIENCE_S)
    any_engine.waitall(PATIENCE_S)
    assert all(ended)
    assert ended


def test_a_serial_engine_with_a_limit_holds_back_nothing_that_its_ops_push():
    seen = []
    with cs.Engine("serial", max_in_flight=1) as engine:

        def outer():
            engine.push(lambda: seen.append("pushed"))
            engine.push_many([(lambda: seen.append("batch"), (), ())])
            seen.append("outer")

        engine.push(outer).wait()
    assert seen == ["outer", "pushed", "batch"]
