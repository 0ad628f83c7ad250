"""Programs of several ranks under `cudasync launch`, with a deadline that no process outlives."""

from __future__ import annotations

import importlib.util
import os
import select
import signal
import subprocess
import sys
import uuid
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from helpers.repository.checkout import ROOT

from cudasync.command import mpiexec
from cudasync.command.arguments import CommandError

PATIENCE_S = 120
_MARK = "CUDASYNC_TEST_RUN"


class Ended(NamedTuple):
    """The end of a run: its exit code and output."""

    code: int
    out: str
    err: str


def lacks_mpi():
    """The reason why there is no MPI here, or an empty text."""
    if importlib.util.find_spec("mpi4py") is None:
        return "needs mpi4py: pip install 'cudasync[mpi]'"
    try:
        mpiexec.find()
    except CommandError as error:
        return str(error)
    return ""


def launch(count, script, *arguments, options=(), under=(), **environment):
    """Run the script in `count` ranks to its end. Past the deadline, kill all ranks and fail."""
    with started(count, script, *arguments, options=options, under=under, **environment) as job:
        try:
            out, err = job.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
            end_marked(job.mark)
            out, err = job.communicate()
            raise AssertionError(f"still running after {PATIENCE_S} s:\n{out}{err}") from None
        assert not marked(job.mark), f"left behind:\n{out}{err}"
    return Ended(job.returncode, out, err)


@contextmanager
def started(count, script, *arguments, options=(), under=(), **environment):
    """The launcher as a Popen while it runs; all its processes carry its `mark`. `under` is the
    command line of a program that runs the launcher."""
    mark = uuid.uuid4().hex
    words = ["launch", "-n", count, *options, script, *arguments]
    job = subprocess.Popen(
        [*under, sys.executable, "-m", "cudasync", *map(str, words)],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), str(ROOT)]),
            "OMP_NUM_THREADS": "1",
            _MARK: mark,
            **environment,
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    job.mark = mark
    try:
        yield job
    finally:
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        end_marked(mark)
        job.communicate()


def marked(mark):
    """The live processes of that run."""
    wanted = f"{_MARK}={mark}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def end_marked(mark):
    for process in marked(mark):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def all_end(processes):
    """True once all processes have ended; False if one is alive at the deadline."""
    for process in processes:
        with suppress(ProcessLookupError):
            watch = os.pidfd_open(process)
            try:
                if not select.select([watch], [], [], PATIENCE_S)[0]:
                    return False
            finally:
                os.close(watch)
    return True
