"""No launch ignores that an op is in doubt, wherever a thread is suspended meanwhile.

One of two threads is suspended at a bytecode of the engine. The first pushes a launch behind an op
in doubt. The second finds out that this op has failed. The other thread goes on, and then the
suspended one.
"""

from __future__ import annotations

import os
import random
import threading

import numpy as np
import pytest
from helpers.concurrency.bytecode_freezer import PATIENCE_S, Freezer
from helpers.concurrency.freeze_test import is_engine
from helpers.engine_programs.runner import kernels

import cudasync as cs
from cudasync.engine.device import in_doubt

pytestmark = pytest.mark.usefixtures("tracing_ends", "replaced_soon")

N = 8
POINTS = 40


@pytest.fixture
def engine():
    if cs.device_count() < 2:
        pytest.skip("no such device: two are needed")
    engine = cs.Engine()
    with cs.use(engine):
        yield engine
        heal(engine)
    engine.close()


def heal(engine):
    engine.clear_errors()
    cs.Device(0).reset()


class Scene:
    """A copy from a lost device, whose loss is not known yet, and a launch that reads the copy."""

    def __init__(self, engine, at):
        self.engine = engine
        self.freezer = Freezer(at, is_engine)
        self.lost, self.y = (cs.zeros(N, np.int32, device=d) for d in (0, 1))
        one, n = np.int32(1), np.uint32(N)
        mix = kernels(cs.Device(1))["mix"]
        self.launch, self.beside = (
            mix.prepare(grid=1, block=32, args=(x, x, one, n, one, one))
            for x in (self.y, cs.zeros(N, np.int32, device=1))
        )
        # The first pushes make the states known.
        self.launch.push()
        self.beside.push()
        cs.waitall(PATIENCE_S)
        kernels(cs.Device(0))["wild"][1, 1](self.lost)
        self.copy = cs.copy(self.y, self.lost)
        self.ops = []

    def push(self):
        self.ops.append(self.launch.push())

    def find_out(self):
        self.copy.exception(PATIENCE_S)

    def run(self, suspended, other):
        """Returns the overlooked failures, or None if there are none."""

        def act():
            with cs.use(self.engine):
                # This push makes the thread the planner, as the short way of a launch requires.
                self.beside.push()
                with self.freezer:
                    suspended()

        thread = threading.Thread(target=act, daemon=True)
        thread.start()
        self.freezer.settle()
        other()
        self.freezer.release()
        thread.join(PATIENCE_S)
        errors = [op.exception(PATIENCE_S) for op in (self.copy, *self.ops)]
        heal(self.engine)
        is_right = len(errors) == 2 and all(errors)
        return None if is_right else f"suspended at {self.freezer.where}: {errors}"

    def pusher_suspended(self):
        return self.run(self.push, self.find_out)

    def finder_suspended(self):
        return self.run(self.find_out, self.push)


def overlooked(engine, run, points):
    """The first finding at one of these bytecodes, or None."""
    for at in points:
        found = run(Scene(engine, at))
        if found:
            return found
    return None


def count(engine, run):
    """How many bytecodes the suspended thread runs."""
    scene = Scene(engine, None)
    assert run(scene) is None
    return scene.freezer.points


@pytest.mark.parametrize("run", [Scene.pusher_suspended, Scene.finder_suspended])
def test_a_failure_is_seen_wherever_a_thread_is_suspended(engine, run, request):
    seed = int(os.environ.get("CUDASYNC_FREEZE_SEED", "0")) or int.from_bytes(os.urandom(2))
    print(f"CUDASYNC_FREEZE_SEED={seed}")
    points = range(1, count(engine, run) + 1)
    if not request.config.getoption("--run-slow"):
        points = random.Random(seed).sample(points, min(POINTS, len(points)))
    assert overlooked(engine, run, points) is None


def _forgets(op):
    """The planted bug: a failure leaves no trace for launches that are under way."""
    if op._doubt is not None:
        op._doubt.streams.concerns.pop(op, None)
        op._doubt = None


def test_a_failure_that_leaves_no_trace_is_overlooked(engine, monkeypatch):
    # The bytecodes that show the bug are neighbours: try each fifth first, and then the others.
    points = range(1, count(engine, Scene.pusher_suspended) + 1)
    points = sorted(points, key=lambda at: at % 5 > 0)
    monkeypatch.setattr(in_doubt, "resolve", _forgets)
    assert overlooked(engine, Scene.pusher_suspended, points)
