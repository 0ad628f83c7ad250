"""A model in stages equals the model in one piece, and keeps no more than its schedule promises."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.distributed.communicators import communicator
from helpers.distributed.pipeline_models import (
    Layer,
    Model,
    loss,
    model,
    most_promised,
    pipeline,
    raise_unless_right,
    step,
)
from hypothesis import given, note
from hypothesis import strategies as st

import cudasync as cs
from cudasync import xp
from cudasync.parallel import Pipeline, Stage
from cudasync.parallel import pipeline as module
from cudasync.parallel.schedules import SCHEDULES, gpipe
from cudasync.testing import HostLatch


def play(drawn, size, *, on_cpu=False):
    """Two steps whose gradients are added up."""
    comm = communicator(size, on_cpu=on_cpu)
    with cs.Engine():
        made, layers = pipeline(drawn, comm)
        step(drawn, comm, made)
        losses = step(drawn, comm, made)
        raise_unless_right(drawn, comm, layers, losses, times=2)
    for rank, layer in enumerate(layers):
        assert layer.most <= most_promised(drawn, rank, size), f"stage {rank} keeps {layer.most}"
    return layers


@given(st.randoms(use_true_random=False), st.integers(1, 4), st.booleans())
def test_any_model_in_stages_is_the_model_in_one_piece(random, stages, on_cpu):
    drawn = model(random, stages)
    note(drawn)
    play(drawn, stages, on_cpu=on_cpu)


@pytest.mark.parametrize(("schedule", "kept"), [("gpipe", [6, 6, 6]), ("1f1b", [3, 2, 1])])
def test_what_is_kept_at_once_is_what_the_schedule_says(schedule, kept):
    layers = play(Model((2, 3, 3, 1), 13, 6, schedule), 3, on_cpu=True)
    assert [each.most for each in layers] == kept


def test_a_recorded_step_gives_it_too():
    drawn = Model((3, 2, 4), 7, 3, "1f1b")
    comm = communicator(2)
    made, layers = pipeline(drawn, comm)
    with cs.graph() as graph:
        losses = step(drawn, comm, made)
    executable = graph.instantiate()
    for _ in range(3):
        executable.launch()
    raise_unless_right(drawn, comm, layers, losses, times=3)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_stages_work_at_the_same_time(schedule):
    """The first stage cannot end its second micro-batch; the second stage computes the first."""
    latch, comm = HostLatch(), communicator(2, on_cpu=True)
    with cs.Engine(workers=4) as engine:
        drawn = Model((2, 2, 2), 4, 2, schedule)
        made, layers = pipeline(drawn, comm)
        forward, seen = layers[0].forward, []

        def held(x):
            y, kept = forward(x)
            seen.append(y)
            if len(seen) == 2:
                engine.push(latch.wait, reads=[y], writes=[y])
            return y, kept

        made._stages[0].forward = held
        losses = step(drawn, comm, made)
        losses[0].wait(60)
        assert not latch.is_released
        latch.release()
        raise_unless_right(drawn, comm, layers, losses)


def _a_stage_runs_ahead(planted):
    planted.setitem(SCHEDULES, "1f1b", lambda stage, stages, count: gpipe(stage, stages, count))


def _a_backward_takes_what_another_kept(planted):
    backward = module._Run._backward

    def other(self, rank, number):
        mine = [each for each in self._kept if each[0] == rank]
        first, last = min(mine), max(mine)
        self._kept[first], self._kept[last] = (
            (self._kept[last][0], self._kept[first][1]),
            (self._kept[first][0], self._kept[last][1]),
        )
        backward(self, rank, number)

    planted.setattr(module._Run, "_backward", other)


def _a_gradient_is_not_sent_on(planted):
    backward = module._Run._backward

    def stays(self, rank, number):
        stage = self._pipeline._stages[rank]
        was = stage.backward
        stage.backward = lambda kept, gradient: was(kept, gradient) * int(number != 1)
        try:
            backward(self, rank, number)
        finally:
            stage.backward = was

    planted.setattr(module._Run, "_backward", stays)


@pytest.mark.parametrize(
    "plant",
    [_a_stage_runs_ahead, _a_backward_takes_what_another_kept, _a_gradient_is_not_sent_on],
    ids=lambda each: each.__name__.strip("_"),
)
def test_a_planted_bug_is_found(plant, monkeypatch):
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        play(Model((2, 3, 2, 2), 8, 4, "1f1b"), 3, on_cpu=True)


def parts(stages=2):
    layers = [Layer(np.ones((2, 2)), "cpu", number > 0) for number in range(stages)]
    return [each.stage for each in layers]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"stages": parts(1)}, "one stage for each rank"),
        ({"schedule": "zigzag"}, "1f1b"),
        ({"micro_batches": 0}, "micro_batches must be 1 or more"),
        ({"loss": None}, "loss="),
        ({"stages": [parts()[0], Stage(lambda x: (x, x), lambda k, g: g)]}, "takes="),
        ({"micro_batches": "4"}, "micro_batches is an integer"),
        ({"loss": 3}, "loss= must be a function"),
        ({"comm": None}, r"distributed\.init"),
    ],
)
def test_a_pipeline_that_does_not_fit_is_refused(options, says):
    arguments = {"stages": parts(), "comm": communicator(2, on_cpu=True), "loss": loss, **options}
    with pytest.raises((ValueError, TypeError), match=says):
        Pipeline(arguments.pop("stages"), arguments.pop("comm"), **arguments)


def test_a_stage_is_made_of_functions():
    with pytest.raises(TypeError, match="backward of a stage must be a function"):
        Stage(lambda x: (x, x), 4)


@pytest.mark.parametrize(
    ("x", "target", "rows", "kind"),
    [
        (4, 5, None, ValueError),
        (4, 4, 5, ValueError),
        (3, 3, None, ValueError),
        (None, 4, None, TypeError),
        (4, None, None, TypeError),
    ],
)
def test_a_batch_that_does_not_fit_is_refused(x, target, rows, kind):
    made = Pipeline(parts(), communicator(2, on_cpu=True), loss=loss)
    give = [
        None if n is None else xp.ones((n, 2), dtype=xp.float64, device="cpu") for n in (x, target)
    ]
    with pytest.raises(kind):
        made.step(*give, rows=rows)


@pytest.mark.parametrize(
    ("stage", "name", "function", "says"),
    [
        (0, "forward", lambda x: x, "forward of a stage must return a pair"),
        (1, "backward", lambda kept, gradient: None, "gradient of its x"),
        (None, "loss", lambda y, target: y, "loss must return a pair"),
    ],
)
def test_what_the_functions_should_return_is_told(stage, name, function, says):
    stages = parts()
    if stage is not None:
        setattr(stages[stage], name, function)
    made = Pipeline(stages, communicator(2, on_cpu=True), loss=function if name == "loss" else loss)
    x = xp.ones((4, 2), dtype=xp.float64, device="cpu")
    with pytest.raises(TypeError, match=says):
        made.step(x, x)
