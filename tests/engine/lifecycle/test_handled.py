"""Failures that a program has dealt with: what `waitall` says of them, and that none is kept for
nothing."""

from __future__ import annotations

import asyncio
import gc
import pickle
import weakref
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from helpers.concurrency.thread_crew import PATIENCE_S, Crew, comes_true, engine_of

import cudasync as cs
from cudasync.engine.lifecycle import unhandled
from cudasync.engine.lifecycle.unhandled import Failures

# An engine looks for failures that it need not keep when their number has doubled.
MANY, FEW = 20 * unhandled.SWEEP, 3 * unhandled.SWEEP


class Failed(Exception):
    """The failure of an op."""


# Those that are alive.
ALIVE: weakref.WeakSet[Failed] = weakref.WeakSet()


def fail(*_: object) -> None:
    error = Failed()
    ALIVE.add(error)
    raise error


def told(ask: Callable[[], object]) -> cs.OpError:
    with pytest.raises(cs.OpError) as caught:
        ask()
    error = caught.value
    assert isinstance(error.cause, Failed)
    return error


def by_op(engine: cs.Engine) -> None:
    told(engine.push(fail, writes=[cs.Var()]).wait)


def by_device_op(engine: cs.Engine) -> None:
    told(engine.push(fail, writes=[cs.Var()], device=0).result)


def by_exception(engine: cs.Engine) -> None:
    assert engine.push(fail).exception(PATIENCE_S) is not None


def by_variable(engine: cs.Engine) -> None:
    x = cs.Var()
    engine.push(fail, writes=[x])
    told(x.wait)


def by_dependent(engine: cs.Engine) -> None:
    x, y = cs.Var(), cs.Var()
    engine.push(fail, writes=[x])
    engine.push(int, reads=[x], writes=[y])
    told(engine.push(lambda stream: None, reads=[y], device=0).wait)


def by_batch(engine: cs.Engine) -> None:
    x = cs.Var()
    told(engine.push_many([(int, [], [x]), (fail, [], [x])]).wait)


def by_array(engine: cs.Engine) -> None:
    x = cs.zeros(4)
    engine.push(fail, writes=[x], device=0)
    told(x.numpy)


def by_host_array(engine: cs.Engine) -> None:
    x = np.zeros(4)
    engine.push(fail, writes=[x])
    told(engine.push(int, reads=[x]).wait)


def awaited(engine: cs.Engine) -> None:
    async def ask() -> None:
        await engine.push(fail, writes=[cs.Var()])

    told(partial(asyncio.run, ask()))


def healed(engine: cs.Engine) -> None:
    """The data of a server lives as long as the server."""
    told(engine.push(fail, writes=[STATE]).wait)
    engine.push(int, writes=[STATE]).wait(PATIENCE_S)


STATE = cs.Var("state")
WAYS = [
    by_op,
    by_device_op,
    by_exception,
    by_variable,
    by_dependent,
    by_batch,
    by_array,
    by_host_array,
    healed,
]


def alive() -> int:
    """How many failures are left, once arrays that are gone are known to be."""
    gc.collect()
    cs.empty_cache()
    cs.engine().push(int).wait(PATIENCE_S)
    return len(ALIVE)


@pytest.mark.parametrize("mode", ["async", "serial"])
@pytest.mark.parametrize("way", [*WAYS, awaited])
def test_a_failure_that_was_told_goes_with_its_data(way, mode):
    with engine_of(mode=mode) as engine:
        for _ in range(MANY // 8 if way is awaited else MANY):
            way(engine)
        # The thread that ended the last op may hold it for a moment.
        assert comes_true(lambda: alive() <= FEW)
        assert len(engine._failures.all()) <= FEW
        first = told(engine.waitall)
        engine.clear_errors()
        engine.waitall()
        del first
        assert comes_true(lambda: alive() == 0)


def test_a_registry_that_keeps_all_failures_is_found(monkeypatch):
    """The planted bug of the test above."""
    monkeypatch.setattr(Failures, "_sweep", lambda failures: None)
    with engine_of() as engine:
        for _ in range(MANY):
            by_op(engine)
        assert alive() >= MANY
        engine.clear_errors()


def test_the_first_failure_stays_for_waitall_whichever_were_told_first():
    """Failures are told in another order than the ops were pushed in."""
    with engine_of() as engine:
        ops = [engine.push(fail, name=f"op {index}") for index in range(MANY)]
        for op in reversed(ops):
            told(op.wait)
        del op, ops
        for _ in range(MANY):
            by_op(engine)
        assert comes_true(lambda: alive() <= FEW)
        assert told(engine.waitall).op == "op 0"
        engine.clear_errors()


def test_data_of_a_failure_that_was_told_stays_wrong_until_it_is_cleared():
    with engine_of() as engine:
        variables = [cs.Var() for _ in range(MANY)]
        for each in variables:
            told(engine.push(fail, writes=[each]).wait)
        for each in variables:
            told(each.wait)
        engine.clear_errors()
        for each in variables:
            each.wait(PATIENCE_S)
            engine.push(int, reads=[each]).wait(PATIENCE_S)


def test_among_failures_that_were_told_each_that_was_not_is_reported():
    engine = cs.Engine()
    for index in range(MANY):
        by_op(engine)
        if index % 10 == 0:
            engine.push(fail, name=f"unseen {index}")
    with pytest.warns(cs.UnhandledFailureWarning) as found:
        engine.close()
    names = {each.message.op for each in found}
    assert names == {f"unseen {index}" for index in range(0, MANY, 10)}


def test_threads_that_fail_and_handle_at_once_keep_the_first_and_no_more():
    def serve() -> None:
        with cs.use(engine):
            for _ in range(MANY):
                by_variable(engine)

    with engine_of(workers=2) as engine:
        first = engine.push(fail, name="first", writes=[cs.Var()])
        told(first.wait)
        del first
        with Crew() as crew:
            for _ in range(3):
                crew.start(serve)
        assert comes_true(lambda: alive() <= FEW)
        assert told(engine.waitall).op == "first"
        engine.clear_errors()


def test_memory_that_there_is_not_is_forgotten_too():
    """The call got the error, and nothing was pushed for good."""
    with engine_of() as engine:
        for _ in range(MANY):
            with pytest.raises(MemoryError):
                cs.empty(1 << 40, np.uint8)
        assert len(engine._failures.all()) <= FEW
        engine.waitall()


@pytest.mark.parametrize("mode", ["async", "serial"])
def test_waitall_says_that_a_failure_was_told_and_how_to_end_that(mode):
    with engine_of(mode=mode) as engine:
        engine.push(fail, name="step")
        first = told(engine.waitall)
        again = told(engine.waitall)
        assert "clear_errors" not in str(first)
        assert str(again).startswith(str(first))
        assert "an earlier wait has raised this" in str(again)
        assert "clear_errors()" in str(again)
        assert str(pickle.loads(pickle.dumps(again))) == str(again)
        told(engine.push(fail).result)
        engine.clear_errors()
        engine.waitall()
        told(engine.push(fail).result)
        assert "clear_errors()" in str(told(engine.waitall))
        engine.clear_errors()
