"""Scenes in which Ctrl-C comes: each prepares a `Ground`, and returns the call to interrupt."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import numpy as np
from helpers.concurrency.freeze_scenarios import launched_by_its_waiter
from helpers.concurrency.interrupt_ground import SEGMENT, Ground

import cudasync as cs
from cudasync.engine.host import awaited_pool
from cudasync.engine.host.additional_pools import with_pool
from cudasync.engine.replay.tape import LOCAL

Act = Callable[[], object]


def push_ready(ground: Ground) -> Act:
    return lambda: ground.push("new", writes=[ground.x])


def push_blocked(ground: Ground) -> Act:
    ground.hold(writes=[ground.x])
    ground.push("reader", reads=[ground.x])
    return lambda: ground.push("new", reads=[ground.y], writes=[ground.x, ground.y])


def push_device(ground: Ground) -> Act:
    return lambda: ground.push("new", writes=[ground.x], device=ground.device)


def push_device_behind_host(ground: Ground) -> Act:
    ground.hold(writes=[ground.x])
    ground.behind.add("new")
    return lambda: ground.push("new", reads=[ground.x], writes=[ground.y], device=ground.device)


def push_device_behind_devices(ground: Ground) -> Act:
    ground.hold_stream(writes=[ground.x])
    ground.hold_stream(writes=[ground.y])
    return lambda: ground.push("new", writes=[ground.x, ground.y], device=ground.device)


def push_device_that_must_wait(ground: Ground) -> Act:
    """The op follows the last op of one stream, and waits for the held op of another stream."""
    ground.hold_stream(writes=[ground.x])
    ground.push("followed", writes=[ground.y], device=ground.device)
    return lambda: ground.push("new", writes=[ground.x, ground.y], device=ground.device)


def push_host_behind_device(ground: Ground) -> Act:
    ground.hold_stream(writes=[ground.x])
    ground.behind.add("new")
    return lambda: ground.push("new", reads=[ground.x], writes=[ground.y])


def push_against_back_pressure(ground: Ground) -> Act:
    for index in range(5):
        ground.push(f"before {index}", writes=[ground.x])
    return lambda: ground.push("new", writes=[ground.y])


def push_batch(ground: Ground) -> Act:
    steps = [(partial(ground.run, name), [ground.x], [ground.x]) for name in ("one", "two")]
    return lambda: ground.engine.push_many(steps)


def push_device_batch(ground: Ground) -> Act:
    steps = [
        (partial(ground.run, name), [ground.x], [ground.x], ground.device)
        for name in ("one", "two")
    ]
    return lambda: ground.engine.push_many(steps)


def push_batches_at_once(ground: Ground) -> Act:
    """Batches on an engine without a limit, where most pushes are inlined."""
    with cs.use(ground.engine):
        x = cs.array(np.arange(8, dtype=np.int32))
    args = (x, x, np.int32(2), np.uint32(8))
    launches = [ground.kernel.prepare(grid=1, block=8, args=args)] * 2
    mine = cs.Var("mine")
    functions = [(partial(ground.run, name), [mine], [mine]) for name in ("one", "two")]

    def block() -> None:
        with cs.Engine(workers=1) as inner:
            for _ in range(2):
                inner.push_many(launches)
            inner.push_many(functions)

    return block


def wait_for_op(ground: Ground) -> Act:
    for index in range(3):
        op = ground.push(f"before {index}", writes=[ground.x])
    return op.wait


def wait_for_device_op(ground: Ground) -> Act:
    ground.push("host", writes=[ground.x])
    op = ground.push("device", reads=[ground.x], writes=[ground.y], device=ground.device)
    return op.wait


def wait_in_vain(ground: Ground) -> Act:
    ground.hold(writes=[ground.x])
    op = ground.push("behind", reads=[ground.x])

    def wait() -> None:
        with suppress(TimeoutError):
            op.wait(0.0005)

    return wait


def wait_for_variable(ground: Ground) -> Act:
    ground.push("first", writes=[ground.x])
    ground.push("second", reads=[ground.x], writes=[ground.y])
    return ground.y.wait


def wait_for_all(ground: Ground) -> Act:
    ground.push("first", writes=[ground.x])
    ground.push("device", reads=[ground.x], device=ground.device)
    ground.push("second", writes=[ground.x])
    return ground.engine.waitall


def wait_for_streams(ground: Ground) -> Act:
    for name in ("first", "second", "third"):
        ground.push(name, writes=[ground.x], device=ground.device)
    ground.push("other", writes=[ground.y], device=ground.device)
    return ground.engine.waitall


def ask(ground: Ground) -> Act:
    op = ground.push("device", writes=[ground.y], device=ground.device)
    return lambda: (op.done(), op.exception(), op.result(), ground.engine.statistics(), repr(op))


def call_back(ground: Ground) -> Act:
    op = ground.push("first", writes=[ground.x])
    return lambda: op.add_done_callback(lambda: None)


def clear_errors(ground: Ground) -> Act:
    ground.push("first", writes=[ground.x])
    return ground.engine.clear_errors


def close(ground: Ground) -> Act:
    ground.push("first", writes=[ground.x])
    ground.push("device", reads=[ground.x], device=ground.device)
    return ground.engine.close


def enter_and_leave(ground: Ground) -> Act:
    def block() -> None:
        with cs.Engine(workers=1) as inner:
            inner.push(lambda: None)

    return block


def compute_on_arrays(ground: Ground) -> Act:
    """Allocations, copies both ways, a kernel, a read, and the frees of all the memory."""

    def compute() -> None:
        with cs.use(ground.engine):
            x = cs.array(np.arange(8, dtype=np.int32))
            y = cs.zeros(8, np.int32)
            ground.kernel[1, 8](y, x, np.int32(2), np.uint32(8))
            cs.copy(x, y)
            assert x.numpy().tolist() == [3 * i for i in range(8)]

    return compute


def launch(ground: Ground) -> Act:
    """Launches on the fast path, which an engine with a limit does not take."""
    with cs.use(ground.replace_engine()):
        x, y = cs.zeros(8, np.int32), cs.zeros(8, np.int32)
    # One launch for any stream, one for the first one's stream, and the second one again, without
    # memory operations in between.
    launches = [
        ground.kernel.prepare(grid=1, block=8, args=(to, of, np.int32(2), np.uint32(8)))
        for to, of in ((y, x), (x, y))
    ]
    launches.append(launches[1])

    def push() -> None:
        with cs.use(ground.engine):
            for each in launches:
                each.push()

    return push


def join_runs(ground: Ground) -> Act:
    """Launches that join a run, complete it, and begin the next, which a wait seals."""
    engine = ground.replace_engine(replay=True)
    # Else it knows the launches on the last ground.
    LOCAL.tape.forget()
    made = [0]
    # The content of `y` behind each launch.
    states = [np.zeros(8, np.int32)]
    x, y, index = np.arange(8, dtype=np.int32), np.int32(2), np.arange(8, dtype=np.int32)
    for _ in range(160):
        states.append(31 * states[-1] + y * x + index)
    with cs.use(engine):
        source, target = cs.array(x), cs.zeros(8, np.int32)

        def launch() -> None:
            ground.kernel[1, 8](target, source, np.int32(2), np.uint32(8))
            made[0] += 1

        while "replays" not in engine.replay_report():
            launch()
        engine.waitall()

    def claim() -> None:
        # The interrupted launch may have been pushed or not.
        with cs.use(engine):
            assert any((target.numpy() == states[made[0] + more]).all() for more in (0, 1)), (
                "a launch was lost, or made twice"
            )

    def launch_and_wait() -> None:
        with cs.use(engine):
            for _ in range(36):
                launch()
            engine.waitall()

    ground.claims.append(claim)
    return launch_and_wait


def run_as_waiter(ground: Ground) -> Act:
    """A launch of a short segment of a graph, which the waiting thread runs itself."""
    ground.replace_engine()
    again = launched_by_its_waiter(ground.engine, lambda: ground.ran.append(SEGMENT), ground.x)
    ground.ran.clear()

    def launch_and_wait() -> None:
        ground.ops[SEGMENT] = again()
        ground.ops[SEGMENT].wait()

    return launch_and_wait


def run_awaited_as_waiter(ground: Ground) -> Act:
    """Two ops of an `AwaitedPool`, which the waiting thread takes and runs if it is the first."""
    engine = ground.replace_engine()
    with_pool(engine, "own", 1, awaited_pool.AwaitedPool)

    def push(name: str) -> cs.Op:
        fn = partial(ground.run, name)
        op = awaited_pool.push(engine, fn, "own", writes=[ground.x], name=name)
        ground.ops[name] = op
        return op

    for number in range(3):
        push(f"before {number}").wait()
    push("first")
    return push("second").wait


def run_failing_segment_as_waiter(ground: Ground) -> Act:
    """The same, with a node that fails: the waiting thread runs those that do not need it."""
    engine = ground.replace_engine()
    threads: list[int] = []
    with cs.use(engine), cs.graph() as g:
        cs.engine().push(lambda: threads.append(threading.get_ident()))
        for name in "abc":
            ground.node(name, fails=name == "a")
    with cs.use(engine):
        executable = g.instantiate()
        while threading.get_ident() not in threads:
            executable.launch().wait()
    ground.begin()

    def launch_and_wait() -> None:
        with cs.use(engine), suppress(cs.OpError):
            executable.launch().wait()

    return launch_and_wait


def push_serially(ground: Ground) -> Act:
    ground.replace_engine("serial")

    def push() -> None:
        ground.push("host", writes=[ground.x])
        ground.push("device", reads=[ground.x], writes=[ground.y], device=ground.device)
        ground.engine.waitall()

    return push


def launch_serially(ground: Ground) -> Act:
    """A segment and a block, each with a node that fails."""
    engine = ground.replace_engine("serial")
    with cs.use(engine), cs.graph() as g:
        for name in "abc":
            ground.node(name, fails=name == "b")
        with g.repeat(1):
            for name in "def":
                ground.node(name, fails=name == "e")
    executable = g.instantiate(without=("unroll",))
    ground.begin()

    def launch() -> None:
        with cs.use(engine), suppress(cs.OpError):
            executable.launch().wait()

    return launch


def launch_with_poisoned_input(ground: Ground) -> Act:
    """A device segment launches those of its nodes that do not need failed data."""
    engine = ground.replace_engine()
    with cs.use(engine):
        lost, kept = cs.zeros(8, np.int32), cs.zeros(8, np.int32)
        with cs.graph() as g:
            lost += 1
            kept += 1
        executable = g.instantiate(without=("fusion",))
        poison = cs.engine().push(lambda: 1 / 0, writes=[lost])
        poison.exception()
        # Now its graph is kept.
        executable.launch()
        with suppress(cs.OpError):
            engine.waitall()

    def claim() -> None:
        # The interrupted launch may have been pushed or not.
        with cs.use(ground.engine):
            assert kept.numpy().tolist() in ([1] * 8, [2] * 8)

    def launch_and_read() -> None:
        with cs.use(engine):
            executable.launch()
            kept.numpy()

    ground.claims.append(claim)
    return launch_and_read


SCENES: dict[str, Callable[[Ground], Act]] = {
    scene.__name__: scene
    for scene in (
        push_ready,
        push_blocked,
        push_device,
        push_device_behind_host,
        push_device_behind_devices,
        push_device_that_must_wait,
        push_host_behind_device,
        push_against_back_pressure,
        push_batch,
        push_device_batch,
        push_batches_at_once,
        join_runs,
        wait_for_op,
        wait_for_device_op,
        wait_in_vain,
        wait_for_variable,
        wait_for_all,
        wait_for_streams,
        ask,
        call_back,
        clear_errors,
        close,
        enter_and_leave,
        compute_on_arrays,
        launch,
        run_as_waiter,
        run_awaited_as_waiter,
        run_failing_segment_as_waiter,
        push_serially,
        launch_serially,
        launch_with_poisoned_input,
    )
}
