"""Training between processes: real MPI and real processes, compared with NumPy."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.distributed.ranks import lacks_mpi, launch

PROGRAM = Path(__file__).with_name("mpi_program.py")


@pytest.fixture
def ranks():
    """`ranks(count, place)`: the output of the program's ranks, with their arrays at this place."""
    if why := lacks_mpi():
        pytest.skip(why)

    def run(count, place):
        done = launch(count, PROGRAM, place)
        assert done.code == 0, done.out + done.err
        return done.out

    return run


@pytest.mark.parametrize(("count", "place"), [(2, "cpu"), (2, 0), (4, "cpu")])
def test_every_part_of_training_between_processes(ranks, count, place):
    told = ranks(count, place)
    for rank in range(count):
        assert f"[{rank}] ok" in told
