"""An unseen failure is reported once, with its op, push site, cause and dependents."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import threading
import warnings
import weakref

import numpy as np
import pytest
from helpers.concurrency.thread_crew import (
    PATIENCE_S,
    Crew,
    engine_threads_end,
    held_by,
    lasting_engine_threads,
)

import cudasync as cs
from cudasync.engine.lifecycle.unhandled import Failures

WORDS = "no wait raised the failure"


@pytest.fixture(params=["async", "serial"])
def engine(request):
    return cs.Engine(request.param)


@contextlib.contextmanager
def told():
    """The reports inside the block, under the warning filter of most programs."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        reports: list[cs.UnhandledFailureWarning] = []
        yield reports
    assert all(each.category is cs.UnhandledFailureWarning for each in found)
    reports += [each.message for each in found]


def fail() -> None:
    raise ValueError("planned")


def here() -> int:
    """The line number of the call."""
    return inspect.currentframe().f_back.f_lineno


def test_closing_reports_what_nobody_waited_for_and_names_all_of_it(engine):
    x, y = cs.Var("x"), cs.Var("y")
    line = here() + 1
    engine.push(fail, writes=[x], name="load")
    engine.push(lambda: None, reads=[x], writes=[y])
    engine.push(lambda stream: None, reads=[y], device=cs.Device(0))
    with told() as reports:
        engine.close()
        engine.close()
    (report,) = reports
    assert (report.op, report.push_site) == ("load", f"{__file__}:{line}")
    assert isinstance(report.cause, ValueError)
    assert report.__cause__ is report.cause
    assert (report.dependents, report.alike) == (2, 0)
    assert "'load'" in str(report)
    assert f"{__file__}:{line}" in str(report)
    assert "ValueError: planned" in str(report)
    assert "2 dependent ops" in str(report)
    assert WORDS in str(report)
    # The trace has the program's frames only.
    assert "in fail" in report.trace
    assert "cudasync" not in report.trace.replace(__file__, "")


def test_the_warning_stands_at_the_push(engine):
    line = here() + 1
    engine.push(fail)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        engine.close()
    assert [(each.filename, each.lineno) for each in found] == [(__file__, line)]


# Each of these calls raises the failure of `op`, which wrote `x`.
HEARERS = {
    "wait": lambda engine, op, x: op.wait(PATIENCE_S),
    "result": lambda engine, op, x: op.result(PATIENCE_S),
    "await": lambda engine, op, x: asyncio.run(awaiting(op)),
    "the wait of a variable": lambda engine, op, x: wait_in(engine, x),
    "the wait of a dependent": lambda engine, op, x: engine.push(int, reads=[x]).wait(PATIENCE_S),
    "waitall": lambda engine, op, x: engine.waitall(PATIENCE_S),
}


async def awaiting(op):
    await op


def wait_in(engine, x):
    with cs.use(engine):
        x.wait(PATIENCE_S)


@pytest.mark.parametrize("hear", HEARERS.values(), ids=HEARERS)
def test_who_is_told_need_not_be_told_again(engine, hear):
    x = cs.Var("x")
    op = engine.push(fail, writes=[x])
    with pytest.raises(cs.OpError):
        hear(engine, op, x)
    engine.close()


def test_to_ask_for_the_exception_or_to_clear_it_is_to_be_told(engine):
    assert engine.push(fail).exception(PATIENCE_S)
    engine.push(fail)
    engine.clear_errors()
    engine.close()


def test_an_array_that_is_read_tells(engine):
    with cs.use(engine):
        array = cs.zeros(4)
        engine.push(fail, writes=[array])
        with pytest.raises(cs.OpError):
            array.numpy()
    engine.close()


def test_to_see_that_an_op_is_done_is_not_to_be_told(engine):
    seen = []
    op = engine.push(fail)
    op.add_done_callback(lambda: seen.append("called"))
    engine.push(lambda: None).wait(PATIENCE_S)
    with told() as reports:
        engine.close()
    assert op.done()
    assert seen
    assert len(reports) == 1


def test_a_wait_whose_time_has_passed_has_told_nobody():
    engine, gate = cs.Engine(), threading.Event()

    def late() -> None:
        gate.wait(PATIENCE_S)
        raise ValueError("planned")

    op = engine.push(late)
    with pytest.raises(TimeoutError):
        op.wait(0.0)
    gate.set()
    with told() as reports:
        engine.close()
    assert len(reports) == 1


def test_each_failure_is_reported_and_those_alike_together(engine):
    for number in range(50):
        engine.push(fail, name="same")
        engine.push(lambda number=number: 1 // 0 if number % 2 else fail(), name="other")
    with told() as reports:
        engine.close()
    counts = {(each.op, type(each.cause)): each.alike for each in reports}
    assert counts == {
        ("same", ValueError): 49, ("other", ValueError): 24, ("other", ZeroDivisionError): 24,
    }  # fmt: skip
    assert any("49 equal failures follow" in str(each) for each in reports)


def test_a_second_engine_of_the_same_place_is_reported_too():
    with told() as reports:
        for _ in range(3):
            engine = cs.Engine("serial")
            engine.push(fail)
            engine.close()
    assert len(reports) == 3


def test_one_who_waits_while_the_engine_closes_is_told_and_nobody_else():
    """The waiter sleeps when the op ends, and the engine may close before the waiter wakes."""
    for _ in range(20):
        engine, gate, waits = cs.Engine(workers=1), threading.Event(), threading.Event()

        def late(gate=gate) -> None:
            gate.wait(PATIENCE_S)
            raise ValueError("planned")

        op = engine.push(late)

        def hear(op=op, waits=waits) -> None:
            with pytest.raises(cs.OpError):
                op.wait(PATIENCE_S)

        with Crew() as crew:
            crew.start(hear)
            while op._node is None or not op._node.sleepers:
                pass
            gate.set()
            engine.close()


def test_a_serial_engine_that_waits_for_another_ones_op_tells_nobody():
    other, mine, gate, x = cs.Engine(workers=1), cs.Engine("serial"), threading.Event(), cs.Var()

    def late() -> None:
        gate.wait(PATIENCE_S)
        raise ValueError("planned")

    op = other.push(late, writes=[x])
    with Crew() as crew:
        crew.start(lambda: mine.push(lambda: None, reads=[x]))
        while op._node is None or not op._node.sleepers:
            pass
        gate.set()
    with told() as reports:
        mine.close()
        other.close()
    assert [each.dependents for each in reports] == [1]


# Leaving the block


def leave(*names, closes=False, raises=None):
    """A block in which ops of these names fail."""
    with cs.Engine() as engine:
        for name in names:
            engine.push(fail, name=name)
        if closes:
            engine.close()
        if raises is not None:
            raise raises


def test_leaving_raises_the_first_and_reports_the_others():
    with told() as reports, pytest.raises(cs.OpError) as caught:
        leave("first", "second", closes=True)
    assert caught.value.op == "first"
    assert [each.op for each in reports] == ["second"]


def test_leaving_by_another_exception_reports():
    with told() as reports, pytest.raises(KeyError):
        leave("lost", raises=KeyError("of the block"))
    assert len(reports) == 1


def test_where_warnings_are_errors_no_exception_is_replaced_and_nothing_is_lost():
    with pytest.raises(cs.OpError) as caught:
        leave("first", "second", "third")
    notes = "\n".join(caught.value.__notes__)
    assert "'second'" in notes
    assert "'third'" in notes
    with pytest.raises(KeyError) as caught:
        leave("lost", raises=KeyError("of the block"))
    assert "'lost'" in caught.value.__notes__[0]
    engine = cs.Engine()
    for name in ("first", "second"):
        engine.push(fail, name=name)
    with pytest.raises(cs.UnhandledFailureWarning) as caught:
        engine.close()
    assert engine.is_closed
    assert caught.value.op == "first"
    assert isinstance(caught.value.__cause__, ValueError)
    assert "'second'" in caught.value.__notes__[0]


def test_ctrl_c_in_a_push_tells_who_was_interrupted():
    def interrupted(stream: cs.Stream) -> None:
        raise KeyboardInterrupt

    for mode in ("async", "serial"):
        engine = cs.Engine(mode)
        with pytest.raises(KeyboardInterrupt):
            engine.push(interrupted, device=cs.Device(0))
        engine.close()


def test_what_ctrl_c_drops_is_not_reported_and_what_failed_before_is():
    gate, begun, x = threading.Event(), threading.Event(), cs.Var()

    def leave() -> None:
        with cs.Engine(workers=1) as engine:
            engine.push(fail, name="failed")
            engine.push(held_by(gate, begun), writes=[x])
            for _ in range(5):
                engine.push(lambda: None, reads=[x])
            assert begun.wait(PATIENCE_S)
            threading.Timer(0.0, gate.set).start()
            raise KeyboardInterrupt

    with told() as reports, pytest.raises(KeyboardInterrupt):
        leave()
    assert [each.op for each in reports] == ["failed"]


# An engine that is collected


def test_an_engine_that_is_collected_reports_and_leaves_no_thread():
    before = lasting_engine_threads()
    have_run = threading.Event()
    engine = cs.Engine(workers=2)
    engine.push(fail, name="lost")
    engine.push(have_run.set)
    assert have_run.wait(PATIENCE_S)
    gone = weakref.ref(engine)
    with told() as reports:
        del engine
        assert engine_threads_end(before)
        gc.collect()
        gc.collect()
    assert gone() is None
    assert [each.op for each in reports] == ["lost"]


def test_a_serial_engine_that_is_collected_reports():
    def program() -> None:
        cs.Engine("serial").push(fail, name="lost")

    with told() as reports:
        program()
        gc.collect()
    assert [each.op for each in reports] == ["lost"]


def test_an_engine_that_is_collected_after_it_has_closed_has_nothing_to_tell():
    with told() as reports:
        engine = cs.Engine()
        engine.push(fail)
        engine.close()
        del engine
        gc.collect()
    assert len(reports) == 1


def test_the_checker_of_this_file_finds_a_report_that_is_missing(monkeypatch, engine):
    """The planted bug: each failure counts as handled at once."""
    monkeypatch.setattr(Failures, "note", lambda self, failure, op: failure.handle())
    engine.push(fail)
    with told() as reports:
        engine.close()
    assert not reports


def test_numbers_stay_right_where_an_array_is_overwritten(engine):
    """Healed data is usable, but its failure is still reported."""
    array = np.zeros(4)
    engine.push(fail, writes=[array])
    engine.push(lambda: array.fill(1), writes=[array]).wait(PATIENCE_S)
    with told() as reports:
        engine.close()
    assert [each.dependents for each in reports] == [0]


def test_the_failures_of_an_engine_that_ctrl_c_left_unmade_go_without_a_word():
    Failures.__new__(Failures).__del__()
