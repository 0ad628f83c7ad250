"""Programs with collectives between processes give the serial answer, on the CPU and on devices."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.distributed.ranks import lacks_mpi, launch
from hypothesis import settings

PROGRAM = Path(__file__).with_name("mpi_properties.py")


@pytest.fixture(autouse=True)
def mpi():
    if why := lacks_mpi():
        pytest.skip(why)


def test_any_program_between_processes_gives_what_numpy_gives():
    done = launch(2, PROGRAM, "all", settings().max_examples)
    assert done.out.count("right") == 2, done.out + done.err


@pytest.mark.parametrize("kind", ["lost", "undeclared", "uncombined", "unordered"])
def test_a_planted_bug_is_found(kind):
    done = launch(2, PROGRAM, kind, 100)
    assert done.out.count("found") == 2, done.out + done.err
