"""The ground of scenes in which Ctrl-C comes, and the check that its engine is intact afterwards.

Every op must finish if its push returned, and must have run once unless it carries the interrupt.
What counts as intact must have been written. The engine must take and finish new work on all of its
workers, and close.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import cudasync as cs
from cudasync.engine.device.ready import settle
from cudasync.engine.lifecycle.left_ops import end_left
from cudasync.testing import Latch

PATIENCE_S = 8.0
WORKERS = 2
STREAMS = 4
# The name of an op whose function returns None.
SEGMENT = "segment"
KERNELS = Path(__file__).parents[1] / "kernels.ptx"


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
        # The variables that nodes write, and their versions before the interrupted launch.
        self.written: dict[str, cs.Var] = {}
        self.versions: dict[str, int] = {}
        self.is_failing = False
        # Variables that ops on held streams write.
        self.held: list[cs.Var] = []
        # Ops that come behind a held one.
        self.behind: set[str] = set()
        # Each asserts something about data that counts as intact, or raises the data's failure.
        self.claims: list[Callable[[], None]] = []

    def run(self, name: str, stream: cs.Stream | None = None) -> str:
        self.ran.append(name)
        return name

    def push(self, name: str, **options: Any) -> cs.Op:
        op = self.engine.push(partial(self.run, name), name=name, **options)
        self.ops[name] = op
        return op

    def replace_engine(self, *mode: Any, **options: Any) -> cs.Engine:
        """Another engine, without a limit."""
        self.engine.close()
        self.engine = cs.Engine(*mode, workers=WORKERS, **options)
        return self.engine

    def node(self, name: str, fails: bool = False) -> None:
        """Push a function that writes a variable of its own, which is intact only if it ran."""
        written = cs.Var(name)

        def step() -> None:
            if fails and self.is_failing:
                raise LookupError("planned")
            self.ran.append(name)

        def claim() -> None:
            written.wait(PATIENCE_S)
            was_pushed = written.version > self.versions[name]
            assert name in self.ran or not was_pushed, f"{name} seems intact, and never ran"

        self.claims.append(claim)
        self.written[name] = written
        cs.engine().push(step, writes=[written], name=name)

    def begin(self) -> None:
        """From now on nodes that should fail do so."""
        self.ran.clear()
        self.versions = {name: written.version for name, written in self.written.items()}
        self.is_failing = True

    def hold(self, **options: Any) -> None:
        """Push an op that ends after the interrupt."""
        self.engine.push(lambda: self.gate.wait(PATIENCE_S), name="held", **options)

    def hold_stream(self, **options: Any) -> None:
        self.held += options["writes"]
        self.engine.push(self.latch.hold, name="held", device=self.device, **options)

    def check(self, *, is_pair: bool = False) -> None:
        # As any later push or wait does.
        settle()
        assert self.behind.isdisjoint(self.ran), f"{self.ran} ran before the held op"
        with suppress(cs.ClosedError):
            for held in self.held:
                # It comes after the interrupted op, which comes after the held one.
                later = self.engine.push(lambda stream: None, writes=[held], device=self.device)
                assert not later.done(), "an op ran beside the held op"
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
        assert len(roots) <= 1 + is_pair, f"one interrupt ended {roots}"
        assert len(self.ran) == len(set(self.ran)), f"ran twice: {self.ran}"
        for claim in self.claims:
            with suppress(cs.OpError):
                claim()
        with suppress(cs.ClosedError):
            self.check_new_work()
        if self.engine.mode != "serial":
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
        if engine.mode != "serial":
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
                # As each thread that waits.
                end_left(self.engine)
            assert not taken, f"nobody gave back {taken}"
            assert len(device.compute.timelines) <= STREAMS, device.compute.timelines
