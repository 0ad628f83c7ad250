"""`push_many`: several functions as one op, called in order."""

from __future__ import annotations

import gc
import threading
import weakref
from collections import deque
from pathlib import Path

import numpy as np
import pytest

import cudasync as cs
from cudasync.engine.hazards.interval_map import Region

PATIENCE_S = 20.0


@pytest.fixture(params=["async", "serial", "traced", "limited"])
def engine(request):
    """An engine for each way that a push may take."""
    options = {"serial": {"mode": "serial"}, "traced": {"trace": True}}
    options["limited"] = {"max_in_flight": 3}
    with cs.Engine(**options.get(request.param, {})) as engine:
        yield engine


def fail() -> None:
    raise ValueError("planned")


def test_functions_run_in_their_order_and_their_results_are_one_list(engine):
    x, log = cs.Var("x"), []
    steps = [(lambda i=i: log.append(i) or i, [x], [x]) for i in range(8)]
    op = engine.push_many(steps)
    assert op.result(PATIENCE_S) == list(range(8)) == log
    assert op.kind.value == "host"
    assert Path(__file__).name in op.push_site


def test_a_batch_waits_for_what_its_steps_read_and_is_waited_for_by_readers_of_what_they_write():
    with cs.Engine() as engine:
        x, y, z = cs.Var("x"), cs.Var("y"), cs.Var("z")
        gate, log = threading.Event(), []
        engine.push(lambda: gate.wait(PATIENCE_S), writes=[x])
        op = engine.push_many([(lambda: log.append("y"), (), [y]), (lambda: None, [x], [z])])
        after = engine.push(lambda: log.append("after"), reads=[y])
        engine.push(lambda: None).wait(PATIENCE_S)
        assert log == []
        assert not op.done()
        gate.set()
        after.wait(PATIENCE_S)
        assert log == ["y", "after"]


@pytest.mark.parametrize("kind", ["variables", "arrays"])
def test_an_error_names_the_step_and_poisons_all_that_the_batch_writes(engine, kind):
    x, y, z = (cs.Var(n) for n in "xyz") if kind == "variables" else np.zeros((3, 4))
    log: list[str] = []
    op = engine.push_many(
        [(lambda: log.append("first"), (), [x]), (fail, (), [y]), (log.clear, (), [z])],
        name="frame",
    )
    error = op.exception(PATIENCE_S)
    assert error is not None
    assert error.op == "frame, step 1 (fail)"
    assert error.push_site == op.push_site
    assert Path(__file__).name in error.push_site
    assert isinstance(error.cause, ValueError)
    assert log == ["first"], "what comes behind a step that failed does not run"
    for each in (x, y, z):
        reader = engine.push(lambda: None, reads=[each])
        assert reader.exception(PATIENCE_S).op == "frame, step 1 (fail)"
    engine.clear_errors()


@pytest.mark.parametrize("kind", ["variables", "arrays"])
def test_what_a_step_overwrites_is_not_read_from_outside_by_later_steps(engine, kind):
    x, y = (cs.Var("x"), cs.Var("y")) if kind == "variables" else np.zeros((2, 4))
    engine.push(fail, writes=[x])
    healing = engine.push_many([(lambda: None, (), [x]), (lambda: 7, [x], [y])])
    assert healing.result(PATIENCE_S) == [None, 7]
    engine.push(fail, writes=[x])
    poisoned = engine.push_many([(lambda: 7, [x], [y]), (lambda: None, (), [x])])
    assert poisoned.exception(PATIENCE_S).op == "fail"
    engine.clear_errors()


def test_a_part_that_no_step_overwrote_is_read_from_outside(engine):
    x, y = np.zeros(8), np.zeros(8)
    engine.push(fail, writes=[x[4:]])
    spared = engine.push_many([(lambda: None, (), [y[:6]]), (lambda: 1, [x[:4], y], [y])])
    assert spared.result(PATIENCE_S) == [None, 1]
    op = engine.push_many([(lambda: None, (), [x[:6]]), (lambda: 1, [x], [y])])
    assert op.exception(PATIENCE_S).op == "fail"
    engine.clear_errors()


def test_a_view_with_gaps_that_a_step_writes_keeps_what_lies_between(engine):
    x = np.zeros(8)
    engine.push(fail, writes=[x])
    op = engine.push_many([(lambda: None, (), [x[::2]]), (lambda: None, (), [x])])
    assert op.exception(PATIENCE_S).op == "fail"
    engine.clear_errors()


def test_an_empty_batch_is_an_op_that_does_nothing(engine):
    op = engine.push_many([])
    assert op.result(PATIENCE_S) == []
    assert op.accesses == ()
    assert op.name == "batch of 0"


def test_steps_may_come_from_a_generator_and_what_it_raises_comes_out(engine):
    x = cs.Var("x")

    def broken():
        yield (lambda: None, (), [x])
        raise KeyError("planned")

    assert engine.push_many((lambda: 2, (), [x]) for _ in range(3)).result(PATIENCE_S) == [2, 2, 2]
    version = x.version
    with pytest.raises(KeyError, match="planned"):
        engine.push_many(broken())
    assert x.version == version


def test_a_variable_is_written_once_by_a_batch(engine):
    x, y = cs.Var("x"), cs.Var("y")
    engine.push_many([(lambda: None, [x], [x, y]), (lambda: None, y, x)]).wait(PATIENCE_S)
    assert (x.version, y.version) == (1, 1)


def test_a_batch_is_one_op_for_statistics_and_trace():
    with cs.Engine(trace=True) as engine:
        x = cs.Var("x")
        engine.push_many([(lambda: None, (), [x])] * 5, name="five").wait(PATIENCE_S)
        engine.push_many([(lambda: None, (), [x])] * 2, name="two").wait(PATIENCE_S)
        engine.push(lambda: None).wait(PATIENCE_S)
        counted = engine.statistics()
        assert (counted.ops, counted.host_ops, counted.batches, counted.steps) == (3, 3, 2, 7)
        assert [entry.name for entry in engine.trace()][:2] == ["five", "two"]


def test_priority_pool_and_name_are_as_for_push():
    with cs.Engine(pools={"io": 1}) as engine:
        steps = [(lambda: threading.current_thread().name, (), ())]
        op = engine.push_many(steps, name="mine", priority=2, pool="io")
        assert (op.name, op.priority) == ("mine", 2)
        assert op._pool is engine._pools["io"]
        op.wait(PATIENCE_S)
        with pytest.raises(ValueError, match="no worker pool 'none'"):
            engine.push_many(steps, pool="none")


def test_a_batch_may_push_a_batch_and_wait_for_it(engine):
    x, y = cs.Var("x"), cs.Var("y")

    def outer() -> object:
        assert cs.engine() is engine
        return cs.engine().push_many([(lambda: 3, (), [y])] * 2).result(PATIENCE_S)

    op = engine.push_many([(lambda: 1, (), [x]), (outer, (), [x])])
    assert op.result(PATIENCE_S) == [1, [3, 3]]


class Unhashable:
    """A callable that must not count as data: it can be neither hashed nor compared."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise AssertionError("nobody compares data")

    def __call__(self) -> int:
        return 1


@pytest.mark.parametrize(
    ("steps", "error", "says"),
    [
        ([7], TypeError, "step 0: .*prepared launches.*not int"),
        ([(len,)], TypeError, "step 0: .*not a tuple of 1"),
        ([(int, (), ()), (int, (), (), 0, 0)], TypeError, "step 1: .*not a tuple of 5"),
        ([(int, (), ()), ("x", (), ())], TypeError, "step 1: an op needs a function, not str"),
        ([(int, (), ()), (int, [3], ())], TypeError, "step 1: reads= takes .*not int"),
        ([(int, (), [Unhashable()])], TypeError, "step 0: writes= takes .*not Unhashable"),
        ([(int, (), ()), (print, (), (), 0)], ValueError, "step 0 is a function on the host and s"),
        ("ab", TypeError, "step 0: .*not str"),
    ],
)
def test_what_is_no_batch_is_refused_and_pushes_nothing(engine, steps, error, says):
    x = cs.Var("x")
    with pytest.raises(error, match=says):
        engine.push_many([*steps, (int, (), [x])])
    assert x.version == 0


def test_whatever_can_be_called_is_a_step_and_any_sequence_holds_its_data(engine):
    x, y = cs.Var("x"), cs.Var("y")
    steps = [(Unhashable(), [x], y), [int, {x, y}, None], (int, y, (x, y), None)]
    assert engine.push_many(steps).result(PATIENCE_S) == [1, 0, 0]


# Forms that name one variable in `reads=` and `writes=`. Some are accepted, some are not.
FORMS = {
    "alone": lambda x: x,
    "a tuple": lambda x: (x,),
    "a list": lambda x: [x],
    "twice": lambda x: [x, x],
    "a set": lambda x: {x},
    "a dict": lambda x: {x: None},
    "keys": lambda x: {x: None}.keys(),
    "a deque": lambda x: deque([x]),
    "a generator": lambda x: (each for each in [x]),
    "an array of objects": lambda x: np.array([x], dtype=object),
    "a tuple in a tuple": lambda x: ((x,),),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("word", ["reads", "writes"])
def test_a_step_takes_what_push_takes(engine, word, form):
    """The accesses are the same, too: variables, or the bytes of an array."""
    x = cs.Var("x")

    def kinds(push):
        try:
            return {type(row.what) for row in push().accesses}
        except (TypeError, ValueError) as error:
            return type(error)

    alone = kinds(lambda: engine.push(int, **{word: form(x)}))
    version = x.version
    accesses = (form(x), ()) if word == "reads" else ((), form(x))
    in_a_batch = kinds(lambda: engine.push_many([(int, (), ()), (int, *accesses)]))
    assert in_a_batch == alone
    assert x.version == version + (word == "writes" and alone == {cs.Var})


@pytest.mark.parametrize("form", [dict.fromkeys, set, deque, iter])
def test_only_tuples_and_lists_are_steps(engine, form):
    x = cs.Var("x")
    with pytest.raises(TypeError, match="step 1: push_many takes"):
        engine.push_many([(int, (), ()), form([int, (), (x,)])])
    assert x.version == 0


def test_a_closed_engine_refuses_a_batch():
    with cs.Engine() as engine:
        pass
    for steps in ([(int, (), [cs.Var()])], [(int, (), [np.zeros(2)])], []):
        with pytest.raises(cs.ClosedError):
            engine.push_many(steps)


def test_a_failure_that_is_kept_keeps_nothing_of_the_other_steps():
    class Big:
        def __call__(self) -> None:
            pass

    with cs.Engine() as engine:
        big = Big()
        gone = weakref.ref(big)
        op = engine.push_many([(big, (), [cs.Var()]), (fail, (), [cs.Var()])])
        error = op.exception(PATIENCE_S)
        del big
        gc.collect()
        assert error is not None
        assert gone() is None
        engine.clear_errors()


def test_a_batch_keeps_its_functions_until_it_is_over_and_no_longer():
    class Big:
        def __call__(self) -> None:
            pass

    with cs.Engine() as engine:
        gate = threading.Event()
        x = cs.Var("x")
        engine.push(lambda: gate.wait(PATIENCE_S), writes=[x])
        big = Big()
        gone = weakref.ref(big)
        op = engine.push_many([(big, (), [x])])
        del big
        gc.collect()
        assert gone() is not None
        gate.set()
        op.wait(PATIENCE_S)
        engine.push(lambda: None).wait(PATIENCE_S)
        engine.close()
        gc.collect()
        assert gone() is None
        assert op.finished


def test_accesses_tell_the_union_of_the_steps(engine):
    x, y = np.zeros(8, np.uint8), cs.Var("y")
    op = engine.push_many([(int, (), [x[:4]]), (int, [x, y], ()), (int, (), [y])])
    start = x.ctypes.data
    told = {(row.what, row.reads, row.writes) for row in op.accesses}
    halves = Region(start, start + 4), Region(start + 4, start + 8)
    assert told == {(halves[0], False, True), (halves[1], True, False), (y, True, True)}
    op.wait(PATIENCE_S)


def test_threads_that_push_batches_at_once_lose_none(engine):
    x, log = cs.Var("x"), []
    steps = [(lambda: log.append(1), [x], [x])] * 4
    start = threading.Barrier(4)

    def push() -> None:
        start.wait(PATIENCE_S)
        for _ in range(50):
            engine.push_many(steps)

    threads = [threading.Thread(target=push) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    engine.waitall(PATIENCE_S)
    assert len(log) == 800
    assert (engine.statistics().batches, engine.statistics().steps) == (200, 800)
