"""The contenders of bench_cliffs do the work that their measurement assumes."""

from __future__ import annotations

from threading import get_ident

import bench_cliffs
import pytest

import cudasync as cs
from bench.engine import workloads
from bench.engine.engines import HandOver, SerialLoop
from bench.harness import measurement
from bench.launches import bursts, cliff_launches


def tallied(engine, workload):
    tally = workloads.Tally(workload)
    engine.prepare(workload, tally.functions)()
    return tally.checksum()


def test_a_workload_twice_is_two_that_share_nothing():
    once = workloads.random(60, 6)
    both = workloads.twice(once)
    for which in (0, 1):
        half = both.ops[which::2]
        moved = [tuple(tuple(n - which * 6 for n in names) for names in op) for op in half]
        assert moved == list(once.ops)
    apart = [{n for op in both.ops[which::2] for names in op for n in names} for which in (0, 1)]
    assert not apart[0] & apart[1]
    assert set().union(*apart) <= set(range(both.variables))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [workloads.chain(30), workloads.random(60, 6)])
def test_ops_dealt_to_pools_and_engines_give_the_result_of_the_serial_loop(shape, threads):
    workload = workloads.twice(shape)
    with cs.Engine(workers=2, pools={"io": 2}) as first, cs.Engine(workers=2) as second:
        for homes in ([(first, "compute"), (first, "io")], [(first, "io"), (second, "compute")]):
            dealt = bench_cliffs.Dealt("dealt", homes, threads)
            assert tallied(dealt, workload) == tallied(SerialLoop(), workload)


def test_two_threads_that_hand_over_run_each_op_in_its_turn():
    rival = HandOver()
    try:
        for workload in (workloads.chain(31), workloads.random(60, 6)):
            for _ in range(2):
                assert tallied(rival, workload) == tallied(SerialLoop(), workload)
        threads = []
        rival.prepare(workloads.chain(8), [lambda: threads.append(get_ident())] * 8)()
        assert threads == threads[:2] * 4
        assert threads[0] != threads[1]
    finally:
        rival.close()


@pytest.fixture
def neighbours():
    session = measurement.Session(small=True)
    with session.closing:
        engine, kernel = bursts.prepared(session)
        yield cliff_launches.Neighbours(session.closing, engine, kernel, 3)


def test_whatever_is_beside_a_launch_it_and_the_host_function_run_once(neighbours):
    assert len({each.checksum() for each in neighbours.together()}) == 1
    assert len({each.checksum() for each in neighbours.one_by_one()}) == 1


def test_a_launch_or_a_host_function_that_is_left_out_is_seen(neighbours):
    both, lazy = neighbours.together()[0].checksum(), set()
    for left_out in ("_step", "_host"):
        kept = getattr(neighbours, left_out)
        quiet = Quiet() if left_out == "_step" else nothing
        setattr(neighbours, left_out, quiet)
        lazy.add(neighbours.together()[0].checksum())
        setattr(neighbours, left_out, kept)
    assert len(lazy - {both}) == 2


class Quiet:
    """A stand-in for a prepared launch that pushes nothing."""

    def push(self):
        pass


def nothing():
    """A stand-in for the host function."""


def test_what_a_launch_runs_is_reported_in_bytecodes_of_one_alone(neighbours):
    session = measurement.Session(small=True)
    cliff_launches.count_bytecodes(session, neighbours, most=0.5)
    alone, *others = session.measures
    assert alone["value"] > 100
    assert alone["at_most"] is None
    assert [each["met"] for each in others] == [each["value"] <= 0.5 for each in others]
    assert all(each["value"] >= 0.9 for each in others)
