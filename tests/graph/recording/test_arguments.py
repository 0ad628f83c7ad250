"""Arguments of a graph: launches with other arrays, numbers and functions than were recorded."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from helpers.engine_programs.steps import Fail
from helpers.engine_programs.strategies import programs, settings
from helpers.fuzzing.search import first_difference
from helpers.graphs.recorded_programs import rebound_differences, recordable
from hypothesis import given
from hypothesis import strategies as st

import cudasync as cs
from cudasync.driver.arguments.argument_packing import Packing
from cudasync.graph.retargeting import Aim
from cudasync.graph.staging import Staged
from cudasync.testing import HostLatch

AXPY = r"""
extern "C" __global__ void axpy(float *y, const float *x, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
"""
turns = st.lists(st.integers(0, 1), min_size=2, max_size=10)


def without_failures(program):
    kept = tuple(push for push in program.pushes if not isinstance(push.step, Fail))
    return type(program)(program.devices, program.hosts, program.tokens, kept)


some_programs = programs(max_steps=16, ordered=True).map(recordable).map(without_failures)


@given(some_programs, settings(), turns)
def test_a_graph_works_on_the_arrays_that_are_its_arguments_then(program, setting, order):
    assert not rebound_differences(program, setting, order)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("owner", "name", "bug"),
    [
        (Aim, "region", lambda self, region: region),
        (Staged, "copy_out", lambda *_: []),
        (Packing, "aimed", lambda self, block, address, values: block),
    ],
    ids=["hazards of the slot", "nothing is copied back", "launches of the slot"],
)
def test_a_planted_bug_is_found(owner, name, bug, monkeypatch):
    monkeypatch.setattr(owner, name, bug)
    assert first_difference(rebound_differences, some_programs, settings(), turns)


@pytest.fixture
def axpy():
    return cs.Module.from_cuda(AXPY).kernel("axpy")


def numbers(*values):
    return cs.array(np.array(values, np.float32))


def test_arrays_numbers_and_functions_are_replaced(axpy):
    x, y, seen = numbers(0, 1, 2, 3), cs.zeros(4), []
    with cs.graph() as g:
        to, of = g.argument("y", y), g.argument("x", x)
        factor = g.argument("a", np.float32(2))
        log = g.argument("log", lambda: seen.append("first"))
        axpy[1, 32](to, of, factor, 4)
        z = to * factor + 1
        cs.engine().push(log, reads=z)
    with g.instantiate() as exe:
        exe.launch()
        assert y.numpy().tolist() == [0, 2, 4, 6]
        ones = numbers(1, 1, 1, 1)
        exe.update(x=ones, a=np.float32(10), log=lambda: seen.append("second"))
        exe.launch()
        assert y.numpy().tolist() == [10, 12, 14, 16]
        assert z.numpy().tolist() == [101, 121, 141, 161]
        # One array in two places changes the dependencies.
        exe.update(y=ones)
        exe.launch().wait()
        assert ones.numpy().tolist() == [11] * 4
        assert x.numpy().tolist() == [0, 1, 2, 3]
        assert seen == ["first", "second", "second"]
        assert "argument x: in place" in exe.report()


def test_places_that_were_there_lately_are_not_instantiated_again(x):
    a, b = cs.zeros(8, np.int32), cs.zeros(8, np.int32)
    with cs.graph() as g:
        target = g.argument("target", a)
        target += 1
    with g.instantiate() as exe:
        for _ in range(5):
            for each in (a, b):
                exe.update(target=each)
                exe.launch()
        assert "updated 2 times" in exe.report()
    assert a.numpy().tolist() == b.numpy().tolist() == [5] * 8


def test_launches_that_were_pushed_before_go_on_with_what_they_had():
    a, b, gate = cs.zeros(8, np.int32), cs.zeros(8, np.int32), threading.Event()
    with cs.graph() as g:
        target = g.argument("target", a)
        target += 1
    exe = g.instantiate()
    cs.engine().push(gate.wait, writes=a)
    first = exe.launch()
    exe.update(target=b)
    exe.launch()
    assert b.numpy().tolist() == [1] * 8
    assert not first.done()
    gate.set()
    assert a.numpy().tolist() == [1] * 8
    exe.close()


def copy_half(array, device):
    """Copy half of the array by a function that refers to the array."""
    if device == "cpu":
        cs.copy(array[:2], array[2:])
        return

    def copy(stream):
        cs.memcpy_async(array[:2], array[2:], stream=stream)

    cs.engine().push(copy, writes=array, device=device)


@pytest.mark.parametrize("device", [0, "cpu"])
def test_what_a_function_has_hold_of_is_copied_in_and_out(device):
    a, b = (cs.array(np.arange(4, dtype=np.int32) * k, device=device) for k in (1, 10))
    with cs.graph() as g:
        target = g.argument("target", a)
        copy_half(target, device)
        target += 1
    with g.instantiate() as exe:
        exe.launch()
        exe.update(target=b)
        exe.launch()
        assert "copied in and out" in exe.report()
        assert a.numpy().tolist() == [3, 4, 3, 4]
        assert b.numpy().tolist() == [21, 31, 21, 31]
        # An array that overlaps the argument would have to change with it.
        with cs.graph() as h:
            again = h.argument("again", a)
            copy_half(again, device)
            a[1:3] += 1
        with pytest.raises(ValueError, match=r"argument again overlaps .* record the graph"):
            h.instantiate()


def test_copies_of_pageable_memory_are_in_place_at_both_ends():
    a, b = (cs.zeros(4, np.int32) for _ in range(2))
    first, second = (cs.array(np.arange(4, dtype=np.int32) + n, device="cpu") for n in (1, 5))
    with cs.graph() as g:
        cs.copy(g.argument("target", a), g.argument("source", first))
    with g.instantiate() as exe:
        exe.launch()
        exe.update(target=b, source=second)
        exe.launch()
        assert "copied in and out" not in exe.report()
        assert a.numpy().tolist() == [1, 2, 3, 4]
        assert b.numpy().tolist() == [5, 6, 7, 8]


def test_an_argument_that_nobody_else_has_lives_until_its_launch_is_over():
    """CPU memory would go to the next array while a copy to the slot must wait."""
    latch = HostLatch()
    with cs.Engine(workers=2) as engine:
        total, slot = (cs.xp.zeros((64,), device="cpu") for _ in range(2))
        with cs.graph() as g:
            total += g.argument("x", slot)
        executable = g.instantiate()
        engine.push(latch.wait, reads=[total], writes=[total])
        for power in range(6):
            host = np.full(64, 2**power, np.float32)
            executable.update(x=cs.xp.asarray(host, device="cpu"))
            executable.launch()
        latch.release()
        assert total.numpy().tolist() == [63] * 64


def test_a_graph_with_arguments_is_recorded_in_another(x):
    a, b = cs.zeros(8, np.int32), cs.zeros(8, np.int32)
    with cs.graph() as inner:
        target = inner.argument("target", a)
        target += x
        cs.copy(target[:1], target[1:2])
    step = inner.instantiate()
    with cs.graph() as outer:
        step.launch()
        step.update(target=b)
        step.launch()
    outer.instantiate().launch()
    assert a.numpy().tolist() == b.numpy().tolist() == [1, 1, 2, 3, 4, 5, 6, 7]


@pytest.fixture
def x():
    return cs.array(np.arange(8, dtype=np.int32))


def test_what_does_not_fit_is_refused_and_changes_nothing(axpy):
    x, y = numbers(1, 2, 3, 4), cs.zeros(4)
    with cs.graph() as g:
        of, a = g.argument("x", x), g.argument("a", np.float32(1))
        log = g.argument("log", print)
        axpy[1, 32](y, of, a, 4)
        cs.engine().push(log, reads=y, name="log")
        with pytest.raises(ValueError, match="already"):
            g.argument("x", x)
        with pytest.raises(TypeError, match="arrays, numbers and functions"):
            g.argument("s", "text")
        with pytest.raises(ValueError, match="not C-contiguous"):
            g.argument("s", cs.zeros(4)[::2])
    with pytest.raises(cs.RecordingError, match="inside `with"):
        g.argument("s", x)
    exe = g.instantiate()
    other = cs.Device(1 % cs.device_count())
    for error, values in [
        (TypeError, {"q": 1}),
        (TypeError, {"x": 3}),
        (TypeError, {"x": np.zeros(4, np.float32)}),
        (TypeError, {"x": cs.zeros(4, np.int32)}),
        (ValueError, {"x": cs.zeros(5)}),
        (ValueError, {"x": cs.zeros(8)[::2]}),
        (ValueError, {"x": cs.zeros(4, device="cpu")}),
        *([(ValueError, {"x": cs.zeros(4, device=other)})] if other is not x.device else []),
        (TypeError, {"a": "1"}),
        (TypeError, {"a": 1j}),
        (TypeError, {"a": np.zeros(2)}),
        (TypeError, {"log": 1}),
        (TypeError, {"x": cs.zeros(4), "a": None}),
    ]:
        with pytest.raises(error, match=r"argument"):
            exe.update(**values)
    exe.update(log=lambda: None)
    exe.launch()
    assert y.numpy().tolist() == [1, 2, 3, 4]
    exe.close()
    with pytest.raises(cs.ClosedError):
        exe.update(x=x)
