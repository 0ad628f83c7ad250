"""The contenders of bench_batch do the same work as the loop, for any batch size."""

from __future__ import annotations

import bench_batch
import pytest

import cudasync as cs
from bench.engine import workloads
from bench.engine.engines import SerialLoop
from bench.harness import measurement
from bench.launches import bursts
from bench.launches.rig import Rig, groups


def test_groups_keep_every_step_in_order():
    assert groups(list(range(7)), 3) == [(0, 1, 2), (3, 4, 5), (6,)]


def tallied(engine, workload):
    tally = workloads.Tally(workload)
    engine.prepare(workload, tally.functions)()
    return tally.checksum()


@pytest.mark.parametrize("size", [1, 4, 7, 100])
@pytest.mark.parametrize("workload", [workloads.chain(30), workloads.random(60, 6)])
def test_host_functions_in_batches_give_the_result_of_the_serial_loop(workload, size):
    with cs.Engine(workers=2) as engine:
        batched = bench_batch.Batched("batched", engine, size)
        assert tallied(batched, workload) == tallied(SerialLoop(), workload)


@pytest.mark.parametrize("size", [1, 4, 7, 100])
@pytest.mark.parametrize("shape", bursts.SHAPES.values())
def test_launches_in_batches_leave_what_raw_launches_leave(shape, size):
    session = measurement.Session(small=True)
    with session.closing:
        engine, kernel = bursts.prepared(session)
        rig = Rig(session.closing, engine, kernel, shape(12), bursts.BLOCK)
        sums = []
        for calls, checksum in (
            (rig.raw_launches(), rig.raw_checksum),
            (rig.batches(size), rig.arrays_checksum),
            (rig.batches_of_functions(size), rig.arrays_checksum),
        ):
            rig.reset()
            for call in calls:
                call()
            rig.drain()
            sums.append(checksum())
        assert len(set(sums)) == 1
