"""Scenes in which Ctrl-C comes, and the check that the engine is intact afterwards.

A scene prepares a `Ground` and returns the call to interrupt. Afterwards every op must finish if
its push returned, and must have run once unless it carries the interrupt. The engine must take and
finish new work on all of its workers, and close.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from helpers.concurrency.freeze_scenarios import launched_by_its_waiter

import cudasync as cs
from cudasync.testing import Latch

PATIENCE_S = 8.0
WORKERS = 2
STREAMS = 4
# The name of an op whose function returns None.
SEGMENT = "segment"
KERNELS = Path(__file__).parents[1] / "kernels.ptx"

Act = Callable[[], object]


class Ground:
    """An engine, two variables, and the ops that were pushed through `push` here."""

    def __init__(self, kernel: cs.Kernel) -> None:
        self.device = cs.Device(0)
        self.kernel = kernel
        self.engine = cs.Engine(workers=WORKERS, max_in_flight=5)
        self.x, self.y = cs.Var("x"), cs.Var("y")
        self.gate = threading.Event()
        self.latch = Latch(self.device)
        self.ops: dict[str, cs.Op] = {}
        self.ran: list[str] = []

    def run(self, name: str, stream: cs.Stream | None = None) -> str:
        self.ran.append(name)
        return name

    def push(self, name: str, **options: Any) -> cs.Op:
        op = self.engine.push(partial(self.run, name), name=name, **options)
        self.ops[name] = op
        return op

    def hold(self, **options: Any) -> None:
        """Push an op that ends after the interrupt."""
        self.engine.push(lambda: self.gate.wait(PATIENCE_S), name="held", **options)

    def hold_stream(self, **options: Any) -> None:
        self.engine.push(self.latch.hold, name="held", device=self.device, **options)

    def check(self) -> None:
        self.gate.set()
        self.latch.release()
        roots = set()
        for name, op in self.ops.items():
            error = op.exception(PATIENCE_S)
            if error is None:
                result = None if name == SEGMENT else name
                assert op.result() == result, f"{name} returned {op.result()!r}"
                assert name in self.ran, f"{name} never ran"
            else:
                assert isinstance(error.cause, KeyboardInterrupt), f"{name}: {error.cause!r}"
                roots.add(error.op)
        assert len(roots) <= 1, f"one interrupt ended {roots}"
        assert len(self.ran) == len(set(self.ran)), f"ran twice: {self.ran}"
        with suppress(cs.ClosedError):
            self.check_new_work()
        self.check_streams()
        self.engine.close()
        assert self.engine.is_closed

    def check_new_work(self) -> None:
        engine, x, y = self.engine, self.x, self.y
        with suppress(cs.OpError):
            engine.waitall(PATIENCE_S)
        engine.clear_errors()
        engine.waitall(PATIENCE_S)
        order: list[str] = []
        engine.push(lambda: order.append("write"), reads=[x, y], writes=[x])
        engine.push(
            lambda stream: order.append("device"), reads=[x], writes=[y], device=self.device
        )
        engine.push(lambda: order.append("read"), reads=[x, y]).wait(PATIENCE_S)
        assert order == ["write", "device", "read"], order
        together = threading.Barrier(WORKERS)
        meet = [engine.push(lambda: together.wait(PATIENCE_S)) for _ in range(WORKERS)]
        for op in meet:
            op.wait(PATIENCE_S)
        # More ops than may be in flight: no finished op may still be counted.
        for _ in range(12):
            last = engine.push(lambda: None, writes=[x])
        last.wait(PATIENCE_S)
        engine.waitall(PATIENCE_S)

    def check_streams(self, patience_s: float = PATIENCE_S) -> None:
        """No thread issues any more, so each stream is free for the next op. No stream replaces a
        lost one: there are fewer threads than streams."""
        for device in self.engine._issuer.devices.values():  # type: ignore[union-attr]
            until = time.monotonic() + patience_s
            # The thread that issued the last op may still be cleaning up.
            while (taken := device.taken) and time.monotonic() < until:
                threading.Event().wait(1e-3)
            assert not taken, f"nobody gave back {taken}"
            assert len(device.compute.timelines) <= STREAMS, device.compute.timelines


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
    return lambda: ground.push("new", reads=[ground.x], writes=[ground.y], device=ground.device)


def push_device_behind_devices(ground: Ground) -> Act:
    ground.hold_stream(writes=[ground.x])
    ground.hold_stream(writes=[ground.y])
    return lambda: ground.push("new", writes=[ground.x, ground.y], device=ground.device)


def push_host_behind_device(ground: Ground) -> Act:
    ground.hold_stream(writes=[ground.x])
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
    ground.engine.close()
    ground.engine = cs.Engine(workers=WORKERS)
    with cs.use(ground.engine):
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


def run_as_waiter(ground: Ground) -> Act:
    """A launch of a short segment of a graph, which the waiting thread runs itself."""
    ground.engine.close()
    ground.engine = cs.Engine(workers=WORKERS)
    again = launched_by_its_waiter(ground.engine, lambda: ground.ran.append(SEGMENT), ground.x)
    ground.ran.clear()

    def launch_and_wait() -> None:
        ground.ops[SEGMENT] = again()
        ground.ops[SEGMENT].wait()

    return launch_and_wait


SCENES: dict[str, Callable[[Ground], Act]] = {
    scene.__name__: scene
    for scene in (
        push_ready,
        push_blocked,
        push_device,
        push_device_behind_host,
        push_device_behind_devices,
        push_host_behind_device,
        push_against_back_pressure,
        push_batch,
        push_device_batch,
        push_batches_at_once,
        wait_for_op,
        wait_for_device_op,
        wait_in_vain,
        wait_for_variable,
        wait_for_all,
        ask,
        call_back,
        clear_errors,
        close,
        enter_and_leave,
        compute_on_arrays,
        launch,
        run_as_waiter,
    )
}
