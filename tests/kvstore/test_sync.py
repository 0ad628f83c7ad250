"""The store of several processes without a server: real MPI, real processes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from helpers.distributed.ranks import lacks_mpi, launch

import cudasync as cs

PROGRAM = Path(__file__).with_name("sync_program.py")


@pytest.fixture
def mpi():
    if why := lacks_mpi():
        pytest.skip(why)


@pytest.mark.parametrize("count", [2, 4])
def test_workers_have_the_sums_of_one_process(mpi, tmp_path, count):
    done = launch(count, PROGRAM, tmp_path)
    assert done.code == 0, done.out + done.err
    for rank in range(count):
        assert f"ok {rank} of {count}" in done.out


def test_without_mpi4py_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", None)
    for name in ("dist_sync", "dist_async"):
        with pytest.raises(cs.distributed.BackendUnavailable, match=r"cudasync\[mpi\]"):
            cs.kvstore.create(name)
