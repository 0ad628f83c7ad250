"""The processes that bench_kvstore times. A socket sends orders to each."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from multiprocessing.connection import Listener
from pathlib import Path
from typing import TYPE_CHECKING

from bench.checkout import ROOT
from cudasync.command import mpiexec
from cudasync.command.arguments import CommandError

if TYPE_CHECKING:
    from contextlib import ExitStack
    from multiprocessing.connection import Connection

PROGRAM = ROOT / "bench" / "distributed" / "store_process.py"


class Job:
    """`count` ranks of a part, or one process without MPI."""

    def __init__(self, closing: ExitStack, part: str, count: int, listening: int) -> None:
        folder = closing.enter_context(tempfile.TemporaryDirectory(prefix="cudasync-bench-"))
        address = str(Path(folder) / "orders")
        listener = closing.enter_context(Listener(address, "AF_UNIX"))
        launcher = ["-m", "cudasync", "launch", "-n", str(count)] if count > 1 else []
        job = subprocess.Popen(
            [sys.executable, *launcher, PROGRAM, part, address],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
            stderr=subprocess.DEVNULL if part == "ray" else None,
        )
        closing.callback(job.wait)
        found: dict[int, Connection] = {}
        for _ in range(listening):
            line = closing.enter_context(listener.accept())
            found[line.recv()] = line
        # By rank, with the worker first.
        self._lines = [found[rank] for rank in sorted(found)]
        closing.callback(self._end)

    def ask(self, name: str, *arguments: object) -> object:
        """The worker's answer, once all have answered; raises the error of one of them."""
        for line in self._lines:
            line.send((name, *arguments))
        answers = [line.recv() for line in self._lines]
        for each in answers:
            if isinstance(each, Exception):
                raise each
        return answers[0]

    def _end(self) -> None:
        for line in self._lines:
            line.send(("end",))


def lacking_mpi() -> str:
    """The reason why there are no ranks here, or "" if there are."""
    try:
        import mpi4py  # noqa: F401

        mpiexec.find()
    except (ImportError, CommandError) as error:
        return str(error)
    return ""


def lacking_ray() -> str:
    """The reason why there are no actors here, or "" if there are."""
    return "" if importlib.util.find_spec("ray") else "No module named 'ray'"
