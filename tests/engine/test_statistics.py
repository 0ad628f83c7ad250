"""An engine's counts and traces: true when they are read, and in the stated order."""

from __future__ import annotations

import threading

import pytest
from helpers.concurrency.thread_crew import PATIENCE_S, engine_of, held_by
from hypothesis import given
from hypothesis import strategies as st

import cudasync as cs
from cudasync.engine.log import node as nodes
from cudasync.engine.op import Op
from cudasync.engine.op_classes import DeviceOp, FullOp
from cudasync.engine.trace import TraceEntry, _in_order
from cudasync.testing import Latch


@pytest.mark.parametrize("mode", ["async", "serial"])
@pytest.mark.parametrize("launches", [1, 6, 100])
def test_counts_are_true_when_they_are_read(mode, launches):
    """This also holds if one op was waited for, and earlier ops of its stream ended before it."""
    with engine_of(mode=mode) as engine:
        array = cs.zeros(16)
        for _ in range(launches):
            engine.push(lambda stream: None, writes=[array], device=cs.Device(0))
        engine.push(lambda: None, name="host")
        array.numpy()
        engine.waitall()
        found = engine.statistics()
        assert (found.host_ops, found.failed_ops) == (1, 0)
        # The three ops are allocate, fill with zeros, and read. Other tests may have left frees.
        assert found.device_ops >= launches + 3
        assert found.ops == found.device_ops + 1


def test_what_was_not_waited_for_counts_once_it_has_ended_and_not_before():
    device = cs.Device(0)
    with engine_of() as engine, Latch() as latch:
        held = engine.push(latch.hold, device=device)
        for _ in range(10):
            engine.push(lambda stream: None, writes=[], device=device)
        found = engine.statistics()
        assert found.ops == 11
        assert found.device_ops < 11
        latch.release()
        held.wait(PATIENCE_S)
        device.synchronize()
        assert engine.statistics().device_ops == 11


def test_an_op_that_is_over_counts_once_while_its_worker_still_notifies():
    found: list[int] = []

    class Listener:
        def notify(self, op: Op) -> None:
            found.append(engine.statistics().ops)

    with engine_of(workers=1) as engine:
        gate = threading.Event()
        op = engine.push(held_by(gate))
        nodes.of(op).listeners.append(Listener())
        gate.set()
        op.wait(PATIENCE_S)
    assert set(found) == {1}


def test_what_failed_on_a_device_counts_as_failed():
    with engine_of() as engine:
        x = cs.Var()

        def fail(stream: cs.Stream) -> None:
            raise ValueError("planned")

        engine.push(fail, writes=[x], device=cs.Device(0))
        engine.push(lambda stream: None, reads=[x], device=cs.Device(0))
        cs.Device(0).synchronize()
        found = engine.statistics()
        assert (found.device_ops, found.failed_ops, found.ops) == (0, 2, 2)
        engine.clear_errors()


def test_to_count_takes_few_questions(monkeypatch):
    """The count halves the range: 1000 ops in flight on a stream need ten queries."""
    asked = []
    query = cs.Event.query
    monkeypatch.setattr(cs.Event, "query", lambda event: asked.append(1) or query(event))
    with engine_of(streams=1) as engine, Latch() as latch:
        engine.push(latch.hold, device=cs.Device(0))
        for _ in range(1000):
            engine.push(lambda stream: None, device=cs.Device(0))
        asked.clear()
        engine.statistics()
        assert len(asked) < 30
        latch.release()


def test_a_trace_is_in_order_of_completion_on_each_clock():
    """Of five launches only the last is waited for, so the ends of the others are found late."""
    with engine_of(trace=True) as engine:
        array, other = cs.zeros(64), cs.zeros(64)
        for number in range(5):
            cs.copy(array, other)
            engine.push(lambda: None, reads=[array], name=f"host {number}")
        array.numpy()
        entries = engine.trace()
        on_device = [entry.end_us for entry in entries if entry.kind != "host"]
        on_host = [entry.end_us for entry in entries if entry.kind == "host"]
        assert len(on_device) >= 4 + 5 + 1
        assert on_device == sorted(on_device)
        assert on_host == sorted(on_host)


def test_a_trace_has_what_was_waited_for_before_what_waited_for_it():
    device, gate = cs.Device(0), threading.Event()
    with engine_of(trace=True, workers=1) as engine:
        x, names = cs.Var(), []
        gate.set()
        for number in range(10):
            on_device = number % 3 != 2
            names.append(f"op {number}")
            engine.push(
                (lambda stream: None) if on_device else gate.wait,
                reads=[x],
                writes=[x],
                name=names[-1],
                device=device if on_device else None,
            )
        engine.waitall(PATIENCE_S)
        assert [entry.name for entry in engine.trace()] == names


@given(st.lists(st.tuples(st.sampled_from([None, 0, 1]), st.integers(0, 5)), max_size=12))
def test_any_findings_are_put_in_order(findings):
    """Each clock is in order, and no entry moves behind the place where it was found."""
    found: list[tuple[Op, TraceEntry]] = []
    for place, (clock, end) in enumerate(findings):
        op = FullOp() if clock is None else DeviceOp()
        op.number = place
        if isinstance(op, DeviceOp):
            clock %= cs.device_count()
            op._device = cs.Device(clock)
        found.append((op, TraceEntry(str(place), str(clock), "", 0.0, float(end), 0.0)))
    ordered = _in_order(found)
    assert sorted(map(id, ordered)) == sorted(id(entry) for _, entry in found)
    for clock in {entry.timeline for entry in ordered}:
        ends = [entry.end_us for entry in ordered if entry.timeline == clock]
        assert ends == sorted(ends)
    for place, entry in enumerate(ordered):
        # An earlier entry was found earlier, or ended before an entry that was found earlier.
        late = [each for each in ordered[:place] if int(each.name) > int(entry.name)]
        for each in late:
            assert any(
                other.timeline == each.timeline
                and other.end_us >= each.end_us
                and int(other.name) <= int(entry.name)
                for _, other in found
            )
