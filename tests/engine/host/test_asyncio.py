"""Ops and asyncio: many awaits, cancelled ones, loops that end first, loops in several threads."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest
from helpers.concurrency.thread_crew import PATIENCE_S, Crew, engine_of, hasty, held_by

import cudasync as cs
from cudasync.testing import Latch


@pytest.fixture
def engine():
    with engine_of(workers=2) as engine:
        yield engine


@pytest.fixture
def gate():
    gate = threading.Event()
    yield gate
    gate.set()


def fail() -> None:
    raise ValueError("planned")


async def one_turn() -> None:
    """Let each of the loop's other tasks go on once."""
    turn = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(turn.set_result, None)
    await turn


def run(coroutine):
    """The coroutine's result, with a limit of PATIENCE_S."""

    async def within():
        return await asyncio.wait_for(coroutine, PATIENCE_S)

    return asyncio.run(within())


def test_many_awaits_at_once_each_get_their_own_result(engine):
    async def one(index: int) -> int:
        return await engine.push(lambda: index)

    async def main() -> list[int]:
        return await asyncio.gather(*(one(index) for index in range(500)))

    with hasty():
        assert run(main()) == list(range(500))


def test_many_tasks_await_one_op(engine, gate):
    op = engine.push(lambda: gate.wait(PATIENCE_S))

    async def wait() -> bool:
        return await op

    async def main() -> list[bool]:
        tasks = [asyncio.create_task(wait()) for _ in range(50)]
        await one_turn()
        gate.set()
        return await asyncio.gather(*tasks)

    assert run(main()) == [True] * 50


def test_an_await_does_not_hold_the_loop(engine, gate):
    op = engine.push(held_by(gate))

    async def wait() -> None:
        await op

    async def open_it() -> None:
        assert not op.done()
        gate.set()

    async def main() -> None:
        await asyncio.gather(wait(), open_it())

    run(main())


def test_an_op_that_is_done_can_be_awaited_again_and_again(engine):
    op = engine.push(lambda: 42)

    async def main() -> list[int]:
        return [await op for _ in range(100)]

    assert run(main()) == [42] * 100


def test_cancelling_a_task_lets_go_of_the_wait_and_not_of_the_op(engine, gate):
    op = engine.push(lambda: gate.wait(PATIENCE_S) and "ran")
    behind = engine.push(lambda: "behind")

    async def wait() -> str:
        return await op

    async def main() -> str:
        tasks = [asyncio.create_task(wait()) for _ in range(3)]
        assert await behind == "behind"
        tasks[0].cancel()
        tasks[1].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[0]
        with pytest.raises(asyncio.CancelledError):
            await tasks[1]
        gate.set()
        return await tasks[2]

    assert run(main()) == "ran"
    assert op.result(PATIENCE_S) == "ran"


def test_a_timeout_of_asyncio_cancels_the_wait_only(engine, gate):
    op = engine.push(lambda: gate.wait(PATIENCE_S) and "ran")

    async def wait() -> str:
        return await op

    async def main() -> str:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(wait(), 0.001)
        gate.set()
        return await op

    assert run(main()) == "ran"


def test_a_cancellation_that_comes_as_the_op_ends_is_a_result_or_a_cancellation(engine):
    async def wait(op: cs.Op) -> str:
        return await op

    async def main() -> None:
        for index in range(300):
            op = engine.push(lambda: "ran")
            task = asyncio.create_task(wait(op))
            for _ in range(index % 4):
                await one_turn()
            task.cancel()
            done = (await asyncio.gather(task, return_exceptions=True))[0]
            assert done == "ran" or isinstance(done, asyncio.CancelledError)
            assert await op == "ran"

    with hasty():
        run(main())


def test_a_loop_may_end_before_the_op_it_awaited(engine, gate):
    """No task is left to notify: the op finishes, its worker goes on, and no error is reported."""
    ops = [engine.push(held_by(gate)) for _ in range(2)]
    unhandled: list[object] = []

    async def wait(op: cs.Op) -> None:
        await op

    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda loop, context: unhandled.append(context))
    tasks = [loop.create_task(wait(op)) for op in ops]
    loop.run_until_complete(one_turn())
    for task in tasks:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    loop.close()
    gate.set()
    for op in ops:
        op.wait(PATIENCE_S)
    engine.push(lambda: None).wait(PATIENCE_S)
    del tasks
    gc.collect()
    assert unhandled == []


def test_gathering_ops_that_fail_tells_each_failure_to_its_own_await(engine):
    x = cs.Var("x")

    async def one(op: cs.Op) -> object:
        return await op

    async def main() -> list[object]:
        ops = [
            engine.push(lambda: "fine"),
            engine.push(fail, writes=[x], name="broken"),
            engine.push(lambda: "never", reads=[x], name="poisoned"),
            engine.push(lambda: "fine, too"),
        ]
        return await asyncio.gather(*map(one, ops), return_exceptions=True)

    fine, broken, poisoned, other = run(main())
    assert (fine, other) == ("fine", "fine, too")
    assert isinstance(broken, cs.OpError)
    assert isinstance(poisoned, cs.OpError)
    assert broken.op == poisoned.op == "broken"
    assert broken is not poisoned
    engine.clear_errors()


def test_a_task_group_ends_with_the_failure_and_the_ops_run_on(engine, gate):
    held = engine.push(held_by(gate))

    async def wait(op: cs.Op) -> None:
        await op

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(wait(held))
            group.create_task(wait(engine.push(fail, name="broken")))

    with pytest.raises(BaseExceptionGroup) as caught:
        run(main())
    assert [error.op for error in caught.value.exceptions] == ["broken"]
    assert not held.done()
    gate.set()
    held.wait(PATIENCE_S)
    engine.clear_errors()


def test_loops_in_several_threads_await_the_same_ops(engine, gate):
    x = cs.Var("x")
    engine.push(held_by(gate), writes=[x])
    ops = [engine.push(lambda i=index: i, reads=[x]) for index in range(100)]
    waiting = threading.Barrier(4)
    results: list[list[int]] = []

    async def one(op: cs.Op) -> int:
        return await op

    async def main() -> list[int]:
        tasks = [asyncio.create_task(one(op)) for op in ops]
        await one_turn()
        waiting.wait(PATIENCE_S)
        return await asyncio.gather(*tasks)

    with hasty(), Crew() as crew:
        for _ in range(3):
            crew.start(lambda: results.append(run(main())))
        waiting.wait(PATIENCE_S)
        gate.set()
    assert results == [list(range(100))] * 3


def test_an_op_may_run_a_loop_that_awaits_another_op(engine):
    async def inner() -> int:
        return await engine.push(lambda: 41) + 1

    ops = [engine.push(lambda: asyncio.run(inner())) for _ in range(6)]
    assert [op.result(PATIENCE_S) for op in ops] == [42] * 6


def test_a_device_op_can_be_awaited(engine):
    device, x = cs.Device(0), cs.Var("x")

    async def wait(op: cs.Op) -> object:
        return await op

    async def main(latch: Latch) -> object:
        engine.push(latch.hold, device=device, writes=[x])
        op = engine.push(lambda stream: "issued", reads=[x], device=device)
        task = asyncio.create_task(wait(op))
        for _ in range(20):
            await one_turn()
        assert not task.done()
        latch.release()
        return await task

    with Latch(device) as latch:
        assert run(main(latch)) == "issued"


def test_ops_and_awaits_take_turns_for_long(engine):
    async def player(log: list[int], mine: cs.Var, other: cs.Var, count: int) -> None:
        for index in range(count):
            await engine.push(lambda i=index: log.append(i), reads=[other], writes=[mine])

    async def main() -> list[list[int]]:
        x, y = cs.Var("x"), cs.Var("y")
        logs: list[list[int]] = [[], []]
        await asyncio.gather(player(logs[0], x, y, 500), player(logs[1], y, x, 500))
        return logs

    with hasty():
        assert run(main()) == [list(range(500))] * 2


def test_a_loop_with_many_tasks_in_an_op_takes_one_more_worker(engine):
    """However many tasks wait, the loop's worker is replaced once."""
    gate, begun, most = threading.Event(), threading.Semaphore(0), []
    now: list[None] = []

    def work() -> None:
        now.append(None)
        most.append(len(now))
        begun.release()
        assert gate.wait(PATIENCE_S)
        now.pop()

    async def one() -> None:
        await engine.push(work)

    async def many() -> None:
        await asyncio.gather(*[one() for _ in range(40)])

    loop = engine.push(lambda: asyncio.run(many()))
    # The loop keeps one worker, which another worker replaces.
    for _ in range(engine._compute.size):
        assert begun.acquire(timeout=PATIENCE_S)
    # A waiter checks whether workers are missing, and there is work for forty.
    for _ in range(5):
        engine._compute.rescue()
    gate.set()
    loop.wait(PATIENCE_S)
    assert max(most) <= engine._compute.size
