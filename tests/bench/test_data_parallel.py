"""The bench of a DataParallel step: it runs between two ranks, and judges by its rules."""

from __future__ import annotations

import json

import pytest
from helpers.distributed.ranks import lacks_mpi, launch
from helpers.repository.checkout import ROOT

from bench.distributed import data_parallel


def test_a_step_is_judged_by_the_larger_part_of_its_own_round():
    """The machine becomes ten times slower after the first round, and the ratio stays the same."""
    found = data_parallel.judged(
        {"compute": [0.1, 1.0], "communication": [0.05, 0.5], "step": [0.11, 1.1]}
    )
    assert found["ratio"] == pytest.approx(1.1)
    assert found["hidden"] == pytest.approx(0.8)
    assert found["step_ms"] == pytest.approx(605)


@pytest.fixture
def small_run(tmp_path):
    """The output and the results of the bench at its small size."""
    if why := lacks_mpi():
        pytest.skip(why)
    path = tmp_path / "result.json"
    done = launch(2, ROOT / "bench" / "distributed" / "data_parallel.py", "--small", "--json", path)
    assert done.code == 0, done.out + done.err
    return done.out, json.loads(path.read_text())


def test_the_bench_runs_small_and_reports_all_it_should(small_run):
    told, report = small_run
    assert report["small"] is True
    assert report["ranks"] == 2
    assert set(report["cases"]) == set(data_parallel.KINDS)
    for kind in data_parallel.KINDS:
        assert f"{kind}: compute" in told
    assert "must: device at most 1.1" in told
