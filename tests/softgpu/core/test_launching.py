"""The values that pass between the driver core and compiled code."""

from __future__ import annotations

import ctypes

import pytest

from cudasync.softgpu.interface.launch import AllocationSnapshot


def test_a_snapshot_is_sorted_and_drops_empty_ranges():
    snapshot = AllocationSnapshot([(300, 400), (100, 200), (250, 250)])
    assert snapshot.count == 2
    assert snapshot.ranges() == [(100, 200), (300, 400)]


def test_a_snapshot_lies_in_memory_as_pairs_of_words():
    snapshot = AllocationSnapshot([(7, 9), (1, 2)])
    words = (ctypes.c_uint64 * 4).from_address(snapshot.address)
    assert list(words) == [1, 2, 7, 9]


def test_an_empty_snapshot_has_an_address():
    assert AllocationSnapshot([]).address


def test_overlapping_ranges_are_refused():
    with pytest.raises(ValueError, match="overlap"):
        AllocationSnapshot([(0, 10), (9, 12)])
