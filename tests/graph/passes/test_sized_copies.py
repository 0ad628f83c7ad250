"""Copies whose number of elements is an argument of the graph; and unused arguments."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.driver.call_counts import counted_calls
from hypothesis import given, settings
from hypothesis import strategies as st

import cudasync as cs
from cudasync.graph import transfers

SIZE = 6


def sized(first, target, source):
    with cs.graph() as g:
        cs.copy(target, source, count=g.argument("count", first))
        target += 1
    return g.instantiate()


def differences(counts):
    """The counts for which a graph with a copy of variable size differs from NumPy."""
    target, source = cs.zeros(SIZE, np.int32), cs.array(np.arange(10, 10 + SIZE, dtype=np.int32))
    expected = np.zeros(SIZE, np.int32)
    found = []
    with sized(SIZE, target, source) as exe:
        for count in counts:
            exe.update(count=count)
            exe.launch()
            expected[:count] = np.arange(10, 10 + count)
            expected += 1
            if target.numpy().tolist() != expected.tolist():
                found.append((count, target.numpy().tolist(), expected.tolist()))
    return found


@given(st.lists(st.integers(0, SIZE), min_size=1, max_size=12))
@settings(max_examples=15)
def test_a_copy_is_of_the_size_that_the_launch_says(counts):
    assert not differences(counts)


def test_a_copy_that_keeps_its_size_is_found(monkeypatch):
    monkeypatch.setattr(transfers, "_of_size", lambda place, size: place)
    assert differences([2])


def test_further_sizes_are_changed_in_place():
    target, source = cs.zeros(20, np.int32), cs.array(np.arange(20, dtype=np.int32))
    with sized(20, target, source) as exe, counted_calls() as calls:
        for count in range(1, 16):
            exe.update(count=count)
            exe.launch()
            cs.waitall()
        assert calls["cuGraphInstantiate"] <= 8
        assert "changed in place for these arguments: 1" in exe.report()


def test_the_first_elements_are_copied_without_a_graph_too():
    target, source = cs.zeros((2, 3), np.int32), np.arange(9, dtype=np.int32)
    cs.copy(target, source, count=4)
    assert target.numpy().tolist() == [[0, 1, 2], [3, 0, 0]]
    host = np.zeros(9, np.int32)
    cs.copy(host, source, count=2).wait()
    assert host.tolist() == [0, 1, 0, 0, 0, 0, 0, 0, 0]


def test_counts_that_do_not_fit_are_said_so():
    target, source = cs.zeros(4, np.int32), cs.zeros(SIZE, np.int32)
    with pytest.raises(ValueError, match="count is 5, but the smaller array has 4"):
        cs.copy(target, source, count=5)
    with pytest.raises(ValueError, match="not C-contiguous"):
        cs.copy(target, cs.zeros((4, 4), np.int32)[:, :2], count=2)
    with pytest.raises(TypeError, match="count= needs arrays"):
        cs.copy(cs.DeviceBuffer(16), source, count=2)
    with sized(3, target, source) as exe:
        with pytest.raises(
            ValueError, match="a copy of 5 elements exceeds its arrays, which have 4"
        ):
            exe.update(count=5)
        exe.launch()
        exe.update(count=4)


def test_an_argument_that_only_took_part_in_recording_can_not_be_changed():
    target, source = cs.zeros(SIZE, np.int32), cs.zeros(SIZE, np.int32)
    with cs.graph() as g:
        count = g.argument("count", 4)
        g.argument("nobody's", len)
        cs.copy(target[:count], source[:count])
    with g.instantiate() as exe:
        for name, value in (("count", 2), ("nobody's", max)):
            with pytest.raises(ValueError, match=f"argument {name!r} reaches no kernel") as e:
                exe.update(**{name: value})
            assert "count=" in str(e.value)
