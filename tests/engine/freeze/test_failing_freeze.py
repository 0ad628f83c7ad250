"""No push overlooks an op's failure in another thread, wherever one of the two is suspended."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import numpy as np
import pytest
from helpers.concurrency.bytecode_freezer import PATIENCE_S, Freezer
from helpers.engine_programs.runner import kernels

import cudasync as cs
from cudasync.engine.device import issue
from cudasync.engine.device.issue import Issuer

pytestmark = pytest.mark.usefixtures("tracing_ends", "replaced_soon")

N = 8
POINTS = 30
ROOM = str(Path(issue.__file__).parent)


def is_issuing(path: str) -> bool:
    """True for the files that push and issue device ops. Other code looks at nothing twice."""
    return path.startswith(ROOM)


class Failed(Exception):
    """The op's failure."""


class Scene:
    """An op that writes an array and fails as it is issued, and a launch that reads the array."""

    def __init__(self, at):
        self.engine = cs.Engine()
        self.freezer = Freezer(at, is_issuing)
        one, n = np.int32(1), np.uint32(N)
        with cs.use(self.engine):
            self.array = cs.zeros(N, np.int32)
            self.launch = kernels(cs.Device(0))["mix"].prepare(
                grid=1, block=32, args=(self.array, self.array, one, n, one, one)
            )
            self.launch.push().wait(PATIENCE_S)
        self.ops = {}
        self.is_issuing, self.gate = threading.Event(), threading.Event()

    def fail(self, stream):
        self.is_issuing.set()
        self.gate.wait(PATIENCE_S)
        raise Failed

    def push_failing(self):
        self.ops["fails"] = self.engine.push(self.fail, writes=[self.array], device=0)

    def push_launch(self):
        self.ops["reads"] = self.launch.push()

    def start(self, act, *, is_frozen):
        def run():
            with cs.use(self.engine):
                if is_frozen:
                    with self.freezer:
                        act()
                else:
                    act()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def reader_suspended(self):
        """The launch is suspended, and meanwhile the op before it fails."""
        other = self.start(self.push_failing, is_frozen=False)
        assert self.is_issuing.wait(PATIENCE_S)
        frozen = self.start(self.push_launch, is_frozen=True)
        self.freezer.settle()
        self.gate.set()
        other.join(PATIENCE_S)
        self.freezer.release()
        frozen.join(PATIENCE_S)
        return self.verdict()

    def failing_suspended(self):
        """The failing op is suspended, and meanwhile the launch is pushed."""
        self.gate.set()
        frozen = self.start(self.push_failing, is_frozen=True)
        self.freezer.settle()
        # A launch that precedes the op is not tested here.
        if self.is_issuing.is_set():
            self.start(self.push_launch, is_frozen=False).join(PATIENCE_S)
        self.freezer.release()
        frozen.join(PATIENCE_S)
        return self.verdict()

    def verdict(self):
        """Returns the overlooked failures, or None if there are none."""
        errors = {name: op.exception(PATIENCE_S) for name, op in self.ops.items()}
        self.engine.clear_errors()
        self.engine.close()
        if "fails" in errors and all(isinstance(e and e.cause, Failed) for e in errors.values()):
            return None
        return f"suspended at {self.freezer.where}: {errors}"


def overlooked(run, points):
    """The first finding at one of these bytecodes, or None."""
    for at in points:
        found = run(Scene(at))
        if found:
            return found
    return None


def count(run):
    """How many bytecodes the suspended thread runs."""
    scene = Scene(None)
    assert run(scene) is None
    return scene.freezer.points


@pytest.mark.parametrize("run", [Scene.reader_suspended, Scene.failing_suspended])
def test_a_failure_is_seen_wherever_a_thread_is_suspended(run, request):
    seed = int(os.environ.get("CUDASYNC_FREEZE_SEED", "0")) or int.from_bytes(os.urandom(2))
    print(f"CUDASYNC_FREEZE_SEED={seed}")
    points = range(1, count(run) + 1)
    if not request.config.getoption("--run-slow"):
        points = random.Random(seed).sample(points, min(POINTS, len(points)))
    assert overlooked(run, points) is None


def _mends_late(self, op, fn, error, device, timeline):
    """The planted bug: the op is issued first, and fails afterwards."""
    self.enqueue(op, lambda stream, event: stream.record(event), device, timeline)
    self.ledger.fail(op, error)


def test_an_op_that_is_issued_before_it_fails_is_overlooked(monkeypatch):
    points = range(count(Scene.failing_suspended), 0, -1)
    monkeypatch.setattr(Issuer, "_mend", _mends_late)
    assert overlooked(Scene.failing_suspended, points)
