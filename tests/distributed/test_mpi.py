"""The communicator between processes: real MPI, real processes, against NumPy."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import cudasync as cs

PROGRAM = Path(__file__).with_name("mpi_program.py")
ROOT = Path(__file__).parents[2]
MOST_S = 60


def mpiexec():
    beside = Path(sys.executable).with_name("mpiexec")
    return str(beside) if beside.exists() else shutil.which("mpiexec")


@pytest.fixture
def run():
    """`run(count, *arguments)`: what the ranks of the program print."""
    if importlib.util.find_spec("mpi4py") is None or mpiexec() is None:
        pytest.skip("needs mpi4py and mpiexec: pip install 'cudasync[mpi]'")

    def start(count, *arguments):
        environment = os.environ | {
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            # Open MPI: it refuses root, and binds each rank to cores of its own.
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
            "PRTE_MCA_hwloc_default_binding_policy": "none",
            "OMPI_MCA_pml": "ob1",
            "OMPI_MCA_btl": "self,sm",
            "OMPI_MCA_mpi_yield_when_idle": "1",
        }
        # `-m mpi4py` ends all ranks when one raises.
        command = [mpiexec(), "-n", str(count), sys.executable, "-m", "mpi4py", str(PROGRAM)]
        child = subprocess.Popen(
            [*command, *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            told, _ = child.communicate(timeout=MOST_S)
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        assert child.returncode == 0, told
        return told

    return start


def test_every_call_between_two_processes(run):
    told = run(2, "--skipped")
    assert "ok 0 of 2" in told
    assert "ok 1 of 2" in told


def test_every_call_between_four_processes(run):
    told = run(4)
    for rank in range(4):
        assert f"ok {rank} of 4" in told


def test_without_mpi4py_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", None)
    with pytest.raises(cs.distributed.BackendUnavailable, match=r"cudasync\[mpi\]") as raised:
        cs.distributed.init("mpi", devices=["cpu"])
    assert raised.value.backend == "mpi"


def test_a_rank_has_one_device():
    with pytest.raises(ValueError, match="one device"):
        cs.distributed.init("mpi", devices=["cpu", "cpu"])
