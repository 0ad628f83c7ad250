"""bench_free_threading measures workers and pushers separately, on any build of Python."""

from __future__ import annotations

import threading

import bench_free_threading as bench
import pytest

import cudasync as cs
from bench.engine import workloads
from bench.harness import measurement


def test_whoever_waits_for_the_workers_runs_none_of_their_ops():
    ran_by = set()
    with cs.Engine(workers=1) as engine:
        bench.unhelped(engine)([lambda: ran_by.add(threading.get_ident())] * 200)
    assert len(ran_by) == 1
    assert threading.get_ident() not in ran_by


@pytest.mark.parametrize("threads", [1, 2])
def test_the_pushers_do_the_work_of_the_serial_loop(threads):
    workload = workloads.twice(workloads.random(60, 6))
    serial, tally = workloads.Tally(workload), workloads.Tally(workload)
    for function in serial.functions:
        function()
    with cs.Engine(workers=2) as engine:
        pushed, done = bench.pushed_and_done(engine, workload, tally.functions, threads)
    assert tally.checksum() == serial.checksum()
    assert 0 < pushed <= done


@pytest.mark.parametrize("has_gil", [True, False])
def test_limits_stand_where_there_is_no_gil(has_gil, monkeypatch):
    monkeypatch.setattr(bench, "has_gil", lambda: has_gil)
    session = measurement.Session(small=True)
    with session.closing:
        bench.build(session)
    limits = {case.name: [each.word for each in case.goals] for case in session.cases}
    expected = {"workers": ["must"], "pushers.pushed": ["goal"], "pushers.done": ["goal"]}
    assert limits == {
        f"bench_free_threading.{name}": [] if has_gil else words for name, words in expected.items()
    }
