"""The six programs: right in every way, without a stream, and below expectation when serial."""

from __future__ import annotations

import ast
import functools
import inspect
import sys
from dataclasses import replace

import numpy as np
import pytest
from helpers.repository.subprocesses import document, run_module

from cudasync.experiments.catalogue import EXPERIMENTS
from cudasync.experiments.intervals import place_of
from cudasync.experiments.measuring import measure

SIZE = 40
ON_DEVICES = [name for name, each in EXPERIMENTS.items() if each.clock == "device"]
BY_WALL = [name for name in EXPERIMENTS if name not in ON_DEVICES]


def measured(experiment, size=SIZE, rounds=1):
    return measure(experiment, size, rounds, lambda text: None)


@functools.cache
def found_of(name):
    """The measurement of an unchanged experiment, made once."""
    return measured(EXPERIMENTS[name])


def measured_elsewhere(names, **environment):
    """The measurements of these experiments in a process of their own."""
    arguments = ("experiments", *names, "--size", SIZE, "--repeat", 1, "--json")
    code, printed = run_module("cudasync", *arguments, deadline_s=60, **environment)
    assert code == 0, printed
    found = document(printed)["experiments"]
    assert [each["name"] for each in found] == list(names)
    return found


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_way_gives_the_serial_answer(name):
    found = found_of(name)
    assert found.is_equal
    assert found.largest_error < 1e-5


@pytest.mark.sampled(5)
@pytest.mark.parametrize("scheduler", ["threaded", *(f"seed={number}" for number in range(9))])
def test_every_schedule_gives_the_serial_answer(scheduler):
    for found in measured_elsewhere(EXPERIMENTS, CUDASYNC_SOFTGPU_SCHEDULER=scheduler):
        assert found["is_right"], found["name"]


@pytest.mark.lazy
@pytest.mark.parametrize(("name", "gain"), [("two-gpus", 2.0), ("small-operations", 4.0)])
def test_by_the_virtual_clock_devices_and_streams_work_at_the_same_time(name, gain):
    found = found_of(name)
    assert found.is_met
    assert found.ratio == pytest.approx(gain, rel=1e-3)
    assert found.expected_ratio == pytest.approx(gain, rel=1e-3)
    assert found.trace_clock == "device clock"
    begins = {}
    for entry in found.traces["together"]:
        begins.setdefault(place_of(entry), entry.start_us)
    # A trace has one origin for each device. The origins are different moments.
    assert list(begins.values()) == pytest.approx([0.0] * len(begins), abs=1e-3)


@pytest.mark.lazy
@pytest.mark.parametrize("name", ON_DEVICES)
def test_on_the_serial_engine_nothing_on_devices_is_as_expected(name, monkeypatch):
    monkeypatch.setenv("CUDASYNC_ENGINE", "serial")
    found = measured(EXPERIMENTS[name])
    assert found.is_right
    assert found.is_met is False
    assert found.ratio == pytest.approx(1.0, rel=0.05)


def test_on_the_serial_engine_nothing_by_the_wall_clock_is_as_expected():
    settings = {"CUDASYNC_ENGINE": "serial", "CUDASYNC_SOFTGPU_SCHEDULER": "threaded"}
    by_wall = measured_elsewhere(BY_WALL, **settings)
    assert [each["shared"] for each in by_wall] == [0.0] * 3
    assert [each["is_met"] for each in by_wall] == [False] * 3
    assert all(each["is_right"] for each in by_wall)


@pytest.mark.lazy
def test_where_devices_have_a_clock_of_their_own_nothing_is_said_of_the_cpu():
    found = found_of("cpu-and-gpu")
    assert found.is_met is None
    assert found.shared is None
    assert {entry.kind for entry in found.traces["together"]} == {"kernel"}


def test_a_way_that_gives_something_else_is_found():
    right = EXPERIMENTS["two-gpus"]
    ways = {"other": lambda x, y: right.ways["together"](x, y)[::-1], **right.ways}
    found = measured(replace(right, ways=ways))
    assert not found.is_equal
    assert not found.is_right


def test_what_numpy_does_not_agree_to_is_found():
    right = EXPERIMENTS["dag"]
    off = replace(right, reference=lambda *inputs: [1.01 * x for x in right.reference(*inputs)])
    found = measured(off)
    assert found.is_equal
    assert not found.is_right
    nan = replace(right, reference=lambda *inputs: [x * np.nan for x in right.reference(*inputs)])
    assert not measured(nan).is_right


def test_the_perceptron_learns_and_its_loss_is_that_of_one_gpu():
    found = found_of("perceptron")
    assert found.is_equal
    assert list(found.times) == ["on one GPU", "one after the other", "together"]
    losses = [float(loss) for loss in found.remark.removeprefix("loss ").split(", ")]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_no_program_names_a_stream_or_an_event(name):
    module = sys.modules[EXPERIMENTS[name].prepare.__module__]
    tree = ast.parse(inspect.getsource(module))
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    names |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg}
    assert not {each for each in names if "stream" in each.lower() or "event" in each.lower()}
