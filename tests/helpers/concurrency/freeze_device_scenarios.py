"""Threads that may be suspended in an engine with a device."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from helpers.concurrency.bytecode_freezer import PATIENCE_S, Freezer
from helpers.concurrency.freeze_scenarios import OnEngine
from helpers.concurrency.freeze_test import is_engine
from helpers.concurrency.thread_crew import held_by

import cudasync as cs
from cudasync.array.kernels import kernel as kernel_file
from cudasync.engine.op import OpKind
from cudasync.engine.replay.sequence import UNIT
from cudasync.engine.replay.tape import LOCAL
from cudasync.testing import Latch

KERNEL_FILE = str(kernel_file.__file__)
KERNELS = Path(__file__).parents[1] / "kernels.ptx"


class OnDevice(OnEngine):
    """As `OnEngine`, with a device in the engine."""

    def __init__(self) -> None:
        super().__init__()
        self.device = cs.Device(0)
        with cs.use(self.engine):
            self.mine, self.theirs = (cs.zeros(8, np.int32) for _ in range(2))
        self.engine.waitall(PATIENCE_S)
        self.set_ = cs.Module.from_file(KERNELS).kernel("set")

    def fill(self, name: str, array: cs.Array, value: int) -> None:
        """Push a kernel that fills an array with value, value + 1 and so on."""
        with cs.use(self.engine):
            self.ops[name] = self.set_[1, 32](array, np.int32(value), np.uint32(8))

    def apart(self) -> Iterator[str]:
        yield from super().apart()
        yield "launch on an array that nobody else touches"
        self.fill("fill", self.theirs, 3)
        yield from self.finish("fill")
        yield "copy it back"
        assert self.theirs.numpy().tolist() == list(range(3, 11))

    def after(self) -> None:
        self.engine.waitall(PATIENCE_S)
        self.engine.close()


class Launches(OnDevice):
    """The suspended thread launches a kernel."""

    def suspended(self, freezer: Freezer) -> None:
        with freezer:
            self.fill("one", self.mine, 5)

    def others(self, freezer: Freezer) -> Iterator[str]:
        yield from self.apart()

    def after(self) -> None:
        assert self.mine.numpy().tolist() == list(range(5, 13))
        super().after()


class LaunchesBatch(Launches):
    """The suspended thread launches several kernels as one op, a second time."""

    def __init__(self) -> None:
        super().__init__()
        with cs.use(self.engine):
            self.steps = [
                self.set_.prepare(grid=1, block=32, args=(self.mine, np.int32(v), np.uint32(8)))
                for v in (1, 9, 5)
            ]
            self.engine.push_many(self.steps).wait(PATIENCE_S)

    def suspended(self, freezer: Freezer) -> None:
        with cs.use(self.engine), freezer:
            self.ops["one"] = self.engine.push_many(self.steps)


class JoinsRun(OnDevice):
    """The suspended thread makes launches that join a run, which others seal."""

    options: ClassVar[dict[str, Any]] = {"replay": True}
    most = 6

    @staticmethod
    def watched(path: str) -> bool:
        return is_engine(path) or path == KERNEL_FILE

    def suspended(self, freezer: Freezer) -> None:
        def launch() -> cs.Op:
            return self.set_[1, 32](self.mine, np.int32(5), np.uint32(8))

        with cs.use(self.engine):
            for _ in range(1000):
                if LOCAL.tape.sequence is not None:
                    break
                launch()
            else:
                raise AssertionError(self.engine.replay_report())
            self.engine.waitall(PATIENCE_S)
            with freezer:
                for _ in range(self.most):
                    self.ops["one"] = launch()

    def others(self, freezer: Freezer) -> Iterator[str]:
        yield from self.apart()

    def after(self) -> None:
        self.ops["one"].wait(PATIENCE_S)
        assert self.mine.numpy().tolist() == list(range(5, 13))
        super().after()


class CompletesRun(JoinsRun):
    """The same, up to the launch that completes the run and issues it."""

    most = UNIT + 1
    most_points = 12_000


class LaunchesBehindHostOp(Launches):
    """The suspended thread is a worker that issues a kernel behind a host op."""

    sleeps = True

    def suspended(self, freezer: Freezer) -> None:
        gate = threading.Event()

        def one() -> None:
            assert gate.wait(PATIENCE_S)
            freezer.install()

        self.ops["one"] = self.engine.push(one, reads=[self.mine], pool="io")
        self.fill("two", self.mine, 5)
        gate.set()


class LaunchesPastHostOp(Launches):
    """The suspended thread launches a kernel past a host op, for which no worker is free."""

    def __init__(self) -> None:
        super().__init__()
        self.other = cs.Engine(workers=1)
        self.gate = threading.Event()
        begun = threading.Event()
        self.other.push(held_by(self.gate, begun))
        assert begun.wait(PATIENCE_S)
        self.fill("known", self.mine, 1)
        self.engine.waitall(PATIENCE_S)

    def suspended(self, freezer: Freezer) -> None:
        self.passed = self.other.push(lambda: self.ran.append("passed"))
        super().suspended(freezer)

    def after(self) -> None:
        self.gate.set()
        self.passed.wait(PATIENCE_S)
        assert self.ran.count("passed") == 1
        self.other.close()
        super().after()


class CopiesPageable(OnDevice):
    """The suspended thread issues a copy of pageable memory, and goes on to the next copy."""

    sleeps = True

    def suspended(self, freezer: Freezer) -> None:
        went = threading.Event()

        def one(stream: cs.Stream) -> None:
            freezer.install()
            went.set()

        self.engine._push(
            one,
            OpKind.HTOD,
            writes=[self.mine],
            name="one",
            device=self.device,
            is_blocking=True,
        )
        with cs.use(self.engine):
            cs.copy(self.mine, np.arange(8, dtype=np.int32))
        assert went.wait(PATIENCE_S)

    def others(self, freezer: Freezer) -> Iterator[str]:
        yield from self.apart()
        yield "copy pageable memory in, twice: the suspended thread may have taken one"
        copied, done = threading.Event(), []
        with cs.use(self.engine):
            for array in (cs.zeros(8, np.int32), self.theirs):
                op = cs.copy(array, np.arange(8, dtype=np.int32))
                op.add_done_callback(lambda array=array: (done.append(array), copied.set()))
        assert copied.wait(PATIENCE_S)
        assert done[0].numpy().tolist() == list(range(8))

    def after(self) -> None:
        assert self.mine.numpy().tolist() == list(range(8))
        super().after()


class FinishesDeviceOp(OnDevice):
    """The suspended thread asks for an op that the device has finished, and books its end."""

    def suspended(self, freezer: Freezer) -> None:
        self.fill("one", self.mine, 5)
        self.device.synchronize()
        with freezer:
            self.ops["one"].done()

    def others(self, freezer: Freezer) -> Iterator[str]:
        yield from self.apart()
        yield "launch behind it"
        self.fill("two", self.mine, 6)
        yield from self.finish("one", "two")


class FinishesRange(OnDevice):
    """The suspended thread waits for all ops, and books the end of several on one stream."""

    def suspended(self, freezer: Freezer) -> None:
        for number in range(3):
            self.fill(f"op {number}", self.mine, number)
        self.device.synchronize()
        with freezer:
            self.engine.waitall(PATIENCE_S)

    def others(self, freezer: Freezer) -> Iterator[str]:
        yield from self.apart()
        yield "launch behind them"
        self.fill("behind", self.mine, 6)
        yield from self.finish("op 0", "op 1", "op 2", "behind")
        yield "wait for all, too"
        self.engine.waitall(PATIENCE_S)
        assert self.mine.numpy().tolist() == list(range(6, 14))


class WaitsForDevice(OnDevice):
    """The suspended thread waits for an op on the device."""

    sleeps = True

    def __init__(self) -> None:
        super().__init__()
        self.latch = Latch(self.device)
        self.held = self.engine.push(
            self.latch.hold, device=self.device, name="held", writes=[self.x]
        )

    def suspended(self, freezer: Freezer) -> None:
        with freezer:
            self.held.wait(PATIENCE_S)

    def others(self, freezer: Freezer) -> Iterator[str]:
        yield from self.apart()
        yield "release the latch"
        self.latch.release()
        freezer.settle()
        yield "wait for the same op"
        self.held.wait(PATIENCE_S)
        yield from self.crossed()


class Watches(WaitsForDevice):
    """The suspended thread is the engine's watcher, after it saw that the device is done."""

    def __init__(self) -> None:
        super().__init__()
        self.went = threading.Event()

    def suspended(self, freezer: Freezer) -> None:
        def one() -> None:
            freezer.install()
            self.went.set()

        self.push("dependent", reads=[self.x])
        self.held.add_done_callback(one)
        self.latch.release()
        assert self.went.wait(PATIENCE_S)

    def others(self, freezer: Freezer) -> Iterator[str]:
        yield "hear that the device is done"
        assert self.went.wait(PATIENCE_S)
        freezer.settle()
        yield from self.apart()
        yield "ask for the op that is done"
        assert self.held.done()
        yield from self.crossed()
        yield from self.finish("dependent")
