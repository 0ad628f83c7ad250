"""Ops that ran at the same time: on places, not on streams; ops that only touch do not count."""

from __future__ import annotations

import pytest

from cudasync.engine.trace import TraceEntry
from cudasync.experiments.intervals import busy, shared


def entry(timeline, start, end):
    return TraceEntry("op", timeline, "kernel", start, end, queued_us=0.0)


CPU, GPU_0, GPU_0_TOO, GPU_1 = (
    "worker compute 0",
    "device 0 stream 0",
    "device 0 DtoH 1",
    "device 1 stream 0",
)


def test_intervals_of_a_place_are_joined_whatever_the_stream():
    found = busy([entry(GPU_0, 0, 5), entry(GPU_0_TOO, 3, 4), entry(CPU, 1, 2), entry(GPU_0, 8, 9)])
    assert found == {"GPU 0": [(0, 5), (8, 9)], "CPU": [(1, 2)]}


@pytest.mark.parametrize(
    ("entries", "share"),
    [
        ([], 0.0),
        ([entry(CPU, 0, 10)], 0.0),
        ([entry(GPU_0, 0, 10), entry(GPU_0_TOO, 0, 10)], 0.0),
        ([entry(CPU, 0, 10), entry(GPU_0, 10, 20)], 0.0),
        ([entry(CPU, 0, 10), entry(GPU_0, 5, 15)], 0.5),
        ([entry(CPU, 0, 10), entry(GPU_0, 2, 4)], 1.0),
        ([entry(CPU, 0, 10), entry(GPU_0, 0, 10), entry(GPU_1, 0, 10)], 1.0),
        # Each GPU overlaps the CPU for half of its time, and never the other GPU.
        ([entry(CPU, 5, 15), entry(GPU_0, 0, 10), entry(GPU_1, 10, 20)], 1.0),
        ([entry(CPU, 9, 11), entry(GPU_0, 0, 10), entry(GPU_1, 10, 20)], 0.2),
        ([entry(CPU, 0, 0), entry(GPU_0, 0, 10)], 0.0),
    ],
)
def test_the_share_is_of_what_the_second_busiest_did(entries, share):
    assert shared(entries) == pytest.approx(share)
