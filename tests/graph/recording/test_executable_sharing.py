"""Graphs with the same work on a device are instantiated once, and no other graphs are shared."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from helpers.driver.call_counts import counted_calls

import cudasync as cs
from cudasync.driver import Launch
from cudasync.graph import executable_sharing


def graph_of(step, *arguments):
    with cs.graph() as g:
        step(*arguments)
    return g.instantiate()


def add(x, y, z):
    x += y
    x += z


def add_apart(x, y, z):
    x += y
    z += y


def raw_of(executable):
    return executable.parts[0]._executable.handle


def test_a_step_that_is_recorded_again_is_instantiated_once():
    x, y, z = (cs.array([each, 1]) for each in (1, 10, 100))
    first = graph_of(add, x, y, z)
    with counted_calls() as calls:
        others = [graph_of(add, x, y, z) for _ in range(3)]
    assert calls["cuGraphInstantiate"] == 0
    assert "shared with equal graphs: 1" in others[0].report()
    assert "shared" not in first.report()
    # Closing one graph does not affect the others.
    first.close()
    del first
    others[0].launch()
    others[0].close()
    others[1].launch()
    assert x.numpy().tolist() == [221, 5]


DIFFERENT = {
    "an array": lambda x, y, z: (add, (x, z, y)),
    "memory that is a part of it": lambda x, y, z: (add, (x[:1], y[:1], z[:1])),
    "the order": lambda x, y, z: (add_apart, (x, y, z)),
    "a number": lambda x, y, z: (lambda *_: add(x, y, 2), ()),
    "the number of times": lambda x, y, z: (lambda *_: (add(x, y, z), add(x, y, z)), ()),
}


def pair(difference):
    x, y, z = (cs.array([each, 1]) for each in (1, 10, 100))
    step, arguments = DIFFERENT[difference](x, y, z)
    return graph_of(add, x, y, z), graph_of(step, *arguments)


@pytest.mark.parametrize("difference", DIFFERENT)
def test_what_differs_is_not_shared(difference):
    one, other = pair(difference)
    assert raw_of(one) != raw_of(other)


def test_a_key_that_leaves_the_arguments_out_is_found(monkeypatch):
    monkeypatch.setattr(Launch, "alike", lambda launch: (launch.kernel, *launch.shape))
    one, other = pair("an array")
    assert raw_of(one) == raw_of(other)


def test_what_nobody_has_is_not_kept():
    x, y, z = (cs.array([each, 1]) for each in (1, 10, 100))
    executable = graph_of(add, x, y, z)
    gc.collect()
    before = len(executable_sharing._KNOWN)
    executable.close()
    del executable
    assert len(executable_sharing._KNOWN) == before - 1


def test_functions_of_a_stream_are_not_compared():
    x = cs.zeros(4, np.int32)
    y = cs.zeros(4, np.int32)

    def twice(step):
        with cs.graph() as g:
            cs.engine().push(step, x, y, device=0)
        return g.instantiate()

    def step(stream):
        cs.memcpy_async(y, x, stream=stream)

    assert raw_of(twice(step)) != raw_of(twice(step))


def test_a_reset_of_the_device_ends_what_was_shared():
    x = cs.array([1, 2])
    old = graph_of(lambda: x.__iadd__(1))
    x.device.reset()
    x = cs.array([1, 2])
    new = graph_of(lambda: x.__iadd__(1))
    assert new.launch().exception() is None
    assert x.numpy().tolist() == [2, 3]
    with pytest.raises(cs.ClosedError):
        old.launch()
