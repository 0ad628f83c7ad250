"""Servers that are MPI ranks: real MPI, real processes, and workers that die."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.distributed.ranks import lacks_mpi, launch

import cudasync as cs

PROGRAM = Path(__file__).with_name("async_program.py")


@pytest.fixture
def mpi():
    if why := lacks_mpi():
        pytest.skip(why)


@pytest.mark.parametrize(("count", "servers"), [(3, 1), (4, 2)])
def test_workers_and_servers_do_every_call(mpi, tmp_path, count, servers):
    done = launch(count, PROGRAM, "everything", servers, tmp_path)
    assert done.code == 0, done.out + done.err
    for rank in range(count - servers):
        assert f"ok {rank} of {count - servers}" in done.out


def test_a_worker_that_is_killed_does_not_end_the_others(mpi, tmp_path):
    done = launch(4, PROGRAM, "killed", tmp_path, options=["--fault-tolerant"])
    assert done.code == 0, done.out + done.err
    assert "ok 0" in done.out
    assert "ok 1" in done.out


def test_in_sync_the_others_are_told_that_a_worker_was_killed(mpi):
    done = launch(3, PROGRAM, "killed_in_sync", options=["--fault-tolerant"])
    assert done.code == 0, done.out + done.err
    assert done.out.count("told") == 2, done.out + done.err


def test_a_program_without_ranks_for_workers_says_how_many_it_takes(mpi):
    with pytest.raises(ValueError, match="start 3 or more"):
        cs.kvstore.create("dist_async", servers=2)
