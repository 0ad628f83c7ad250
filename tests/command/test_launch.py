"""The launch program: ranks by mpiexec, which end together and leave no process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from helpers.distributed.ranks import PATIENCE_S, all_end, lacks_mpi, launch, marked, started

from cudasync.command import main, mpiexec
from cudasync.command.launch import Relay

RANK = """import os, subprocess, sys, signal, threading
rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK", -1)))
def sleep_long():
    threading.Event().wait(1000)
"""


@pytest.fixture
def script(tmp_path):
    """The path of a script of these lines, which know their `rank`."""

    def script(text):
        path = tmp_path / "script.py"
        path.write_text(RANK + text)
        return str(path)

    return script


@pytest.fixture
def ranks(script):
    """`ranks(count, text, *arguments)`: the outcome of these lines in so many ranks."""
    if why := lacks_mpi():
        pytest.skip(why)

    def run(count, text, *arguments, **more):
        return launch(count, script(text), *arguments, **more)

    return run


def test_lines_begin_with_their_rank_and_arguments_pass(ranks):
    done = ranks(
        3,
        "print(sys.argv[1:], __name__)\n"
        "print('warned', file=sys.stderr)\n"
        "print('[7] x' * 1000)\n"
        "print('no end', end='')\n",
        "-n", "--help", "a b",
    )  # fmt: skip
    told = [f"[{rank}] {['-n', '--help', 'a b']} __main__" for rank in range(3)]
    told += [f"[{rank}] {'[7] x' * 1000}" for rank in range(3)]
    told += [f"[{rank}] no end" for rank in range(3)]
    assert sorted(done.out.splitlines()) == sorted(told)
    assert sorted(done.err.splitlines()) == [f"[{rank}] warned" for rank in range(3)]
    assert done.code == 0


ENDS = {
    "sys.exit(3)": (3, "rank 1 ended with status 3"),
    "raise ValueError('planted')": (1, "rank 1 ended with status 1"),
    "sys.exit('told')": (1, "rank 1 ended with status 1"),
    "os.kill(os.getpid(), signal.SIGKILL)": (137, "rank 1 was ended by SIGKILL"),
}


@pytest.mark.parametrize("line", ENDS)
def test_a_rank_that_fails_ends_the_others_and_is_named(ranks, line):
    status, told = ENDS[line]
    done = ranks(2, f"if rank == 1:\n    {line}\nsleep_long()\n")
    assert done.code == status
    assert done.err.splitlines()[-1] == f"cudasync launch: {told}"
    assert ("[1] ValueError: planted" in done.err) == ("ValueError" in line)
    assert ("[1] told" in done.err) == ("told" in line)


def test_ranks_that_end_well_have_run_their_exit_handlers(ranks):
    done = ranks(2, "import atexit\natexit.register(print, 'last', rank)\n")
    assert sorted(done.out.splitlines()) == ["[0] last 0", "[1] last 1"]


# The child has its own session, so no signal to one of our groups reaches it.
BUSY = """
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"],
                         start_new_session=True)
print("ready", os.getpid(), child.pid)
sleep_long()
"""


def ready(job, count):
    """The processes of all ranks, once all have reported that they run."""
    lines = [job.stdout.readline().split() for _ in range(count)]
    assert {words[1] for words in lines} == {"ready"}
    return [int(word) for words in lines for word in words[2:]]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_ranks_and_what_they_started(ranks, script, number):
    with started(2, script(BUSY)) as job:
        processes = ready(job, 2)
        assert len(processes) == 4
        job.send_signal(number)
        _, err = job.communicate(timeout=PATIENCE_S)
        assert job.returncode == 128 + number
        assert err.splitlines()[-1] == f"cudasync launch: ended by {number.name}"
        assert marked(job.mark) == []


def test_ranks_do_not_outlive_a_launcher_that_is_killed(ranks, script):
    with started(2, script(BUSY.replace("child.pid", ""))) as job:
        processes = ready(job, 2)
        os.kill(job.pid, signal.SIGKILL)
        assert all_end(processes)


def test_a_tolerant_launch_goes_on_without_a_dead_rank(ranks):
    done = ranks(
        2,
        "from mpi4py import MPI\n"
        "if rank == 1:\n    os.kill(os.getpid(), signal.SIGKILL)\n"
        "MPI.COMM_WORLD.Set_errhandler(MPI.ERRORS_RETURN)\n"
        "try:\n    MPI.COMM_WORLD.recv(source=1)\n"
        "except MPI.Exception:\n    print('goes on')\n"
        # Open MPI's MPI_Finalize may wait for dead ranks.
        "sys.stdout.flush()\nos._exit(0)\n",
        options=["--fault-tolerant"],
    )
    assert "[0] goes on" in done.out.splitlines()
    assert done.code == 0


def fails(capsys, *words):
    assert main(["launch", *words]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    return told


def test_what_can_not_be_done_is_one_line(capsys, script, tmp_path, monkeypatch):
    there = script("")
    assert "nosuch.py: there is no such file" in fails(capsys, "-n", "2", "nosuch.py")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "cudasync[mpi]" in fails(capsys, "-n", "2", there)
    other = tmp_path / "mpiexec"
    other.write_text("#!/bin/sh\necho somebody else\n")
    other.chmod(0o755)
    assert "prints 'somebody else'" in fails(capsys, "-n", "2", there)
    other.write_text("#!/bin/sh\necho 'mpiexec (Open MPI) 4.1.4'\n")
    assert "no such file" not in fails(capsys, "-n", "2", "--fault-tolerant", there)
    assert "Open MPI 5" in fails(capsys, "-n", "2", "--fault-tolerant", there)
    assert "nosuch: No such file" in fails(capsys, "-n", "2", "--hosts", "nosuch", there)


@pytest.mark.parametrize("count", ["0", "-1", "two"])
def test_there_is_one_rank_or_more(capsys, count, script):
    with pytest.raises(SystemExit) as left:
        main(["launch", "-n", count, script("")])
    assert left.value.code == 2
    assert "is not a whole number from 1" in capsys.readouterr().err


def test_the_end_of_a_rank_is_read_from_what_mpiexec_says():
    for text, rank, status in (
        (b"   Process name: [prterun-vm-19924@1,1]\n   Exit code:    3\n", 1, 3),
        (b"prterun noticed that process rank 2 with PID 7 on node vm exited on\n"
         b"signal 9 (Killed).\n", 2, 137),
        (b"   Process name: [[1234,1],3]\n   Exit code:    1\n", 3, 1),
        (b"=   RANK 1 PID 77 RUNNING AT vm\n", 1, None),
        (b"=   PID 77 RUNNING AT vm\n=   EXIT CODE: 9\n"
         b"YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)\n", None, 137),
        (b"[0]<stdout>: Process name: [x,1]\nelse\n", None, None),
    ):  # fmt: skip
        said = subprocess.Popen(
            [sys.executable, "-c", f"import os; os.write(2, {text!r})"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        relay = Relay(said)
        relay.finish()
        said.wait()
        assert (relay.failed, relay.status) == (rank, status)


def test_each_mpi_is_asked_in_its_words(tmp_path):
    file = tmp_path / "hosts"
    for major, words in (
        (5, "--output rank --hostfile"),
        (4, "--tag-output"),
        (0, "-prepend-rank"),
    ):
        found = mpiexec.Mpiexec("mpiexec", major)
        command = found.command(3, ["a", "b"], hostfile=file, is_tolerant=False)
        assert " ".join(command).startswith(f"mpiexec {words}")
        assert command[-4:] == ["-n", "3", "a", "b"]
        assert found.host_lines([("alpha", 2)]) == ("alpha slots=2\n" if major else "alpha:2\n")
