"""The communicator between processes: real MPI and real processes, compared with NumPy."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from helpers.distributed.ranks import lacks_mpi, launch

import cudasync as cs

PROGRAM = Path(__file__).with_name("mpi_program.py")
FOREIGN = Path(__file__).with_name("foreign_mpi_program.py")
MISMATCHES = Path(__file__).with_name("mismatch_program.py")


@pytest.fixture
def run():
    """`run(count, *arguments)`: the output of the program's ranks."""
    if why := lacks_mpi():
        pytest.skip(why)

    def start(count, *arguments, program=PROGRAM, **environment):
        done = launch(count, program, *arguments, **environment)
        assert done.code == 0, done.out + done.err
        return done.out

    return start


def test_every_call_between_two_processes(run):
    told = run(2, "--skipped", "--parts")
    assert "ok 0 of 2" in told
    assert "ok 1 of 2" in told


def test_every_call_between_four_processes(run):
    told = run(4)
    for rank in range(4):
        assert f"ok {rank} of 4" in told


def test_a_right_program_passes_the_comparison_of_debug_mode(run):
    told = run(3, CUDASYNC_DISTRIBUTED_DEBUG="1")
    for rank in range(3):
        assert f"ok {rank} of 3" in told


@pytest.mark.parametrize("count", [2, 3])
def test_a_mismatch_is_told_on_all_ranks_in_debug_mode(run, count):
    assert run(count, program=MISMATCHES).count("told") == count


def test_calls_of_mpi4py_on_arrays_come_after_the_ops_on_them(run):
    """mpi4py names no stream when it takes an array's memory."""
    assert run(2, program=FOREIGN).count("sums are right") == 2


def test_a_rank_that_listens_is_noticed(run):
    run(2, "--listens", OMPI_MCA_btl="self,sm,tcp")


def test_without_mpi4py_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", None)
    with pytest.raises(cs.distributed.BackendUnavailable, match=r"cudasync\[mpi\]") as raised:
        cs.distributed.init("mpi", devices=["cpu"])
    assert raised.value.backend == "mpi"


def test_a_rank_has_one_device():
    with pytest.raises(ValueError, match="one device"):
        cs.distributed.init("mpi", devices=["cpu", "cpu"])
