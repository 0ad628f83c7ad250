"""No push and no wait overlooks a failure, wherever a thread is suspended, and then goes on."""

from __future__ import annotations

import os
import random
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from helpers.concurrency.bytecode_freezer import PATIENCE_S, Freezer
from helpers.engine_programs.runner import kernels

import cudasync as cs
from cudasync.engine.device import issue, ready
from cudasync.engine.device.issue import Issuer
from cudasync.engine.ledger import poison
from cudasync.engine.log import fences
from cudasync.engine.log import node as nodes

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


class Waits:
    """Two threads wait for what a failed op wrote. Each may end the fence of the other, and the
    suspended thread goes on once its fence is over."""

    def __init__(self, at):
        self.engine = cs.Engine()
        self.freezer = Freezer(at, is_ending)
        self.variable = cs.Var("x")
        assert self.engine.push(fail, writes=[self.variable]).exception(PATIENCE_S) is not None
        # Then no worker plans the fence, so its waiter does, at bytecodes that are its own.
        self.engine.close()
        self.found = {}

    def look(self, who):
        with cs.use(self.engine):
            try:
                self.variable.wait(PATIENCE_S)
            except cs.OpError as error:
                self.found[who] = error.cause

    def run(self):
        def look():
            with self.freezer:
                self.look("suspended")

        frozen = threading.Thread(target=look, daemon=True)
        frozen.start()
        self.freezer.settle()
        self.look("other")
        self.freezer.release()
        frozen.join(PATIENCE_S)
        if all(isinstance(self.found.get(who), Failed) for who in ("suspended", "other")):
            return None
        return f"suspended at {self.freezer.where}: {self.found}"


def fail():
    raise Failed


def is_ending(path: str) -> bool:
    """True for the files that plan and end a fence."""
    return path.startswith(str(Path(fences.__file__).parent)) or path == ready.__file__


def overlooked(make, run, points):
    """The first finding at one of these bytecodes, or None."""
    for at in points:
        found = run(make(at))
        if found:
            return found
    return None


def count(make, run):
    """How many bytecodes the suspended thread runs."""
    scene = make(None)
    assert run(scene) is None
    return scene.freezer.points


@pytest.mark.parametrize(
    ("make", "run"),
    [(Scene, Scene.reader_suspended), (Scene, Scene.failing_suspended), (Waits, Waits.run)],
)
def test_a_failure_is_seen_wherever_a_thread_is_suspended(make, run, request):
    seed = int(os.environ.get("CUDASYNC_FREEZE_SEED", "0")) or int.from_bytes(os.urandom(2))
    print(f"CUDASYNC_FREEZE_SEED={seed}")
    points = range(1, count(make, run) + 1)
    if not request.config.getoption("--run-slow"):
        points = random.Random(seed).sample(points, min(POINTS, len(points)))
    assert overlooked(make, run, points) is None


def _mends_late(self, op, fn, error, device, timeline):
    """The planted bug: the op is issued first, and fails afterwards."""
    self.enqueue(op, lambda stream, event: stream.record(event), device, timeline)
    self.ledger.fail(op, error)


def test_an_op_that_is_issued_before_it_fails_is_overlooked(monkeypatch):
    points = range(count(Scene, Scene.failing_suspended), 0, -1)
    monkeypatch.setattr(Issuer, "_mend", _mends_late)
    assert overlooked(Scene, Scene.failing_suspended, points)


def _issues_late(self, op):
    """The planted bug: a late thread takes the failure away again, since the gate is empty."""
    if not op.finished:
        op.failure = poison(op, nodes.gate_of(op).sources)
        nodes.finish(op)


def test_a_fence_that_is_ended_twice_overlooks_a_failure(monkeypatch):
    monkeypatch.setattr(fences._Fences, "issue", _issues_late)
    # The planted function is in this file.
    monkeypatch.setattr(sys.modules[__name__], "is_ending", lambda path: path == __file__)
    assert overlooked(Waits, Waits.run, range(1, 100))
