"""The current engine is a context variable: per thread, task, op and innermost block."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import pytest
from helpers.concurrency.interrupt_injector import Interrupter, told_to_nobody
from helpers.concurrency.thread_crew import PATIENCE_S, Crew, engine_of
from helpers.repository.subprocesses import assert_runs_clean

import cudasync as cs
from cudasync.engine import current


def in_a_thread(fn):
    """The result of `fn()` in a new thread."""
    results: list[object] = []
    with Crew() as crew:
        crew.start(lambda: results.append(fn()))
    return results[0]


def test_blocks_nest_and_each_gives_back_what_was_current_before():
    outside = cs.engine()
    with cs.Engine() as one:
        assert cs.engine() is one
        with cs.Engine() as two:
            assert cs.engine() is two
            with cs.use(one):
                assert cs.engine() is one
                with cs.use(one):
                    assert cs.engine() is one
                assert cs.engine() is one
            assert cs.engine() is two
        assert cs.engine() is one
        assert two.is_closed
    assert cs.engine() is outside
    assert one.is_closed
    assert not outside.is_closed


def test_a_block_that_is_left_by_an_exception_gives_back_too():
    outside = cs.engine()

    def fail() -> None:
        raise ValueError("planned")

    with pytest.raises(ValueError, match="planned"), cs.Engine():
        fail()
    assert cs.engine() is outside
    with pytest.raises(cs.OpError), cs.Engine() as engine:
        engine.push(fail)
    assert cs.engine() is outside
    with cs.Engine() as mine:
        with pytest.raises(ValueError, match="planned"), cs.use(mine):
            fail()
        assert not mine.is_closed
    assert cs.engine() is outside


def test_a_block_that_never_began_is_collected_elsewhere_without_a_word():
    """Ctrl-C may strike after an engine became current and before its block begins."""
    told: list[object] = []
    with engine_of() as engine, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "unraisablehook", told.append)
        scope = cs.use(engine)
        contextvars.copy_context().run(scope.__enter__)
        del scope
        gc.collect()
    assert not told


def test_a_thread_starts_with_the_engine_of_the_process_and_its_own_stays_its_own():
    process_engine = cs.engine()
    # Python's rule for context variables. Free-threaded builds have the opposite default.
    inherits = getattr(sys.flags, "thread_inherit_context", 0)
    with cs.Engine() as mine:
        assert in_a_thread(cs.engine) is (mine if inherits else process_engine)

        def use_another() -> bool:
            with cs.Engine() as other:
                return cs.engine() is other

        assert in_a_thread(use_another) is True
        assert cs.engine() is mine
        copied = contextvars.copy_context()
        assert in_a_thread(lambda: copied.run(cs.engine)) is mine


def from_a_timer(fn):
    found = []
    timer = threading.Timer(0.0, lambda: found.append(fn()))
    timer.start()
    timer.join(PATIENCE_S)
    return found[0]


def in_a_pool(fn):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(fn).result(PATIENCE_S)


async def in_an_executor(fn):
    return await asyncio.get_running_loop().run_in_executor(None, fn)


async def in_a_task(fn):
    async def call():
        return fn()

    return await asyncio.create_task(call())


async def in_a_callback(fn):
    found = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(lambda: found.set_result(fn()))
    return await found


# Ways to begin a function inside a block, and whether it counts as inside.
BEGUN = {
    "a thread": (in_a_thread, False),
    "a timer": (from_a_timer, False),
    "a thread pool": (in_a_pool, False),
    "an executor of asyncio's": (lambda fn: asyncio.run(in_an_executor(fn)), False),
    "asyncio.to_thread": (lambda fn: asyncio.run(asyncio.to_thread(fn)), True),
    "a task": (lambda fn: asyncio.run(in_a_task(fn)), True),
    "a callback of the loop": (lambda fn: asyncio.run(in_a_callback(fn)), True),
    "a copied context": (lambda fn: contextvars.copy_context().run(fn), True),
    "a copied context in a thread": (
        lambda fn: in_a_thread(partial(contextvars.copy_context().run, fn)), True,
    ),
    "a new context": (lambda fn: contextvars.Context().run(fn), False),
    "a generator": (lambda fn: next(fn() for _ in range(1)), True),
}  # fmt: skip


@pytest.mark.skipif(
    getattr(sys.flags, "thread_inherit_context", 0), reason="Python was told otherwise"
)
@pytest.mark.parametrize("through_use", [False, True], ids=["with", "use"])
@pytest.mark.parametrize(("begin", "inherits"), BEGUN.values(), ids=BEGUN)
def test_what_begins_inside_of_a_block_is_inside_of_it_or_not(begin, inherits, through_use):
    process_engine = cs.engine()
    with cs.Engine() as mine, cs.use(mine) if through_use else contextlib.nullcontext():
        assert begin(cs.engine) is (mine if inherits else process_engine)

        # Code that gets the engine can make it current there, and only there.
        def use_it() -> object:
            with cs.use(mine):
                return cs.engine()

        assert begin(use_it) is mine
        assert cs.engine() is mine
    assert begin(cs.engine) is process_engine


def test_a_copy_that_outlives_its_block_keeps_the_engine_which_is_closed():
    with cs.Engine() as mine:
        copied = contextvars.copy_context()
    assert copied.run(cs.engine) is mine
    with pytest.raises(cs.ClosedError, match="new one"):
        copied.run(lambda: cs.engine().push(int))


def test_many_threads_that_ask_first_get_one_engine_for_the_process():
    cs.engine().close()
    ready, found = threading.Barrier(8), []

    def ask() -> None:
        ready.wait(PATIENCE_S)
        found.append(cs.engine())

    with Crew() as crew:
        for _ in range(8):
            crew.start(ask)
    assert len(set(map(id, found))) == 1
    assert found[0].push(lambda: 1).result(PATIENCE_S) == 1


def test_tasks_inherit_the_engine_and_keep_their_own():
    async def ask() -> cs.Engine:
        return cs.engine()

    async def use_another(used: asyncio.Event, seen: asyncio.Event) -> bool:
        with cs.Engine() as other:
            used.set()
            await seen.wait()
            return cs.engine() is other

    async def main(mine: cs.Engine) -> None:
        assert await asyncio.create_task(ask()) is mine
        assert await asyncio.to_thread(cs.engine) is mine
        used, seen = asyncio.Event(), asyncio.Event()
        task = asyncio.create_task(use_another(used, seen))
        await used.wait()
        assert cs.engine() is mine
        seen.set()
        assert await task
        assert await cs.engine().push(cs.engine) is mine

    with engine_of() as mine:
        asyncio.run(main(mine))


@pytest.mark.parametrize("mode", ["async", "serial"])
def test_inside_an_op_its_own_engine_is_current_whoever_runs_it(mode):
    """This also holds if a waiting thread runs the op, or if an op of another engine runs it."""
    with engine_of(mode=mode) as mine, engine_of(mode=mode) as other:
        x = cs.Var("x")
        assert cs.engine() is other
        for _ in range(50):
            assert mine.push(cs.engine, writes=[x]).result(PATIENCE_S) is mine
        nested = mine.push(lambda: (other.push(cs.engine).result(PATIENCE_S), cs.engine()))
        assert nested.result(PATIENCE_S) == (other, mine)
        with cs.use(mine):
            assert other.push(cs.engine).result(PATIENCE_S) is other
        assert cs.engine() is other


def test_an_op_changes_nothing_in_the_context_of_who_pushes_or_waits():
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)
    with engine_of(workers=1) as engine:
        variable.set(7)
        for _ in range(50):
            engine.push(cs.engine).wait(PATIENCE_S)
        assert variable.get() == 7
        assert cs.engine() is engine


def test_arrays_and_waits_go_to_the_current_engine():
    with engine_of() as one, engine_of() as two:
        gate = threading.Event()
        one.push(lambda: gate.wait(PATIENCE_S))
        before = two.statistics().ops
        cs.zeros(4)
        assert two.statistics().ops > before
        assert one.statistics().ops == 1
        cs.waitall(PATIENCE_S)
        with cs.use(one), pytest.raises(TimeoutError):
            cs.waitall(0.001)
        gate.set()


def test_the_environment_makes_the_engine_of_the_process_serial():
    assert_runs_clean(
        """
        assert cs.engine().mode == "serial"
        assert cs.Engine().mode == "serial"
        assert cs.Engine("async").mode == "async"
        here = cs.engine().push(threading.get_ident).result()
        assert here == threading.get_ident()
        """,
        CUDASYNC_ENGINE="serial",
    )


def test_an_engine_that_is_entered_twice_closes_at_the_outer_end():
    with cs.Engine(workers=1) as engine:
        with engine:
            pass
        assert not engine.is_closed
        assert cs.engine() is engine
        engine.push(int).wait(PATIENCE_S)
    assert engine.is_closed


def test_a_block_that_another_task_leaves_is_closed_and_raises_what_failed():
    """An async fixture does this: one task enters the block, another leaves it."""

    async def fixture():
        with cs.Engine(workers=1) as engine:
            yield engine

    async def main() -> None:
        entered = fixture()
        engine = await asyncio.create_task(anext(entered))
        engine.push(lambda: 1 / 0, name="lost")
        with pytest.raises(cs.OpError, match="lost"):
            await asyncio.create_task(anext(entered))
        assert engine.is_closed

    asyncio.run(main())


def test_leaving_raises_what_nobody_was_told_of_and_nothing_else():
    def fail() -> None:
        raise OSError("disk")

    with cs.Engine(workers=1) as engine:
        with pytest.raises(cs.OpError):
            engine.push(fail, name="handled").wait(PATIENCE_S)
        with pytest.raises(cs.OpError, match="handled"):
            engine.waitall(PATIENCE_S)
    engine = cs.Engine(workers=1)
    with contextlib.ExitStack() as stack:
        told = stack.enter_context(pytest.raises(cs.OpError, match="unheard"))
        stack.enter_context(engine)
        with pytest.raises(cs.OpError):
            engine.push(fail, name="handled").wait(PATIENCE_S)
        engine.push(fail, name="unheard")
    assert told.value.op == "unheard"


@pytest.mark.usefixtures("tracing_ends")
def test_an_interrupt_at_any_point_leaves_no_engine_current():
    """Neither as the block begins, nor as it ends, nor twice as it ends."""
    before = current.maybe_engine()
    with told_to_nobody(), cs.Engine(workers=1) as outer, cs.Engine(workers=1) as engine:
        counter = Interrupter(0)
        with counter, cs.use(engine):
            pass
        assert counter.count
        for n in range(1, counter.count + 1):
            for again in (None, 1, 2):
                with cs.use(outer):
                    with suppress(KeyboardInterrupt), Interrupter(n, again), cs.use(engine):
                        pass
                    assert cs.engine() is outer, f"struck at {n}, and at {again}"
    assert current.maybe_engine() is before
